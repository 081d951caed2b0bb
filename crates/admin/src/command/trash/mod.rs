//! `nacre trash`: directories whose removed files are kept for a while, what lies in the trash, and how it
//! comes out again.

mod items;
mod switch;
mod take;
#[cfg(test)]
mod tests;
mod totals;

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::output;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const NAME: &str = "nacre trash";
/// To who interrupted it.
const GO_ON: &str = "run it again to go on";

const USAGE: &str = "\
usage: nacre trash on|off [-q] DIR...
       nacre trash status [--json] DIR...
       nacre trash list [--json] [DIR]
       nacre trash restore [-r] [--to DIR] [--as NAME] [-n] [-q] [--json]
                           PATH|FID...
       nacre trash empty {--older AGE|--all} [-n] [-q] [--json] [DIR]

Files, symbolic links and directories that are removed from a directory whose
trash is kept lie in the trash until they are restored, or removed for good: by
their owner, or when they are old, take too much space, or space is short
(mdt.*.trash_*): nacre-trash(8).

on, off: of the directories, and of all that lie below them; run again they go on.
status: whether a directory's trash is kept, and how much of what was removed below
it lies there: for users what is theirs, for root everything.
list: what was removed below DIR (the file system that one stands in), the oldest
first: for users what is theirs, for root everything.
restore: to where it was. Of several of one name the youngest; the others by FID.
empty: removes for good what was removed below DIR.

  -r, --recursive   everything that was removed below PATH, and PATH itself
      --to DIR      to this directory
      --as NAME     under this name; of one file
      --older AGE   what was removed so long ago, as 30d (s, m, h, d, w, y)
      --all         however old
  -n, --dry-run     shows what would be done
      --json        one JSON document
  -q, --quiet       no progress

exit status: 0, or the errno of the first failure, 4 wrong usage, 130 interrupted
";

const OPTS: &[Opt] = &[
    flag('r', "recursive"),
    value('\0', "to"),
    value('\0', "as"),
    value('\0', "older"),
    flag('\0', "all"),
    flag('n', "dry-run"),
    flag('\0', "json"),
    flag('q', "quiet"),
];

/// Each with the options that mean something to it, and how few and many operands it takes.
const SUBCOMMANDS: &[(&str, &[&str], (usize, usize))] = &[
    ("on", &["quiet"], (1, usize::MAX)),
    ("off", &["quiet"], (1, usize::MAX)),
    ("status", &["json"], (1, usize::MAX)),
    ("list", &["json"], (0, 1)),
    ("restore", &["recursive", "to", "as", "dry-run", "json", "quiet"], (1, usize::MAX)),
    ("empty", &["older", "all", "dry-run", "json", "quiet"], (0, 1)),
];

/// The directory that was named, or the root of the mount that one stands in.
fn place(p: &Parsed) -> Result<PathBuf, Failure> {
    match p.operands.first() {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => crate::local::mount_point(Path::new(".")),
    }
}

fn list(p: &Parsed) -> Result<i32, Failure> {
    let dir = place(p)?;
    let all = items::below(&dir, true)?;
    match p.has("json") {
        true => output::json(&json!({"files": all.iter().map(|i| i.json(&dir)).collect::<Vec<_>>()})),
        false => output::bytes(items::text(&all, &dir).as_bytes()),
    }
    Ok(0)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    const ALL: &str = "nacre trash on|off|status|list|restore|empty";
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {ALL}")));
    };
    let what = what.to_string_lossy();
    let Some((name, options, (few, many))) = SUBCOMMANDS.iter().find(|(n, ..)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: {ALL}")));
    };
    let p = getopt::parse(rest, OPTS)?;
    p.only(options, &format!("{NAME} {name}"))?;
    if p.operands.len() < *few {
        return Err(Failure::usage(format!("'{NAME} {name}' of what?")));
    }
    if p.operands.len() > *many {
        let extra = p.operands[*many].to_string_lossy();
        return Err(Failure::usage(format!("'{extra}' is one too many for '{NAME} {name}'")));
    }
    match *name {
        "on" => switch::all(&p, true),
        "off" => switch::all(&p, false),
        "status" => switch::status(&p),
        "list" => list(&p),
        "restore" => take::restore(&p),
        _ => take::empty(&p),
    }
}

/// What a metadata server refused, in words.
fn explained(what: &str, object: &str, f: Failure) -> Failure {
    use model::Errno;
    match Errno(f.exit_code()) {
        e @ Errno::EOPNOTSUPP => {
            Failure::explained(what, object, e, "its metadata server is of a version that keeps no trash")
        }
        _ => f,
    }
}

/// The command: arguments behind `trash`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page((NAME, USAGE), args, Failure::exit_code, command)
}
