//! What is done to one file, and what is known of it right before.

use super::gather::{Taken, entry, gather};
use super::rules::{Entry, Of, Rule, When};
use super::run::{PolicyContext, Progress};
use super::select::Due;
use crate::command::df::{self, Numbers};
use crate::command::find::candidate::Candidate;
use crate::command::osts::{chosen_mounts, removals_pending};
use crate::command::quota;
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::local::LocalMount;
use client::control::{self, Listed, Name, Reply, Request, TargetSpace};
use model::usage::QuotaType;
use model::{Errno, LayoutSpec, TargetKind};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use world::sys::process::{self, Finished};
use world::sys::tree::Folder;
use world::sys::walk;
use world::sys::{self, Deadline};

/// Between two looks whether objects are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Who does it: a mount, or a test's tree.
pub trait Actor {
    /// The file as it is now; `None`: its path leads to none, or to another.
    fn look(&self, rule: &Rule, e: &Entry) -> Result<Option<Entry>, Failure>;
    /// `ECANCELED` if it is not what it was, `EBUSY` while somebody has it open.
    fn purge(&self, rule: &Rule, e: &Entry, now: i64) -> Result<(), Failure>;
    fn migrate(&self, rule: &Rule, e: &Entry, pool: &str) -> Result<(), Failure>;
    /// Runs a program to its end with this text for input.
    fn tell(&self, command: &[String], user: &str, text: &str) -> Result<(), Failure>;
}

/// Those of the mounts on this host.
pub struct Mounts<'a> {
    pub interrupt: &'a Interrupt,
    pub progress: &'a Progress,
}

impl Mounts<'_> {
    /// The directory of a file, and its name. No symbolic link below the rule's directory is followed: one in
    /// the place of a directory leads to what the rule is not about.
    fn parent(rule: &Rule, e: &Entry) -> io::Result<(Folder, Name)> {
        let path = Path::new(OsStr::from_bytes(&e.path.0));
        let mut folder = Folder::open(&rule.directory)?;
        for name in path.parent().into_iter().flat_map(Path::iter) {
            folder = folder.folder(name)?;
        }
        let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
        Ok((folder, Name(name.as_bytes().to_vec())))
    }

    fn ask(what: &str, rule: &Rule, e: &Entry, make: impl FnOnce(Name) -> Request) -> Result<(), Failure> {
        let shown = shown(rule, e);
        let (folder, name) = Mounts::parent(rule, e).map_err(|e| Failure::io(what, &shown, e))?;
        match control::call(&folder, &make(name)) {
            Ok(_) => Ok(()),
            Err(e) => Err(Failure::control(what, &shown, &e)),
        }
    }
}

/// Path of a file for people.
pub fn shown(rule: &Rule, e: &Entry) -> String {
    rule.directory.join(OsStr::from_bytes(&e.path.0)).display().to_string()
}

fn has_gone(e: Errno) -> bool {
    matches!(e, Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ELOOP)
}

impl Actor for Mounts<'_> {
    fn look(&self, rule: &Rule, e: &Entry) -> Result<Option<Entry>, Failure> {
        let shown = shown(rule, e);
        let (folder, name) = match Mounts::parent(rule, e) {
            Ok(found) => found,
            Err(e) if e.raw_os_error().is_some_and(|n| has_gone(Errno(n))) => return Ok(None),
            Err(e) => return Err(Failure::io("cannot find", &shown, e)),
        };
        let listed: Listed = match control::call(&folder, &Request::Inode { name: Some(name.clone()) }) {
            Ok(Reply::Listing { mut entries, .. }) if entries.len() == 1 => entries.remove(0),
            Ok(other) => return Err(crate::local::strange(&rule.directory, &other)),
            Err(e) if has_gone(Errno(e.errno)) => return Ok(None),
            Err(e) => return Err(Failure::control("cannot stat", &shown, &e)),
        };
        if listed.fid != e.fid || listed.inode.is_none() {
            return Ok(None);
        }
        let mut c = Candidate::new(rule.directory.clone(), 0, listed);
        if c.has_objects() {
            match walk::stat_in(&folder, OsStr::from_bytes(&name.0), false) {
                Ok(s) => c.stat = Some(s),
                Err(e) if e.raw_os_error().is_some_and(|n| has_gone(Errno(n))) => return Ok(None),
                Err(e) => return Err(Failure::io("cannot stat", &shown, e)),
            }
        }
        Ok(Some(entry(&c, e.path.clone())))
    }

    fn purge(&self, rule: &Rule, e: &Entry, now: i64) -> Result<(), Failure> {
        let (seen, tests, unless) = (e.seen(), rule.tests(now), rule.unless(now));
        Mounts::ask("cannot purge", rule, e, |name| Request::Purge { name, seen, tests, unless })
    }

    fn migrate(&self, rule: &Rule, e: &Entry, pool: &str) -> Result<(), Failure> {
        let spec = LayoutSpec { pool: pool.to_string(), ..LayoutSpec::default() };
        let make = |name| Request::Migrate { name: Some(name), spec, non_block: true, bandwidth_bytes: 0 };
        Mounts::ask("cannot move", rule, e, make)
    }

    fn tell(&self, command: &[String], user: &str, text: &str) -> Result<(), Failure> {
        let Some((program, args)) = command.split_first() else { return Ok(()) };
        let args: Vec<&str> = args.iter().map(String::as_str).chain([user]).collect();
        let done = process::run_with_input(program, &args, text.as_bytes());
        let Finished { status, err, .. } = done.map_err(|e| Failure::io("cannot run", program, e))?;
        match status {
            Some(0) => Ok(()),
            status => {
                let how = status.map_or("ended by a signal".to_string(), |n| format!("exit status {n}"));
                let why = format!("for user {user}: {how} {}", err.trim());
                Err(Failure::explained("cannot tell with", program, Errno::EIO, why.trim()))
            }
        }
    }
}

/// The mount that a rule's directory lies on.
fn mount_of(rule: &Rule) -> Result<LocalMount, Failure> {
    let shown = rule.directory.display().to_string();
    let found = chosen_mounts(&[rule.directory.clone().into_os_string()])?.into_iter().next();
    found.ok_or_else(|| Failure::op("cannot find the mount of", &shown, Errno::ENODEV))
}

impl PolicyContext for Mounts<'_> {
    fn space(&self, rule: &Rule) -> Result<Numbers, Failure> {
        let m = mount_of(rule)?;
        let (pool, ost) = match &rule.when {
            When::Space { of: Of::Pool(name), .. } => (Some(name.as_str()), None),
            When::Space { of: Of::Ost(n), .. } => (None, Some(*n)),
            _ => (None, None),
        };
        let all = df::space(&m, pool)?;
        let is_meant = |t: &&TargetSpace| {
            let id = t.target.target;
            id.kind == TargetKind::Ost && ost.is_none_or(|n| n == id.index) && t.target.active
        };
        let osts: Vec<&TargetSpace> = all.iter().filter(is_meant).collect();
        if osts.is_empty() {
            let shown = rule.directory.display().to_string();
            let why = format!("rule '{}': there is no such OST, or none in that pool", rule.name);
            return Err(Failure::explained("cannot look at the space of", &shown, Errno::ENODEV, &why));
        }
        // Of what does not answer it is not known how full it is: nothing is deleted for that.
        if let Some((t, e)) = osts.iter().find_map(|t| t.errno.map(|e| (t, e))) {
            return Err(Failure::op("cannot get space of", &t.target.uuid, Errno(e)));
        }
        Ok(df::bytes_of(osts.into_iter()))
    }

    fn users_above(&self, rule: &Rule, bytes: u64) -> Result<BTreeSet<u32>, Failure> {
        let (m, mut users) = (mount_of(rule)?, BTreeSet::new());
        quota::each_page(&m, QuotaType::User, (0, u32::MAX), None, |_, sums| {
            users.extend(sums.into_iter().filter(|(_, u)| u.bytes() > bytes).map(|(id, _)| id));
        })?;
        Ok(users)
    }

    fn gather(&self, rule: &Rule, due: &Due, when: (i64, bool)) -> Result<(Taken, FirstError), Failure> {
        gather(rule, due, when, &self.progress.seen, self.interrupt)
    }

    fn settle(&self, rule: &Rule, patience: Duration) {
        let Ok(m) = mount_of(rule) else { return };
        let end = Deadline::after(patience);
        // Who may not ask does not wait.
        while removals_pending(&m.dir, "osp.*.destroys_pending").unwrap_or(false)
            && !end.passed()
            && !self.interrupt.stopped()
        {
            self.interrupt.pause(LOOK_AGAIN);
        }
    }

    fn now(&self) -> i64 {
        sys::wall_seconds()
    }
}
