//! Which files go from the fullest OSTs, and their moves.

use super::plan::Plan;
use crate::command::getstripe;
use crate::command::migrate::{self, Options as Move};
use crate::command::osts::files_on;
use crate::command::pool;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::local::{LocalMount, ask_about, strange};
use client::control::{Reply, Request};
use model::layout::Pattern;
use model::{Errno, Fid, Layout, LayoutSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys;

/// Files that are moved at a time: the metadata server's queue bounds how many of them run.
const AT_ONCE: usize = 8;
/// Files and directories of which is remembered what was found; with more of them it is looked again.
const REMEMBERED_MAX: usize = 100_000;

/// What came of it.
#[derive(Default)]
pub struct Tally {
    pub moved: u64,
    pub bytes: u64,
    /// What could not be moved, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// Files that are bound to their OSTs, or have components.
    pub skipped: u64,
    /// Files that were looked at, which are not looked at again.
    seen: BTreeSet<Fid>,
    /// Whether a directory says for its files which OSTs they lie on.
    binds: BTreeMap<PathBuf, bool>,
}

/// Failures that are kept; with more of them it ends.
const FAILED_MAX: usize = 1000;

/// A file that is to move, and where to.
pub struct Step {
    pub path: PathBuf,
    pub from: u16,
    pub to: u16,
    pub bytes: u64,
    spec: LayoutSpec,
}

/// Moves files from one place, until the spread is below `enough` or nothing is left that may go. `each` is
/// shown what is done.
pub struct Mover<'a> {
    pub mount: &'a LocalMount,
    pub bandwidth_bytes: u64,
    pub dry_run: bool,
    /// Hundredths of a percent.
    pub enough: u64,
    pub interrupt: &'a Interrupt,
}

impl Mover<'_> {
    /// Files that were moved, or would be.
    pub fn empty_some(
        &self,
        osts: &[u16],
        plan: &mut Plan,
        t: &mut Tally,
        mut each: impl FnMut(&Plan, &Tally, &[Step]),
    ) -> Result<u64, Failure> {
        let before = t.moved;
        for &ost in osts {
            let mut after = None;
            loop {
                let (files, next) = files_on(&self.mount.dir, ost, after)?;
                let mut steps = Vec::new();
                for (fid, paths) in files {
                    if self.is_over(plan, t) {
                        break;
                    }
                    let Some(path) = paths.first() else { continue };
                    let path = self.mount.dir.join(OsStr::from_bytes(&path.0));
                    if t.seen.len() >= REMEMBERED_MAX {
                        t.seen.clear();
                    }
                    if t.seen.insert(fid)
                        && let Some(step) = self.step(path, ost, plan, t)
                    {
                        plan.moved(step.from, step.to, step.bytes);
                        steps.push(step);
                    }
                    if steps.len() == AT_ONCE {
                        self.make(&steps, plan, t);
                        each(plan, t, &steps);
                        steps.clear();
                    }
                }
                self.make(&steps, plan, t);
                each(plan, t, &steps);
                after = next;
                if after.is_none() || self.is_over(plan, t) {
                    break;
                }
            }
        }
        Ok(t.moved - before)
    }

    fn is_over(&self, plan: &Plan, t: &Tally) -> bool {
        self.interrupt.stopped() || plan.spread() <= self.enough || t.failed.len() >= FAILED_MAX
    }

    /// How a file is to move, if it may and that gains something.
    fn step(&self, path: PathBuf, from: u16, plan: &Plan, t: &mut Tally) -> Option<Step> {
        match self.candidate(&path, from, plan, t) {
            Ok(step) => step.map(|(spec, to, bytes)| Step { path, from, to, bytes, spec }),
            // It went meanwhile.
            Err(Failure::Op { errno: Errno::ENOENT | Errno::ESTALE, .. }) => None,
            Err(f) => {
                t.failed.push((path, f.to_string()));
                None
            }
        }
    }

    fn candidate(
        &self,
        path: &Path,
        from: u16,
        plan: &Plan,
        t: &mut Tally,
    ) -> Result<Option<(LayoutSpec, u16, u64)>, Failure> {
        let Some(layout) = getstripe::get(path)?.layout else { return Ok(None) };
        if !layout.objects().any(|o| o.ost == from) {
            return Ok(None);
        }
        if !is_plain(&layout, from) || is_bound(path, t)? {
            t.skipped += 1;
            return Ok(None);
        }
        let c = &layout.components[0];
        let bytes = match ask_about(path, "cannot look at", |name| Request::Glimpse { name })? {
            Reply::Objects(all) => {
                let here = all.iter().zip(&c.objects).filter(|(_, o)| o.ost == from);
                here.map(|(a, _)| a.blocks.saturating_mul(512)).fold(0, u64::saturating_add)
            }
            other => return Err(strange(path, &other)),
        };
        if bytes == 0 {
            return Ok(None);
        }
        let members = match c.pool.as_str() {
            "" => None,
            // One whose pool is gone goes anywhere.
            name => pool::members(self.mount, name).ok().map(|p| p.osts),
        };
        let mut osts: Vec<u16> = c.objects.iter().map(|o| o.ost).collect();
        let Some(to) = plan.choose(from, &osts, members.as_deref(), bytes) else { return Ok(None) };
        for o in osts.iter_mut().filter(|o| **o == from) {
            *o = to;
        }
        let spec = LayoutSpec {
            stripe_count: osts.len() as i32,
            stripe_size: u64::from(c.stripe_size),
            stripe_start: -1,
            pool: members.map_or_else(String::new, |_| c.pool.clone()),
            osts,
            ..LayoutSpec::default()
        };
        Ok(Some((spec, to, bytes)))
    }

    /// Moves them, all at a time.
    fn make(&self, steps: &[Step], plan: &mut Plan, t: &mut Tally) {
        let one = |s: &Step| match self.dry_run {
            true => Ok(()),
            false => migrate::one(
                &s.path,
                &Move {
                    asked: s.spec.clone(),
                    given: true,
                    bandwidth_bytes: self.bandwidth_bytes,
                    ..Move::default()
                },
            ),
        };
        for (s, r) in steps.iter().zip(sys::at_once(steps, one)) {
            match r {
                Ok(()) => {
                    t.moved += 1;
                    t.bytes = t.bytes.saturating_add(s.bytes);
                }
                Err(f) => {
                    plan.moved(s.to, s.from, s.bytes);
                    t.failed.push((s.path.clone(), f.to_string()));
                }
            }
        }
    }
}

/// One striped component, with one object there: what else the file has need not change its place.
fn is_plain(l: &Layout, from: u16) -> bool {
    match l.components.as_slice() {
        [c] => {
            c.pattern == Pattern::Raid0
                && !c.is_overstriped()
                && c.objects.iter().filter(|o| o.ost == from).count() == 1
        }
        _ => false,
    }
}

/// Whether the file's directory says which OSTs its files lie on.
fn is_bound(path: &Path, t: &mut Tally) -> Result<bool, Failure> {
    let Some(dir) = path.parent() else { return Ok(false) };
    if let Some(known) = t.binds.get(dir) {
        return Ok(*known);
    }
    let default = getstripe::get(dir)?.default;
    let binds = default.is_some_and(|d| {
        let parts = d.components().unwrap_or_default();
        !d.osts.is_empty() || d.stripe_start >= 0 || parts.iter().any(|c| !c.osts.is_empty())
    });
    if t.binds.len() >= REMEMBERED_MAX {
        t.binds.clear();
    }
    t.binds.insert(dir.to_path_buf(), binds);
    Ok(binds)
}
