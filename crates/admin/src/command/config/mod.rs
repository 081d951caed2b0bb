//! `nacre config`: what the MGS keeps, as data with versions; on the MGS node.

mod show;

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::output;
use mgs::restore::{ConfigAnswer, ConfigOrder, DOCUMENT_FORMAT, Document, Shown};
use model::Errno;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use world::sys::files;

const USAGE: &str = "\
usage: nacre config show [--json]
       nacre config history [-n COUNT] [--json]
       nacre config diff VERSION [VERSION] [--json]
       nacre config rollback VERSION [-n] [--json]
       nacre config export > FILE
       nacre config import FILE [-n] [--json]

What the MGS keeps, as data with versions. To be run on the node that has it.

show: targets with addresses and states, pools, permanent parameters, and who
set these when.
history: the last versions: when, by whom, what changed.
diff: what changed from one version to another, or to what is in force.
rollback: parameters and pools become what they were with that version. Targets
and their registrations stay.
export: parameters, pools and targets as JSON, always in the same order.
import: parameters, and pools of the file systems that FILE names, become what
FILE says ('-': standard input). Targets in it are not looked at.

  -n, --dry-run      of rollback and import: shows what would change
  -n, --count COUNT  of history: the last so many versions (20)
      --json         one JSON document

exit status: 0, or the errno of the failure, 4 wrong usage
";

const COUNT_DEFAULT: u64 = 20;
const COUNT_MAX: u64 = 1_000_000;
/// Of a document: one that the daemon reads as a request.
const DOCUMENT_MAX_BYTES: u64 = 6 << 20;

const DRY: Opt = flag('n', "dry-run");
const JSON: Opt = flag('\0', "json");

/// The subcommands, the options that each takes, and how many words behind them.
const SUBCOMMANDS: &[(&str, &[Opt], std::ops::RangeInclusive<usize>, &str)] = &[
    ("show", &[JSON], 0..=0, "nothing"),
    ("history", &[value('n', "count"), JSON], 0..=0, "nothing"),
    ("diff", &[JSON], 1..=2, "one or two versions"),
    ("rollback", &[DRY, JSON], 1..=1, "one version"),
    ("export", &[JSON], 0..=0, "nothing"),
    ("import", &[DRY, JSON], 1..=1, "one file, or -"),
];

fn words_of() -> String {
    let names: Vec<&str> = SUBCOMMANDS.iter().map(|(n, ..)| *n).collect();
    format!("nacre config {}", names.join("|"))
}

fn version(word: &str) -> Result<u64, Failure> {
    word.parse()
        .map_err(|_| Failure::usage(format!("'{word}' is no version: a number of 'nacre config history'")))
}

/// Reads a document; what is wrong with it, with its line.
fn document(shown: &str, text: &[u8]) -> Result<Document, Failure> {
    let bad = |why: &str| Failure::explained("cannot import", shown, Errno::EINVAL, why);
    let all: serde_json::Value = serde_json::from_slice(text).map_err(|e| bad(&e.to_string()))?;
    match all.get("format").and_then(serde_json::Value::as_u64) {
        Some(f) if f == u64::from(DOCUMENT_FORMAT) => {}
        Some(f) => return Err(bad(&format!("it has format {f}, and this program reads {DOCUMENT_FORMAT}"))),
        None => return Err(bad("it has no \"format\": is it a file of 'nacre config export'?")),
    }
    serde_json::from_slice(text).map_err(|e| bad(&e.to_string()))
}

fn read(file: &str) -> Result<Document, Failure> {
    let path = if file == "-" { Path::new("/dev/stdin") } else { Path::new(file) };
    let size = files::stat(path, true).map_err(|e| Failure::io("cannot read", file, e))?.size;
    if size > DOCUMENT_MAX_BYTES {
        let why = format!("it has {size} bytes, and {DOCUMENT_MAX_BYTES} are possible");
        return Err(Failure::explained("cannot import", file, Errno::EFBIG, &why));
    }
    let text = files::read(path).map_err(|e| Failure::io("cannot read", file, e))?;
    document(file, &text)
}

fn order(name: &str, p: &Parsed) -> Result<ConfigOrder, Failure> {
    let word = |i: usize| p.operands.get(i).map(|o| local::show(o));
    let first = word(0).unwrap_or_default();
    Ok(match name {
        "show" => ConfigOrder::Show,
        "history" => {
            let count = p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT);
            ConfigOrder::History(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "diff" => ConfigOrder::Diff(version(&first)?, word(1).map(|w| version(&w)).transpose()?),
        "rollback" => ConfigOrder::Rollback(version(&first)?, p.has("dry-run")),
        "export" => ConfigOrder::Export,
        _ => ConfigOrder::Import(read(&first)?, p.has("dry-run")),
    })
}

/// What a daemon said, in words for who asked it.
fn refusal(errno: i32, message: String) -> (i32, String) {
    if message.contains("unknown variant `config`") {
        let why = "the nacred of the MGS is of an older version, which has no versions of its configuration";
        return (Errno::EOPNOTSUPP.0, why.into());
    }
    (errno, message)
}

/// Has the MGS do it, which must run on this host; `what` is done with it.
fn ask_mgs(what: &str, order: &ConfigOrder) -> Result<ConfigAnswer, Failure> {
    let asked = DaemonRequest::Config(order.clone());
    // The active one answers.
    let mut last = None;
    for d in Daemon::of_mgs() {
        match d.ask_if_there(&asked)? {
            None => {}
            Some(DaemonReply::Config(answer)) => return Ok(answer),
            Some(DaemonReply::Error { errno, message }) => last = Some(refusal(errno, message)),
            Some(_) => last = Some((Errno::EPROTO.0, "its answer is none".to_string())),
        }
    }
    let nowhere = || {
        let (errno, why) = local::no_mgs();
        (errno.0, why.to_string())
    };
    let (errno, why) = last.unwrap_or_else(nowhere);
    Err(Failure::explained("cannot do", what, Errno(errno), &why))
}

/// What the MGS on this host keeps now; `what` wants to know.
pub(super) fn shown(what: &str) -> Result<Shown, Failure> {
    match ask_mgs(what, &ConfigOrder::Show) {
        Ok(ConfigAnswer::Shown(s)) => Ok(s),
        Ok(_) => Err(Failure::explained("cannot do", what, Errno::EPROTO, "the MGS answered something else")),
        Err(f) => Err(f),
    }
}

/// What the MGS of this host keeps and how it came to be: `nacre config show --json` and, newest first, the
/// last `count` versions of `nacre config history --json`.
pub fn query(count: usize) -> Result<serde_json::Value, Failure> {
    let history = match ask_mgs("config history", &ConfigOrder::History(count))? {
        ConfigAnswer::History(mut versions) => {
            versions.reverse();
            versions
        }
        _ => Vec::new(),
    };
    Ok(json!({"config": shown("config show")?, "versions": history}))
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {}", words_of())));
    };
    let what = what.to_string_lossy();
    let Some((name, options, operands, takes)) = SUBCOMMANDS.iter().find(|(n, ..)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: {}", words_of())));
    };
    let p = getopt::parse(rest, options)?;
    if !operands.contains(&p.operands.len()) {
        return Err(Failure::usage(format!("'nacre config {name}' takes {takes}")));
    }
    let order = order(name, &p)?;
    let answer = ask_mgs(&format!("config {name}"), &order)?;
    if p.has("json") || matches!(answer, ConfigAnswer::Document(_)) {
        output::json(&match &answer {
            ConfigAnswer::Shown(s) => json!(s),
            ConfigAnswer::History(h) => json!({"versions": h}),
            ConfigAnswer::Changes(c) => json!(c),
            ConfigAnswer::Document(d) => json!(d),
        });
    } else {
        output::bytes(show::text(&order, &answer).as_bytes());
    }
    Ok(0)
}

/// The command: arguments behind `config`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre config", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests;
