//! write: to all objects of a range at once.

use super::Data;
use super::opens::following_layout;
use super::privileges::Change;
use crate::BoxFutureOf;
use crate::base::Detached;
use crate::base::shares::limits_for;
use crate::lov::map::{self, Piece};
use crate::lov::{WriteGuard, Written, check_end, wants};
use crate::mdc::FileState;
use crate::mdc::{Edit, Outcome};
use crate::osc::WriteMeta;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use bytes::Bytes;
use model::limits::RPC_BULK_MAX_BYTES;
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use wire::checksum::ChecksumType;
use wire::msg::enqueue::LockMode;
use wire::msg::lookup::Entry;
use wire::msg::write::Write;
use world::BoxFuture;
use world::future::join_all;

impl Fs {
    /// `append`: at the end, whatever it is by then; returns the offset that was written. `kill_suid_sgid`:
    /// the caller may not keep set-id bits (HANDLE_KILLPRIV_V2); file capabilities go in any case. All of
    /// `data` is written, or it is an error; more than 16 MiB at a time give `EMSGSIZE`.
    pub fn write(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
        off: u64,
        append: bool,
        kill_suid_sgid: bool,
        data: Bytes,
    ) -> BoxFuture<R<u64>> {
        Box::pin(async move {
            let len = data.len() as u64;
            let work = async {
                if data.is_empty() {
                    return Ok(off);
                }
                if data.len() > RPC_BULK_MAX_BYTES {
                    return Err(Errno::EMSGSIZE);
                }
                self.data.drop_privileges(fid, Change::Write, kill_suid_sgid).await?;
                self.data.write_data(&call, fid, off, append, data).await
            };
            let r = self.run(Verb::Write, work).await;
            if r.is_ok() {
                self.stats.add(Verb::WriteBytes, len);
            }
            r
        })
    }
}

impl Data {
    /// Writes all of `data`, or fails; returns where. Kept here if possible.
    pub(crate) async fn write_data(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        append: bool,
        data: Bytes,
    ) -> R<u64> {
        assert!(!data.is_empty() && data.len() <= RPC_BULK_MAX_BYTES, "bounded by the callers");
        if !append {
            check_end(off, data.len())?;
        }
        following_layout!(self, fid, self.write_where_it_lies(call, fid, off, append, data.clone()))
    }

    /// As [`Data::write_data`], by the layout that is known. `ERELAYOUT` if it changed, and nothing was
    /// appended.
    async fn write_where_it_lies(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        append: bool,
        data: Bytes,
    ) -> R<u64> {
        let range = if append { (0, u64::MAX) } else { (off, off + data.len() as u64) };
        let guard = self.write_beside(fid, range.0, range.1, append);
        let (state, layout) = match self.write_small(call, fid, off, append, &data).await? {
            Small::Done(at) => {
                if append {
                    // Not where the kernel thinks that it is.
                    self.lmv.sweep_small(fid).await;
                }
                return Ok(at);
            }
            Small::Objects(state, layout) => (state, layout),
        };
        let (state, layout) = if append {
            (state, layout)
        } else {
            self.layouts.with_objects(fid, (state, layout), (off, off + data.len() as u64)).await?
        };
        let unlocked = planted::on(Bug::NoExtentLock)
            && if append {
                layout.object_count()
            } else {
                wants(&layout, off, data.len() as u64, true)?.len()
            } > 1;
        let file = match self.data_file(fid, &layout).await? {
            Some(f) if !unlocked => f,
            _ => return self.write_uncached(call, fid, (state, layout), off, append, data).await,
        };
        let guard = guard.map(|g| Box::new(g) as Box<dyn WriteGuard>);
        // The data may be sent when the process is gone.
        let exempt = call.cred.is_root();
        let (job, direct) = (self.cx.job_of(call), call.direct);
        let meta = WriteMeta { job, exempt, direct, ..write_meta(&state) };
        match file.write((!append).then_some(off), data.clone(), meta, guard).await? {
            Written::At(at) => Ok(at),
            Written::NoObjects(at) => {
                self.layouts.instantiate(fid, (at, at + data.len() as u64)).await?;
                Err(Errno::ERELAYOUT)
            }
            Written::Contended(_guard) => {
                self.write_uncached(call, fid, (state, layout), off, append, data).await
            }
        }
    }

    /// Writes to the file's objects, through to their servers: nothing is kept. `off` and `data` are bounded
    /// by the caller, and there is data.
    pub(crate) async fn write_uncached(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        (state, layout): (FileState, Arc<Layout>),
        off: u64,
        append: bool,
        data: Bytes,
    ) -> R<u64> {
        map::supported(&layout)?;
        if map::is_one(&layout) || !append {
            // One object, one message: the server makes it one step, appends included.
            let from = if append { 0 } else { off };
            let pieces = map::pieces(&layout, fid, from, data.len(), RPC_BULK_MAX_BYTES);
            if let [p] = &pieces[..] {
                let at = self.write_piece(call, fid, &state, &layout, p, append, data).await?;
                return Ok(if append { at } else { off });
            }
        }
        let (start, end) = if append { (0, u64::MAX) } else { (off, off + (data.len() as u64 - 1)) };
        let lock = self.locks.extent_lock(fid, LockMode::Write, start, end).await?;
        let (fs, call) = (self.clone(), call.clone());
        let work = async move {
            let r = fs.write_striped(&call, fid, state, layout, (!append).then_some(off), data).await;
            drop(lock); // only now that every object answered
            r
        };
        Detached::plain(&self.cx.world, "client-write", work).await
    }

    /// Writes to a file whose data lies with its inode, in one step, appends included. Where it has no room,
    /// or has its objects by now, it says which.
    pub(crate) async fn write_small(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        append: bool,
        data: &Bytes,
    ) -> R<Small<u64>> {
        let mut tries = 0;
        loop {
            let (state, layout) = self.file_state_for_write(fid).await?;
            if layout.mdt_component().is_none() {
                return Ok(Small::Objects(state, layout));
            }
            let from = if append { 0 } else { off };
            let r = if outgrows(&layout, from, data.len()) {
                Err(Errno::EGROW)
            } else {
                let p = map::pieces(&layout, fid, from, data.len(), RPC_BULK_MAX_BYTES).pop();
                let p = p.expect("data is not empty");
                self.write_piece(call, fid, &state, &layout, &p, append, data.clone()).await
            };
            match r {
                Ok(at) => return Ok(Small::Done(at)),
                Err(e) => self.relayout(fid, e, &mut tries).await?,
            }
        }
    }

    /// Under the lock. `off` `None`: at the end. If the layout changes meanwhile the rest goes by the new
    /// one: what was written by the old one, and where, stands.
    async fn write_striped(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        mut state: FileState,
        mut layout: Arc<Layout>,
        off: Option<u64>,
        data: Bytes,
    ) -> R<u64> {
        let (mut at, mut tries) = (off, 0);
        loop {
            match write_all_stripes(self, call, fid, (&state, &layout), &mut at, &data).await {
                Err(Errno::EUNINIT) => {
                    let at = at.expect("its place was found before its objects");
                    (state, layout) = self.layouts.instantiate(fid, (at, at + data.len() as u64)).await?;
                }
                Err(e) => {
                    state = FileState::of(&self.follow_layout(fid, e, &mut tries).await?);
                    layout = state.layout.clone().ok_or(Errno::EIO)?;
                    if layout.mdt_component().is_some() {
                        // It came to its inode. An append that found its place keeps it.
                        let (from, append) = at.map_or((0, true), |at| (at, false));
                        match self.write_small(call, fid, from, append, &data).await? {
                            Small::Done(at) => return Ok(at),
                            Small::Objects(s, l) => (state, layout) = (s, l),
                        }
                    }
                }
                done => return done,
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    async fn write_piece(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        state: &FileState,
        layout: &Layout,
        p: &Piece,
        append: bool,
        data: Bytes,
    ) -> R<u64> {
        let msg = Write {
            object: p.object.id,
            offset: p.object_offset,
            append,
            file: fid,
            uid: state.owner.uid,
            gid: state.owner.gid,
            projid: state.owner.projid,
            inode_ctime: state.ctime,
            block_crcs: Vec::new(),
            checksum: ChecksumType::None,
            lock: 0,
            granted: false,
        };
        if layout.mdt_component().is_some()
            && let Some(at) = self.lmv.mdc_of(fid).await?.write_here(call, &msg, &data).await
        {
            return Ok(at);
        }
        let home = self.home_of(&p.object).await?;
        let change = self.changing_data(&p.object).await?;
        let wanted = (state.owner, home.id.index, data.len() as u64);
        let send = || {
            let runs = vec![(msg.offset, data.clone().into())];
            let ctx = self.data_ctx(call, layout).in_directory(state.owner.directory);
            let ctx = ctx.with_limits(limits_for(call.cred.is_root()));
            home.send_summed(ctx, msg.clone(), runs, false)
        };
        let r = self.cx.shares.with_room(wanted, send).await;
        if let Some(change) = change {
            let entries: Vec<Entry> =
                r.as_ref().ok().and_then(|r| r.reply.entry.as_deref()).cloned().into_iter().collect();
            entries.iter().for_each(|e| self.meta.opens.learn(e));
            let off = r.as_ref().map_or(0, |r| r.reply.offset);
            let edit = Edit::Write { off, data };
            change.done(Outcome { entries, edit, ..Outcome::default() }, r.as_ref().err().copied());
        }
        Ok(r?.reply.offset)
    }
}

/// `at` `None`: at the end, which it says afterwards.
async fn write_all_stripes(
    llite: &Arc<Data>,
    call: &Call,
    fid: Fid,
    (state, layout): (&FileState, &Layout),
    at: &mut Option<u64>,
    data: &Bytes,
) -> R<u64> {
    let off = match *at {
        Some(o) => o,
        None => {
            let size = map::file_size(layout, &llite.glimpse_layout(layout).await?)?;
            check_end(size, data.len())?;
            size
        }
    };
    *at = Some(off);
    layout.check_range(off, off + data.len() as u64)?;
    let pieces = map::pieces(layout, fid, off, data.len(), llite.bulk_bytes_of(layout).await?);
    let mut writes: Vec<BoxFutureOf<'_, R<u64>>> = Vec::with_capacity(pieces.len());
    for p in &pieces {
        let part = map::gather(data, p);
        writes.push(Box::pin(llite.write_piece(call, fid, state, layout, p, false, part)));
    }
    for r in join_all(writes).await {
        r?;
    }
    Ok(off)
}

/// What came of an operation on a file whose data may lie with its inode.
pub(crate) enum Small<T> {
    Done(T),
    /// The data lies on objects, as this says.
    Objects(FileState, Arc<Layout>),
}

/// Certain not to have room with the inode: no need to send it there first.
pub(crate) fn outgrows(layout: &Layout, off: u64, len: usize) -> bool {
    layout.mdt_component().is_some_and(|c| off.saturating_add(len as u64) > u64::from(c.stripe_size))
}

/// What writes of a file say of it.
pub(crate) fn write_meta(s: &FileState) -> WriteMeta {
    WriteMeta { owner: s.owner, inode_ctime: s.ctime, ..WriteMeta::default() }
}
