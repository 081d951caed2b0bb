//! What can be done from here, and who did what.

use super::parts::{Column, Mood, cell, state, table};
use crate::act::ACTIONS;
use crate::app::Console;
use crate::subject::Documents;
use crate::value::{moment, text};
use maud::{Markup, html};
use serde_json::Value;

fn row(l: &Value) -> Vec<Markup> {
    let result = text(l, "result");
    let mood = match result {
        "done" => Mood::Ok,
        "begun" => Mood::Plain,
        _ => Mood::Warn,
    };
    vec![
        cell(moment(l["time"].as_i64().unwrap_or(0))),
        cell(text(l, "name")),
        cell(text(l, "action")),
        cell(text(l, "object")),
        state(mood, result),
    ]
}

pub fn render(_: &Documents, app: &Console) -> Markup {
    let lines: Vec<_> = app.audit.newest().iter().map(row).collect();
    let columns = [
        Column::Text("When"),
        Column::Text("Who"),
        Column::Text("What"),
        Column::Long("On what"),
        Column::Long("Result"),
    ];
    html! {
        p { "Each asks for confirmation, needs an operator's token, and is written down below." }
        div class="cards" {
            @for a in ACTIONS {
                section class="card" {
                    h2 { a href={ "/act/" (a.name) } { (a.title) } }
                    p class="dim" { (a.about) }
                }
            }
        }
        h2 { "Audit" }
        (table("The last lines, the newest first", &columns, &lines, "Nobody did anything yet."))
    }
}
