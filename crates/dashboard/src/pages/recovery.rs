//! Targets that wait for clients of before their restart, and where the cluster's engine has the targets.

use super::overview::target_state;
use super::parts::{Column, Mood, cell, state, table, trouble};
use super::topology::served;
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, number, text};
use maud::{Markup, html};
use serde_json::Value;

fn row(t: &Value) -> Vec<Markup> {
    let r = &t["recovery"];
    let (clients, done) = (number(r, "clients"), number(r, "completed"));
    let label = text(t, "label");
    vec![
        cell(label),
        html! {
            progress max=(clients.max(1)) value=(done) aria-label={ "recovery of " (label) } {}
            " " (done) " of " (clients)
        },
        cell(number(r, "connected")),
        cell(format!("{} s", number(r, "seconds_left"))),
        html! { a href={ "/act/abort-recovery?target=" (label) } { "End…" } },
    ]
}

fn place_row(p: &Value) -> Vec<Markup> {
    let name = if text(p, "target").is_empty() { text(p, "name") } else { text(p, "target") };
    let home = if text(p, "preferred").is_empty() { text(p, "home") } else { text(p, "preferred") };
    let host = text(p, "host");
    let (mood, word) = match (host, home) {
        ("", _) => (Mood::Bad, "nowhere".to_string()),
        (host, home) if host == home || home.is_empty() => (Mood::Ok, host.to_string()),
        (host, _) => (Mood::Warn, format!("{host}, not at home")),
    };
    vec![cell(name), state(mood, &word), cell(home), cell(text(p, "state"))]
}

fn away(v: &Value) -> Vec<Vec<Markup>> {
    let all = v.as_array().map_or(&[][..], Vec::as_slice);
    let targets = all.iter().flat_map(|f| list(f, "targets"));
    let row = |t: &Value| {
        let (mood, word) = target_state(t);
        (mood == Mood::Bad).then(|| vec![cell(text(t, "label")), state(mood, &word), cell(text(t, "nid"))])
    };
    targets.filter_map(row).collect()
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let waiting: Vec<_> = served(d).map(|(_, t)| t).filter(|t| t["recovery"].is_object()).map(row).collect();
    let columns = [
        Column::Text("Target"),
        Column::Text("Clients that are back"),
        Column::Number("Connected"),
        Column::Number("Waits still"),
        Column::Text("What can be done"),
    ];
    let ha = d.of(Topic::Ha);
    let places: Vec<_> = list(&ha["places"], "targets").iter().map(place_row).collect();
    let engine = text(ha, "engine");
    let of_places =
        [Column::Text("Target"), Column::Text("Host"), Column::Text("Home"), Column::Text("State")];
    html! {
        h2 { "Recovery" }
        (table("Targets of this host that wait for clients", &columns, &waiting, "No target of this host is in recovery."))
        h2 { "Targets that are away" }
        @let of_away = [Column::Text("Target"), Column::Text("State"), Column::Text("Address")];
        (table("Targets that do not answer", &of_away, &away(d.of(Topic::Overview)), "All targets answer."))
        h2 { "Failover" }
        (trouble(ha))
        @if engine.is_empty() {
            p class="note" { "No cluster engine moves the targets of this host. nacre-ha(8) says how to have one." }
        } @else {
            (table(&format!("Where {engine} has the targets"), &of_places, &places, "It has no targets."))
        }
    }
}
