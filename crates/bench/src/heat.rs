//! A heat map as SVG: rates over two numbers that are varied by factors, a panel for each kind of rate.

use crate::plot::{escape, head};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const CELL_W: f64 = 64.0;
const CELL_H: f64 = 34.0;
const LEFT: f64 = 80.0;
const GAP: f64 = 60.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 96.0;
const LEGEND_H: f64 = 12.0;
/// From the least to the most, told apart also by those who see fewer colours (viridis, in five steps).
const SCALE: [(f64, f64, f64); 5] =
    [(68.0, 1.0, 84.0), (59.0, 82.0, 139.0), (33.0, 145.0, 140.0), (94.0, 201.0, 98.0), (253.0, 231.0, 37.0)];

#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    /// By (x, y); `None`: that point failed.
    pub cells: BTreeMap<(u64, u64), Option<f64>>,
}

#[derive(Clone, Debug)]
pub struct Heat {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub unit: String,
    pub panels: Vec<Panel>,
}

/// The colour of a share from 0 to 1, and the one that text on it has.
fn colour(share: f64) -> (String, &'static str) {
    let at = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let i = (at as usize).min(SCALE.len() - 2);
    let (a, b, part) = (SCALE[i], SCALE[i + 1], at - i as f64);
    let mix = |a: f64, b: f64| (a + (b - a) * part).round() as u8;
    let (r, g, b) = (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2));
    let text = if share < 0.55 { "white" } else { "black" };
    (format!("#{r:02x}{g:02x}{b:02x}"), text)
}

fn figure(v: f64) -> String {
    if v >= 100.0 { format!("{v:.0}") } else { format!("{v:.1}") }
}

/// Columns and rows that any panel has.
fn axes(h: &Heat) -> (Vec<u64>, Vec<u64>) {
    let keys = || h.panels.iter().flat_map(|p| p.cells.keys());
    let xs: BTreeSet<u64> = keys().map(|k| k.0).collect();
    let ys: BTreeSet<u64> = keys().map(|k| k.1).collect();
    (xs.into_iter().collect(), ys.into_iter().collect())
}

/// The whole document.
pub fn svg(h: &Heat) -> String {
    let (xs, ys) = axes(h);
    let (wide, high) = (xs.len().max(3) as f64 * CELL_W, ys.len() as f64 * CELL_H);
    let width = LEFT + h.panels.len().max(1) as f64 * (wide + GAP);
    let height = TOP + high + BOTTOM;
    let mut o = String::new();
    head(&mut o, (width, height), (16.0, &h.title));
    // writing to a String cannot fail
    let _ = writeln!(
        o,
        "<text transform=\"translate(24 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        TOP + high / 2.0,
        escape(&h.y_label)
    );
    for (i, p) in h.panels.iter().enumerate() {
        panel(&mut o, p, (LEFT + i as f64 * (wide + GAP), wide), (&xs, &ys));
        let _ = writeln!(
            o,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT + i as f64 * (wide + GAP) + xs.len() as f64 * CELL_W / 2.0,
            TOP + high + 38.0,
            escape(&h.x_label)
        );
    }
    legend(&mut o, TOP + high + 56.0, &h.unit);
    o.push_str("</svg>\n");
    o
}

fn panel(o: &mut String, p: &Panel, (left, wide): (f64, f64), (xs, ys): (&[u64], &[u64])) {
    // each its own scale: reads from memory would leave all writes dark
    let most = p.cells.values().flatten().copied().fold(0.0, f64::max);
    let high = ys.len() as f64 * CELL_H;
    let _ = writeln!(
        o,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        TOP - 14.0,
        escape(&p.title)
    );
    for (c, x) in xs.iter().enumerate() {
        let at = left + (c as f64 + 0.5) * CELL_W;
        let _ =
            writeln!(o, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{x}</text>", TOP + high + 18.0);
    }
    for (r, y) in ys.iter().enumerate() {
        // the least at the bottom
        let top = TOP + high - (r as f64 + 1.0) * CELL_H;
        let middle = top + CELL_H / 2.0 + 4.5;
        let _ = writeln!(o, "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{y}</text>", left - 6.0);
        for (c, x) in xs.iter().enumerate() {
            let at = left + c as f64 * CELL_W;
            let (fill, ink, text) = match p.cells.get(&(*x, *y)) {
                None => ("#f2f2f2".to_string(), "black", String::new()),
                Some(None) => ("#f2f2f2".to_string(), "#b00020", "failed".to_string()),
                Some(Some(v)) => {
                    let (fill, ink) = colour(if most > 0.0 { v / most } else { 0.0 });
                    (fill, ink, figure(*v))
                }
            };
            let _ = writeln!(
                o,
                "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"{CELL_W}\" height=\"{CELL_H}\" fill=\"{fill}\" \
                 stroke=\"white\"/><text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\" \
                 fill=\"{ink}\">{text}</text>",
                at + CELL_W / 2.0
            );
        }
    }
    assert!(wide >= xs.len() as f64 * CELL_W, "columns lie within their panel");
}

/// What the colours mean.
fn legend(o: &mut String, top: f64, unit: &str) {
    const STEPS: usize = 40;
    let step = 240.0 / STEPS as f64;
    for i in 0..STEPS {
        let (fill, _) = colour(i as f64 / (STEPS - 1) as f64);
        let at = LEFT + i as f64 * step;
        let _ = writeln!(
            o,
            "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{LEGEND_H}\" fill=\"{fill}\"/>",
            step + 0.5
        );
    }
    let below = top + LEGEND_H + 16.0;
    let _ = writeln!(
        o,
        "<text x=\"{LEFT}\" y=\"{below:.1}\" text-anchor=\"middle\">0</text>\
         <text x=\"{:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">the most of a panel ({})</text>",
        LEFT + 240.0,
        escape(unit)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_lie_where_they_should() {
        let cells = [((1, 1), Some(50.0)), ((2, 1), Some(200.0)), ((2, 4), None)].into_iter().collect();
        let h = Heat {
            title: "a & b".into(),
            x_label: "threads".into(),
            y_label: "regions".into(),
            unit: "MiB/s".into(),
            panels: vec![Panel { title: "write".into(), cells }],
        };
        let s = svg(&h);
        assert!(s.contains("a &amp; b") && s.trim_end().ends_with("</svg>"), "{s}");
        // one region is the lower row, two threads the second column; the best has the brightest colour
        assert!(
            s.contains("<rect x=\"144.0\" y=\"118.0\" width=\"64\" height=\"34\" fill=\"#fde725\""),
            "{s}"
        );
        assert!(s.contains(">200<") && s.contains(">50.0<") && s.contains(">failed<"), "{s}");
        // nobody measured one thread with four regions
        assert_eq!(s.matches("fill=\"#f2f2f2\"").count(), 2);
    }

    #[test]
    fn nothing_can_be_drawn_too() {
        let h = Heat {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            unit: String::new(),
            panels: Vec::new(),
        };
        assert!(!svg(&h).contains("NaN"));
        assert_eq!(colour(0.0).0, "#440154");
        assert_eq!(colour(2.0).0, "#fde725");
    }
}
