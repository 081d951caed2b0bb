//! `lctl dk`, `clear`, `mark`, `debug_list`: the debug logs of this host's daemons and mounts.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{Process, show};
use crate::{output, say};
use model::debug::{ALWAYS, DebugOrder, Record, SUBSYSTEMS, TYPES};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use world::sys;

pub const USAGE_DK: &str = "[--keep] [--json] [FILE]";
pub const USAGE_CLEAR: &str = "";
pub const USAGE_MARK: &str = "[TEXT]";
pub const USAGE_LIST: &str = "types|subs [--json]";
pub const USAGE_NONE: &str = "(is none here: see its message)";

/// Answers of one process that are fetched, one after the other, at most.
const PAGES_MAX: usize = 100_000;

/// One message with the process that it is of.
pub struct Line {
    pub process: String,
    pub record: Record,
}

impl Line {
    /// Subsystem, type, time, process, place, text.
    pub fn text(&self) -> String {
        let Record { at: (sec, nsec), kind, subsystem, place, text, .. } = &self.record;
        let us = nsec / 1000;
        format!("{subsystem}:{kind}:{sec}.{us:06}:{}:({place}) {text}", self.process)
    }

    pub fn json(&self) -> serde_json::Value {
        let r = &self.record;
        let time = format!("{}.{:09}", r.at.0, r.at.1);
        json!({"time": time, "process": self.process, "type": r.kind, "subsystem": r.subsystem,
            "place": r.place, "text": r.text})
    }
}

/// What a process has behind a message, and how many of those were dropped before they were read.
pub fn read(of: &Process, mut after: u64, follow: u32) -> Result<(Vec<Line>, u64), Failure> {
    let (mut lines, mut lost) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let answer = of.debug(&DebugOrder::Read { after, follow })?;
        lost += answer.lost;
        after = answer.records.last().map_or(after, |r| r.seq);
        let line = |record| Line { process: of.name.clone(), record };
        lines.extend(answer.records.into_iter().map(line));
        if !answer.more {
            break;
        }
    }
    Ok((lines, lost))
}

/// In the order of their times.
pub fn sort(lines: &mut [Line]) {
    lines.sort_by(|a, b| {
        (a.record.at, &a.process, a.record.seq).cmp(&(b.record.at, &b.process, b.record.seq))
    });
}

pub fn run_dk(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('k', "keep"), flag('\0', "json")])?;
    // Lustre's second word says that the file is as the kernel has it; here there is one form.
    let file = match p.operands.as_slice() {
        [] => None,
        [file] => Some(file),
        [file, raw] if raw == "raw" || raw == "0" || raw == "1" => Some(file),
        [_, other, ..] => return Err(Failure::usage(format!("'{}' is one too many", show(other)))),
    };
    let (mut lines, mut lost, mut errors) = (Vec::new(), 0, FirstError::default());
    let all = Process::require("cannot print", "debug log")?;
    for (of, got) in all.iter().zip(sys::at_once(&all, |l| read(l, 0, 0))) {
        match got {
            Ok((some, gone)) => {
                if let Some(last) = some.last().filter(|_| !p.has("keep")) {
                    let told = of.debug(&DebugOrder::Clear { to: last.record.seq });
                    told.err().iter().for_each(|f| errors.report("dk", f));
                }
                lines.extend(some);
                lost += gone;
            }
            Err(f) => errors.report("dk", &f),
        }
    }
    sort(&mut lines);
    let mut text = Vec::new();
    for l in &lines {
        let one = if p.has("json") { l.json().to_string() } else { l.text() };
        writeln!(text, "{one}").expect("memory takes it");
    }
    match file {
        None => output::bytes(&text),
        Some(f) => {
            sys::files::replace(Path::new(f), &text).map_err(|e| Failure::io("cannot write", &show(f), e))?
        }
    }
    if !p.has("json") {
        say!("Debug log: {} lines, {} kept, {lost} dropped, 0 bad.", lines.len() as u64 + lost, lines.len());
    }
    Ok(errors)
}

/// Tells all of them the same.
fn order_all(what: &str, order: &DebugOrder) -> Result<FirstError, Failure> {
    let all = Process::require("cannot change", "debug log")?;
    let mut errors = FirstError::default();
    for r in sys::at_once(&all, |l| l.debug(order)) {
        r.err().iter().for_each(|f| errors.report(what, f));
    }
    Ok(errors)
}

pub fn run_clear(args: &[OsString]) -> Result<FirstError, Failure> {
    getopt::parse(args, &[])?;
    order_all("clear", &DebugOrder::Clear { to: u64::MAX })
}

pub fn run_mark(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[])?;
    let words: Vec<String> = p.operands.iter().map(|o| show(o)).collect();
    let text = if words.is_empty() { sys::wall_seconds().to_string() } else { words.join(" ") };
    order_all("mark", &DebugOrder::Mark { text })
}

pub fn run_list(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let words: Vec<String> = p.operands.iter().map(|o| show(o)).collect();
    let all: Vec<(&str, &str)> = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["types"] => {
            let always = ALWAYS.iter().map(|n| (*n, "always kept"));
            TYPES.iter().copied().chain(always).collect()
        }
        ["subs"] => SUBSYSTEMS.iter().map(|(n, _)| (*n, "")).collect(),
        _ => return Err(Failure::usage("say which: lctl debug_list types|subs")),
    };
    if p.has("json") {
        output::json(&all.iter().map(|(n, about)| json!({"name": n, "about": about})).collect());
    } else {
        all.iter().for_each(|(n, about)| say!("{}", format!("{n:12} {about}").trim_end()));
    }
    Ok(FirstError::default())
}

/// What Lustre has for a log of another form.
pub fn run_none(_: &[OsString]) -> Result<FirstError, Failure> {
    Err(Failure::usage(
        "there is none here: 'lctl dk FILE' writes text, and 'nacre trace -o FILE' goes on writing",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(process: &str, at: (i64, u32), seq: u64) -> Line {
        let record = Record {
            seq,
            at,
            kind: "rpctrace".into(),
            subsystem: "rpc".into(),
            place: "call.rs:7".into(),
            text: "Getattr".into(),
        };
        Line { process: process.into(), record }
    }

    #[test]
    fn a_line_says_what_when_who_and_where() {
        let l = line("nacred-12", (1_700_000_000, 5_000), 1);
        assert_eq!(l.text(), "rpc:rpctrace:1700000000.000005:nacred-12:(call.rs:7) Getattr");
        assert_eq!(l.json()["time"], "1700000000.000005000");
    }

    #[test]
    fn messages_of_several_processes_are_in_the_order_of_their_times() {
        let mut all =
            vec![line("b", (2, 0), 1), line("a", (1, 9), 7), line("b", (1, 8), 9), line("b", (2, 0), 0)];
        sort(&mut all);
        let order: Vec<(&str, u64)> = all.iter().map(|l| (&*l.process, l.record.seq)).collect();
        assert_eq!(order, [("b", 9), ("a", 7), ("b", 0), ("b", 1)]);
    }

    #[test]
    fn what_is_typed_wrongly_is_refused() {
        let words = |all: &[&str]| all.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(matches!(run_list(&words(&["all"])), Err(Failure::Usage(_))));
        assert!(matches!(run_dk(&words(&["a", "b"])), Err(Failure::Usage(_))));
        assert!(matches!(run_none(&[]), Err(Failure::Usage(_))));
        assert!(run_list(&words(&["types"])).is_ok() && run_list(&words(&["subs", "--json"])).is_ok());
    }
}
