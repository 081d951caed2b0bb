//! Requests that wait.

use super::parts::{Column, Mood, cell, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, number, text};
use maud::{Markup, html};
use serde_json::Value;

/// As `nacre doctor` has it: a request that waits for so long hangs; for so much longer it is an error.
const HANGS_S: u64 = 10;
const HANGS_LONG_S: u64 = 60;
/// Rows of the table; the JSON has all.
const ROWS: usize = 200;

fn row(r: &Value) -> Vec<Markup> {
    let age = number(r, "age_s");
    let mood = match age {
        HANGS_LONG_S.. => Mood::Bad,
        HANGS_S.. => Mood::Warn,
        _ => Mood::Plain,
    };
    let waits = match text(r, "waits_for") {
        "connection" => "the connection",
        "slot" => "others of this host",
        "memory" => "memory of the server",
        _ => "the server's answer",
    };
    vec![
        state(mood, &format!("{age} s")),
        cell(text(r, "verb")),
        cell(text(r, "target")),
        cell(waits),
        cell(text(r, "job")),
        cell(text(r, "file")),
        cell(text(r, "mount")),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Requests);
    let all = list(v, "requests");
    let rows: Vec<_> = all.iter().take(ROWS).map(row).collect();
    let slow = all.iter().filter(|r| number(r, "age_s") >= HANGS_S).count();
    let columns = [
        Column::Number("Waits for"),
        Column::Text("Request"),
        Column::Text("Target"),
        Column::Text("What for"),
        Column::Text("Job"),
        Column::Text("File"),
        Column::Text("Mount"),
    ];
    html! {
        (trouble(v))
        p { (all.len()) " requests of this host's mounts wait, " (slow) " of them for " (HANGS_S) " s or more." }
        (table("Requests, the oldest first", &columns, &rows, "No request waits."))
        p class="dim" { "Which file that is: " code { "lfs fid2path MOUNT FID" } }
    }
}
