//! Files that are moved to other objects: drains, rebalancing, migrations.

use super::overview::target_state;
use super::parts::{Column, cell, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, number, text};
use maud::{Markup, html};
use serde_json::Value;

fn osts(v: &Value, name: &str) -> String {
    let all: Vec<String> = list(v, name).iter().map(ToString::to_string).collect();
    if all.is_empty() { "–".into() } else { all.join(", ") }
}

fn row(m: &Value, now: i64) -> Vec<Markup> {
    let (done, total) = (number(m, "done_bytes"), number(m, "total_bytes"));
    let age = now.saturating_sub(m["since"].as_i64().unwrap_or(now)).max(0);
    // At the pace so far.
    let left = (done > 0 && total > done)
        .then(|| (total - done) as f64 / done as f64 * age as f64)
        .map_or("–".into(), |s| format!("{s:.0} s"));
    let fid = text(m, "fid");
    vec![
        cell(fid),
        cell(text(m, "state")),
        cell(osts(m, "from")),
        cell(osts(m, "to")),
        html! {
            progress max=(total.max(1)) value=(done.min(total)) aria-label={ "movement of " (fid) } {}
            " " (bytes(done)) " of " (bytes(total))
        },
        cell(format!("{age} s")),
        cell(left),
        cell(text(m, "client")),
    ]
}

/// OSTs that get no new objects: they are drained, or were closed.
fn closed(v: &Value) -> Vec<Vec<Markup>> {
    let all = v.as_array().map_or(&[][..], Vec::as_slice);
    let targets = all.iter().flat_map(|f| list(f, "targets")).filter(|t| text(t, "state").contains('N'));
    let row = |t: &Value| {
        let (mood, word) = target_state(t);
        vec![cell(text(t, "label")), state(mood, &word), cell(bytes(number(t, "used_bytes")))]
    };
    targets.map(row).collect()
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Movements);
    let now = d.0.get("time").and_then(Value::as_i64).unwrap_or(0);
    let rows: Vec<_> = list(v, "movements").iter().map(|m| row(m, now)).collect();
    let columns = [
        Column::Text("File"),
        Column::Text("State"),
        Column::Text("From OSTs"),
        Column::Text("To OSTs"),
        Column::Text("Copied"),
        Column::Number("For"),
        Column::Number("Left"),
        Column::Text("Client"),
    ];
    html! {
        (trouble(v))
        (table("Movements", &columns, &rows, "No file is moved."))
        h2 { "OSTs without new objects" }
        @let of_closed = [Column::Text("Target"), Column::Text("State"), Column::Number("Holds still")];
        (table("OSTs without new objects", &of_closed, &closed(d.of(Topic::Overview)), "Every OST gets new objects."))
        p class="dim" { "Begun by " code { "nacre drain" } ", " code { "nacre rebalance" } ", " code { "lfs migrate" } "; each ends and goes on by its own command." }
    }
}
