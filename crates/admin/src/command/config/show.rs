//! What `nacre config` prints.

use crate::command::changelog::when;
use mgs::history::{Change, Subject, Version};
use mgs::restore::{Changes, ConfigAnswer, ConfigOrder, Shown, ShownParam};
use model::TargetId;
use std::fmt::Write;

/// Members of a pool by their names.
fn members(text: &str) -> String {
    let name =
        |w: &str| w.parse().map_or_else(|_| w.to_string(), |i| format!("OST{:04x}", TargetId::ost(i).index));
    let all: Vec<String> = text.split(',').filter(|w| !w.is_empty()).map(name).collect();
    if all.is_empty() { "no OSTs".into() } else { all.join(" ") }
}

/// One change: `+` what is new, `-` what is gone, `~` what is another.
fn change_line(c: &Change) -> String {
    let (s, shown) = (&c.subject, |v: &str| match &c.subject {
        Subject::Pool { .. } => members(v),
        _ => v.to_string(),
    });
    let sign = if matches!(s, Subject::Param(_)) { "=" } else { ": " };
    match (&c.before, &c.after) {
        (None, Some(a)) => format!("+ {s}{sign}{}", shown(a)),
        (Some(b), None) => format!("- {s}{sign}{}", shown(b)),
        (Some(b), Some(a)) => format!("~ {s}: {} -> {}", shown(b), shown(a)),
        (None, None) => format!("  {s}"),
    }
}

fn version_text(v: &Version) -> String {
    if v.unrecorded && v.time == 0 {
        return format!("version {}: what changed up to it is not recorded ({})\n", v.version, v.how);
    }
    let mut out = format!("version {}  {}  {}  {}\n", v.version, when(v.time), v.by, v.how);
    for c in &v.changes {
        let _ = writeln!(out, "  {}", change_line(c));
    }
    out
}

fn param_line(p: &ShownParam) -> String {
    match (p.version, p.time, &p.by) {
        (Some(v), Some(t), Some(by)) => {
            format!("  {}={}   (version {v}, {}, {by})", p.name, p.value, when(t))
        }
        _ => format!("  {}={}", p.name, p.value),
    }
}

fn shown_text(s: &Shown) -> String {
    let mut out = match s.first_kept {
        Some(first) => {
            format!("version {}, with the history of {} changes from {first} on\n", s.version, s.kept)
        }
        None => format!("version {}\n", s.version),
    };
    for fs in &s.file_systems {
        let _ = writeln!(out, "file system {}  uuid {}", fs.fsname, fs.uuid);
        for t in &fs.targets {
            let state = if t.active { "active" } else { "inactive" };
            let open = if t.may_be_replaced { "  may be replaced" } else { "" };
            let (nids, domain) = (t.nids.join(","), &t.domain);
            let _ =
                writeln!(out, "  {}  {state}  {nids}  epoch {}  domain {domain}{open}", t.target, t.epoch);
        }
        for t in &fs.removed {
            let _ = writeln!(out, "  {t}  removed for good");
        }
        for (name, osts) in &fs.pools {
            let text: Vec<String> = osts.iter().map(u16::to_string).collect();
            let _ = writeln!(out, "  pool {name}: {}", members(&text.join(",")));
        }
    }
    out.push_str("permanent parameters\n");
    for p in &s.params {
        let _ = writeln!(out, "{}", param_line(p));
    }
    out
}

fn changes_text(order: &ConfigOrder, c: &Changes) -> String {
    let mut out = String::new();
    for c in &c.changes {
        let _ = writeln!(out, "{}", change_line(c));
    }
    for n in &c.notes {
        let _ = writeln!(out, "left: {n}");
    }
    let is_dry = matches!(order, ConfigOrder::Rollback(_, true) | ConfigOrder::Import(_, true));
    let end = match (order, c.changes.len()) {
        (ConfigOrder::Diff(..), 0) => format!("versions {} and {} are the same\n", c.from, c.to),
        (ConfigOrder::Diff(..), _) => String::new(),
        (_, 0) => "nothing to change\n".into(),
        (_, n) if is_dry => format!("{n} changes: nothing was done\n"),
        (_, n) => format!("{n} changes: version {}\n", c.to),
    };
    out + &end
}

/// An answer for people.
pub(super) fn text(order: &ConfigOrder, answer: &ConfigAnswer) -> String {
    match answer {
        ConfigAnswer::Shown(s) => shown_text(s),
        // Shown by `nacre maintenance status`.
        ConfigAnswer::Mounts(_) => String::new(),
        ConfigAnswer::History(h) if h.is_empty() => "nothing was changed yet\n".into(),
        ConfigAnswer::History(h) => h.iter().map(version_text).collect(),
        ConfigAnswer::Changes(c) => changes_text(order, c),
        // A document is always JSON.
        ConfigAnswer::Document(_) => String::new(),
    }
}
