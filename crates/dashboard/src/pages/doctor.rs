//! What is wrong right now, with the command that helps.

use super::parts::{Column, Mood, cell, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, number, text};
use maud::{Markup, html};
use serde_json::Value;

fn mood(severity: &str) -> Mood {
    if severity == "error" { Mood::Bad } else { Mood::Warn }
}

fn row(f: &Value) -> Vec<Markup> {
    let severity = text(f, "severity");
    vec![
        state(mood(severity), severity),
        cell(text(f, "object")),
        cell(text(f, "what")),
        html! { code { (text(f, "help")) } },
        cell(text(f, "check")),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Doctor);
    let found: Vec<_> = list(v, "findings").iter().map(row).collect();
    let not: Vec<_> =
        list(v, "not_looked_at").iter().map(|n| vec![cell(text(n, "check")), cell(text(n, "why"))]).collect();
    let columns = [
        Column::Text("Severity"),
        Column::Text("Object"),
        Column::Long("What is wrong"),
        Column::Long("What helps"),
        Column::Text("Check"),
    ];
    html! {
        (trouble(v))
        p { (number(v, "errors")) " errors, " (number(v, "warnings")) " warnings." }
        (table("Findings", &columns, &found, "Nothing is wrong, as far as it was looked at."))
        @if !not.is_empty() {
            h2 { "Not looked at" }
            (table("Checks that could not look", &[Column::Text("Check"), Column::Long("Why")], &not, ""))
        }
    }
}
