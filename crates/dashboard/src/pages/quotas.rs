//! What users, groups and projects have, and what they may have.

use super::parts::{Column, Mood, cell, state, table, trouble};
use super::top::kind;
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, number, text};
use maud::{Markup, html};
use serde_json::Value;

/// A limit; 0 is none.
pub fn limit(n: u64, show: impl Fn(u64) -> String) -> Markup {
    if n == 0 { cell("none") } else { cell(show(n)) }
}

/// How somebody stands with one of his limits.
fn standing(used: u64, l: &Value) -> (Mood, &'static str) {
    let (soft, hard) = (number(l, "soft"), number(l, "hard"));
    match () {
        () if hard > 0 && used >= hard => (Mood::Bad, "at the hard limit"),
        () if soft > 0 && used > soft => (Mood::Warn, "over the soft limit"),
        () if hard > 0 || soft > 0 => (Mood::Ok, "within"),
        () => (Mood::Plain, "no limit"),
    }
}

/// How somebody stands with the worse of his limits.
pub fn worst(o: &Value) -> (Mood, &'static str) {
    let (space, files) = (&o["limits"]["bytes"], &o["limits"]["inodes"]);
    let all = [standing(number(o, "bytes"), space), standing(number(o, "inodes"), files)];
    let rank = |m: Mood| match m {
        Mood::Bad => 3,
        Mood::Warn => 2,
        Mood::Ok => 1,
        Mood::Plain => 0,
    };
    if rank(all[1].0) > rank(all[0].0) { all[1] } else { all[0] }
}

fn row(o: &Value) -> Vec<Markup> {
    let (space, files) = (&o["limits"]["bytes"], &o["limits"]["inodes"]);
    let (used, inodes) = (number(o, "bytes"), number(o, "inodes"));
    let worst = worst(o);
    vec![
        cell(text(o, "name")),
        state(worst.0, worst.1),
        cell(bytes(used)),
        limit(number(space, "soft"), bytes),
        limit(number(space, "hard"), bytes),
        cell(inodes),
        limit(number(files, "soft"), |n| n.to_string()),
        limit(number(files, "hard"), |n| n.to_string()),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Owners);
    let columns = [
        Column::Text("Name"),
        Column::Text("State"),
        Column::Number("Space"),
        Column::Number("Soft limit"),
        Column::Number("Hard limit"),
        Column::Number("Files"),
        Column::Number("Soft limit of files"),
        Column::Number("Hard limit of files"),
    ];
    html! {
        (trouble(v))
        @for f in list(v, "file_systems") {
            h2 { (kind(f)) "s of " (text(f, "fsname")) }
            p { (number(f, "number")) " have something, " (bytes(number(f, "bytes"))) " in all." }
            @let rows: Vec<_> = list(f, "owners").iter().map(row).collect();
            (table(&format!("{}s of {} with most", kind(f), text(f, "fsname")), &columns, &rows, "Nobody has anything."))
        }
        p class="dim" { "Limits are set with " code { "lfs setquota" } ", and checked with " code { "nacre quota verify" } "." }
    }
}
