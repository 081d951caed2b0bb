//! Which directories have most in them, of those that have a quota: theirs is counted all the time.

use super::parts::{Column, cell, state, table, trouble};
use super::quotas::{limit, worst};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, number, text};
use maud::{Markup, html};
use serde_json::Value;

fn row(f: &Value, d: &Value) -> Vec<Markup> {
    let (part, all) = (u128::from(number(d, "bytes")), u128::from(number(f, "bytes")));
    let (mood, word) = worst(d);
    vec![
        cell(text(d, "path")),
        state(mood, word),
        cell(bytes(number(d, "bytes"))),
        cell(format!("{}%", (part * 100).checked_div(all).unwrap_or(0))),
        limit(number(&d["limits"]["bytes"], "hard"), bytes),
        cell(number(d, "inodes")),
        limit(number(&d["limits"]["inodes"], "hard"), |n| n.to_string()),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Directories);
    let columns = [
        Column::Long("Directory"),
        Column::Text("State"),
        Column::Number("Space"),
        Column::Number("Share"),
        Column::Number("Limit"),
        Column::Number("Files"),
        Column::Number("Limit of files"),
    ];
    html! {
        (trouble(v))
        @for f in list(v, "file_systems") {
            @let fsname = text(f, "fsname");
            @let rows: Vec<_> = list(f, "directories").iter().map(|d| row(f, d)).collect();
            (table(&format!("Directories of {fsname} with most, of {} that have a quota", number(f, "number")),
                &columns, &rows, &format!("No directory of {fsname} has a quota: lfs setquota -d DIR counts what lies in one.")))
            @if f["complete"] == false {
                p class="note" { "Some targets did not answer: what they hold is missing." }
            }
        }
        p class="dim" { "Others are looked through when somebody asks: " code { "nacre top dirs DIR" } }
    }
}
