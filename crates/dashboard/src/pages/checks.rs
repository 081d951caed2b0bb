//! Checks of names and layouts, and scrubs of what objects hold.

use super::parts::{Column, Mood, cell, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, text};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeSet;

fn mood(status: &str) -> Mood {
    match status {
        "completed" | "init" | "never" => Mood::Ok,
        "failed" | "crashed" | "co-failed" => Mood::Bad,
        _ => Mood::Warn,
    }
}

/// Some of what it says of itself; all of it is at the JSON address.
fn fields(c: &Value, names: &[&str]) -> Markup {
    let of = |n: &&str| Some((n.replace('_', " "), c["fields"][*n].as_str()?.to_string()));
    let shown: Vec<(String, String)> =
        names.iter().filter_map(of).filter(|(_, v)| !matches!(v.as_str(), "" | "N/A")).collect();
    html! { @for (i, (n, v)) in shown.iter().enumerate() { @if i > 0 { ", " } (n) " " (v) } }
}

/// Of a check: how far it is, what it found, when.
const OF_CHECK: [&str; 9] = [
    "checked_phase1",
    "checked_phase2",
    "found",
    "repaired",
    "left",
    "quarantined",
    "param",
    "time_since_latest_start",
    "time_since_last_completed",
];

fn check_row(c: &Value) -> Vec<Markup> {
    let status = text(c, "status");
    let target = text(c, "target");
    let is_under_way = status.starts_with("scanning") || status == "paused";
    vec![
        cell(target),
        cell(text(c, "type")),
        state(mood(status), status),
        fields(c, &OF_CHECK),
        html! {
            @if is_under_way { a href={ "/act/lfsck-stop?target=" (target) } { "Stop…" } }
            @else { a href={ "/act/lfsck-start?target=" (target) } { "Start…" } }
        },
    ]
}

fn scrub_row(c: &Value) -> Vec<Markup> {
    let bad = text(&c["fields"], "bad_blocks");
    let is_bad = !matches!(bad, "" | "0");
    let status = text(&c["fields"], "status");
    vec![
        cell(text(c, "target")),
        state(if is_bad { Mood::Bad } else { mood(status) }, if status.is_empty() { "–" } else { status }),
        cell(if bad.is_empty() { "0" } else { bad }),
        fields(c, &["objects", "bytes", "rate_mib"]),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Checks);
    let checks: Vec<_> = list(v, "checks").iter().map(check_row).collect();
    let scrubs: Vec<_> = list(v, "scrubs").iter().map(scrub_row).collect();
    let of_checks = [
        Column::Text("Target"),
        Column::Text("Of"),
        Column::Text("State"),
        Column::Long("What it says"),
        Column::Text("What can be done"),
    ];
    let of_scrubs = [
        Column::Text("Target"),
        Column::Text("State"),
        Column::Number("Bad blocks"),
        Column::Long("What it says"),
    ];
    let targets: BTreeSet<&str> = list(v, "checks").iter().map(|c| text(c, "target")).collect();
    html! {
        (trouble(v))
        h2 { "Checks of names and layouts (lfsck)" }
        (table("Checks", &of_checks, &checks, "No metadata target is served on this host."))
        @if targets.is_empty() { p class="dim" { "Checks are started on the host of the metadata target." } }
        h2 { "Scrubs of objects" }
        (table("Scrubs", &of_scrubs, &scrubs, "No OST is served on this host."))
    }
}
