//! How full OSTs and pools are.

use super::overview::target_state;
use super::parts::{Column, Mood, cell, fill, space, state, table, trouble};
use crate::app::Console;
use crate::source::Topic;
use crate::subject::Documents;
use crate::value::{bytes, list, number, percent, text};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;

const COLUMNS: [Column; 8] = [
    Column::Text("Target"),
    Column::Text("State"),
    Column::Text("Fill"),
    Column::Number("Used"),
    Column::Number("Available"),
    Column::Number("Size"),
    Column::Number("Inodes used"),
    Column::Number("Inodes free"),
];

fn row(t: &Value) -> Vec<Markup> {
    let (mood, word) = target_state(t);
    let (total, used, available) = space(t);
    let inodes = number(t, "inodes").saturating_sub(number(t, "inodes_free"));
    vec![
        cell(text(t, "label")),
        state(mood, &word),
        fill(text(t, "label"), number(t, "used_bytes"), number(t, "available_bytes")),
        cell(used),
        cell(available),
        cell(total),
        cell(inodes),
        cell(number(t, "inodes_free")),
    ]
}

/// The OSTs of a file system that say how full they are.
fn osts(f: &Value) -> Vec<&Value> {
    let is = |t: &&Value| text(t, "kind").eq_ignore_ascii_case("ost") && t["total_bytes"].is_u64();
    list(f, "targets").iter().filter(is).collect()
}

/// What an OST tells of its pools: those of the configuration that its index is in.
fn pool_row(name: &str, members: &Value, f: &Value) -> Vec<Markup> {
    let members: Vec<u64> =
        members.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_u64).collect();
    let all = osts(f);
    let within: Vec<&&Value> = all.iter().filter(|t| members.contains(&number(t, "index"))).collect();
    let known: Vec<&&&Value> = within.iter().filter(|t| t["errno"].is_null()).collect();
    // What several of them lie on is counted once.
    let mut disks: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for t in &known {
        let disk = number(t, "disk");
        let alone = if disk == 0 { number(t, "index") + 1 } else { 0 };
        let at = disks.entry((disk, alone)).or_default();
        *at = (at.0.max(number(t, "used_bytes")), at.1.max(number(t, "available_bytes")));
    }
    let (used, available) =
        disks.values().fold((0u64, 0u64), |a, d| (a.0.saturating_add(d.0), a.1.saturating_add(d.1)));
    vec![
        cell(name),
        cell(members.len()),
        state(
            if known.len() == members.len() { Mood::Ok } else { Mood::Bad },
            &format!("{} answer", known.len()),
        ),
        fill(name, used, available),
        cell(bytes(used)),
        cell(bytes(available)),
    ]
}

fn of_file_system(f: &Value, config: &Value) -> Markup {
    let fsname = text(f, "fsname");
    let mut osts = osts(f);
    // The fullest first: that is where writes fail.
    osts.sort_by_key(|t| std::cmp::Reverse(percent(number(t, "used_bytes"), number(t, "available_bytes"))));
    let rows: Vec<_> = osts.iter().map(|t| row(t)).collect();
    let mdts: Vec<_> =
        list(f, "targets").iter().filter(|t| text(t, "kind").eq_ignore_ascii_case("mdt")).map(row).collect();
    let known = list(&config["config"], "file_systems").iter().find(|c| text(c, "fsname") == fsname);
    let pools: Vec<_> = known
        .and_then(|c| c["pools"].as_object())
        .map(|p| p.iter().map(|(name, members)| pool_row(name, members, f)).collect())
        .unwrap_or_default();
    let columns = [
        Column::Text("Pool"),
        Column::Number("OSTs"),
        Column::Text("State"),
        Column::Text("Fill"),
        Column::Number("Used"),
        Column::Number("Available"),
    ];
    html! {
        h2 { (fsname) }
        p {
            (bytes(number(f, "used_bytes"))) " of " (bytes(number(f, "total_bytes"))) " used, "
            (bytes(number(f, "available_bytes"))) " available. "
            span class="dim" { "What several OSTs lie on is counted once." }
        }
        (table("OSTs, the fullest first", &COLUMNS, &rows, "It has no OST."))
        h3 { "Pools" }
        (table("Pools", &columns, &pools, "It has no pools, or the MGS is on another host."))
        h3 { "Metadata targets" }
        (table("MDTs", &COLUMNS, &mdts, "It has no MDT."))
    }
}

pub fn render(d: &Documents, _: &Console) -> Markup {
    let v = d.of(Topic::Overview);
    html! {
        (trouble(v))
        @for f in v.as_array().map_or(&[][..], Vec::as_slice) { (of_file_system(f, d.of(Topic::Config))) }
    }
}
