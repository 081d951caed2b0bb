//! What `nacre lost` prints: a line a file, or one JSON document, as they are found.

use super::fate::{Fate, under};
use super::{Standing, Tally};
use crate::command::drain::ost::Ost;
use crate::command::find::moment;
use crate::failure::Failure;
use crate::{put, say};
use client::control::{HeldFile, HeldPart};
use model::layout::EOF;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Somebody looks at the lines themselves.
pub fn is_seen() -> bool {
    std::io::stdout().is_terminal()
}

fn part_as_json(p: &HeldPart) -> Value {
    json!({"start": p.start, "end": (p.end != EOF).then_some(p.end), "stripe": p.stripe,
           "stripe_count": p.stripes, "stripe_size": p.stripe_size})
}

/// `0-EOF`, or `0-EOF:1/2x65536`: of pieces of 65536 bytes the second of every two.
fn part_as_text(p: &HeldPart) -> String {
    let end = if p.end == EOF { "EOF".to_string() } else { p.end.to_string() };
    match p.stripes {
        1 => format!("{}-{end}", p.start),
        n => format!("{}-{end}:{}/{n}x{}", p.start, p.stripe, p.stripe_size),
    }
}

pub fn begin(ost: &Ost, standing: Standing, json: bool) {
    let word = match standing {
        Standing::Gone => "gone",
        Standing::Silent => "silent",
        Standing::Answers => "in use",
    };
    if json {
        put!("{{\n\"ost\": {}, \"state\": {}, \"files\": [", json!(ost.label), json!(word));
    } else {
        say!("{:<28} {:<11} {:<20} {:<20} Lost Path", "FID", "Owner", "Made", "Changed");
    }
}

pub fn print(ost: &Ost, f: &HeldFile, fate: Fate, failed: Option<&Failure>, (json, first): (bool, bool)) {
    if json {
        let parts: Vec<Value> = f.parts.iter().map(part_as_json).collect();
        let paths: Vec<_> = f.paths.iter().map(|p| under(ost, p).to_string_lossy().into_owned()).collect();
        let row = json!({"fid": f.fid.to_string(), "paths": paths, "uid": f.uid, "gid": f.gid,
            "born": f.born.sec, "changed": f.changed.sec, "lost": parts,
            "state": if failed.is_some() { "failed" } else { fate.word() },
            "error": failed.map(ToString::to_string)});
        put!("{}\n{row}", if first { "" } else { "," });
        return;
    }
    let parts: Vec<String> = f.parts.iter().map(part_as_text).collect();
    let mut paths = f.paths.iter().map(|p| under(ost, p).display().to_string());
    let (made, changed) = (moment::iso(f.born.sec), moment::iso(f.changed.sec));
    let owner = format!("{}:{}", f.uid, f.gid);
    let word = match (fate, failed) {
        (_, Some(_)) => "failed: ".to_string(),
        (Fate::Keep, None) => String::new(),
        (fate, None) => format!("{}: ", fate.word()),
    };
    let path = paths.next().unwrap_or_default();
    say!("{:<28} {owner:<11} {made:<20} {changed:<20} {} {word}{path}", f.fid.to_string(), parts.join(","));
    for also in paths {
        say!("{:<28} = {also}", "");
    }
    if let Some(e) = failed {
        say!("{:<28} ! {e}", "");
    }
}

pub fn end(ost: &Ost, t: &Tally, fate: Fate, json: bool) {
    if json {
        say!(
            "\n], \"total\": {}, \"removed\": {}, \"recreated\": {}, \"failed\": {}, \"complete\": {}\n}}",
            t.files,
            t.removed,
            t.recreated,
            t.failed,
            t.complete
        );
        return;
    }
    let done = match fate {
        Fate::Keep => String::new(),
        Fate::Remove => format!(", {} removed, {} could not be", t.removed, t.failed),
        Fate::Recreate => format!(", {} made anew, {} could not be", t.recreated, t.failed),
    };
    let all = if t.complete { "" } else { " so far" };
    say!("{}: {} files lost something{all}{done}", ost.label, t.files);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_a_range_and_a_stripe() {
        let part = |end, stripe, stripes| HeldPart {
            start: 0,
            end,
            stripe,
            stripes,
            stripe_size: 65536,
            of_another: false,
        };
        assert_eq!(part_as_text(&part(EOF, 0, 1)), "0-EOF");
        assert_eq!(part_as_text(&part(1 << 20, 1, 2)), "0-1048576:1/2x65536");
        assert_eq!(part_as_json(&part(EOF, 1, 2))["end"], Value::Null);
    }
}
