//! A view of `nacre top` as lines, for a screen or for a file.

use super::rows::{Cell, Column, Kind, Order, Row, View};
use crate::size::human;

/// Columns of what goes to a file.
pub const PLAIN_WIDTH: usize = 160;

fn time(us: f64) -> String {
    match us {
        us if us >= 10_000_000.0 => format!("{:.0}s", us / 1e6),
        us if us >= 1_000_000.0 => format!("{:.1}s", us / 1e6),
        us if us >= 10_000.0 => format!("{:.0}ms", us / 1e3),
        us if us >= 1000.0 => format!("{:.1}ms", us / 1e3),
        us => format!("{us:.0}us"),
    }
}

/// At most six characters.
pub fn rate(n: f64) -> String {
    match n {
        n if n >= 99_999.5 => human(n as u64, 1000),
        n if n >= 99.95 => format!("{n:.0}"),
        n if n > 0.0 => format!("{n:.1}"),
        _ => "0".into(),
    }
}

fn operations<'a>(all: impl Iterator<Item = (&'a String, &'a f64)>, room: usize) -> String {
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut out = String::new();
    for (name, n) in all {
        let one = format!("{}{name} {}", if out.is_empty() { "" } else { ", " }, rate(*n));
        if out.len() + one.len() > room {
            break;
        }
        out.push_str(&one);
    }
    out
}

fn shown(c: &Column, cell: &Cell, room: usize) -> String {
    match (cell, c.kind) {
        (Cell::Text(t), _) => t.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        (Cell::Operations(all), _) => operations(all.iter(), room),
        (Cell::Number(None), _) => "-".into(),
        (Cell::Number(Some(n)), Kind::Bytes) => human(*n as u64, 1024),
        (Cell::Number(Some(n)), Kind::Time) => time(*n),
        (Cell::Number(Some(n)), Kind::Percent) => format!("{n:.0}%"),
        (Cell::Number(Some(n)), Kind::Count) => format!("{n:.0}"),
        (Cell::Number(Some(n)), _) => rate(*n),
    }
}

fn is_word(c: &Column) -> bool {
    matches!(c.kind, Kind::Text | Kind::Operations)
}

/// One line: words to the left, numbers to the right. What has too little room is cut, numbers never.
fn line(cells: &[String], columns: &[Column], widths: &[usize], width: usize) -> String {
    let mut out = String::new();
    for ((text, c), w) in cells.iter().zip(columns).zip(widths) {
        let used = out.chars().count();
        let w = if c.kind == Kind::Operations { width.saturating_sub(used) } else { *w };
        if is_word(c) {
            let cut: String = text.chars().take(w).collect();
            out.push_str(&format!("{cut:<w$} "));
        } else {
            out.push_str(&format!("{text:>w$} "));
        }
    }
    out.chars().take(width).collect::<String>().trim_end().to_string()
}

/// The heading and a line for each row, `width` characters at most. The column that orders them has a mark.
pub fn table(view: View, rows: &[Row], order: Order, width: usize) -> Vec<String> {
    let all = view.columns();
    // Operations are shown where they have room.
    let fixed: usize = all.iter().filter(|c| c.kind != Kind::Operations).map(|c| c.width + 1).sum();
    let room = width.saturating_sub(fixed);
    let has_room = |c: &&Column| c.kind != Kind::Operations || room >= c.width;
    let columns: Vec<Column> = all.iter().filter(has_room).copied().collect();
    let mut widths: Vec<usize> = columns.iter().map(|c| c.width).collect();
    if width >= PLAIN_WIDTH {
        // Names of jobs and hosts are long; a file has room.
        for (i, c) in columns.iter().enumerate().filter(|(_, c)| c.kind == Kind::Text) {
            let longest = rows.iter().map(|r| shown(c, &r[i], 0).chars().count()).max().unwrap_or(0);
            widths[i] = widths[i].max(longest.min(48));
        }
    }
    let mark = |(i, c): (usize, &Column)| {
        let by = i == order.column;
        match (by, is_word(c)) {
            (true, true) => format!("{}{}", c.heading, if order.reversed { "<" } else { ">" }),
            (true, false) => format!("{}{}", if order.reversed { "<" } else { ">" }, c.heading),
            _ => c.heading.to_string(),
        }
    };
    let headings: Vec<String> = columns.iter().enumerate().map(mark).collect();
    let mut out = vec![line(&headings, &columns, &widths, width)];
    for r in rows {
        let cells: Vec<String> = columns.iter().zip(r).map(|(c, cell)| shown(c, cell, room)).collect();
        out.push(line(&cells, &columns, &widths, width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn row(name: &str) -> Row {
        let number = |n: f64| Cell::Number(Some(n));
        let done = BTreeMap::from([("getattr".to_string(), 3.0), ("create".to_string(), 1234.5)]);
        vec![
            Cell::Text(name.into()),
            Cell::Text("recovering".into()),
            number(99.6),
            number(1_288_490_188.0),
            number(0.0),
            number(123_456.0),
            Cell::Number(None),
            number(12_345.0),
            number(4_096_000.0),
            Cell::Operations(done),
        ]
    }

    #[test]
    fn eighty_columns_have_all_numbers_of_a_target() {
        let lines = table(View::Targets, &[row("demo-MDT0000")], View::Targets.order(), 80);
        assert_eq!(
            lines,
            [
                "TARGET>        STATE      FULL  READ/s WRITTEN/s   IOPS META/s   MEAN    P99",
                "demo-MDT0000   recovering 100%    1.2G         0 123.5K      -   12ms   4.1s",
            ]
        );
        for view in View::ALL {
            let heading = &table(view, &[], view.order(), 80)[0];
            assert!(heading.chars().count() <= 80, "{heading}");
            let fixed: usize =
                view.columns().iter().filter(|c| c.kind != Kind::Operations).map(|c| c.width + 1).sum();
            assert!(fixed <= 81, "{view:?}: {fixed}");
        }
    }

    #[test]
    fn where_there_is_room_operations_are_named() {
        let lines =
            table(View::Targets, &[row("a-file-system-with-a-name-OST0000")], View::Targets.order(), 160);
        assert!(lines[1].starts_with("a-file-system-with-a-name-OST0000 recovering"), "{}", lines[1]);
        assert!(lines[1].ends_with("create 1234, getattr 3.0"), "{}", lines[1]);
        let bad = table(View::Targets, &[row("a\x1b[2J")], View::Targets.order(), 100);
        assert!(bad[1].starts_with("a?[2J "), "{}", bad[1]);
        assert!(bad[1].ends_with("create 1234"), "what has no room is not begun: {}", bad[1]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.04, 9.94, 99.96, 99_999.0, 1e6].map(rate),
            ["0", "0.0", "9.9", "100", "99999", "1.0M"]
        );
        assert_eq!([3.4, 1500.0, 20_000.0, 2.5e6, 6e7].map(time), ["3us", "1.5ms", "20ms", "2.5s", "60s"]);
    }
}
