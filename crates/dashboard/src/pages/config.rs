//! What the MGS keeps, and how it came to be.

use super::parts::{Column, cell, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{list, moment, number, text};
use maud::{Markup, html};
use serde_json::Value;

/// What changed, in words: the subject is a word, or one with its name.
fn subject(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        Value::Object(o) if o.contains_key("fsname") => format!("{}.{}", text(v, "fsname"), text(v, "pool")),
        Value::Object(o) => {
            o.iter().map(|(kind, of)| format!("{kind} {}", subject(of))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(a) => a.iter().map(subject).collect::<Vec<_>>().join(" "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn change(c: &Value) -> String {
    let (before, after) = (text(c, "before"), text(c, "after"));
    let what = subject(&c["subject"]);
    match (c["before"].is_string(), c["after"].is_string()) {
        (false, true) => format!("{what}: {after}"),
        (true, false) => format!("{what}: gone (was {before})"),
        (true, true) => format!("{what}: {before} → {after}"),
        (false, false) => what,
    }
}

fn version_row(v: &Value) -> Vec<Markup> {
    let changes = list(v, "changes");
    vec![
        cell(number(v, "version")),
        cell(moment(v["time"].as_i64().unwrap_or(0))),
        cell(text(v, "by")),
        cell(text(v, "how")),
        html! { @for c in changes { div { (change(c)) } } },
    ]
}

fn param_row(p: &Value) -> Vec<Markup> {
    vec![
        cell(text(p, "name")),
        cell(text(p, "value")),
        cell(p["time"].as_i64().map_or("–".into(), moment)),
        cell(text(p, "by")),
    ]
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Config);
    let versions: Vec<_> = list(v, "versions").iter().map(version_row).collect();
    let params: Vec<_> = list(&v["config"], "params").iter().map(param_row).collect();
    let of_versions = [
        Column::Number("Version"),
        Column::Text("When"),
        Column::Text("By"),
        Column::Text("How"),
        Column::Long("What changed"),
    ];
    let of_params =
        [Column::Text("Parameter"), Column::Long("Value"), Column::Text("Set"), Column::Text("By")];
    html! {
        (trouble(v))
        p { "Version " (number(&v["config"], "version")) " is in force." }
        h2 { "History" }
        (table("The last versions, the newest first", &of_versions, &versions, "The MGS is on another host, or keeps no history."))
        h2 { "Permanent parameters" }
        (table("Permanent parameters", &of_params, &params, "None is set."))
        p class="dim" { "Back to a version: " code { "nacre config rollback VERSION" } }
    }
}
