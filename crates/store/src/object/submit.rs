//! What all changes of an object share: lock, run where blocking does no harm, submit, and finish after
//! the commit.

use super::change::{After, Change, Done};
use super::files::Ticket;
use super::load::load;
use super::location::{self, Location, ObjectRecord};
use super::locks::Guard;
use super::redo::Redo;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError, Txn};
use model::usage::UsageChange;
use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use std::sync::Arc;

/// An error of the host that casts doubt on the disk stops the target; others concern one request.
pub(super) fn unless_fatal(objects: &Objects, e: StoreError) -> StoreError {
    if matches!(e, StoreError::Io { .. }) && !e.is_harmless() {
        objects.db.core().fail(&e);
    }
    e
}

impl Objects {
    /// Locks an object for a change and loads its record; what an earlier change left undone is done first.
    pub(super) async fn begin(self: &Arc<Self>, id: ObjectId) -> Result<(Guard, ObjectRecord), StoreError> {
        let guard = self.locks.write(id).await;
        let mut old = load(&self.db, id)?.0.unwrap_or_else(ObjectRecord::empty);
        if old.stale.is_some() {
            self.sums.drop_stale(Some(id), &[]).await?;
            old = load(&self.db, id)?.0.unwrap_or_else(ObjectRecord::empty);
            assert!(old.stale.is_none(), "checksums of a locked object are dropped once");
        }
        Ok((guard, old))
    }

    /// Runs `f`, here if it is quick, else on a thread that may block; then what remains after the commit,
    /// in the background, with the object still locked. Dropping the future cuts nothing short.
    pub(super) async fn run<T: Send + 'static>(
        self: Arc<Self>,
        guards: Vec<Guard>,
        quick: bool,
        f: impl FnOnce(&Objects) -> Result<Done<T>, StoreError> + Send + 'static,
    ) -> Result<(T, Lsn), StoreError> {
        let me = self.clone();
        let whole = move || {
            // Now that the object is locked: if the target stopped, the change before this one may have left
            // its cut undone because its record will never be durable, and nobody may do it in its place.
            me.db.core().check()?;
            // Taken before the record is submitted, so that no checkpoint covers the record without the rest.
            let ticket = me.files.ticket();
            let (out, lsn, after) = f(&me)?;
            me.finish_after(guards, ticket, lsn, after);
            Ok((out, lsn))
        };
        let done = if quick { whole() } else { self.world.blocking(whole).await };
        if self.files.too_dirty() {
            self.flush_some().await?;
        }
        done
    }

    fn finish_after(self: &Arc<Self>, guards: Vec<Guard>, ticket: Ticket, lsn: Lsn, after: After) {
        if after.is_nothing() {
            return;
        }
        assert!(lsn > 0, "what remains to be done waits for the commit of a record");
        let me = self.clone();
        // A slot may be given to others after the commit; the object itself need not wait for that.
        let (held, ticket) = after.holds().then_some((guards, ticket)).unzip();
        let (stale, leftovers) = (after.stale, after.leftovers.clone());
        self.world.spawn("object change", async move {
            let mut done = me.db.core().committed(lsn).await;
            let zero = after.zero;
            if done.is_ok() {
                let objects = me.clone();
                done = me.world.blocking(move || objects.data.apply_after(&after)).await;
                if let Err(e) = &done {
                    me.db.core().fail(e);
                }
            }
            if let (Err(_), Some((id, _, off, len))) = (&done, zero) {
                // The target has stopped. Readers of the range may get what was there before.
                me.sums.left_open.lock().either(id, off, len);
            }
            // What follows may wait for a checkpoint.
            drop(ticket);
            if done.is_ok()
                && let Err(e) = me.sums.drop_stale(stale, &leftovers).await
            {
                tracing::warn!("checksums that nobody needs stay until the next start: {e}");
            }
            drop(held);
        });
    }

    /// Too many files wait for a checkpoint: flush them now.
    async fn flush_some(self: &Arc<Self>) -> Result<(), StoreError> {
        let me = self.clone();
        let (tx, rx) = world::sync::oneshot::channel();
        self.world.spawn("object flush", async move {
            let r = me.files.clone().flush_marked().await;
            if let Err(e) = &r {
                me.db.core().fail(e);
            }
            let _ = tx.send(r);
        });
        rx.await.unwrap_or_else(|_| Err(StoreError::Stopped("the server is shutting down".into())))
    }

    /// Submits a change: new location and attributes, redo entries and the caller's part in one transaction.
    pub(super) fn submit(
        &self,
        mut c: Change,
        location: Location,
        size: u64,
        meta: &ObjectMeta,
        at: u64,
        finish: FinishTxn,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        c.check(&location, size);
        let mut rec = ObjectRecord { location, ..c.old.clone() };
        let a = &mut rec.attr;
        a.size = size;
        a.data_version =
            meta.data_version.map_or(a.data_version.saturating_add(1), |v| v.max(a.data_version));
        if let Some(t) = meta.time {
            a.ctime = t.max(a.ctime);
            a.mtime = a.ctime;
        }
        if let Some(times) = c.times {
            (a.mtime, a.ctime) = times;
        }
        a.blocks = match &rec.location {
            Location::Inline(b) => blocks(b.len() as u64),
            Location::Packed(_) => blocks(size),
            Location::Own => a.blocks,
        };
        self.files.refresh_blocks(c.id, &mut rec);
        let made = rec.file == Fid::NONE;
        // Once the metadata target has named the owner, nobody else does: clients know ctimes by their own
        // clocks as well, which say nothing of what came first.
        let names = c.named_by_mdt || rec.owner_as_of == Timestamp::ZERO;
        if made || names && meta.owner_as_of.is_some_and(|t| t >= rec.owner_as_of) {
            rec.owner = meta.owner;
        }
        if let Some(t) = meta.owner_as_of.filter(|_| c.named_by_mdt) {
            rec.owner_as_of = t.max(rec.owner_as_of);
        }
        if meta.file != Fid::NONE {
            rec.file = meta.file;
        }
        if let Some(label) = &meta.label {
            rec.relabel(label);
        }
        // Not what a client says of its layout: it could keep others from the object.
        rec.layout_generation = rec.layout_generation.max(c.fence);
        if let Location::Packed(p) = c.old.location
            && rec.location != c.old.location
        {
            c.after.free.push(p);
        }
        let mut txn = Txn::new();
        match self.sums.store(&mut c.sums, &c.old, &mut rec, &mut txn) {
            Ok(left) => c.after.stale = left.then_some(c.id),
            Err(e) => {
                self.data.give_up(&c);
                return Err(e);
            }
        }
        txn.put(location::object_key(c.id), rec.encode());
        c.drop_keys.drain(..).for_each(|k| txn.delete(k));
        txn.redo = std::mem::take(&mut c.redo);
        let rewrites_bytes = Redo::rewrites_bytes(&txn.redo);
        finish(&mut txn, at, &rec.attr);
        let relied = c.relied.take();
        // Before the record: a commit that covers it flushes these, too.
        let bound = self.db.last_submitted() + 1;
        let relied_number = relied.as_ref().map(|r| {
            txn.outside = r.bytes();
            self.files.rely_on(r, bound)
        });
        let waiting = std::mem::take(&mut c.put_off);
        // From before the record, so that no checkpoint covers it without these bytes.
        let ticket = (!waiting.is_empty()).then(|| Arc::new(self.files.ticket()));
        let mut delta = UsageChange::default();
        delta.changed((c.old.file != Fid::NONE).then(|| c.old.usage()), Some(rec.usage()));
        match self.usage.submit(&self.db, txn, &delta) {
            Ok(lsn) => {
                if let Some(r) = relied {
                    assert!(bound <= lsn, "no record is flushed before the bytes that it relies on");
                    self.files.relied_on(c.id, &r, lsn);
                }
                self.files.note_redo(c.id, rewrites_bytes, lsn, self.db.core().state.borrow().applied);
                if let Some(t) = ticket {
                    self.files.put_off(self.db.core(), c.id, lsn, waiting, &t);
                }
                Ok((rec.attr, lsn, c.after))
            }
            Err(e) => {
                if let Some((r, n)) = relied.as_ref().zip(relied_number) {
                    self.files.release_dependency(n, r);
                }
                self.data.give_up(&c);
                Err(e)
            }
        }
    }

    /// Nothing about the object changed: then there is no transaction either (0). One that says nothing of
    /// the object would leave no trace on which the changes of others depend; done again after theirs, it
    /// might change something.
    pub(super) fn unchanged(&self, c: &Change) -> Done<ObjectAttr> {
        let mut rec = c.old.clone();
        self.files.refresh_blocks(c.id, &mut rec);
        (rec.attr, 0, After::default())
    }
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(4096) * 8
}
