//! `nacre top users`, `nacre top groups`, `nacre top projects`: who uses most of the mounted file systems. It
//! is counted in the transactions that change it, so no directory is walked.

use super::{directory, each_page, name_of, report_unanswered, words};
use crate::command::osts::chosen_file_systems;
use crate::command::top::{COUNT_DEFAULT, COUNT_MAX};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::local::LocalMount;
use crate::output;
use crate::size::human;
use model::usage::{QuotaId, QuotaType, Usage};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;

/// What the first of them are chosen by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Space,
    Files,
}

/// The heaviest owners of one type on one file system.
struct Heaviest {
    of: QuotaType,
    by: By,
    count: usize,
    /// The heaviest first.
    owners: Vec<(u32, Usage)>,
    all: Usage,
    /// Those who have anything.
    number: u64,
    incomplete: bool,
}

impl Heaviest {
    fn new(of: QuotaType, by: By, count: usize) -> Heaviest {
        assert!(count > 0, "somebody is shown");
        let (all, number, incomplete) = (Usage::default(), 0, false);
        Heaviest { of, by, count, owners: Vec::new(), all, number, incomplete }
    }

    fn weight(&self, u: &Usage) -> (u64, u64) {
        match self.by {
            By::Space => (u.blocks, u.inodes),
            By::Files => (u.inodes, u.blocks),
        }
    }

    /// No more than are shown are kept.
    fn add(&mut self, more: impl IntoIterator<Item = (u32, Usage)>) {
        for (id, u) in more {
            self.all = self.all.plus(u);
            self.number += 1;
            self.owners.push((id, u));
        }
        let mut owners = std::mem::take(&mut self.owners);
        owners.sort_by_key(|(id, u)| (std::cmp::Reverse(self.weight(u)), *id));
        owners.truncate(self.count);
        self.owners = owners;
        assert!(self.owners.len() as u64 <= self.number, "nobody is shown twice");
    }

    /// Of all that is used, in percent.
    fn share(&self, u: &Usage) -> u64 {
        let (part, all) = (self.weight(u).0, self.weight(&self.all).0);
        (u128::from(part) * 100).checked_div(u128::from(all)).unwrap_or(0) as u64
    }

    fn text(&self, fsname: &str) -> String {
        let what = match self.by {
            By::Space => "Space",
            By::Files => "Files",
        };
        let plural = if self.number == 1 { "" } else { "s" };
        let heading = format!("{fsname}, {} {}{plural}", self.number, words(self.of).0);
        let mut out = format!("{heading:<32} {:>10} {:>10} {:>6}\n", "Used", "Files", format!("{what}%"));
        for (id, u) in &self.owners {
            let name = name_of(QuotaId { of: self.of, id: *id });
            let _ = writeln!(
                out,
                "{name:<32} {:>10} {:>10} {:>6}",
                human(u.bytes(), 1024),
                u.inodes,
                self.share(u)
            );
        }
        if self.incomplete {
            out.push_str("Some targets did not answer: what they hold is missing.\n");
        }
        out
    }

    fn as_json(&self, fsname: &str) -> Value {
        let owner = |(id, u): &(u32, Usage)| {
            let name = name_of(QuotaId { of: self.of, id: *id });
            json!({"id": id, "name": name, "bytes": u.bytes(), "inodes": u.inodes})
        };
        let owners: Vec<Value> = self.owners.iter().map(owner).collect();
        json!({"fsname": fsname, "type": words(self.of).0, "number": self.number,
               "bytes": self.all.bytes(), "inodes": self.all.inodes,
               "complete": !self.incomplete, "owners": owners})
    }
}

/// The type that `nacre top` was asked for.
pub fn type_of(what: &str) -> Option<QuotaType> {
    [QuotaType::User, QuotaType::Group, QuotaType::Project]
        .into_iter()
        .find(|of| what.strip_suffix('s') == Some(words(*of).0))
}

fn parse(args: &[OsString]) -> Result<(Parsed, By, usize), Failure> {
    let p = getopt::parse(args, &[value('n', "count"), value('\0', "by"), flag('\0', "json")])?;
    let by = match p.value("by") {
        None | Some("space") => By::Space,
        Some("files") => By::Files,
        Some(other) => return Err(Failure::usage(format!("--by space or --by files, not '{other}'"))),
    };
    let count = p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT) as usize;
    Ok((p, by, count))
}

fn of_mount(
    m: &LocalMount,
    of: QuotaType,
    (by, count): (By, usize),
    errors: &mut FirstError,
) -> Result<Heaviest, Failure> {
    let mut heaviest = Heaviest::new(of, by, count);
    let last = each_page(m, of, (0, u32::MAX), None, |_, sums| heaviest.add(sums))?;
    heaviest.incomplete = report_unanswered("nacre top", &last, errors);
    Ok(heaviest)
}

/// What `nacre top users --json` and its like say, of all three types, with what they may have.
pub fn query(count: usize) -> Result<Value, Failure> {
    let (mut errors, mut shown) = (FirstError::keeping(), Vec::new());
    for m in chosen_file_systems(&[])? {
        for of in [QuotaType::User, QuotaType::Group, QuotaType::Project] {
            let heaviest = of_mount(&m, of, (By::Space, count), &mut errors)?;
            let mut all = heaviest.as_json(&m.name.fsname);
            let ids = heaviest.owners.iter().map(|(id, _)| QuotaId { of, id: *id }).collect();
            let limits = super::standings(&m, ids, "nacre top", &mut FirstError::keeping())?;
            let rows = all["owners"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
            for (row, (_, limits)) in rows.iter_mut().zip(&limits) {
                row["limits"] = super::limits_json(limits);
            }
            shown.push(all);
        }
    }
    Ok(json!({"file_systems": shown, "missing": errors.kept()}))
}

/// The directories of a file system that have a quota, the heaviest first, with their paths below the mount
/// and what may lie in them: nothing is walked.
fn directories_of(m: &LocalMount, count: usize, errors: &mut FirstError) -> Result<Value, Failure> {
    let of = QuotaType::Directory;
    let (paths, mut heaviest) = (directory::Names::of(m)?, Heaviest::new(of, By::Space, count));
    // What lay in a directory that is gone is counted to it until its objects are gone, too.
    let last = each_page(m, of, (0, u32::MAX), None, |_, sums| {
        heaviest.add(sums.into_iter().filter(|(id, _)| paths.get(*id).is_some()));
    })?;
    heaviest.incomplete = report_unanswered("nacre top", &last, errors);
    let ids: Vec<QuotaId> = heaviest.owners.iter().map(|(id, _)| QuotaId { of, id: *id }).collect();
    let limits = super::standings(m, ids, "nacre top", &mut FirstError::keeping())?;
    assert!(limits.len() == heaviest.owners.len(), "one answer each");
    let row = |((id, u), (_, limits)): (&(u32, Usage), &(Usage, _))| {
        json!({"id": id, "path": paths.get(*id), "bytes": u.bytes(), "inodes": u.inodes,
               "limits": super::limits_json(limits)})
    };
    let rows: Vec<Value> = heaviest.owners.iter().zip(&limits).map(row).collect();
    Ok(json!({"fsname": m.name.fsname, "mount": m.dir, "number": heaviest.number,
              "bytes": heaviest.all.bytes(), "inodes": heaviest.all.inodes,
              "complete": !heaviest.incomplete, "directories": rows}))
}

/// The heaviest directories with a quota, of each mounted file system.
pub fn query_directories(count: usize) -> Result<Value, Failure> {
    let (mut errors, mut shown) = (FirstError::keeping(), Vec::new());
    for m in chosen_file_systems(&[])? {
        // One whose metadata server is older has none.
        match directories_of(&m, count, &mut errors) {
            Ok(v) => shown.push(v),
            Err(f) => errors.report("nacre top", &f),
        }
    }
    Ok(json!({"file_systems": shown, "missing": errors.kept()}))
}

/// The command: arguments behind `top users` and its like. Returns the exit status.
pub fn run(of: QuotaType, args: &[OsString]) -> Result<i32, Failure> {
    let (p, by, count) = parse(args)?;
    let (mut errors, mut shown) = (FirstError::default(), Vec::new());
    for m in chosen_file_systems(&p.operands)? {
        let heaviest = of_mount(&m, of, (by, count), &mut errors)?;
        match p.has("json") {
            true => shown.push(heaviest.as_json(&m.name.fsname)),
            false => output::bytes(heaviest.text(&m.name.fsname).as_bytes()),
        }
    }
    if p.has("json") {
        output::json(&json!({"file_systems": shown}));
    }
    Ok(errors.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn projects(by: By, count: usize) -> Heaviest {
        let mut h = Heaviest::new(QuotaType::Project, by, count);
        let u = |inodes, kib: u64| Usage { inodes, blocks: kib * 2 };
        h.add([(900_001, u(5, 3072)), (900_002, u(1, 1024))]);
        h.add([(900_003, u(94, 0)), (900_004, u(0, 1 << 20))]);
        h
    }

    #[test]
    fn the_heaviest_come_first_whatever_page_they_were_on() {
        let expected = "\
demo, 4 projects                       Used      Files Space%
900004                                 1.0G          0     99
900001                                 3.0M          5      0
";
        assert_eq!(projects(By::Space, 2).text("demo"), expected);
        let files: Vec<u32> = projects(By::Files, 3).owners.iter().map(|(id, _)| *id).collect();
        assert_eq!(files, [900_003, 900_001, 900_002]);
        let all = projects(By::Files, 1);
        assert_eq!(all.as_json("demo")["owners"][0]["inodes"], 94);
        assert_eq!((all.all.inodes, all.share(&all.owners[0].1)), (100, 94));
        assert_eq!(Heaviest::new(QuotaType::User, By::Files, 1).share(&Usage::default()), 0, "of nothing");
    }

    #[test]
    fn options_are_checked() {
        let of = |args: &[&str]| parse(&args.iter().map(OsString::from).collect::<Vec<_>>());
        let (p, by, count) = of(&["-n", "3", "--by=files", "--json", "/mnt"]).unwrap();
        assert_eq!((by, count, p.operands.len(), p.has("json")), (By::Files, 3, 1, true));
        for bad in [&["--by", "x"][..], &["-n", "0"], &["-n", "x"], &["--interval", "3"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        assert_eq!((type_of("users"), type_of("user"), type_of("jobs")), (Some(QuotaType::User), None, None));
    }
}
