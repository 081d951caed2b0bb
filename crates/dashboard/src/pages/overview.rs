//! The first page: is all well, and how full is it.

use super::parts::{Column, Mood, cell, fill, space, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, moment, number, text};
use maud::{Markup, html};
use serde_json::Value;

pub fn verdict(word: &str) -> Markup {
    let mood = match word {
        "well" => Mood::Ok,
        "degraded" => Mood::Warn,
        _ => Mood::Bad,
    };
    state(mood, &word.replace('_', " "))
}

/// What a connection's state means for a target that does not answer.
fn connection_word(state: &str) -> &str {
    match state {
        "RECOVER" => "in recovery",
        "CONNECTING" => "connecting",
        "NEW" => "not reached yet",
        "EVICTED" => "evicted this host",
        _ => "no answer",
    }
}

/// How a target is: what its connection says, and what its server says of its disk.
pub fn target_state(t: &Value) -> (Mood, String) {
    let letters = text(t, "state");
    if t["active"] == false {
        return (Mood::Bad, "inactive".into());
    }
    let connection = text(t, "connection");
    if !t["errno"].is_null() {
        return (Mood::Bad, connection_word(connection).into());
    }
    match (connection, letters) {
        ("FULL" | "IDLE", "") => (Mood::Ok, "up".into()),
        ("FULL" | "IDLE", l) => {
            let words: Vec<&str> = l
                .chars()
                .map(|c| match c {
                    'D' => "degraded",
                    'R' => "read-only",
                    'N' => "no new objects",
                    'S' => "full",
                    'I' => "no inodes left",
                    _ => "?",
                })
                .collect();
            let bad = l.contains(['R', 'S', 'I']);
            (if bad { Mood::Bad } else { Mood::Warn }, words.join(", "))
        }
        (other, _) => (Mood::Bad, connection_word(other).into()),
    }
}

fn trouble_line(t: &Value) -> Markup {
    let mood = if text(t, "severity") == "error" { "bad" } else { "warn" };
    html! {
        p class={ "note " (mood) } {
            strong { (text(t, "object")) } " (" (text(t, "place")) ") " (text(t, "what"))
            @if let Some(s) = t["since"].as_i64() { " since " (moment(s)) " (" (number(t, "seconds")) " s)" }
            "; " (text(t, "consequence")) "."
        }
    }
}

fn target_row(t: &Value) -> Vec<Markup> {
    let (mood, word) = target_state(t);
    let (total, used, available) = space(t);
    let host = if text(t, "host").is_empty() { text(t, "nid") } else { text(t, "host") };
    // The MGS has no space to tell of.
    let known = t["errno"].is_null() && t["total_bytes"].is_u64();
    let or_dash = |s: String| if known { cell(s) } else { cell("–") };
    vec![
        cell(text(t, "label")),
        state(mood, &word),
        cell(host),
        if known {
            fill(text(t, "label"), number(t, "used_bytes"), number(t, "available_bytes"))
        } else {
            cell("–")
        },
        or_dash(used),
        or_dash(available),
        or_dash(total),
    ]
}

const COLUMNS: [Column; 7] = [
    Column::Text("Target"),
    Column::Text("State"),
    Column::Text("Server"),
    Column::Text("Fill"),
    Column::Number("Used"),
    Column::Number("Available"),
    Column::Number("Size"),
];

fn of_file_system(f: &Value, app: &Console) -> Markup {
    let fsname = text(f, "fsname");
    let targets = list(f, "targets");
    let rows: Vec<_> = targets.iter().map(target_row).collect();
    let up = targets.iter().filter(|t| target_state(t).0 == Mood::Ok).count();
    let rates = app.history.newest().1;
    let rate = |name: &str| rates.and_then(|r| r.of(name)).unwrap_or(0.0);
    html! {
        section aria-label=(fsname) {
            h2 { (fsname) " " (verdict(text(f, "status"))) }
            @if !text(f, "error").is_empty() { p class="note bad" { (text(f, "error")) } }
            @if let Some(m) = f["maintenance"].as_object() {
                p class="note warn" { "Maintenance: " (m["mode"].as_str().unwrap_or_default()) ". " (m["reason"].as_str().unwrap_or_default()) }
            }
            @for t in list(f, "troubles") { (trouble_line(t)) }
            div class="cards" {
                div class="card" {
                    div class="dim" { "Space" }
                    div class="big" { (bytes(number(f, "used_bytes"))) " of " (bytes(number(f, "total_bytes"))) }
                    (fill(fsname, number(f, "used_bytes"), number(f, "available_bytes")))
                }
                div class="card" {
                    div class="dim" { "Targets" }
                    div class="big" { (up) " of " (targets.len()) " up" }
                    span class="dim" { "mounted at " (text(f, "mount")) }
                }
                div class="card" {
                    div class="dim" { "Read and written" }
                    div class="big" { (bytes(rate("read_bytes_per_s") as u64)) "/s, " (bytes(rate("write_bytes_per_s") as u64)) "/s" }
                    span class="dim" { "all targets, the last sample" }
                }
                div class="card" {
                    div class="dim" { "Metadata operations" }
                    div class="big" { (rate("metadata_ops_per_s").round()) "/s" }
                    span class="dim" { "all targets, the last sample" }
                }
            }
            h3 { "Targets" }
            (table(&format!("Targets of {fsname}"), &COLUMNS, &rows, "Its targets are not known."))
        }
    }
}

pub fn render(d: &Documents, app: &Console) -> Markup {
    let v = d.of(Topic::Overview);
    let all = v.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        (trouble(v))
        @if all.is_empty() && v.is_array() {
            p class="note warn" {
                "No Nacre file system is mounted on this host: the console sees only the targets that are served here. Mount it: "
                code { "mount -t nacre MGS-NID:/FSNAME DIR" }
            }
        }
        @for f in all { (of_file_system(f, app)) }
    }
}
