//! Objects that are lost with their OST become new, empty ones elsewhere, when an administrator says so: what
//! lay in them is a hole from then on, where it was an error before. No data moves.

use super::{movable, next_component, settle};
use crate::done::{Done, ReplyTo};
use crate::layouts::ComponentIds;
use crate::mdt::Mdt;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::tx::Tx;
use model::layout::{Component, LayoutObject};
use model::{Errno, Fid, FileType, Layout, LayoutSpec, ObjectId, TargetMark, inode_rules};
use std::sync::Arc;
use wire::encode_message;
use wire::msg::recreate::Recreate;

/// The answer is the file with its layout, and is durable; a file of which nothing is lost there stays as it
/// is. `EPERM` for anybody but root, `EBUSY` for objects on an OST that is in use, `EINVAL` for what is no
/// regular file, `ESTALE` for one that is gone, `ENOSPC` if no other OST, of its pool, takes its objects.
pub async fn recreate(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Recreate) -> Done {
    let done = mdt.transactions.settled(to, |tx| at_once(tx, ctx, m)).await;
    Done { durable: true, ..done }
}

fn at_once(tx: &mut Tx, ctx: &OpContext, m: &Recreate) -> Result<Vec<u8>, Errno> {
    if !ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    let mut i = movable(tx, m.fid)?;
    if i.kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    let mut changed = settle(tx, m.fid, &mut i);
    if let Some(old) = i.layout.clone() {
        let there: Vec<LayoutObject> = old.objects().filter(|o| o.ost == m.ost).copied().collect();
        let lost: Vec<LayoutObject> = there.iter().filter(|o| is_lost(tx, o)).copied().collect();
        if lost.is_empty() && !there.is_empty() {
            return Err(Errno::EBUSY);
        }
        if !lost.is_empty() {
            put_elsewhere(tx, m.fid, &mut i, &old, &lost)?;
            inode_rules::touch_mtime(&mut i, ctx.now);
            changed = true;
        }
    }
    if changed {
        tx.put_inode(m.fid, &mut i);
    }
    Ok(encode_message(&names::entry(tx, m.fid, &i)))
}

/// Whether nobody can reach the object any more: its OST is not used, or is another one than it was laid out
/// for.
fn is_lost(tx: &Tx, o: &LayoutObject) -> bool {
    let used = tx.shared.osts.get(o.ost).is_some_and(|ost| ost.configured && ost.enabled);
    let (its, now) = (o.id.mark(), tx.shared.osts.mark(o.ost));
    !used || (its != TargetMark::NONE && now != TargetMark::NONE && its != now)
}

/// The file's layout has new objects in the place of those that are lost, which are given up.
pub(crate) fn put_elsewhere(
    tx: &mut Tx,
    fid: Fid,
    i: &mut Inode,
    old: &Layout,
    lost: &[LayoutObject],
) -> Result<(), Errno> {
    tx.check_space()?;
    let first = next_component(i);
    let mut new = old.clone();
    new.generation = old.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    // Ids that the file never had: an object of the same id may have been there before, and destroyed.
    let mut id = first;
    for c in new.components.iter_mut().filter(|c| c.objects.iter().any(|o| lost.contains(o))) {
        let mut places = places(tx, fid, (id, new.generation), c, lost)?.into_iter().cycle();
        for o in c.objects.iter_mut().filter(|o| lost.contains(o)) {
            let ost = places.next().expect("OSTs were chosen for them");
            let made = ObjectId { origin: fid, component: id, stripe: o.id.stripe_number() };
            *o = LayoutObject { ost, id: made.marked(tx.shared.osts.mark(ost)) };
        }
        id += 1;
    }
    assert!(new.objects().all(|o| !lost.contains(o)), "{fid}: nothing of the layout is lost any more");
    tx.give_up_objects(lost);
    i.layout = Some(new);
    i.growth.attempts += id - first;
    tx.change_layout(fid);
    tx.index_objects(fid, i);
    tx.notes.add_layout(tx.shared.world.wall(), fid);
    Ok(())
}

/// OSTs that may take objects of a component, of its pool: those first that have none of it.
fn places(
    tx: &Tx,
    fid: Fid,
    (id, generation): (u32, u32),
    c: &Component,
    lost: &[LayoutObject],
) -> Result<Vec<u16>, Errno> {
    let all = LayoutSpec {
        stripe_count: -1,
        stripe_size: u64::from(c.stripe_size),
        pool: c.pool.clone(),
        ..LayoutSpec::default()
    };
    let all = all.inherit(&tx.shared.settings.builtin_layout());
    let possible = tx.shared.layout_for(fid, ComponentIds::from(id), generation, &all, 0)?;
    let has = |ost: u16| c.objects.iter().any(|o| o.ost == ost && !lost.contains(o));
    let (taken, mut free): (Vec<u16>, Vec<u16>) =
        possible.objects().map(|o| o.ost).partition(|ost| has(*ost));
    free.extend(taken);
    assert!(!free.is_empty(), "a layout that was chosen has objects");
    Ok(free)
}
