//! Which files go from the fullest OSTs, and their moves.

use super::plan::Plan;
use crate::command::getstripe::{self, effective, part::Parts};
use crate::command::migrate::{self, Options as Move};
use crate::command::osts::files_on;
use crate::command::pool;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::local::{self, LocalMount, ask_about, strange};
use client::control::{Reply, Request};
use model::layout::{COMPONENT_INIT, Pattern};
use model::{Errno, Fid, Layout, LayoutSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::{self, files};

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
    /// Files that are bound to their OSTs, or whose layout is not to be asked for again.
    pub skipped: u64,
    /// Files that were looked at, which are not looked at again.
    seen: BTreeSet<Fid>,
    /// Whether a directory says for its files which OSTs they lie on.
    binds: BTreeMap<PathBuf, bool>,
}

/// Failures that are kept; with more of them it ends.
const FAILED_MAX: usize = 1000;

/// Bytes of a file that go from one OST to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub from: u16,
    pub to: u16,
    pub bytes: u64,
}

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
        if !may_move(layout) || is_bound(path, t)? {
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
        let mut parts = Parts::of_file(&s).expect("it has a layout");
        let pieces = elsewhere(&mut parts, (from, &bytes), &pools, plan);
        if pieces.is_empty() {
            return Ok(None);
        }
        parts.forget_places_behind(size.saturating_mul(2));
        let spec = parts
            .spec()
            .map_err(|e| Failure::op("cannot ask for layout of", &local::show(path.as_os_str()), e))?;
        Ok(Some((spec, pieces)))
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

/// Pools by their names, with their OSTs.
type Pools = BTreeMap<String, Vec<u16>>;

/// Whether a layout with other OSTs is all that its file has: where a component grows by steps the metadata
/// server chooses for each step, and marks of components would be lost.
fn may_move(l: &Layout) -> bool {
    l.components.iter().all(|c| {
        c.pattern == Pattern::Raid0 && c.mirror == 0 && c.flags & !COMPONENT_INIT == 0 && !c.is_extension()
    })
}

/// What lies on `from` goes elsewhere in `parts`, each object to an OST that its component has not yet, of
/// its pool if there is one; an object without bytes stays. `bytes`: of each object, in their order.
fn elsewhere(parts: &mut Parts, (from, bytes): (u16, &[u64]), pools: &Pools, plan: &Plan) -> Vec<Piece> {
    let (mut plan, mut pieces) = (plan.clone(), Vec::new());
    let mut bytes = bytes.iter().copied();
    for part in &mut parts.parts {
        let members = pools.get(&part.pool);
        if members.is_none() {
            // One whose pool is gone goes anywhere.
            part.pool.clear();
        }
        if !part.is_instantiated() {
            continue;
        }
        for n in 0..part.objects.len() {
            let bytes = bytes.next().unwrap_or(0);
            if part.objects[n].0 != from || bytes == 0 {
                continue;
            }
            let has: Vec<u16> = part.objects.iter().map(|(ost, _)| *ost).collect();
            if let Some(to) = plan.choose(from, &has, members.map(Vec::as_slice), bytes) {
                part.objects[n].0 = to;
                plan.moved(from, to, bytes);
                pieces.push(Piece { from, to, bytes });
            }
        }
    }
    pieces
}

/// Whether the file's directory says which OSTs its files lie on.
fn is_bound(path: &Path, t: &mut Tally) -> Result<bool, Failure> {
    let Some(dir) = path.parent() else { return Ok(false) };
    if let Some(known) = t.binds.get(dir) {
        return Ok(*known);
    }
    let (default, _) = effective(&getstripe::get(dir)?);
    let parts = default.components().unwrap_or_default();
    let names = |osts: &[u16], start: i32| !osts.is_empty() || start >= 0;
    let binds =
        names(&default.osts, default.stripe_start) || parts.iter().any(|c| names(&c.osts, c.stripe_start));
    if t.binds.len() >= REMEMBERED_MAX {
        t.binds.clear();
    }
    t.binds.insert(dir.to_path_buf(), binds);
    Ok(binds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::control::{Stripe, Target, TargetSpace};
    use model::layout::ComponentSpec;
    use model::{FileType, TargetId};

    fn plan(used: &[u64]) -> Plan {
        let space = |(n, used): (u16, &u64)| TargetSpace {
            target: Target {
                target: TargetId::ost(n),
                uuid: String::new(),
                nid: String::new(),
                state: "FULL".into(),
                active: true,
                domain: Vec::new(),
            },
            errno: None,
            total: 1000,
            free: 1000 - used,
            available: 1000 - used,
            files: 0,
            files_free: 0,
            disk: u64::from(n) + 1,
            flags: 0,
        };
        Plan::of(&(0..).zip(used).map(space).collect::<Vec<_>>())
    }

    /// Two components with objects, the second of a pool, and one without.
    fn stripe() -> Stripe {
        let part = |end, stripe_count, pool: &str| ComponentSpec {
            end,
            stripe_count,
            stripe_size: 1 << 20,
            pool: pool.into(),
            ..ComponentSpec::default()
        };
        let specs = [part(1 << 20, 1, ""), part(8 << 20, 2, "fast"), part(model::layout::EOF, -1, "")];
        let mut l = Layout::composite(1, 0, &specs);
        l.instantiate(0, Fid::new(9, 9, 0), ("", &[0]));
        l.instantiate(1, Fid::new(9, 9, 0), ("fast", &[0, 1]));
        Stripe {
            fid: Fid::new(9, 9, 0),
            kind: FileType::Regular,
            layout: Some(l),
            default: None,
            fs_default: None,
            mdt_bytes: None,
            grows_into: None,
        }
    }

    #[test]
    fn of_a_file_with_components_only_the_objects_there_change_their_places() {
        let s = stripe();
        assert!(may_move(s.layout.as_ref().unwrap()));
        let pools = Pools::from([("fast".to_string(), vec![0, 1, 3])]);
        let mut parts = Parts::of_file(&s).unwrap();
        let pieces = elsewhere(&mut parts, (0, &[100, 50, 60]), &pools, &plan(&[900, 100, 10, 300]));
        assert_eq!(pieces, [Piece { from: 0, to: 2, bytes: 100 }, Piece { from: 0, to: 3, bytes: 50 }]);
        let asked = parts.spec().unwrap().components().unwrap();
        assert_eq!(asked.iter().map(|c| c.osts.clone()).collect::<Vec<_>>(), [vec![2], vec![3, 1], vec![]]);
        let shape = |c: &ComponentSpec| (c.end, c.stripe_count, c.stripe_size, c.pool.clone());
        let (old, new) = (s.layout.unwrap(), asked.iter().map(shape).collect::<Vec<_>>());
        for (c, n) in old.components.iter().zip(&new) {
            assert_eq!((c.end, u64::from(c.stripe_size), &c.pool), (n.0, n.2, &n.3));
        }
        assert_eq!(new.iter().map(|n| n.1).collect::<Vec<_>>(), [1, 2, -1]);
    }

    #[test]
    fn objects_without_bytes_stay_and_far_behind_the_end_nothing_is_bound() {
        let mut parts = Parts::of_file(&stripe()).unwrap();
        let gone = Pools::new();
        let pieces = elsewhere(&mut parts, (0, &[100, 0, 0]), &gone, &plan(&[900, 100, 10, 300]));
        assert_eq!(pieces, [Piece { from: 0, to: 2, bytes: 100 }]);
        parts.forget_places_behind(1 << 20);
        let asked = parts.spec().unwrap().components().unwrap();
        assert_eq!(asked.iter().map(|c| c.osts.len()).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!((asked[1].stripe_count, asked[1].pool.as_str()), (2, ""), "its pool is gone");
    }

    #[test]
    fn who_grows_by_steps_or_is_marked_stays() {
        let mut l = stripe().layout.unwrap();
        l.components[2].flags |= model::layout::COMPONENT_PREFER_READ;
        assert!(!may_move(&l));
        let grows = ComponentSpec {
            extension_bytes: 1 << 20,
            stripe_count: 1,
            stripe_size: 1 << 20,
            ..ComponentSpec::default()
        };
        assert!(!may_move(&Layout::composite(1, 0, &[grows])));
    }
}
