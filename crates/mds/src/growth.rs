//! From data with the inode to objects: the data goes to the object servers first, durably, and then one
//! transaction gives the file its new layout and drops the data here. Until then nothing changed for anybody:
//! reads go on, changes of the data wait.
//!
//! An attempt writes down where it puts the data before it does, under a component id that no attempt had
//! before: what a crash or a failure leaves on the object servers is known and given up by the next attempt,
//! or with the file, and never met again.

use crate::data;
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::schema::Inode;
use crate::schema::inode::{DataState, Growth};
use crate::tx::Tx;
use crate::{names, replayed};
use bytes::Bytes;
use model::layout::LayoutObject;
use model::planted::{self, Bug};
use model::{Cred, Errno, Fid, Layout, Timestamp};
use rpc::Terms;
use std::sync::Arc;
use std::time::Duration;
use wire::checksum::ChecksumType;
use wire::msg::sync::Sync;
use wire::msg::truncate::Truncate;
use wire::msg::write::Write;
use wire::{Op, RequestContext, encode_message};
use world::{Either, select};

/// Component ids of growths that move no data: this and the target's epoch.
pub const WITHOUT_DATA: u32 = 1 << 31;
/// How long an attempt waits for the object servers before it is given up and others are chosen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attempts that may fail before the caller hears of it. Being slow is no failure.
const TRIES: u32 = 3;

/// Changes of a file's data wait while this lives. Made within a transaction, so that no change is under way.
struct Frozen {
    mdt: Arc<Mdt>,
    fid: Fid,
}

impl Frozen {
    fn new(mdt: &Arc<Mdt>, fid: Fid) -> Frozen {
        let fresh = mdt.shared.growing.begin(fid);
        assert!(fresh, "{fid} grows twice at once");
        Frozen { mdt: mdt.clone(), fid }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.mdt.shared.growing.end(self.fid);
    }
}

/// An attempt under way: the file as it was when its data was frozen.
struct Attempt {
    _frozen: Frozen,
    inode: Inode,
    target: Layout,
    /// The data: (offset, bytes), holes left out.
    runs: Vec<(u64, Vec<u8>)>,
}

/// Gives the file objects; the answer is the file with its new layout. `ESTALE` if it is gone. `replay`: the
/// reply of the first time, and whether recovery is going on.
///
/// Where no data moves the answer is like that of a create: its client keeps the request, and doing it again comes
/// to the same objects. Where data moved the answer is durable: the objects of an attempt are never used again.
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
        let done = mdt.transact(Some(to), without_data).await;
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
        let mut begun = None;
        let done = mdt
            .transact(None, |tx| {
                begun = None; // of a run that had to wait for leases
                begun = Some(begin(mdt, tx, fid)?);
                Ok(Vec::new())
            })
            .await;
        let attempt = match (&done.result, begun) {
            (Ok(_), Some(a)) => a,
            // Somebody else came in between.
            (Err(Errno::EGROWING), _) => continue,
            _ => return Ok(Done { durable: true, ..done }),
        };
        // What is about to be written must be known to belong to nobody else, whatever happens. And the data
        // goes where others can read it only when it cannot be lost here any more.
        mdt.db.durable(done.wait).await.map_err(|e| e.errno())?;
        match push_within(mdt, to, fid, &attempt).await {
            Ok(done) => return Ok(Done { durable: true, ..done }),
            Err(Errno::ESHUTDOWN) => return Err(Errno::ESHUTDOWN),
            Err(e) => {
                let left = mdt.transact(None, |tx| give_up(tx, fid).map(|()| Vec::new())).await;
                tries += u32::from(e != Errno::ETIMEDOUT);
                if tries >= TRIES || left.result.is_err() {
                    return Err(e);
                }
                tracing::warn!("{fid} could not grow onto its object servers: {e}; trying again");
            }
        }
    }
}

/// Moves the data and switches the layout. `ETIMEDOUT` if the object servers take too long, or restart.
async fn push_within(mdt: &Arc<Mdt>, to: &ReplyTo, fid: Fid, a: &Attempt) -> Result<Done, Errno> {
    if planted::on(Bug::GrownBeforeDurable) {
        let done = mdt.transact(Some(to), |tx| switch(tx, fid, a, Timestamp::ZERO)).await;
        let _ = mdt.pause(Duration::from_millis(200)).await;
        return push(mdt, fid, a).await.map(|_| done);
    }
    let newest = match select(push(mdt, fid, a), mdt.pause(PATIENCE)).await {
        Either::Left(r) => r?,
        Either::Right(true) => return Err(Errno::ESHUTDOWN),
        Either::Right(false) => return Err(Errno::ETIMEDOUT),
    };
    Ok(mdt.transact(Some(to), |tx| switch(tx, fid, a, newest)).await)
}

/// What takes no object server: a file that has its objects, or no data. `EGROW` if there is data to move,
/// `EGROWING` if somebody is at it.
fn at_once(tx: &mut Tx, fid: Fid) -> Result<Vec<u8>, Errno> {
    let mut i = movable(tx, fid)?;
    if i.data_room().is_some() {
        if i.data.blocks > 0 || i.data.size > 0 {
            return Err(Errno::EGROW);
        }
        abandon(tx, &mut i);
        let target = match tx.first_layout() {
            Some(l) if possible(l, fid, &i) => l.clone(),
            Some(_) => return Err(Errno::EPROTO),
            // Should the crash of this target take it back, the next one chooses after a restart.
            None => choose(tx, fid, &i, WITHOUT_DATA | tx.shared.epoch)?,
        };
        adopt(tx, fid, &mut i, target);
    } else if tx.first_layout().is_some_and(|l| i.layout.as_ref() != Some(l)) {
        return Err(Errno::EIO); // its client wrote to objects that are not the file's
    }
    Ok(encode_message(&names::entry(tx, fid, &i)))
}

fn movable(tx: &mut Tx, fid: Fid) -> Result<Inode, Errno> {
    let i = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?;
    if tx.shared.growing.contains(fid) { Err(Errno::EGROWING) } else { Ok(i) }
}

/// Writes down where the data goes, and keeps changes of it off.
fn begin(mdt: &Arc<Mdt>, tx: &mut Tx, fid: Fid) -> Result<Attempt, Errno> {
    let mut i = movable(tx, fid)?;
    if i.data_room().is_none() {
        return Err(Errno::EGROWING);
    }
    abandon(tx, &mut i);
    assert!(i.growth.attempts < WITHOUT_DATA - 2, "attempts of {fid} are numbered");
    let target = choose(tx, fid, &i, 2 + i.growth.attempts)?;
    i.growth.attempts += 1;
    i.growth.target = Some(target.clone());
    tx.index_objects(fid, &i);
    tx.put_inode(fid, &mut i);
    let runs = data::runs(tx, fid)?;
    Ok(Attempt { _frozen: Frozen::new(mdt, fid), inode: i, target, runs })
}

/// OSTs as the file remembers that it wants them; the component id is new.
fn choose(tx: &Tx, fid: Fid, i: &Inode, component: u32) -> Result<Layout, Errno> {
    let spec = i.default_layout.clone().unwrap_or_default().inherit(&tx.shared.settings.builtin_layout());
    let (stripe_size, osts) = tx.shared.choose(&spec)?;
    let old = i.layout.as_ref().expect("its data lies with the inode");
    let new = old.grown((fid, component), stripe_size, &spec.pool, &osts);
    Ok(new.marked(|i| tx.shared.osts.mark(i)))
}

/// Whether a client's word on what a file without data grew into can be true.
fn possible(l: &Layout, fid: Fid, i: &Inode) -> bool {
    let ours = |o: &LayoutObject| o.id.origin == fid && o.id.component & WITHOUT_DATA != 0;
    let later = i.layout.as_ref().is_some_and(|old| l.generation == old.generation + 1);
    later && l.components.len() == 1 && l.stripe_count() > 0 && l.objects().all(ours)
}

/// The objects of an attempt that came to nothing go.
fn abandon(tx: &mut Tx, i: &mut Inode) {
    if let Some(l) = i.growth.target.take() {
        let objects: Vec<_> = l.objects().copied().collect();
        tx.give_up_objects(&objects);
    }
}

fn give_up(tx: &mut Tx, fid: Fid) -> Result<(), Errno> {
    if let Some(mut i) = tx.try_inode(fid)? {
        abandon(tx, &mut i);
        tx.put_inode(fid, &mut i);
    }
    Ok(())
}

/// The file has `target` from now on.
fn adopt(tx: &mut Tx, fid: Fid, i: &mut Inode, target: Layout) {
    let later = i.layout.as_ref().is_none_or(|old| old.generation < target.generation);
    assert!(later, "{fid} gets a layout that is not newer than its own");
    i.layout = Some(target);
    i.growth = Growth::default();
    i.default_layout = None;
    i.data = DataState::default();
    tx.index_objects(fid, i);
    tx.put_inode(fid, i);
}

/// The one step in which the data is here no more and there from now on.
fn switch(tx: &mut Tx, fid: Fid, a: &Attempt, newest: Timestamp) -> Result<Vec<u8>, Errno> {
    let mut i = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?;
    assert_eq!(i.data, a.inode.data, "data of {fid} changed while it was frozen");
    assert_eq!(i.growth.target.as_ref(), Some(&a.target), "{fid} grows elsewhere");
    tx.remove_data(fid, &i)?;
    // The objects were written just now; the data is as old as it was.
    i.touch_ctime(newest);
    i.mtime_stamp = i.mtime_stamp.max(newest);
    adopt(tx, fid, &mut i, a.target.clone());
    Ok(encode_message(&names::entry(tx, fid, &i)))
}

/// Brings the data to its objects, durably. Returns the latest of their times.
async fn push(mdt: &Arc<Mdt>, fid: Fid, a: &Attempt) -> Result<Timestamp, Errno> {
    let c = a.target.component();
    let ctx = RequestContext {
        cred: Cred { uid: a.inode.uid, gid: a.inode.gid, ..Cred::default() },
        projid: a.inode.projid,
        layout_generation: a.target.generation,
        ..RequestContext::default()
    };
    let session = |o: &LayoutObject| mdt.shared.osts.get(o.ost).and_then(|o| o.import).ok_or(Errno::EIO);
    // An object server that restarts before the `sync` may have lost what it answered.
    let epochs = || c.objects.iter().map(|o| Ok(session(o)?.epoch())).collect::<Result<Vec<u32>, Errno>>();
    let before = epochs()?;
    // Operations on the file wait for its growth, and the growth waits for no client.
    let terms = Terms { waited_for: true, ..Terms::default() };
    let mut newest = Timestamp::ZERO;
    let mut ends = vec![0; c.stripes()];
    for (off, bytes) in &a.runs {
        for e in a.target.extents(*off, bytes.len() as u64) {
            let at = (e.file_offset - off) as usize;
            let part = Bytes::copy_from_slice(&bytes[at..at + e.len as usize]);
            let checksum = ChecksumType::Crc32c;
            let msg = Write {
                object: e.object.id,
                offset: e.object_offset,
                append: false,
                file: fid,
                uid: a.inode.uid,
                gid: a.inode.gid,
                projid: a.inode.projid,
                inode_ctime: a.inode.ctime,
                block_crcs: checksum.of_write(e.object_offset, &part),
                checksum,
                lock: 0,
                granted: false,
            };
            let r = session(&e.object)?.call_with(ctx.clone(), msg, part, terms).await?;
            newest = newest.max(r.reply.attr.ctime);
            ends[e.stripe] = ends[e.stripe].max(r.reply.attr.size);
        }
    }
    for (stripe, o) in c.objects.iter().enumerate() {
        let size = c.object_size_for(stripe, a.inode.data.size);
        if ends[stripe] != size {
            let (file, inode_ctime) = (fid, a.inode.ctime);
            let msg = Truncate { object: o.id, size, file, inode_ctime, keep_times: true, lock: 0 };
            let r = session(o)?.call_with(ctx.clone(), msg, Bytes::new(), terms).await?;
            newest = newest.max(r.reply.ctime);
        }
        if size > 0 {
            let msg = Sync { object: Some(o.id) };
            session(o)?.call_with(ctx.clone(), msg, Bytes::new(), terms).await?;
        }
    }
    if epochs()? != before {
        return Err(Errno::ETIMEDOUT);
    }
    Ok(newest)
}
