//! Which host has which targets, with their states and epochs.

use super::overview::target_state;
use super::parts::{Column, Mood, cell, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, number, text};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;

/// Epochs by label, as the MGS has them, and as the daemons of this host have them.
fn epochs(d: &Documents) -> BTreeMap<&str, u64> {
    let registered =
        list(&d.of(Topic::Config)["config"], "file_systems").iter().flat_map(|f| list(f, "targets"));
    let mut all: BTreeMap<&str, u64> = registered.map(|t| (text(t, "target"), number(t, "epoch"))).collect();
    for (_, t) in served(d) {
        all.insert(text(t, "label"), number(t, "epoch"));
    }
    all
}

/// Daemons with their targets.
pub fn served(d: &Documents) -> impl Iterator<Item = (&Value, &Value)> {
    let daemons = d.of(Topic::Servers).as_array().map_or(&[][..], Vec::as_slice);
    daemons.iter().flat_map(|s| list(s, "targets").iter().map(move |t| (s, t)))
}

fn host(t: &Value) -> &str {
    match text(t, "host") {
        "" => text(t, "nid"),
        h => h,
    }
}

fn domain(t: &Value) -> String {
    list(t, "domain").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" / ")
}

fn row(t: &Value, epochs: &BTreeMap<&str, u64>) -> Vec<Markup> {
    let (mood, word) = target_state(t);
    let epoch = epochs.get(text(t, "label"));
    vec![
        cell(text(t, "label")),
        state(mood, &word),
        cell(epoch.map_or("–".into(), u64::to_string)),
        cell(text(t, "nid")),
        cell(text(t, "version")),
        cell(domain(t)),
    ]
}

const COLUMNS: [Column; 6] = [
    Column::Text("Target"),
    Column::Text("State"),
    Column::Number("Epoch"),
    Column::Text("Address"),
    Column::Text("Version"),
    Column::Text("Failure domain"),
];

fn of_file_system(f: &Value, epochs: &BTreeMap<&str, u64>) -> Markup {
    let mut hosts: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for t in list(f, "targets") {
        hosts.entry(host(t)).or_default().push(t);
    }
    html! {
        h2 { (text(f, "fsname")) }
        @for (host, targets) in &hosts {
            @let up = targets.iter().filter(|t| target_state(t).0 == Mood::Ok).count();
            h3 { (host) " " (state(if up == targets.len() { Mood::Ok } else { Mood::Bad }, &format!("{up} of {} up", targets.len()))) }
            @let rows: Vec<_> = targets.iter().map(|t| row(t, epochs)).collect();
            (table(&format!("Targets on {host}"), &COLUMNS, &rows, ""))
        }
    }
}

fn daemon_row(s: &Value, t: &Value) -> Vec<Markup> {
    let word = text(t, "state");
    let mood = if word == "up" { Mood::Ok } else { Mood::Warn };
    let nids: Vec<&str> = list(s, "nids").iter().filter_map(Value::as_str).collect();
    vec![
        cell(text(t, "label")),
        state(mood, word),
        cell(number(t, "epoch")),
        cell(number(t, "clients")),
        cell(number(s, "pid")),
        cell(number(s, "started_again")),
        cell(nids.join(", ")),
        cell(text(t, "dir")),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let (v, epochs) = (d.of(Topic::Overview), epochs(d));
    let here: Vec<_> = served(d).map(|(s, t)| daemon_row(s, t)).collect();
    let columns = [
        Column::Text("Target"),
        Column::Text("State"),
        Column::Number("Epoch"),
        Column::Number("Clients"),
        Column::Number("Process"),
        Column::Number("Started again"),
        Column::Text("Addresses"),
        Column::Text("Folder"),
    ];
    html! {
        (trouble(v))
        @for f in v.as_array().map_or(&[][..], Vec::as_slice) { (of_file_system(f, &epochs)) }
        h2 { "Daemons of this host" }
        (table("Targets that are served here", &columns, &here, "No target is served on this host."))
        p class="dim" { "The epoch of a target grows each time that it is started." }
    }
}
