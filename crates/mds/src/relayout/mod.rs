//! A file gets another layout while it is in use: the data goes to new objects first, durably, and then one
//! transaction gives the file its new layout and drops the data where it was. Until then nothing changed for
//! anybody.
//!
//! `grow` moves data from the inode to objects, `migrate` to any other place; `copy` brings the bytes there,
//! and `to_inode` those that come to the inode. `instantiate` moves nothing: it gives objects to components
//! that have none; `components` adds some and lets others go; `recreate` puts empty objects in the place of
//! lost ones; `swap` gives two files each other's. Changes of data with the inode wait meanwhile, as this
//! target makes them. Objects are fenced first (decision 0054): their servers take back all locks, and with
//! those what clients keep, and refuse what comes by the old layout. Who is refused asks for the new one
//! (`ops/layout.rs`), and gets it when the attempt is over.
//!
//! An attempt writes down where it puts the data before it does, under a component id that no attempt had
//! before: what a crash or a failure leaves on the object servers is known and given up by the next attempt,
//! or with the file, and never met again. Of an attempt that came to nothing the old objects may be fenced:
//! the file keeps them under a layout that is as new as the one that it did not get ([`settle`]).

mod components;
pub mod copy;
mod empty;
mod grow;
mod instantiate;
mod migrate;
mod movements;
mod rebalance;
mod recreate;
mod swap;
mod to_inode;
mod yielding;

pub use components::change_components;
pub use empty::lay_out_empty;
pub use grow::grow;
pub use instantiate::instantiate;
pub use migrate::migrate;
pub use movements::{MOVEMENTS_DEFAULT, MOVEMENTS_MAX, Movements};
pub use rebalance::run as keep_even;
pub(crate) use recreate::put_elsewhere;
pub use recreate::recreate;
pub use swap::swap;

use movements::Movement;

use crate::done::{Done, ReplyTo};
use crate::layouts::ComponentIds;
use crate::mdt::Mdt;
use crate::names;
use crate::schema::Inode;
use crate::schema::inode::{DataState, Growth};
use crate::tx::Tx;
use model::layout::LayoutObject;
use model::planted::{self, Bug};
use model::{Cred, Errno, Fid, Layout, LayoutSpec, ObjectAttr, Timestamp, inode_rules};
use rpc::Import;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wire::{RequestContext, encode_message};
use world::{Either, select};

/// Component ids of layouts for files without data: this and the target's epoch.
pub const WITHOUT_DATA: u32 = 1 << 31;
/// Attempts that may fail before the caller hears of it. Being slow is no failure of a growth, whose caller
/// waits to write.
const TRIES: u32 = 3;

/// Changes of a file's data wait while this lives, from the end of the transaction on in which it was made:
/// no change is under way then.
struct Frozen {
    mdt: Arc<Mdt>,
    fid: Fid,
    in_force: Arc<AtomicBool>,
}

impl Frozen {
    fn new(mdt: &Arc<Mdt>, tx: &mut Tx, fid: Fid) -> Frozen {
        Frozen { mdt: mdt.clone(), fid, in_force: tx.freeze(fid) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.in_force.load(Ordering::SeqCst) {
            self.mdt.shared.growing.end(self.fid);
        }
    }
}

/// Where the data is that an attempt moves.
enum Source {
    /// With the inode: (offset, bytes), holes left out.
    Inode(Vec<(u64, Vec<u8>)>),
    /// On the objects of this layout.
    Objects(Layout),
    /// With the inode, where it stays: another room, and another layout to grow into.
    Room,
    /// Nothing moves: the objects of this layout that the new one does not have go, at that time.
    Dropped { old: Layout, now: Timestamp },
}

/// An attempt under way: the file as it was when its data was frozen.
struct Attempt {
    _frozen: Frozen,
    inode: Inode,
    target: Layout,
    source: Source,
    /// It is given up when nothing came of it for so long.
    patience: Duration,
    /// Of a file that an administrator or its owner moves.
    movement: Option<Arc<Movement>>,
    /// Of a target with the inode: what the file grows into.
    later: Option<LayoutSpec>,
}

/// What a copy came to.
struct Copied {
    /// The latest of the times of the new objects.
    newest: Timestamp,
    /// What is to lie with the inode.
    to_inode: Option<to_inode::FileData>,
}

/// What came of beginning an attempt.
enum Begun<T> {
    Now(T),
    /// Somebody else is at it, or was: it is to be looked at again.
    Later,
    Refused(Done),
}

/// Writes down what `begin` does, durably.
async fn begun<T: Send>(
    mdt: &Arc<Mdt>,
    mut begin: impl FnMut(&mut Tx) -> Result<T, Errno> + Send,
) -> Result<Begun<T>, Errno> {
    let mut ends = mdt.shared.growing.ends();
    let mut begun = None;
    let done = mdt
        .transactions
        .transact(None, |tx| {
            begun = None; // of a run that had to wait for leases
            begun = Some(begin(tx)?);
            Ok(Vec::new())
        })
        .await;
    let a = match (&done.result, begun) {
        (Ok(_), Some(a)) => a,
        (Err(Errno::EGROWING), _) => {
            let _ = ends.changed().await;
            return Ok(Begun::Later);
        }
        (Err(Errno::ERELAYOUT), _) => return Ok(Begun::Later),
        _ => return Ok(Begun::Refused(Done { durable: true, ..done })),
    };
    // What is about to be written must be known to belong to nobody else, whatever happens. And the data
    // goes where others can read it only when it cannot be lost here any more.
    mdt.db.durable(done.wait).await.map_err(|e| e.errno())?;
    Ok(Begun::Now(a))
}

/// One attempt. `None`: somebody else is at it, or was, and it is to be looked at again.
async fn attempt(
    mdt: &Arc<Mdt>,
    to: Option<&ReplyTo>,
    fid: Fid,
    tries: &mut u32,
    begin: impl FnMut(&mut Tx) -> Result<Attempt, Errno> + Send,
) -> Result<Option<Done>, Errno> {
    let a = match begun(mdt, begin).await? {
        Begun::Now(a) => a,
        Begun::Later => return Ok(None),
        Begun::Refused(done) => return Ok(Some(done)),
    };
    match move_within(mdt, to, fid, &a).await {
        Ok(done) => Ok(Some(Done { durable: true, ..done })),
        Err(Errno::ESHUTDOWN) => Err(Errno::ESHUTDOWN),
        Err(e) => {
            let left = mdt.transactions.transact(None, |tx| give_up(tx, fid).map(|()| Vec::new())).await;
            let slow = e == Errno::ETIMEDOUT && matches!(a.source, Source::Inode(_));
            *tries += u32::from(!slow);
            let over = a.movement.as_ref().is_some_and(|m| m.is_over_with(e));
            if *tries >= TRIES || left.result.is_err() || over {
                return Err(e);
            }
            tracing::warn!("the data of {fid} could not be moved to its new objects: {e}; trying again");
            Ok(None)
        }
    }
}

/// Moves the data and switches the layout. `ETIMEDOUT` if the object servers take too long, or restart.
async fn move_within(mdt: &Arc<Mdt>, to: Option<&ReplyTo>, fid: Fid, a: &Attempt) -> Result<Done, Errno> {
    let grows = matches!(a.source, Source::Inode(_));
    if grows && planted::on(Bug::GrownBeforeDurable) {
        let nothing = Copied { newest: Timestamp::ZERO, to_inode: None };
        let done = mdt.transactions.transact(to, |tx| switch(tx, fid, a, &nothing)).await;
        let _ = mdt.stop.pause(Duration::from_millis(200)).await;
        return copy_within(mdt, fid, a).await.map(|_| done);
    }
    if let (Source::Objects(old), true) = (&a.source, planted::on(Bug::DestroyedBeforeSwitch)) {
        let objects: Vec<_> = old.objects().copied().collect();
        let early = mdt.transactions.transact(None, |tx| {
            tx.give_up_objects(&objects);
            Ok(Vec::new())
        });
        early.await.result?;
    }
    let copied = copy_within(mdt, fid, a).await?;
    Ok(mdt.transactions.transact(to, |tx| switch(tx, fid, a, &copied)).await)
}

/// Copies. `ETIMEDOUT` if nothing comes of it for so long as the attempt has patience.
async fn copy_within(mdt: &Arc<Mdt>, fid: Fid, a: &Attempt) -> Result<Copied, Errno> {
    let progress = AtomicU64::new(0);
    let mut copied = Box::pin(copy::copy(mdt, fid, a, &progress));
    let mut before = None;
    loop {
        match select(&mut copied, mdt.stop.pause(a.patience)).await {
            Either::Left(r) => return r,
            Either::Right(true) => return Err(Errno::ESHUTDOWN),
            Either::Right(false) => {
                let now = Some(progress.load(Ordering::Relaxed));
                if now == before || now == Some(0) {
                    return Err(Errno::ETIMEDOUT);
                }
                before = now;
            }
        }
    }
}

/// A file that nobody moves at the moment. `EGROWING` if somebody does, `ESTALE` if it is gone.
fn movable(tx: &mut Tx, fid: Fid) -> Result<Inode, Errno> {
    let i = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?;
    if tx.shared.growing.contains(fid) { Err(Errno::EGROWING) } else { Ok(i) }
}

/// A component id that the file never had.
fn next_component(i: &Inode) -> u32 {
    let numbered =
        i.layout.iter().flat_map(|l| &l.components).map(|c| c.id).filter(|id| id & WITHOUT_DATA == 0);
    let first = numbered.max().unwrap_or(1).max(1) + 1;
    let next = first.saturating_add(i.growth.attempts);
    assert!(next < WITHOUT_DATA, "attempts are numbered");
    next
}

/// The file's next layout, as `spec` wants it, with objects for what lies before `upto`; its components' ids
/// are new.
fn choose(
    tx: &Tx,
    fid: Fid,
    i: &Inode,
    ids: ComponentIds,
    spec: &LayoutSpec,
    upto: u64,
) -> Result<Layout, Errno> {
    let spec = spec.clone().inherit(&tx.shared.settings.builtin_layout());
    spec.check()?;
    let old = i.layout.as_ref().expect("it has data somewhere");
    let generation = old.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    let new = tx.shared.layout_for(fid, ids, generation, &spec, upto)?;
    let had = |id: u32| old.components.iter().any(|c| c.id == id);
    assert!(new.components.iter().all(|c| c.id > 1 && !had(c.id)), "{fid}: component ids are never reused");
    Ok(new)
}

/// Writes down where the data goes, of which there is none at `upto` and behind.
fn note_target(tx: &mut Tx, fid: Fid, i: &mut Inode, spec: &LayoutSpec, upto: u64) -> Result<Layout, Errno> {
    let target = choose(tx, fid, i, ComponentIds::from(next_component(i)), spec, upto)?;
    note(tx, fid, i, target)
}

/// Writes down that the data goes to the inode, or stays there, with room for so many bytes.
fn note_room(tx: &mut Tx, fid: Fid, i: &mut Inode, room: u32) -> Result<Layout, Errno> {
    let old = i.layout.as_ref().expect("it has data somewhere");
    let generation = old.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    let target = Layout { generation, ..Layout::on_mdt(room).numbered(next_component(i)) };
    note(tx, fid, i, target)
}

fn note(tx: &mut Tx, fid: Fid, i: &mut Inode, target: Layout) -> Result<Layout, Errno> {
    assert!(i.growth.target.is_none(), "the attempt before this one on {fid} is settled");
    let first = next_component(i);
    let last = target.components.iter().map(|c| c.id).max().expect("a layout has a component");
    assert!(last >= first, "{fid}: ids of components are not given again");
    i.growth.attempts += last + 1 - first;
    i.growth.target = Some(target.clone());
    tx.index_objects(fid, i);
    tx.put_inode(fid, i);
    Ok(target)
}

/// Ends an attempt that came to nothing: its objects go, and those that the file keeps, which may be fenced,
/// are reached by a layout that is as new. The inode is the caller's to write. Whether there was one.
fn settle(tx: &mut Tx, fid: Fid, i: &mut Inode) -> bool {
    let Some(target) = i.growth.target.take() else { return false };
    let objects: Vec<_> = target.objects_beside(i.layout.as_ref()).copied().collect();
    if !planted::on(Bug::AttemptLeavesObjects) {
        tx.give_up_objects(&objects);
    }
    let fenced = i.layout.as_mut().filter(|l| l.mdt_component().is_none());
    if let Some(l) = fenced {
        assert!(l.generation < target.generation, "{fid} would have got a newer layout");
        l.generation = target.generation;
        tx.change_layout(fid);
    }
    true
}

fn give_up(tx: &mut Tx, fid: Fid) -> Result<(), Errno> {
    if let Some(mut i) = tx.try_inode(fid)?
        && settle(tx, fid, &mut i)
    {
        tx.put_inode(fid, &mut i);
    }
    Ok(())
}

/// As [`settle`], of what a former life of this target left. `EGROWING` while an attempt is under way.
pub fn settle_abandoned(tx: &mut Tx, fid: Fid) -> Result<(), Errno> {
    movable(tx, fid)?;
    give_up(tx, fid)
}

/// Whether an attempt on it was begun, and is not under way.
pub fn is_abandoned(tx: &Tx, fid: Fid, i: &Inode) -> bool {
    i.growth.target.is_some() && !tx.shared.growing.contains(fid) && !planted::on(Bug::AttemptForgotten)
}

/// The inode's layout is `new`; ids of components that go are not given again.
fn replace(i: &mut Inode, new: Layout) {
    let next = next_component(i);
    i.layout = Some(new);
    i.growth = Growth::default();
    if !planted::on(Bug::ComponentIdsReused) {
        i.growth.attempts = next.saturating_sub(next_component(i));
    }
}

/// The file has `target`, and its data there, from now on.
fn adopt(tx: &mut Tx, fid: Fid, i: &mut Inode, target: Layout) {
    i.default_layout = None;
    i.data = DataState::default();
    lay_out(tx, fid, i, target);
}

/// The file's layout is `new` from now on. The inode is written.
fn lay_out(tx: &mut Tx, fid: Fid, i: &mut Inode, new: Layout) {
    let later = i.layout.as_ref().is_none_or(|old| old.generation < new.generation);
    assert!(later, "{fid} gets a layout that is not newer than its own");
    replace(i, new);
    tx.change_layout(fid);
    tx.index_objects(fid, i);
    tx.put_inode(fid, i);
    tx.notes.add_layout(tx.shared.world.wall(), fid);
}

/// The session with the server of an object.
fn session(mdt: &Mdt, o: &LayoutObject) -> Result<Arc<Import>, Errno> {
    mdt.shared.osts.get(o.ost).and_then(|o| o.import).ok_or(Errno::EIO)
}

/// For a file's owner, by its layout of this generation.
fn of_owner(i: &Inode, layout_generation: u32) -> RequestContext {
    let cred = Cred { uid: i.uid, gid: i.gid, ..Cred::default() };
    let ctx = RequestContext { cred, projid: i.projid, layout_generation, ..RequestContext::default() };
    ctx.in_directory(i.directory)
}

/// Of the object that was changed last: (mtime, ctime).
fn last_times(objects: &[ObjectAttr]) -> Option<(Timestamp, Timestamp)> {
    objects.iter().max_by_key(|a| a.ctime).map(|a| (a.mtime, a.ctime))
}

/// The one step in which the data is where it was no more and at its new place from now on.
fn switch(tx: &mut Tx, fid: Fid, a: &Attempt, copied: &Copied) -> Result<Vec<u8>, Errno> {
    let mut i = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?;
    assert_eq!(i.growth.target.as_ref(), Some(&a.target), "{fid} goes elsewhere");
    match &a.source {
        Source::Inode(_) => {
            assert_eq!(i.data, a.inode.data, "data of {fid} changed while it was frozen");
            if !planted::on(Bug::SmallDataLeft) {
                tx.remove_data(fid, &i)?;
            }
            // The objects were written just now; the data is as old as it was.
            i.touch_ctime(copied.newest);
            i.mtime_stamp = i.mtime_stamp.max(copied.newest);
        }
        Source::Room => {
            assert_eq!(i.data, a.inode.data, "data of {fid} changed while it was frozen");
            to_inode::lay_out(tx, fid, &mut i, a);
            return Ok(encode_message(&names::entry(tx, fid, &i)));
        }
        Source::Objects(old) => {
            assert_eq!(i.layout.as_ref(), Some(old), "the layout of {fid} changed while it was frozen");
            let objects: Vec<_> = old.objects().copied().collect();
            tx.give_up_objects(&objects);
            if let Some(d) = &copied.to_inode {
                to_inode::bring_in(tx, fid, &mut i, a, d)?;
                return Ok(encode_message(&names::entry(tx, fid, &i)));
            }
        }
        Source::Dropped { old, now } => {
            assert_eq!(i.layout.as_ref(), Some(old), "the layout of {fid} changed while parts of it went");
            let objects: Vec<_> = old.objects_beside(Some(&a.target)).copied().collect();
            tx.give_up_objects(&objects);
            inode_rules::touch_mtime(&mut i, *now);
        }
    }
    assert!(a.target.has_objects(), "{fid}: what comes to the inode is brought in");
    adopt(tx, fid, &mut i, a.target.clone());
    if i.owner() != a.inode.owner() {
        // The copies were written for who owned the file then; of a chown meanwhile the old objects were
        // told.
        tx.tell_owner(fid, &i);
    }
    Ok(encode_message(&names::entry(tx, fid, &i)))
}
