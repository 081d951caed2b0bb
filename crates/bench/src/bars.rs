//! A chart of bars in groups as SVG.

use crate::plot::{COLOURS, escape, grid, head, number, step};
use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// Of a group's width, between it and the next one.
const GAP: f64 = 0.3;

/// Bars side by side, one of each series.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub values: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct Bars {
    pub title: String,
    pub y_label: String,
    pub series: Vec<String>,
    pub groups: Vec<Group>,
}

pub fn svg(b: &Bars) -> String {
    let largest = b.groups.iter().flat_map(|g| &g.values).copied().fold(0.0, f64::max).max(1e-9);
    let tick = step(largest, 6.0);
    let top = (largest / tick).ceil() * tick;
    let (w, h) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let y = |v: f64| TOP + h * (1.0 - v / top);
    let mut o = String::new();
    head(&mut o, (WIDTH, HEIGHT), (LEFT, &b.title));
    // writing to a String cannot fail
    let _ = writeln!(
        o,
        "<text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        TOP + h / 2.0,
        escape(&b.y_label)
    );
    grid(&mut o, (LEFT, LEFT + w), (tick, top), y);
    let group = w / b.groups.len().max(1) as f64;
    let bar = group * (1.0 - GAP) / b.series.len().max(1) as f64;
    for (n, g) in b.groups.iter().enumerate() {
        let left = LEFT + group * (n as f64 + GAP / 2.0);
        for (i, v) in g.values.iter().enumerate().filter(|(_, v)| **v > 0.0) {
            let x = left + bar * i as f64;
            let _ = writeln!(
                o,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{}</text>",
                y(*v),
                TOP + h - y(*v),
                COLOURS[i % COLOURS.len()],
                x + bar / 2.0,
                y(*v) - 4.0,
                number(*v, top)
            );
        }
        let middle = left + group * (1.0 - GAP) / 2.0;
        let _ = writeln!(
            o,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            TOP + h + 22.0,
            escape(&g.name)
        );
    }
    for (i, s) in b.series.iter().enumerate() {
        let (x, at) = (LEFT + w + 16.0, TOP + 20.0 * i as f64);
        let _ = writeln!(
            o,
            "<rect x=\"{x}\" y=\"{at}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[i % COLOURS.len()],
            x + 18.0,
            at + 11.0,
            escape(s)
        );
    }
    o.push_str("</svg>\n");
    o
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_bar_and_nothing_has_none() {
        let group = |name: &str, values: &[f64]| Group { name: name.into(), values: values.to_vec() };
        let b = Bars {
            title: "a & b".into(),
            y_label: "MiB/s".into(),
            series: vec!["write".into(), "read".into()],
            groups: vec![group("disk", &[100.0, 250.0]), group("network", &[0.0, 0.0])],
        };
        let text = svg(&b);
        assert_eq!(text.matches("fill=\"#0072b2\"").count(), 2, "one bar, and the legend");
        assert!(text.contains("a &amp; b") && text.ends_with("</svg>\n"));
        assert!(svg(&Bars { groups: Vec::new(), ..b }).ends_with("</svg>\n"), "nothing is no mistake");
    }
}
