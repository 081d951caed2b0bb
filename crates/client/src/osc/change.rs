//! Changes of an object that go to the server at once, under a lock that this mount holds: writes for which
//! there is no grant, truncate, fallocate; and the search for data and holes.

use super::Osc;
use super::object::{Busy, Object, WriteMeta};
use super::writeback::WriteHow;
use crate::R;
use crate::base::jobid::JobId;
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Errno, ObjectAttr, ObjectId};
use std::sync::Arc;
use wire::RequestContext;
use wire::context::{FileOwner, LimitsKnown};
use wire::msg::fallocate::Fallocate;
use wire::msg::glimpse::Glimpse;
use wire::msg::seek::{Seek, SeekReply, Whence};
use wire::msg::truncate::Truncate;

/// A range that is one operation's; ends when dropped.
struct Claim<'a> {
    object: &'a Object,
    token: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.object.lock().answered(self.token);
        self.object.changed.notify_waiters();
    }
}

impl Osc {
    /// Attributes of objects of this OST as it knows them, in the order given.
    pub(crate) async fn glimpse(&self, layout_generation: u32, objects: Vec<ObjectId>) -> R<Vec<ObjectAttr>> {
        let want = objects.len();
        let ctx = RequestContext { layout_generation, ..self.cx.own() };
        let r = self.target.call(ctx, Glimpse { objects }).await?;
        if r.attrs.len() != want {
            tracing::error!("{} answered for {} objects of {want}", self.target.id, r.attrs.len());
            return Err(Errno::EPROTO);
        }
        Ok(r.attrs)
    }
}

impl Object {
    /// Makes a range this operation's: nothing else is sent for it until the claim ends.
    async fn claim(&self, start: u64, end: u64, lock: u64) -> Claim<'_> {
        let token = self.osc.cx.number();
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut s = self.lock();
                if !s.is_busy(start, end) {
                    s.busy.push(Busy { token, start, end, lock });
                    assert!(s.busy_is_disjoint(), "a range is in one message at a time");
                    return Claim { object: self, token };
                }
            }
            changed.await;
        }
    }

    /// Writes to the server at once and keeps the bytes as read.
    pub(crate) async fn write_through(&self, start: u64, data: Bytes, meta: WriteMeta, lock: u64) -> R<()> {
        assert!(!data.is_empty(), "a write brings bytes");
        let end = start + data.len() as u64;
        let claim = self.claim(start, end, lock).await;
        let how = WriteHow { lock, granted: false, durable: false };
        let send = || async {
            let r = self.write_locked(vec![(start, data.clone().into())], how, &meta).await;
            r.map(|(attr, _)| attr)
        };
        let wanted = (meta.owner, self.osc.target.id.index, end - start);
        let again = || async {
            // Nobody waits for room with one: others may have to write before there is some.
            let _turn = self.locked_rpc().await?;
            match send().await {
                Err(Errno::ENOSPC) => {
                    // What was granted to this mount and used up meanwhile may be all that is in the way.
                    self.osc.ask_grant_now().await;
                    send().await
                }
                r => r,
            }
        };
        let r: R<ObjectAttr> = self.osc.cx.shares.with_room(wanted, again).await;
        let mut s = self.lock();
        let known = s.locks.iter().any(|l| l.id == lock);
        match &r {
            Ok(attr) if known => {
                let replaced = s.segs.cut(start, end);
                self.osc.give_back_grant(replaced);
                s.segs.fill(start, &data);
                s.wrote(start, end, meta);
                s.learn(attr);
            }
            _ => {
                // Perhaps written, perhaps in part.
                s.taint(start, end);
                s.segs.drop_clean(start, end);
                s.size_unsure();
            }
        }
        self.account(&mut s);
        drop(s);
        drop(claim);
        self.osc.cache.evict_clean();
        r.map(|_| ())
    }

    /// Cuts or extends the object; its attributes afterwards. `ENOLCK`: the lock is lost.
    pub(crate) async fn truncate(&self, size: u64, of: FileOwner, lock: u64, job: &JobId) -> R<ObjectAttr> {
        let claim = self.claim(size, u64::MAX, lock).await;
        let (file, inode_ctime) = (self.file, of.as_of);
        let msg = Truncate { object: self.id, size, file, inode_ctime, keep_times: true, lock };
        let r = self.osc.target.call_waited_for(self.request_to_change(job).naming(&of), msg).await;
        let mut s = self.lock();
        s.taint(size, u64::MAX);
        match &r {
            Ok(r) if s.locks.iter().any(|l| l.id == lock) => {
                if !planted::on(Bug::DirtyKeptBehindTruncate) {
                    let gone = s.segs.cut(size, u64::MAX);
                    self.osc.give_back_grant(gone);
                }
                s.learn(r);
                // What is kept lies below the new size, which the server has by now.
                (s.size, s.size_authoritative) = (r.size.max(s.segs.end()), true);
            }
            _ => {
                s.segs.drop_clean(size, u64::MAX);
                s.size_unsure();
            }
        }
        self.account(&mut s);
        let now = s.attr_now();
        drop(s);
        drop(claim);
        self.note_lost(&r, lock);
        r.map(|_| now)
    }

    /// fallocate(2) of a range of the object. `ENOLCK`: the lock is lost.
    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        (offset, len): (u64, u64),
        mode: u32,
        (of, known): (FileOwner, LimitsKnown),
        lock: u64,
        job: &JobId,
    ) -> R<()> {
        assert!(len > 0, "space is made for bytes");
        let end = offset + len;
        self.flush_range(offset, end).await?;
        let claim = self.claim(offset, end, lock).await;
        let (file, inode_ctime) = (self.file, of.as_of);
        let msg = Fallocate { object: self.id, mode, offset, len, file, inode_ctime, lock };
        let wanted = (of.owner, self.osc.target.id.index, len);
        let send = || {
            let ctx = self.request_to_change(job).naming(&of).with_limits(known);
            self.osc.target.call_waited_for(ctx, msg.clone())
        };
        let r = self.osc.cx.shares.with_room(wanted, send).await;
        let mut s = self.lock();
        s.taint(offset, end);
        s.segs.drop_clean(offset, end);
        match &r {
            Ok(r) => {
                s.learn(r);
                s.size = s.size.max(r.size);
            }
            Err(_) => s.size_unsure(),
        }
        self.account(&mut s);
        drop(s);
        drop(claim);
        self.note_lost(&r, lock);
        r.map(|_| ())
    }

    /// What the server says of the next data or hole from `offset` on. `ENOLCK`: the lock is lost.
    pub(crate) async fn seek(&self, offset: u64, whence: Whence, lock: u64, job: &JobId) -> R<SeekReply> {
        let msg = Seek { object: self.id, offset, whence, lock };
        let r = self.osc.target.call_waited_for(self.request(job), msg).await;
        self.note_lost(&r, lock);
        r
    }

    /// A server that does not know a lock has taken it from this mount.
    fn note_lost<T>(&self, r: &R<T>, lock: u64) {
        if matches!(r, Err(Errno::ENOLCK)) {
            self.lock_lost(lock);
        }
    }
}
