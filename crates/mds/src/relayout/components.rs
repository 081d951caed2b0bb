//! The components of a file that has some change, because somebody says so (`lfs setstripe --component-add`,
//! `--component-del`, `--component-set`).
//!
//! What only the layout says is one transaction, for which the leases on it are taken back. Components that
//! have objects go as the old objects of a move do: what is to be left is written down, the objects that go
//! are fenced, so that nothing comes to them by the layout from before, and then one transaction switches the
//! layout and gives them up.

use super::{Attempt, Frozen, Source, attempt, movable, next_component, replace, settle};
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::{self, OpContext};
use crate::ops::setlayout::check_spec;
use crate::schema::Inode;
use crate::tx::Tx;
use model::layout::{ComponentChange, ComponentFilter};
use model::planted::{self, Bug};
use model::{Errno, FileType, Layout, perm};
use std::sync::Arc;
use std::time::Duration;
use wire::encode_message;
use wire::msg::components::Components;

/// How long an attempt waits for object servers that do nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the change; the answer is the file with its layout, and is durable: what is gone stays gone. `EPERM`
/// for who may not change the file, `ENODATA` for a file without a layout, `EBUSY` if others do not let go of
/// objects that are to go; else as [`ComponentChange::check`], [`Layout::append`] and [`Layout::remove`].
pub async fn change_components(
    mdt: &Arc<Mdt>,
    to: &ReplyTo,
    ctx: &OpContext,
    m: &Components,
) -> Result<Done, Errno> {
    m.change.check()?;
    let mut tries = 0;
    loop {
        let done = mdt.transactions.settled(to, |tx| at_once(tx, ctx, m)).await;
        if !matches!(done.result, Err(Errno::EGROW)) {
            return Ok(Done { durable: true, ..done });
        }
        let begin = |tx: &mut Tx| begin(mdt, tx, ctx, m);
        if let Some(done) = attempt(mdt, Some(to), m.fid, &mut tries, begin).await? {
            return Ok(done);
        }
    }
}

/// What takes no object server. `EGROW` if components are to go that have objects.
fn at_once(tx: &mut Tx, ctx: &OpContext, m: &Components) -> Result<Vec<u8>, Errno> {
    let (mut i, old) = changeable(tx, ctx, m)?;
    match changed(tx, &mut i, &old, m)? {
        None => {}
        Some(new) if old.objects_beside(Some(&new)).next().is_some() => return Err(Errno::EGROW),
        Some(new) => {
            replace(&mut i, new);
            tx.change_layout(m.fid);
        }
    }
    tx.notes.add_layout(ctx.now, m.fid);
    i.touch_ctime(ctx.now);
    tx.put_inode(m.fid, &mut i);
    Ok(encode_message(&names::entry(tx, m.fid, &i)))
}

/// Writes down what is to be left. `ERELAYOUT` if nothing is to go that has objects.
fn begin(mdt: &Arc<Mdt>, tx: &mut Tx, ctx: &OpContext, m: &Components) -> Result<Attempt, Errno> {
    let (mut i, old) = changeable(tx, ctx, m)?;
    let target = changed(tx, &mut i, &old, m)?.ok_or(Errno::ERELAYOUT)?;
    if old.objects_beside(Some(&target)).next().is_none() {
        return Err(Errno::ERELAYOUT);
    }
    assert!(i.growth.target.is_none(), "the attempt before this one on {} is settled", m.fid);
    i.growth.target = Some(target.clone());
    tx.put_inode(m.fid, &mut i);
    let source = Source::Dropped { old, now: ctx.now };
    Ok(Attempt {
        _frozen: Frozen::new(mdt, tx, m.fid),
        inode: i,
        target,
        source,
        movement: None,
        later: None,
        patience: PATIENCE,
    })
}

/// The file and its layout, if the caller may change it and nobody else does at the moment.
fn changeable(tx: &mut Tx, ctx: &OpContext, m: &Components) -> Result<(Inode, Layout), Errno> {
    let mut i = movable(tx, m.fid)?;
    if i.kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    if !perm::owns(&ctx.cred, i.uid) {
        return Err(Errno::EPERM);
    }
    settle(tx, m.fid, &mut i);
    let layout = i.layout.clone().ok_or(Errno::ENODATA)?;
    Ok((i, layout))
}

/// The file's next layout; `None` if it stays as it is. Of a file whose data lies with its inode what it is
/// to get when it outgrows that is changed here.
fn changed(tx: &mut Tx, i: &mut Inode, old: &Layout, m: &Components) -> Result<Option<Layout>, Errno> {
    let mut new = old.clone();
    new.generation = old.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    match &m.change {
        ComponentChange::Add(spec) => {
            check_spec(tx, spec)?;
            tx.check_space()?;
            if old.mdt_component().is_some() {
                i.default_layout.as_mut().ok_or(Errno::EINVAL)?.append(spec)?;
                return Ok(None);
            }
            new.append(next_component(i), spec)?;
        }
        ComponentChange::Delete(ComponentFilter::Id(id))
            if !old.components.iter().any(|c| c.id == *id) && planted::on(Bug::DeletedByOldLayout) =>
        {
            new.remove(&ComponentFilter::Id(old.components.last().map_or(*id, |c| c.id)))?;
        }
        ComponentChange::Delete(choice) => new.remove(choice)?,
        ComponentChange::Flags { id, set, clear } => {
            if !new.mark(*id, *set, *clear)? {
                return Ok(None);
            }
        }
    }
    Ok(Some(new))
}
