//! From data with the inode to objects, because more is to come than has room there.

use super::{
    Attempt, Frozen, Source, WITHOUT_DATA, adopt, attempt, choose, movable, next_component, note_target,
    settle,
};
use crate::done::{Done, ReplyTo};
use crate::layouts::ComponentIds;
use crate::mdt::Mdt;
use crate::schema::Inode;
use crate::tx::Tx;
use crate::{data, names, replayed};
use model::layout::{Component, LayoutObject, Pattern};
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use std::time::Duration;
use wire::{Op, encode_message};

/// How long an attempt waits for the object servers before it is given up and others are chosen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives the file objects; the answer is the file with its new layout. `ESTALE` if it is gone. `replay`: the
/// reply of the first time, and whether recovery is going on.
///
/// Where no data moves the answer is like that of a create: its client keeps the request, and doing it again
/// comes to the same objects. Where data moved the answer is durable: the objects of an attempt are never
/// used again.
pub async fn grow(
    mdt: &Arc<Mdt>,
    to: &ReplyTo,
    fid: Fid,
    replay: Option<(&[u8], bool)>,
) -> Result<Done, Errno> {
    let mut tries = 0;
    loop {
        let mut ends = mdt.shared.growing.ends();
        let without_data = |tx: &mut Tx| {
            if let Some((reply, recovering)) = replay {
                tx.replay(Op::Grow, reply, recovering);
            }
            let body = at_once(tx, fid)?;
            let first = replay.filter(|(reply, _)| replayed::same(Op::Grow, reply, &body));
            Ok(first.map_or(body, |(reply, _)| reply.to_vec()))
        };
        let done = mdt.transactions.transact(Some(to), without_data).await;
        match done.result {
            // It was answered for a file without data, and by now somebody else wrote some.
            Err(Errno::EGROW) if replay.is_some() => return Err(Errno::EIO),
            Err(Errno::EGROW) => {}
            Err(Errno::EGROWING) => {
                let _ = ends.changed().await;
                continue;
            }
            _ => return Ok(done),
        }
        if let Some(done) = attempt(mdt, Some(to), fid, &mut tries, |tx| begin(mdt, tx, fid)).await? {
            return Ok(done);
        }
    }
}

/// What takes no object server: a file that has its objects, or no data. `EGROW` if there is data to move,
/// `EGROWING` if somebody is at it.
fn at_once(tx: &mut Tx, fid: Fid) -> Result<Vec<u8>, Errno> {
    let mut i = movable(tx, fid)?;
    if i.data_room().is_some() {
        if i.data.blocks > 0 || i.data.size > 0 {
            return Err(Errno::EGROW);
        }
        settle(tx, fid, &mut i);
        let target = match tx.first_layout() {
            Some(l) if possible(l, fid, &i) => l.clone(),
            Some(_) => return Err(Errno::EPROTO),
            // Should the crash of this target take it back, the next one chooses after a restart.
            None => {
                let spec = i.default_layout.clone().unwrap_or_default();
                let ids = ComponentIds { first: WITHOUT_DATA | tx.shared.epoch, next: next_component(&i) };
                choose(tx, fid, &i, ids, &spec, 0)?
            }
        };
        adopt(tx, fid, &mut i, target);
    } else if tx.first_layout().is_some_and(|l| i.layout.as_ref() != Some(l)) {
        return Err(Errno::EIO); // its client wrote to objects that are not the file's
    }
    Ok(encode_message(&names::entry(tx, fid, &i)))
}

/// Writes down where the data goes, and keeps changes of it off. `ERELAYOUT` if it is there already.
fn begin(mdt: &Arc<Mdt>, tx: &mut Tx, fid: Fid) -> Result<Attempt, Errno> {
    let mut i = movable(tx, fid)?;
    if i.data_room().is_none() {
        return Err(Errno::ERELAYOUT);
    }
    settle(tx, fid, &mut i);
    let spec = i.default_layout.clone().unwrap_or_default();
    let size = i.data.size;
    let target = note_target(tx, fid, &mut i, &spec, size)?;
    let source = Source::Inode(data::runs(tx, fid)?);
    Ok(Attempt {
        _frozen: Frozen::new(mdt, tx, fid),
        inode: i,
        target,
        source,
        patience: PATIENCE,
        movement: None,
        later: None,
    })
}

/// Ids that a client says its components have lie below: there must be others behind them.
const IDS_BELIEVED: u32 = 1 << 30;

/// Whether a client's word on what a file without data grew into can be true.
pub(super) fn possible(l: &Layout, fid: Fid, i: &Inode) -> bool {
    let ours = |o: &LayoutObject| o.id.origin == fid && o.id.component & WITHOUT_DATA != 0;
    let later = i.layout.as_ref().is_some_and(|old| l.generation == old.generation + 1);
    let first = l.components.first().is_some_and(|c| !c.objects.is_empty());
    let others = |c: &Component| c.objects.is_empty() && c.pattern == Pattern::Raid0 && c.id < IDS_BELIEVED;
    later && first && l.components.iter().skip(1).all(others) && l.objects().all(ours)
}
