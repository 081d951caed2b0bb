//! Which files go from the fullest OSTs, and their moves.

use crate::command::getstripe;
use crate::command::migrate::{self, Options as Move};
use crate::command::osts::files_on;
use crate::command::pool;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::local::{self, LocalMount, ask_about, strange};
use client::control::{Reply, Request};
use model::rebalance::{Candidate, Piece, Plan, Pools, elsewhere, is_bound};
use model::{Errno, Fid, Layout, LayoutSpec};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::{self, files};

/// Files that are moved at a time: the metadata server's queue bounds how many of them run.
const AT_ONCE: usize = 8;
/// Files of which is remembered that they were looked at; with more of them it is looked again.
const REMEMBERED_MAX: usize = 100_000;

/// What came of it.
#[derive(Default)]
pub struct Tally {
    pub moved: u64,
    pub bytes: u64,
    /// What could not be moved, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// Files that are bound to their OSTs, or whose layout is not to be asked for again.
    pub skipped: u64,
    /// Files that were looked at, which are not looked at again.
    seen: BTreeSet<Fid>,
}

/// Failures that are kept; with more of them it ends.
const FAILED_MAX: usize = 1000;

/// A file that is to move, and where to.
pub struct Step {
    pub path: PathBuf,
    /// At least one.
    pub pieces: Vec<Piece>,
    spec: LayoutSpec,
}

impl Step {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|s| s.bytes).fold(0, u64::saturating_add)
    }

    /// In `plan` it is made.
    fn enter(&self, plan: &mut Plan) {
        self.pieces.iter().for_each(|s| plan.moved(s.from, s.to, s.bytes));
    }

    /// In `plan` it is not made after all.
    fn take_back(&self, plan: &mut Plan) {
        self.pieces.iter().for_each(|s| plan.moved(s.to, s.from, s.bytes));
    }
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
                        step.enter(plan);
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
            Ok(found) => found.map(|(spec, pieces)| Step { path, pieces, spec }),
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
    ) -> Result<Option<(LayoutSpec, Vec<Piece>)>, Failure> {
        let s = getstripe::get(path)?;
        let Some(layout) = s.layout.as_ref().filter(|l| l.objects().any(|o| o.ost == from)) else {
            return Ok(None);
        };
        if is_bound(layout) {
            t.skipped += 1;
            return Ok(None);
        }
        let bytes: Vec<u64> = match ask_about(path, "cannot look at", |name| Request::Glimpse { name })? {
            Reply::Objects(all) => all.iter().map(|a| a.blocks.saturating_mul(512)).collect(),
            other => return Err(strange(path, &other)),
        };
        let size = files::stat(path, true)
            .map_err(|e| Failure::io("cannot look at", &local::show(path.as_os_str()), e))?
            .size;
        let pools = self.pools(layout)?;
        elsewhere(&Candidate { layout, bytes: &bytes, size }, from, &pools, plan)
            .map_err(|e| Failure::op("cannot ask for layout of", &local::show(path.as_os_str()), e))
    }

    /// The OSTs of each pool that the file's components name and that is not gone.
    fn pools(&self, l: &Layout) -> Result<Pools, Failure> {
        let mut out = Pools::new();
        for name in l.components.iter().map(|c| &c.pool).filter(|p| !p.is_empty()) {
            match pool::members(self.mount, name) {
                Ok(p) => drop(out.insert(name.clone(), p.osts)),
                Err(Failure::Op { errno: Errno::ENOENT, .. }) => {}
                Err(f) => return Err(f),
            }
        }
        Ok(out)
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
                    t.bytes = t.bytes.saturating_add(s.bytes());
                }
                Err(f) => {
                    s.take_back(plan);
                    t.failed.push((s.path.clone(), f.to_string()));
                }
            }
        }
    }
}
