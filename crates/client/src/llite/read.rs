//! read: from all objects of a range at once.

use super::Data;
use super::Small;
use super::opens::following_layout;
use crate::BoxFutureOf;
use crate::lov::map::{self, Piece};
use crate::lov::{read_len, wants};
use crate::stats::Verb;
use crate::{Call, Fs, OpenHandle, R};
use bytes::Bytes;
use model::limits::RPC_BULK_MAX_BYTES;
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout, ObjectAttr};
use std::sync::Arc;
use wire::checksum::ChecksumType;
use wire::msg::enqueue::LockMode;
use wire::msg::read::Read;
use world::BoxFuture;
use world::future::join_all;

/// As much of `off..off + len` as there is.
pub(crate) fn part(all: &Bytes, off: u64, len: usize) -> Bytes {
    let from = usize::try_from(off).map_or(all.len(), |o| o.min(all.len()));
    all.slice(from..from.saturating_add(len).min(all.len()))
}

/// One object's answer.
struct Got {
    data: Bytes,
    object_size: u64,
}

impl Fs {
    /// Short only at the end of the file; holes are zeros.
    pub fn read(
        self: Arc<Self>,
        call: Call,
        file: Arc<OpenHandle>,
        off: u64,
        len: u32,
    ) -> BoxFuture<R<Bytes>> {
        Box::pin(async move {
            let r = self.run(Verb::Read, self.data.read_data(&call, file.fid, off, len as usize)).await?;
            self.was_read(&file, &r);
            Ok(r)
        })
    }

    pub(crate) fn was_read(&self, file: &OpenHandle, data: &Bytes) {
        self.stats.add(Verb::ReadBytes, data.len() as u64);
        self.was_accessed(file);
    }

    /// The time of access is now.
    pub fn was_accessed(&self, file: &OpenHandle) {
        file.times.lock().last_read = Some(self.cx.world.wall());
    }
}

impl Data {
    /// From what is kept here if possible, and kept; from the servers otherwise.
    pub(crate) async fn read_data(self: &Arc<Self>, call: &Call, fid: Fid, off: u64, len: usize) -> R<Bytes> {
        let len = read_len(off, len);
        if len == 0 {
            return Ok(Bytes::new());
        }
        following_layout!(self, fid, by_known_layout(self, call, fid, off, len))
    }

    /// Reads from the file's objects, through to their servers: nothing is kept. `off` and `len` are bounded
    /// by the caller, and `len` is not 0.
    pub(crate) async fn read_uncached(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        off: u64,
        len: usize,
    ) -> R<Bytes> {
        map::supported(layout)?;
        if map::is_one(layout) {
            let data = self.read_one(call, fid, layout, off, len).await?;
            if data.len() == len {
                return Ok(data);
            }
        }
        assert!(len > 0, "bounded by the callers");
        // Several objects are no one thing to other mounts unless they are kept off meanwhile.
        let _lock = self.locks.extent_lock(fid, LockMode::Read, off, off + (len as u64 - 1)).await?;
        self.read_striped(call, fid, layout, off, len).await
    }

    /// Reads from a file whose data lies with its inode, or that has none yet, in one step. Says so if it
    /// has its objects by now. `off` and `len` are bounded by the caller, and `len` is not 0.
    pub(crate) async fn read_small(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        len: usize,
    ) -> R<Small<Bytes>> {
        let mdc = self.lmv.mdc_of(fid).await?;
        if let Some(all) = mdc.small.known(fid) {
            return Ok(Small::Done(part(&all, off, len)));
        }
        let mut tries = 0;
        loop {
            let state = self.file_state(fid).await?;
            let Some(layout) = state.layout.clone() else { return Ok(Small::Done(Bytes::new())) };
            if layout.mdt_component().is_none() {
                return Ok(Small::Objects(state, layout));
            }
            if tries == 0
                && let Some(all) = mdc.small.fetch(call, fid).await?
            {
                return Ok(Small::Done(part(&all, off, len)));
            }
            match self.read_one(call, fid, &layout, off, len).await {
                Ok(data) => return Ok(Small::Done(data)),
                Err(e) => self.relayout(fid, e, &mut tries).await?,
            }
        }
    }

    /// What there is of a range of a file whose data lies in one place, from its server. `len` is not 0.
    pub(crate) async fn read_one(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        off: u64,
        len: usize,
    ) -> R<Bytes> {
        let piece = map::pieces(layout, fid, off, len, RPC_BULK_MAX_BYTES).pop();
        Ok(self.read_piece(call, layout, &piece.expect("len is not 0")).await?.data)
    }

    async fn read_piece(self: &Arc<Self>, call: &Call, layout: &Layout, p: &Piece) -> R<Got> {
        let ost = self.home_of(&p.object).await?;
        let checksum = ChecksumType::None;
        let msg = Read { object: p.object.id, offset: p.object_offset, len: p.len as u32, checksum, lock: 0 };
        let r = ost.fetch_summed(self.data_ctx(call, layout), p.object.id.origin, msg).await?;
        if r.bulk.len() != r.reply.len as usize || r.bulk.len() > p.len {
            tracing::error!("{}: read of {} answered with {} bytes", ost.id, p.object.id, r.bulk.len());
            return Err(Errno::EPROTO);
        }
        Ok(Got { data: r.bulk, object_size: r.reply.object_size })
    }

    async fn read_striped(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        off: u64,
        len: usize,
    ) -> R<Bytes> {
        let max = self.bulk_bytes_of(layout).await?;
        let pieces = map::pieces(layout, fid, off, len, max);
        let reads =
            pieces.iter().map(|p| Box::pin(self.read_piece(call, layout, p)) as BoxFutureOf<'_, R<Got>>);
        let got: Vec<Got> = join_all(reads.collect()).await.into_iter().collect::<R<_>>()?;
        let mut size_known = off;
        // What has no objects is a hole.
        let mut short = pieces.iter().map(|p| p.len).sum::<usize>() < len;
        for (p, g) in pieces.iter().zip(&got) {
            size_known = size_known.max(map::file_size_of(layout, p.number, g.object_size)?);
            short |= g.data.len() < p.len;
        }
        let end = off + len as u64;
        // A piece that is short lies before a hole or the end of the file: the other objects know, and
        // mounts that keep bytes of any of them.
        if short && size_known < end {
            let attrs: Vec<ObjectAttr> = self.glimpse_layout(layout).await?;
            for (s, a) in attrs.iter().enumerate() {
                size_known = size_known.max(map::file_size_of(layout, s, a.size)?);
            }
        }
        let n = if short { (size_known.min(end) - off) as usize } else { len };
        assert!(n <= len, "a read gives what was asked for at most");
        let mut buf = vec![0; len];
        for (p, g) in pieces.iter().zip(&got) {
            map::scatter(&mut buf, p, &g.data);
        }
        buf.truncate(n);
        Ok(Bytes::from(buf))
    }

    /// Most data of one message to the OSTs of a file.
    pub(crate) async fn bulk_bytes_of(self: &Arc<Self>, layout: &Layout) -> R<usize> {
        let mut max = RPC_BULK_MAX_BYTES;
        for o in layout.objects() {
            max = max.min(self.lmv.osc(o.ost).await?.target.bulk_bytes());
        }
        Ok(max)
    }
}

/// As [`Data::read_data`], by the layout that is known. `len` is bounded, and not 0.
async fn by_known_layout(llite: &Arc<Data>, call: &Call, fid: Fid, off: u64, len: usize) -> R<Bytes> {
    let layout = match llite.read_small(call, fid, off, len).await? {
        Small::Done(data) => return Ok(data),
        Small::Objects(_, layout) => layout,
    };
    let Some(file) = llite.data_file(fid, &layout).await? else {
        return llite.read_uncached(call, fid, &layout, off, len).await;
    };
    if planted::on(Bug::NoExtentLock) && wants(&layout, off, len as u64, false)?.len() > 1 {
        return llite.read_uncached(call, fid, &layout, off, len).await;
    }
    if let Some(data) = file.read(call, off, len, false).await? {
        return Ok(data);
    }
    let data = llite.read_one(call, fid, &layout, off, len).await?;
    if data.len() == len {
        return Ok(data);
    }
    // The object ends there as its server knows it; another mount may keep bytes further behind under a lock
    // that this range does not touch. With a lock on the range it can be asked.
    let data = file.read(call, off, len, true).await?;
    Ok(data.expect("asked for with force"))
}
