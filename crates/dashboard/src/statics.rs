//! Files that pages need, in the program itself: the console works without internet and without files beside
//! it. htmx is 0BSD, uPlot MIT; their licences lie beside them in `static/`.

/// Name, media type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    ("console.css", "text/css; charset=utf-8", include_bytes!("static/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_bytes!("static/console.js")),
    ("htmx.js", "text/javascript; charset=utf-8", include_bytes!("static/htmx.min.js")),
    ("uplot.js", "text/javascript; charset=utf-8", include_bytes!("static/uPlot.iife.min.js")),
    ("uplot.css", "text/css; charset=utf-8", include_bytes!("static/uPlot.min.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("static/icon.svg")),
    ("htmx.LICENSE", "text/plain; charset=utf-8", include_bytes!("static/htmx.LICENSE")),
    ("uPlot.LICENSE", "text/plain; charset=utf-8", include_bytes!("static/uPlot.LICENSE")),
];

/// Media type and bytes.
pub fn find(name: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(n, ..)| *n == name).map(|(_, kind, bytes)| (*kind, *bytes))
}
