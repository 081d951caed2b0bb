//! Runs of policies, and what came of those that are over.

use super::parts::{Column, cell, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, moment, number, text};
use maud::{Markup, html};
use serde_json::Value;

fn run_row(r: &Value, now: i64) -> Vec<Markup> {
    let (over, files) = (number(r, "over"), number(r, "files"));
    let began = r["began"].as_i64().unwrap_or(0);
    let age = now.saturating_sub(began).max(0);
    let left = (over > 0 && files > over)
        .then(|| (files - over) as f64 / over as f64 * age as f64)
        .map_or("–".into(), |s| format!("{s:.0} s"));
    let rule = text(r, "rule");
    vec![
        cell(rule),
        cell(text(r, "action")),
        cell(if r["running"] == true { "under way" } else { "ended early" }),
        html! {
            progress max=(files.max(1)) value=(over.min(files)) aria-label={ "run of " (rule) } {}
            " " (over) " of " (files) " files"
        },
        cell(moment(began)),
        cell(left),
    ]
}

fn ended_row(r: &Value) -> Vec<Markup> {
    vec![
        cell(moment(r["ended"].as_i64().unwrap_or(0))),
        cell(text(r, "rule")),
        cell(text(r, "action")),
        cell(number(r, "done")),
        cell(bytes(number(r, "bytes"))),
        cell(number(r, "failed")),
        cell(text(r, "result")),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Policies);
    let now = d.0.get("time").and_then(Value::as_i64).unwrap_or(0);
    let runs: Vec<_> = list(v, "runs").iter().map(|r| run_row(r, now)).collect();
    let ended: Vec<_> = list(v, "ended").iter().map(ended_row).collect();
    let of_runs = [
        Column::Text("Rule"),
        Column::Text("Action"),
        Column::Text("State"),
        Column::Text("How far"),
        Column::Text("Began"),
        Column::Number("Left"),
    ];
    let of_ended = [
        Column::Text("Ended"),
        Column::Text("Rule"),
        Column::Text("Action"),
        Column::Number("Files"),
        Column::Number("Space"),
        Column::Number("Failed"),
        Column::Long("Result"),
    ];
    html! {
        (trouble(v))
        h2 { "Under way" }
        (table("Runs that are not over", &of_runs, &runs, "No run is under way on this host."))
        h2 { "Over" }
        (table("The last runs", &of_ended, &ended, "No policy ran on this host yet: nacre-policy(8)."))
    }
}
