//! Throughput, operations and times, now and in the last hour.

use super::parts::{Column, cell, table};
use crate::app::Console;
use crate::history::Newest;
use crate::subject::Documents;
use crate::value::bytes;
use maud::{Markup, html};

/// A curve: heading, names in the history, labels, unit.
const CHARTS: [(&str, &str, &str, &str); 4] = [
    ("Throughput", "read_bytes_per_s,write_bytes_per_s", "read,written", "B/s"),
    ("Reads and writes", "reads_per_s,writes_per_s", "reads,writes", "/s"),
    ("Metadata operations", "metadata_ops_per_s", "operations", "/s"),
    ("Mean times of reads and writes", "read_us,write_us", "read,write", "µs"),
];

/// Curves of all targets together; drawn by a script. The table below says the same in numbers.
pub fn charts(app: &Console) -> Markup {
    let (targets, _) = app.history.newest();
    html! {
        p id="choice" hidden {
            label class="inline" for="target" { "Curves of " }
            select id="target" {
                option value="" { "all targets together" }
                @for (label, _) in &targets { option value=(label) { (label) } }
            }
        }
        div id="charts" class="charts" data-target="" {
            @for (heading, series, labels, unit) in CHARTS {
                section class="card" {
                    h2 { (heading) }
                    div class="chart" role="img" aria-label={ (heading) " in the last hour; the numbers of now are in the table below" }
                        data-series=(series) data-labels=(labels) data-unit=(unit) {}
                }
            }
        }
        noscript { p class="note" { "The curves need scripts. The table has the rates of now, /api/history those of the last hour." } }
    }
}

fn rate(n: Option<f64>) -> String {
    n.map_or("–".into(), |n| format!("{n:.1}"))
}

fn time(n: Option<f64>) -> String {
    match n {
        None => "–".into(),
        Some(us) if us >= 1000.0 => format!("{:.1} ms", us / 1000.0),
        Some(us) => format!("{us:.0} µs"),
    }
}

fn row(name: &str, r: &Newest) -> Vec<Markup> {
    let bytes = |n: &str| r.of(n).map_or("–".into(), |n| format!("{}/s", bytes(n as u64)));
    vec![
        cell(name),
        cell(bytes("read_bytes_per_s")),
        cell(bytes("write_bytes_per_s")),
        cell(rate(r.of("reads_per_s"))),
        cell(rate(r.of("writes_per_s"))),
        cell(rate(r.of("metadata_ops_per_s"))),
        cell(time(r.of("read_us"))),
        cell(time(r.of("write_us"))),
        cell(time(r.of("metadata_us"))),
    ]
}

const COLUMNS: [Column; 9] = [
    Column::Text("Target"),
    Column::Number("Read"),
    Column::Number("Written"),
    Column::Number("Reads/s"),
    Column::Number("Writes/s"),
    Column::Number("Metadata/s"),
    Column::Number("A read takes"),
    Column::Number("A write takes"),
    Column::Number("A metadata operation takes"),
];

pub fn render(_: &Documents, app: &Console) -> Markup {
    let (targets, all) = app.history.newest();
    let mut rows: Vec<_> = all.iter().map(|r| row("all", r)).collect();
    rows.extend(targets.iter().map(|(label, r)| row(label, r)));
    html! {
        h2 { "Now" }
        (table("Rates between the last two samples", &COLUMNS, &rows, "The first rates are there after the second sample."))
        p class="dim" { "Servers count; the console reads their statistics every few seconds, and keeps an hour. A time of a target that did nothing is not known." }
    }
}
