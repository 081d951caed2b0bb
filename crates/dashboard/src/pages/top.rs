//! Who does most, and who has most.

use super::parts::{Column, cell, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, number, text};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;

fn operations(v: &Value) -> String {
    let Some(all) = v.as_object() else { return String::new() };
    let mut all: Vec<(&String, u64)> = all.iter().map(|(n, c)| (n, c.as_u64().unwrap_or(0))).collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    all.iter().filter(|(_, n)| *n > 0).take(6).map(|(n, c)| format!("{n} {c}")).collect::<Vec<_>>().join(", ")
}

fn job_row(j: &Value) -> Vec<Markup> {
    vec![
        cell(text(j, "job_id")),
        cell(number(j, "ops")),
        cell(bytes(number(j, "read_bytes"))),
        cell(bytes(number(j, "write_bytes"))),
        cell(operations(&j["operations"])),
    ]
}

fn jobs(v: &Value) -> Markup {
    let columns = [
        Column::Text("Job"),
        Column::Number("Operations"),
        Column::Number("Read"),
        Column::Number("Written"),
        Column::Long("Which"),
    ];
    html! {
        (trouble(v))
        @for f in list(v, "file_systems") {
            @let rows: Vec<_> = list(f, "jobs").iter().map(job_row).collect();
            @let none = "No jobs are counted: lctl set_param jobid_var=procname_uid has clients send job ids.";
            (table(&format!("Busiest jobs of {}, since they are counted", text(f, "fsname")), &columns, &rows, none))
        }
    }
}

/// What the clients at an address did, over all targets of this host.
#[derive(Default)]
struct Did<'a> {
    operations: u64,
    which: BTreeMap<&'a str, u64>,
    targets: Vec<&'a str>,
}

fn clients(v: &Value) -> Vec<Vec<Markup>> {
    let mut by_nid: BTreeMap<&str, Did<'_>> = BTreeMap::new();
    for c in list(v, "clients") {
        let at = by_nid.entry(text(c, "nid")).or_default();
        for (name, n) in c["operations"].as_object().into_iter().flatten() {
            // Bytes are no operations.
            if let Some(n) = n.as_u64().filter(|_| !name.ends_with("_bytes")) {
                at.operations = at.operations.saturating_add(n);
                let which = at.which.entry(name).or_default();
                *which = which.saturating_add(n);
            }
        }
        at.targets.push(text(c, "target"));
    }
    let mut all: Vec<_> = by_nid.into_iter().collect();
    all.sort_by_key(|(nid, d)| (std::cmp::Reverse(d.operations), *nid));
    let row = |(nid, d): (&str, Did<'_>)| {
        let first = d.targets.first().copied().unwrap_or_default();
        vec![
            cell(nid),
            cell(d.operations),
            cell(operations(&serde_json::json!(d.which))),
            cell(d.targets.len()),
            html! { a href={ "/act/evict?target=" (first) "&client=nid:" (nid) } { "Evict…" } },
        ]
    };
    all.into_iter().take(ROWS).map(row).collect()
}

/// Clients that are shown; `/api/top` has all.
const ROWS: usize = 50;

/// `User`, `Group` or `Project`.
pub fn kind(f: &Value) -> String {
    let word = text(f, "type");
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

pub fn owners(v: &Value) -> Markup {
    let columns =
        [Column::Text("Name"), Column::Number("Space"), Column::Number("Files"), Column::Number("Share")];
    let row = |f: &Value, o: &Value| {
        let (part, all) = (u128::from(number(o, "bytes")), u128::from(number(f, "bytes")));
        vec![
            cell(text(o, "name")),
            cell(bytes(number(o, "bytes"))),
            cell(number(o, "inodes")),
            cell(format!("{}%", (part * 100).checked_div(all).unwrap_or(0))),
        ]
    };
    html! {
        (trouble(v))
        @for f in list(v, "file_systems") {
            @let rows: Vec<_> = list(f, "owners").iter().map(|o| row(f, o)).collect();
            (table(&format!("{}s of {} with most", kind(f), text(f, "fsname")), &columns, &rows,
                &format!("No {} of {} has anything.", text(f, "type"), text(f, "fsname"))))
        }
    }
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let columns = [
        Column::Text("Address"),
        Column::Number("Operations"),
        Column::Long("Which"),
        Column::Number("Targets"),
        Column::Text("What can be done"),
    ];
    html! {
        h2 { "Jobs" }
        (jobs(d.of(Topic::Jobs)))
        h2 { "Clients" }
        (trouble(d.of(Topic::Clients)))
        (table("Busiest clients on the targets of this host", &columns, &clients(d.of(Topic::Clients)), "No client is known to a target of this host."))
        h2 { "Users, groups, projects" }
        (owners(d.of(Topic::Owners)))
        p class="dim" { a href="/directories" { "Directories" } " with a quota have a page of their own." }
    }
}
