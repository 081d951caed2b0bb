//! Rules and runs as people and programs read them.

use super::rules::{Action, Order, Rule, Time, When};
use super::run::{Came, row};
use super::state::{FinishedRun, Plan, Tally};
use crate::command::find::moment;
use crate::names;
use crate::size::human;
use serde_json::{Value, json};
use std::fmt::Write as _;

fn word(t: Time) -> &'static str {
    Time::ALL.iter().find(|(_, x)| *x == t).map_or("", |(n, _)| n)
}

fn when(w: &When) -> String {
    use super::rules::Of;
    match w {
        When::Always => "always".into(),
        When::Usage { above } => format!("of users of more than {}", human(*above, 1024)),
        When::Space { of, above, until } => {
            let of = match of {
                Of::FileSystem => "space".to_string(),
                Of::Pool(p) => format!("space of pool {p}"),
                Of::Ost(n) => format!("space of OST {n}"),
            };
            format!("{of} above {above}% until {until}%")
        }
    }
}

fn order(o: Order) -> String {
    match o {
        Order::None => "in no order".into(),
        Order::OldestFirst(t) => format!("longest not {} first", word(t)),
        Order::LargestFirst => "largest first".into(),
    }
}

/// `old: purge below /mnt/nacre/scratch: 2 conditions, 1 exemption; space above 90% until 85%; …`
pub fn rule_line(r: &Rule) -> String {
    let (place, w, o) = (r.directory.display(), when(&r.when), order(r.order));
    let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let (conditions, exempt) = (plural(r.scope.len(), "condition"), plural(r.exempt.len(), "exemption"));
    let rate = r.rate.map(|n| format!("; {n} files a second")).unwrap_or_default();
    let what = match &r.action {
        Action::Notify { command, users, .. } => format!("notify {users} users with {}", command.join(" ")),
        Action::Migrate { pool } => format!("migrate to {pool}"),
        Action::Archive { list } => format!("archive in {}", list.display()),
        a => a.name().to_string(),
    };
    format!(
        "{}: {what} below {place}: {conditions}, {exempt}; {w}; {o}; {} files at most{rate}",
        r.name, r.limit
    )
}

pub fn rule_row(r: &Rule) -> Value {
    json!({"rule": r.name, "action": r.action.name(), "directory": r.directory.display().to_string(),
        "conditions": r.scope.len(), "exemptions": r.exempt.len(), "when": when(&r.when),
        "order": order(r.order), "limit": r.limit, "rate": r.rate,
        "text": r.text.lines().collect::<Vec<_>>()})
}

fn what_came(t: &Tally) -> String {
    let mut out = format!("{} files of {}", t.done, human(t.bytes, 1024));
    for (n, what) in
        [(t.changed, "had changed"), (t.open, "were open"), (t.gone, "were gone"), (t.failed, "failed")]
    {
        if n > 0 {
            let _ = write!(out, ", {n} {what}");
        }
    }
    out
}

fn done_word(action: &str) -> &'static str {
    match action {
        "purge" => "purged",
        "migrate" => "moved",
        "archive" => "listed",
        "report" => "reported",
        _ => "told",
    }
}

/// What came of a rule, with the files that it takes if nothing is done about them but to show them.
pub fn came_text(rule: &Rule, c: &Came, is_dry: bool) -> String {
    if let Some(why) = &c.not_due {
        return format!("{}: not due: {why}\n", c.rule);
    }
    let (files, bytes) = (c.entries.len(), c.entries.iter().map(|e| e.space).sum::<u64>());
    let (fitting, of) = c.fitting.unwrap_or_default();
    let fit = format!("{fitting} fit, of {}", human(of, 1024));
    let mut out = match (is_dry, &rule.action) {
        (true, Action::Notify { .. }) => format!("{}: would tell {} users ({fit})\n", c.rule, c.told.len()),
        (false, Action::Notify { .. }) => {
            let failed = if c.tally.failed > 0 {
                format!(", {} could not be told", c.tally.failed)
            } else {
                String::new()
            };
            format!("{}: told {} users{failed} ({fit})\n", c.rule, c.told.len())
        }
        (true, a) => {
            format!("{}: would {} {files} files of {} ({fit})\n", c.rule, a.name(), human(bytes, 1024))
        }
        (false, Action::Report) => format!("{}: {files} files of {} ({fit})\n", c.rule, human(bytes, 1024)),
        (false, a) => {
            let again = if c.is_resumed { ", going on with an earlier run" } else { "" };
            format!("{}: {} {}{again}\n", c.rule, done_word(a.name()), what_came(&c.tally))
        }
    };
    for (uid, files, bytes) in &c.told {
        let _ = writeln!(out, "  {:<20} {files:>8} files {:>10}", names::user(*uid), human(*bytes, 1024));
    }
    if !matches!(rule.action, Action::Notify { .. }) {
        for e in &c.entries {
            let (user, size, read) = (names::user(e.uid), human(e.size, 1024), moment::iso(e.atime.sec));
            let _ = writeln!(out, "  {user:<12} {size:>9} {read} {}", super::actor::shown(rule, e));
        }
    }
    if c.has_more {
        let _ = writeln!(out, "  more is needed than the {} files that it takes at once", rule.limit);
    }
    if c.is_interrupted && !is_dry {
        let _ = writeln!(out, "  it was stopped: run it again to go on");
    }
    out
}

pub fn came_row(rule: &Rule, c: &Came) -> Value {
    let told = |(uid, files, bytes): &(u32, u64, u64)| json!({"uid": uid, "user": names::user(*uid), "files": files, "bytes": bytes});
    json!({"rule": c.rule, "action": c.action, "due": c.not_due.is_none(), "why_not": c.not_due,
        "fitting_files": c.fitting.map(|f| f.0), "fitting_bytes": c.fitting.map(|f| f.1), "more": c.has_more,
        "resumed": c.is_resumed, "interrupted": c.is_interrupted, "result": c.tally,
        "told": c.told.iter().map(told).collect::<Vec<_>>(),
        "files": c.entries.iter().map(|e| row(rule, e)).collect::<Vec<_>>()})
}

pub fn plan_line(p: &Plan, is_running: bool) -> String {
    let (h, t) = (&p.head, &p.tally);
    let state = if is_running { "under way" } else { "ended before its end: run it again to go on" };
    let (began, all) = (moment::iso(h.now), human(h.bytes, 1024));
    format!(
        "{}: {} since {began}, {state}: {} of {} files are over (of {all}): {}",
        h.rule,
        h.action,
        t.steps(),
        h.files,
        what_came(t)
    )
}

pub fn plan_row(p: &Plan, is_running: bool) -> Value {
    let h = &p.head;
    json!({"rule": h.rule, "action": h.action, "began": h.now, "running": is_running, "files": h.files,
        "bytes": h.bytes, "needed_bytes": h.needed, "over": p.tally.steps(), "result": p.tally})
}

/// `2026-11-27T20:15:00Z purge old: 12 files of 3.0M, 1 had changed: complete`
pub fn ended_line(e: &FinishedRun) -> String {
    let more = if e.has_more { " (more is needed)" } else { "" };
    let what = match e.action.as_str() {
        "notify" => format!("{} users told", e.tally.done),
        _ => what_came(&e.tally),
    };
    format!("{} {} {}: {what}: {}{more}", moment::iso(e.ended), e.action, e.rule, e.result)
}
