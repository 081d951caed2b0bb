//! `nacre movements`: which files are moved to other objects at the moment, and how far that is.

use super::with_page;
use crate::command::osts::{chosen_file_systems, chosen_mounts, targets};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, LocalMount};
use crate::size::human;
use crate::{output, say};
use client::control::Target;
use model::{Errno, TargetKind};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use world::sys;

const USAGE: &str = "\
usage: nacre movements [--json] [PATH...]

Shows which files of the file systems that the paths lie on (all that are
mounted here without any) are moved to other objects, or wait for their turn:
file, state, OSTs from and to, bytes copied of all, for how long.

exit status: 0, or the errno of the first failure, 4 wrong usage
";

/// One line of `mdt.*.movements`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Movement {
    pub fid: String,
    pub state: String,
    /// Indices of OSTs, separated by commas.
    pub from: String,
    pub to: String,
    /// Bytes of the copy that is under way.
    pub done: u64,
    pub total: u64,
    /// Seconds since the epoch.
    pub since: i64,
    pub client: String,
}

impl Movement {
    /// `None` for a line that is none.
    pub fn parse(line: &str) -> Option<Movement> {
        let fields: BTreeMap<&str, &str> = line.split(' ').filter_map(|w| w.split_once('=')).collect();
        let text = |name| fields.get(name).map(|v| (*v).to_string());
        Some(Movement {
            fid: text("fid")?,
            state: text("state")?,
            from: text("from")?,
            to: text("to")?,
            done: text("done")?.parse().ok()?,
            total: text("total")?.parse().ok()?,
            since: text("since")?.parse().ok()?,
            client: text("client")?,
        })
    }

    /// How much of the copy that is under way is done, 0 to 100.
    pub fn percent(&self) -> u64 {
        if self.total == 0 {
            0
        } else {
            (self.done.min(self.total) as u128 * 100 / self.total as u128) as u64
        }
    }
}

/// The lines of a target's parameter.
pub fn parse(target: &str, values: &[(String, String)]) -> Result<Vec<Movement>, Failure> {
    let strange = || {
        let why = "a line of mdt.*.movements that this program does not understand";
        Failure::explained("cannot read answer of", target, Errno::EPROTO, why)
    };
    let lines = values.iter().flat_map(|(_, text)| text.lines());
    lines.map(|l| Movement::parse(l).ok_or_else(strange)).collect()
}

fn of_target(m: &LocalMount, t: &Target) -> Result<Vec<Movement>, Failure> {
    let values = local::target_params(&m.dir, t.target, "mdt.*.movements")?;
    if values.is_empty() {
        let why = "its server knows no movements: it is older than this program";
        return Err(Failure::explained("cannot ask", &t.uuid, Errno::EOPNOTSUPP, why));
    }
    parse(&t.uuid, &values)
}

fn as_json(m: &LocalMount, t: &Target, v: &Movement) -> serde_json::Value {
    let osts = |list: &str| list.split(',').filter_map(|i| i.parse::<u16>().ok()).collect::<Vec<_>>();
    json!({"fsname": m.name.fsname, "target": t.uuid, "fid": v.fid, "state": v.state, "from": osts(&v.from),
           "to": osts(&v.to), "done_bytes": v.done, "total_bytes": v.total, "since": v.since,
           "client": v.client})
}

fn show(v: &Movement) {
    let (done, total) = (human(v.done, 1024), human(v.total, 1024));
    let age = sys::wall_seconds().saturating_sub(v.since).max(0);
    let dash = |list: &str| if list.is_empty() { "-".to_string() } else { list.to_string() };
    say!(
        "{:<28} {:<9} {:>9} {:>9} {:>9} {:>9} {:>4} {:>7}",
        v.fid,
        v.state,
        dash(&v.from),
        dash(&v.to),
        done,
        total,
        format!("{}%", v.percent()),
        format!("{age}s")
    );
}

/// What `nacre movements --json` says of all that is mounted here, as far as metadata targets answer.
pub fn query() -> Result<serde_json::Value, Failure> {
    let (mut errors, mut rows) = (FirstError::keeping(), Vec::new());
    for m in chosen_file_systems(&[])? {
        for t in targets(&m.dir)?.iter().filter(|t| t.target.kind == TargetKind::Mdt) {
            match of_target(&m, t) {
                Ok(all) => rows.extend(all.iter().map(|v| as_json(&m, t, v))),
                Err(f) => errors.report("nacre movements", &f),
            }
        }
    }
    Ok(json!({"movements": rows, "missing": errors.kept()}))
}

fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    if !p.has("json") {
        let [from, to, done, total] = ["From", "To", "Done", "Total"];
        say!("{:<28} {:<9} {from:>9} {to:>9} {done:>9} {total:>9} {:>4} {:>7}", "FID", "State", "%", "For");
    }
    for m in chosen_mounts(&p.operands)? {
        for t in targets(&m.dir)?.iter().filter(|t| t.target.kind == TargetKind::Mdt) {
            match of_target(&m, t) {
                Ok(all) if p.has("json") => rows.extend(all.iter().map(|v| as_json(&m, t, v))),
                Ok(all) => all.iter().for_each(show),
                Err(f) => errors.report("nacre movements", &f),
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

/// The command: arguments behind `movements`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    let run = |args: &[OsString]| run(args).map(|errors| errors.exit_code());
    with_page(("nacre movements", USAGE), args, Failure::exit_code, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_parameter_is_read_and_another_is_refused() {
        let line = "fid=[0x200000401:0x2:0x0] state=waiting from= to=1,2 done=3 total=12 since=17 client=ab";
        let m = Movement::parse(line).unwrap();
        assert_eq!((m.fid.as_str(), m.from.as_str(), m.to.as_str()), ("[0x200000401:0x2:0x0]", "", "1,2"));
        assert_eq!((m.percent(), m.since), (25, 17));
        assert_eq!(Movement::parse("fid=[0x1:0x2:0x0] state=copying"), None);
        assert!(parse("x", &[("mdt.x.movements".into(), format!("{line}\nmore\n"))]).is_err());
    }
}
