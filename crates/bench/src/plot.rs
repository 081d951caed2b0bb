//! A line chart as SVG, without any library: what `--plot` draws.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Distinguishable also by those who see fewer colours (Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];
/// More points than this hide their marks.
const MARKS_MAX: usize = 40;

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// Equal distances are equal factors; with ticks at the points themselves.
    pub log_x: bool,
    /// Bytes, shown as 4k, 1m.
    pub x_is_size: bool,
    pub series: Vec<Series>,
}

pub fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// How a picture begins: white, with its title from `left` on.
pub fn head(o: &mut String, (width, height): (f64, f64), (left, title): (f64, &str)) {
    // writing to a String cannot fail
    let _ = writeln!(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>",
        escape(title)
    );
}

/// Horizontal lines from `left` to `right` at the steps from 0 to `most`, with their numbers; `y`: where a
/// value is.
pub fn grid(o: &mut String, (left, right): (f64, f64), (step, most): (f64, f64), y: impl Fn(f64) -> f64) {
    for n in 0..=(most / step).round() as u32 {
        let v = f64::from(n) * step;
        let at = y(v);
        let _ = writeln!(
            o,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            at + 4.0,
            number(v, most)
        );
    }
}

/// A round step that divides `span` into at most `n` parts.
pub fn step(span: f64, n: f64) -> f64 {
    let raw = span / n;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// All numbers of an axis in the unit that suits its `largest`.
pub fn number(v: f64, largest: f64) -> String {
    match largest {
        l if l >= 1e7 => format!("{}M", trimmed(v / 1e6)),
        l if l >= 1e4 => format!("{}k", trimmed(v / 1e3)),
        _ => trimmed(v),
    }
}

fn trimmed(v: f64) -> String {
    let s = format!("{v:.3}");
    s.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn bytes(v: f64) -> String {
    let n = v as u64;
    for (unit, bits) in [("g", 30), ("m", 20), ("k", 10)] {
        if n >= 1 << bits && n.is_multiple_of(1 << bits) {
            return format!("{}{unit}", n >> bits);
        }
    }
    n.to_string()
}

struct Scale {
    x: (f64, f64),
    y_max: f64,
    y_step: f64,
    log_x: bool,
}

impl Scale {
    fn of(c: &Chart) -> Scale {
        let xs = || c.series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
        let (mut low, mut high) =
            (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        if !low.is_finite() || !high.is_finite() {
            (low, high) = (0.0, 1.0);
        }
        let log_x = c.log_x && low > 0.0;
        if !log_x {
            low = low.min(0.0);
        }
        if low >= high {
            (low, high) = if log_x { (low / 2.0, high * 2.0) } else { (low, low + 1.0) };
        }
        let top = c.series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).fold(0.0, f64::max);
        let top = if top > 0.0 && top.is_finite() { top * 1.05 } else { 1.0 };
        let y_step = step(top, 6.0);
        Scale { x: (low, high), y_max: (top / y_step).ceil() * y_step, y_step, log_x }
    }

    fn x(&self, v: f64) -> f64 {
        let f = |v: f64| if self.log_x { v.ln() } else { v };
        let share = (f(v) - f(self.x.0)) / (f(self.x.1) - f(self.x.0));
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, v: f64) -> f64 {
        HEIGHT - BOTTOM - v / self.y_max * (HEIGHT - TOP - BOTTOM)
    }

    /// Where the horizontal axis has numbers.
    fn x_ticks(&self, c: &Chart) -> Vec<f64> {
        let mut points: Vec<f64> = c.series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).collect();
        points.sort_by(f64::total_cmp);
        points.dedup();
        if c.log_x && points.len() <= 16 {
            return points;
        }
        let s = step(self.x.1 - self.x.0, 8.0);
        let first = (self.x.0 / s).ceil() as i64;
        (first..).map(|i| i as f64 * s).take_while(|v| *v <= self.x.1 * 1.000_001).collect()
    }
}

/// The whole document.
pub fn svg(c: &Chart) -> String {
    let sc = Scale::of(c);
    let mut o = String::new();
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    head(&mut o, (WIDTH, HEIGHT), (LEFT, &c.title));
    grid(&mut o, (LEFT, right), (sc.y_step, sc.y_max), |v| sc.y(v));
    for x in sc.x_ticks(c) {
        let at = sc.x(x);
        let text = if c.x_is_size { bytes(x) } else { number(x, sc.x.1) };
        let _ = writeln!(
            o,
            "<line x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"black\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 5.0,
            bottom + 20.0
        );
    }
    let _ = writeln!(
        o,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(22 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 16.0,
        escape(&c.x_label),
        (TOP + bottom) / 2.0,
        escape(&c.y_label)
    );
    for (i, s) in c.series.iter().enumerate() {
        line(&mut o, &sc, s, COLOURS[i % COLOURS.len()], TOP + 8.0 + 20.0 * i as f64);
    }
    o.push_str("</svg>\n");
    o
}

fn line(o: &mut String, sc: &Scale, s: &Series, colour: &str, legend: f64) {
    let right = WIDTH - RIGHT;
    let points: Vec<String> =
        s.points.iter().map(|(x, y)| format!("{:.1},{:.1}", sc.x(*x), sc.y(*y))).collect();
    let _ = writeln!(
        o,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    if s.points.len() <= MARKS_MAX {
        for (x, y) in &s.points {
            let _ = writeln!(
                o,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
                sc.x(*x),
                sc.y(*y)
            );
        }
    }
    let _ = writeln!(
        o,
        "<line x1=\"{}\" y1=\"{legend:.1}\" x2=\"{}\" y2=\"{legend:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
         <text x=\"{}\" y=\"{:.1}\">{}</text>",
        right + 16.0,
        right + 40.0,
        right + 46.0,
        legend + 4.0,
        escape(&s.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, log_x: bool) -> Chart {
        Chart {
            title: "a <b> & c".into(),
            x_label: "x".into(),
            y_label: "MiB/s".into(),
            log_x,
            x_is_size: log_x,
            series: vec![Series { name: "write".into(), points }],
        }
    }

    #[test]
    fn points_lie_where_they_should() {
        let s = svg(&chart(vec![(1024.0, 0.0), (4096.0, 50.0), (16384.0, 100.0)], true));
        assert!(s.contains("a &lt;b&gt; &amp; c"), "{s}");
        // equal factors, equal distances; zero on the axis
        assert!(s.contains("points=\"90.0,420.0 355.0,"), "{s}");
        assert!(s.contains(" 620.0,"), "{s}");
        for tick in [">1k<", ">4k<", ">16k<", ">100<"] {
            assert!(s.contains(tick), "{tick} in {s}");
        }
        assert_eq!(s.matches("<circle").count(), 3);
        assert!(s.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_and_little_can_be_drawn_too() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(3.0, 7.0)]] {
            for log_x in [false, true] {
                let s = svg(&chart(points.clone(), log_x));
                assert!(!s.contains("NaN") && !s.contains("inf"), "{s}");
            }
        }
        assert_eq!(step(100.0, 6.0), 20.0);
        assert_eq!((number(12_500.0, 2e4), number(2.5, 9.0)), ("12.5k".into(), "2.5".into()));
        assert_eq!((number(5e6, 2e7), number(500.0, 2e4)), ("5M".into(), "0.5k".into()));
    }
}
