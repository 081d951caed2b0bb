//! Components of files come, go and are marked while actors use the files, movements change their layouts and
//! everybody crashes (`lfs setstripe --component-add`, `--component-del`, `--component-set`).
//!
//! The model does not know layouts: what is to become of one is chosen by what a mount shows. A change that
//! is refused must have been made by a layout that is not the file's any more; one that is answered is
//! durable.

use crate::exec::{Got, STRIPE_BYTES, call};
use crate::executor::Handle;
use crate::oracle::{Body, Id, Op, Out, Tree};
use ::world::rng::Rng;
use client::{Admin, Fs};
use model::layout::{
    COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE, COMPONENT_USER_FLAGS, ComponentChange, ComponentFilter,
    ComponentSpec, EOF,
};
use model::{Errno, Fid, Layout, LayoutSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One in so many operations of an actor is such a change.
const ONE_IN: u64 = 8;
/// Attempts of a change for which others did not let go, or servers were away.
const TRIES: u32 = 3;
/// Deleted components of which an actor tries once more to get rid.
const GONE_MAX: usize = 16;

/// What is to become of a file's components.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A component up to here comes behind the last one.
    Add { end: u64, stripes: i32, grows: bool },
    /// The last one goes, and all bytes from `start` on. `size`: where the file ended then, once that is
    /// known.
    Delete { id: u32, start: u64, size: Option<u64> },
    /// One that went before is to go.
    DeleteGone { id: u32 },
    /// Flags of a component.
    Mark { id: u32, set: u32, clear: u32 },
    /// It came to nothing.
    Nothing,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Changed {
    pub result: Result<Layout, Errno>,
    /// The file's layout then, if it can be said.
    layout: Option<Layout>,
    size: u64,
}

/// What an actor knows of the components of its files.
pub struct Components {
    rng: Rng,
    /// Deleted with an answer: they never come back.
    gone: Vec<(Id, u32)>,
    /// Flags that components were given; `None`: it is not known whether they were.
    marks: BTreeMap<Id, BTreeMap<u32, Option<u32>>>,
}

/// The layout of a file as a mount shows it.
pub async fn layout(fs: &Arc<Fs>, fid: Fid) -> Option<Layout> {
    Admin(fs).getlayout(call(), fid).await.ok().flatten()
}

fn asked(change: Change) -> ComponentChange {
    match change {
        Change::Add { end, stripes, grows } => {
            let extension_bytes = if grows { STRIPE_BYTES } else { 0 };
            let part =
                ComponentSpec { end, stripe_count: stripes, extension_bytes, ..ComponentSpec::default() };
            let mut spec = LayoutSpec { stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
            spec.set_components(&[part]);
            ComponentChange::Add(spec)
        }
        Change::Delete { id, .. } | Change::DeleteGone { id } => {
            ComponentChange::Delete(ComponentFilter::Id(id))
        }
        Change::Mark { id, set, clear } => ComponentChange::Flags { id, set, clear },
        Change::Nothing => unreachable!("nobody asks for nothing"),
    }
}

/// Whether a layout is what a change makes, whoever made it.
fn is_made(change: Change, l: &Layout) -> bool {
    let with = |id: u32| l.components.iter().find(|c| c.id == id);
    match change {
        Change::Add { end, .. } => l.end() >= end,
        Change::Delete { id, .. } | Change::DeleteGone { id } => with(id).is_none(),
        Change::Mark { id, set, clear } => {
            with(id).is_none_or(|c| c.flags & set == set && c.flags & clear == 0)
        }
        Change::Nothing => true,
    }
}

/// Does it. Errors are those of a file that is not there.
pub async fn run(fs: &Arc<Fs>, fid: Fid, change: Change) -> Result<Changed, Errno> {
    let mut tries = 0;
    loop {
        let mut result = Admin(fs).change_components(call(), fid, asked(change)).await;
        let here = layout(fs, fid).await;
        match result {
            Err(e @ (Errno::ENOENT | Errno::ESTALE)) => return Err(e),
            Err(Errno::EBUSY | Errno::EIO | Errno::ETIMEDOUT | Errno::ENOSPC) => {
                tries += 1;
                match &here {
                    Some(l) if is_made(change, l) => result = Ok(l.clone()),
                    _ if tries < TRIES => continue,
                    _ => {}
                }
            }
            _ => {}
        }
        let size = fs.clone().getattr(call(), fid).await?.size;
        return Ok(Changed { result, layout: here, size });
    }
}

impl Components {
    pub fn new(rng: Rng) -> Components {
        Components { rng, gone: Vec::new(), marks: BTreeMap::new() }
    }

    /// A file whose components are to be changed now, if any.
    pub fn file(&mut self, tree: &Tree) -> Option<Id> {
        if self.rng.below(ONE_IN) > 0 {
            return None;
        }
        let with_name =
            tree.iter().filter(|(_, n)| matches!(n.body, Body::File(_)) && n.nlink > 0 && n.fid.is_some());
        let files: Vec<Id> = with_name.map(|(id, _)| id).collect();
        // Those that end somewhere are few, and others write no more behind their end.
        let ended: Vec<Id> = files.iter().copied().filter(|id| tree.node(*id).end.is_some()).collect();
        let some = if !ended.is_empty() && self.rng.coin() { &ended } else { &files };
        (!some.is_empty()).then(|| *self.rng.pick(some))
    }

    /// What to do with it.
    pub fn change(&mut self, node: Id, l: &Layout) -> Option<Change> {
        if l.mdt_component().is_some() || l.components.is_empty() {
            return None;
        }
        let gone: Vec<u32> = self.gone.iter().filter(|(n, _)| *n == node).map(|(_, id)| *id).collect();
        if !gone.is_empty() && self.rng.below(4) == 0 {
            return Some(Change::DeleteGone { id: *self.rng.pick(&gone) });
        }
        let dice = self.rng.below(6);
        if dice == 0 {
            let flag = *self.rng.pick(&[COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE]);
            let id = l.components[self.rng.index(l.components.len())].id;
            let (set, clear) = if self.rng.below(3) > 0 { (flag, 0) } else { (0, flag) };
            return Some(Change::Mark { id, set, clear });
        }
        if l.end() != EOF && dice < 4 {
            let end = if self.rng.coin() { EOF } else { l.end() + STRIPE_BYTES * self.rng.range(1, 4) };
            let grows = self.rng.below(3) == 0;
            return Some(Change::Add { end, stripes: self.rng.range(1, 3) as i32, grows });
        }
        let id = l.components.last()?.id;
        let mut left = l.clone();
        left.remove(&ComponentFilter::Id(id)).ok()?;
        Some(Change::Delete { id, start: left.end(), size: None })
    }

    /// The change as it went, and what it gave in the model's words. An error is what is wrong.
    pub fn settle(
        &mut self,
        sim: &Handle,
        (node, had): (Id, u64),
        change: Change,
        how: Changed,
    ) -> Result<(Change, Got), String> {
        let refused = |c: &Components, e: Errno| {
            let by_old = match e {
                Errno::EINVAL => how.layout.as_ref().is_none_or(|l| c.may_be_refused(node, change, l)),
                // The only component that is left.
                Errno::EOPNOTSUPP => matches!(change, Change::Delete { .. }),
                Errno::EBUSY | Errno::EIO | Errno::ETIMEDOUT | Errno::ENOSPC => true,
                _ => false,
            };
            if by_old { Ok(()) } else { Err(format!("gave {e} with {:?}", how.layout)) }
        };
        match (&how.result, change) {
            (Ok(l), Change::DeleteGone { .. }) => {
                return Err(format!("went well though that component was deleted long ago: {l:?}"));
            }
            (Err(Errno::EINVAL), Change::DeleteGone { .. }) => sim.count("component_gone_refused"),
            (Err(e), _) => {
                refused(self, *e)?;
                sim.count("component_change_refused");
            }
            (Ok(_), Change::Add { .. }) => {
                sim.count("component_added");
                return Ok((change, Got::Unit));
            }
            (Ok(l), Change::Mark { id, set, clear }) => {
                let flags = l.components.iter().find(|c| c.id == id).map(|c| c.flags);
                if flags.is_some_and(|f| f & set != set || f & clear != 0) {
                    return Err(format!("left component {id} of {l:?} as it was"));
                }
                let known = flags.map(|f| f & COMPONENT_USER_FLAGS);
                self.marks.entry(node).or_default().insert(id, known);
                sim.count("component_marked");
                return Ok((change, Got::Unit));
            }
            (Ok(_), Change::Delete { id, start, .. }) => {
                self.gone.push((node, id));
                let many = self.gone.len().saturating_sub(GONE_MAX);
                self.gone.drain(..many);
                sim.count("component_deleted");
                if had > start {
                    sim.count("component_deleted_with_bytes");
                }
                return Ok((Change::Delete { id, start, size: Some(how.size) }, Got::Number(how.size)));
            }
            (Ok(_), Change::Nothing) => {}
        }
        // An attempt that came to nothing in words may have come to something.
        if how.result != Err(Errno::EINVAL) && how.result != Err(Errno::EOPNOTSUPP) {
            self.forget_mark(node, change);
        }
        Ok((Change::Nothing, Got::Unit))
    }

    /// Whether a layout is one for which the change is no change that can be.
    fn may_be_refused(&self, node: Id, change: Change, l: &Layout) -> bool {
        let has = |id: u32| l.components.iter().any(|c| c.id == id);
        match change {
            // Moved meanwhile; or a movement made it end elsewhere.
            Change::Add { end, .. } => l.end() == EOF || l.end() >= end,
            Change::Delete { id, .. } => !has(id) || l.components.last().is_some_and(|c| c.id != id),
            Change::DeleteGone { id } => self.gone.contains(&(node, id)),
            Change::Mark { id, .. } => !has(id),
            Change::Nothing => false,
        }
    }

    fn forget_mark(&mut self, node: Id, change: Change) {
        if let Change::Mark { id, .. } = change {
            self.marks.entry(node).or_default().insert(id, None);
        }
    }

    /// Nobody knows whether it happened.
    pub fn unanswered(&mut self, tree: &mut Tree, node: Id, change: Change) {
        may_end(tree, node, change);
        self.forget_mark(node, change);
    }

    /// Files with components that were marked.
    pub fn marked(&self) -> Vec<Id> {
        self.marks.keys().copied().collect()
    }

    /// Whether a file's components have the flags that they were given, and others none.
    pub fn marked_as_said(&self, (node, l): (Id, &Layout)) -> Result<(), String> {
        let given = self.marks.get(&node);
        for c in &l.components {
            let want = given.and_then(|g| g.get(&c.id)).copied().unwrap_or(Some(0));
            let has = c.flags & COMPONENT_USER_FLAGS;
            if want.is_some_and(|w| w != has) {
                return Err(format!(
                    "component {} of file {node} has flags {has}, not {want:?}: {l:?}",
                    c.id
                ));
            }
        }
        Ok(())
    }
}

/// A deletion may have happened: who writes behind what it left would be refused.
pub fn may_end(tree: &mut Tree, node: Id, change: Change) {
    if let Change::Delete { start, .. } = change
        && tree.get(node).is_some()
    {
        let n = tree.node_mut(node);
        n.end = Some(n.end.map_or(start, |e| e.min(start)));
        n.pruned = true;
    }
}

/// What a file and the answer are afterwards.
pub fn apply(tree: &mut Tree, node: Id, change: Change) -> Out {
    match change {
        Change::Add { end, .. } => {
            tree.node_mut(node).end = (end != EOF).then_some(end);
            Out::Unit
        }
        Change::Delete { start, size, .. } => {
            let d = tree.bytes(node);
            let most = d.len().min(usize::try_from(start).unwrap_or(usize::MAX));
            // It ends where the objects do that are left, and those may have a hole at their end.
            let least = d[..most].iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
            let fits = size.filter(|s| (least as u64..=most as u64).contains(s));
            d.resize(fits.map_or(most, |s| s as usize), 0);
            let n = tree.node_mut(node);
            (n.end, n.pruned) = (Some(start), true);
            fits.map_or(Out::Between(least as u64, most as u64), Out::Number)
        }
        Change::DeleteGone { .. } | Change::Mark { .. } | Change::Nothing => Out::Unit,
    }
}

/// What lay behind `start` is gone on all servers, whoever kept some of it. The file ends at `size`.
pub fn forget_behind(tree: &mut Tree, node: Id, start: u64, size: u64) {
    let n = tree.node_mut(node);
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    for v in &mut n.versions {
        if v.len() > start {
            *v = Arc::new(v[..start].to_vec());
        }
    }
    n.cuts.insert(size);
}

/// Whether an operation would reach behind the end of a file's layout.
pub fn is_behind(tree: &Tree, op: &Op) -> bool {
    let Some(n) = op.written().and_then(|id| tree.get(id)) else { return false };
    let reaches = match op {
        Op::Write { off, data, .. } => *off + data.len() as u64,
        Op::Append { data, .. } => n.data().len() as u64 + data.len() as u64,
        Op::Truncate { size, .. } => *size,
        Op::Fallocate { off, len, .. } => *off + *len,
        Op::Copy { to_off, len, .. } => *to_off + *len,
        _ => 0,
    };
    n.end.is_some_and(|end| reaches > end)
}
