//! `lfs ladvise`: what a program is going to do with a file.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, value};
use crate::local::{ask_about, show};
use crate::size::parse_bytes;
use client::control::Request;
use model::Errno;
use model::limits::FILE_SIZE_MAX_BYTES;
use std::ffi::OsString;
use std::path::Path;
use world::sys::files::{FileAdvice, advise};

pub const USAGE: &str = "-a willread|dontneed|lockahead|noexpand|locknoexpand [-s START] [-e END|-l LENGTH] \
[-m READ|WRITE] [-b] [-u] FILE...";

/// What a file is to be prepared for.
enum Wanted {
    Pages(FileAdvice),
    Lock {
        write: bool,
    },
    /// Locks are taken as large as they are asked for, or as nobody else minds: there is nothing to set.
    Nothing,
}

fn bytes(p: &getopt::Parsed, name: &str) -> Result<Option<u64>, Failure> {
    let parse = |v: &str| {
        let why = format!(
            "bad --{name} '{v}': expected a number of bytes, with k, M, G or T behind it if you like"
        );
        parse_bytes(v, 1).filter(|n| *n <= FILE_SIZE_MAX_BYTES).ok_or_else(|| Failure::usage(why))
    };
    p.value(name).map(parse).transpose()
}

/// First byte and the one behind the last.
fn range(p: &getopt::Parsed) -> Result<(u64, u64), Failure> {
    let (start, end, length) = (bytes(p, "start")?.unwrap_or(0), bytes(p, "end")?, bytes(p, "length")?);
    let end = match (end, length) {
        (Some(_), Some(_)) => return Err(Failure::usage("only one of --end and --length")),
        (Some(end), None) => end,
        (None, Some(n)) => start.saturating_add(n).min(FILE_SIZE_MAX_BYTES),
        (None, None) => FILE_SIZE_MAX_BYTES,
    };
    if end <= start {
        let why = "the end must lie behind the start";
        return Err(Failure::explained(
            "cannot give advice for",
            &format!("{start} to {end}"),
            Errno::EINVAL,
            why,
        ));
    }
    Ok((start, end))
}

fn wanted(p: &getopt::Parsed) -> Result<Wanted, Failure> {
    let advice = p.value("advice").ok_or_else(|| Failure::usage("no advice given (-a)"))?;
    let mode = p.value("mode").map(str::to_ascii_uppercase);
    match (advice, mode.as_deref()) {
        ("lockahead", Some("READ")) => Ok(Wanted::Lock { write: false }),
        ("lockahead", Some("WRITE")) => Ok(Wanted::Lock { write: true }),
        ("lockahead", _) => Err(Failure::usage("lockahead needs -m READ or -m WRITE")),
        (_, Some(_)) => Err(Failure::usage("-m is for lockahead")),
        ("willread", None) => Ok(Wanted::Pages(FileAdvice::WillNeed)),
        ("dontneed", None) => Ok(Wanted::Pages(FileAdvice::DontNeed)),
        ("noexpand" | "locknoexpand", None) => Ok(Wanted::Nothing),
        (other, None) => Err(Failure::usage(format!("unknown advice '{other}'"))),
    }
}

fn one(path: &Path, wanted: &Wanted, (start, end): (u64, u64)) -> Result<(), Failure> {
    let what = "cannot give advice about";
    match *wanted {
        Wanted::Pages(advice) => advise(path, start, end - start, advice)
            .map_err(|e| Failure::io(what, &path.display().to_string(), e)),
        Wanted::Lock { write } => {
            let request = |name| Request::LockAhead { name, write, start, end: end - 1 };
            ask_about(path, what, request).map(drop)
        }
        // It must be there, and ours.
        Wanted::Nothing => ask_about(path, what, |name| Request::Path2fid { name }).map(drop),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        value('a', "advice"),
        value('s', "start"),
        value('e', "end"),
        value('l', "length"),
        value('m', "mode"),
        // Nothing is done behind the caller's back, and a lock that is there is no error.
        flag('b', "background"),
        flag('u', "unset"),
    ];
    let p = getopt::parse(args, &opts)?;
    let (wanted, range) = (wanted(&p)?, range(&p)?);
    if p.operands.is_empty() {
        return Err(Failure::usage("no file given"));
    }
    let mut errors = FirstError::default();
    for o in &p.operands {
        if let Err(f) = one(Path::new(o), &wanted, range) {
            errors.report(&format!("lfs ladvise: {}", show(o)), &f);
        }
    }
    Ok(errors)
}
