//! readdir: a page of a directory, with attributes if wanted.

use super::Names;
use super::getattr::{data_layout, merged};
use crate::mdc::fitting;
use crate::stats::Verb;
use crate::{Admin, Call, Fs, R};
use model::{Fid, TargetId};
use rpc::ImportState;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::lookup::Entry;
use wire::msg::readdir::{Dirent, Readdir, ReaddirReply};
use wire::trailing::Trailing;
use world::BoxFuture;

/// Most bytes of one page.
const PAGE_MAX_BYTES: u32 = 1 << 20;
/// How long a page waits for attributes that OSTs have: an OST that is there answers within a fraction of it.
const LISTING_PATIENCE: Duration = Duration::from_millis(50);

impl Fs {
    /// Entries behind `cookie`, with attributes (sizes included) if `plus`; (entries, parent, end). An entry
    /// whose attributes cannot be had at once (an OST is away, the file went away meanwhile) comes without
    /// them.
    pub fn readdir(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
        cookie: u64,
        max_bytes: u32,
        plus: bool,
    ) -> BoxFuture<R<(Vec<Dirent>, Fid, bool)>> {
        Box::pin(async move {
            let work = async {
                let room = max_bytes.min(PAGE_MAX_BYTES);
                let (mut entries, parent, end) = self.names.page(&call, fid, cookie, room, plus).await?;
                if plus {
                    self.names.add_object_attrs(&mut entries).await;
                }
                // Nothing above the mount's root is shown.
                let parent = if fid == self.root() { fid } else { parent };
                Ok((entries, parent, end))
            };
            self.run(Verb::Readdir, work).await
        })
    }
}

impl Admin<'_> {
    /// Entries behind `cookie`, with what the metadata server knows of their inodes if `inodes`, and whether
    /// they are the last; no object server is asked.
    pub(crate) async fn entries(
        self,
        call: &Call,
        dir: Fid,
        cookie: u64,
        max_bytes: u32,
        inodes: bool,
    ) -> R<(Vec<Dirent>, bool)> {
        let work = self.0.names.page(call, dir, cookie, max_bytes.min(PAGE_MAX_BYTES), inodes);
        let (mut entries, _, end) = self.0.run(Verb::Readdir, work).await?;
        self.add_atimes(dir, &mut entries).await?;
        Ok((entries, end))
    }

    /// As [`Admin::entries`] with inodes, and with what files are to get that outgrow them, which only the
    /// metadata server knows. Without leases.
    pub(crate) async fn entries_that_grow(
        self,
        call: &Call,
        dir: Fid,
        cookie: u64,
        max_bytes: u32,
    ) -> R<ReaddirReply> {
        let (fs, max_bytes) = (self.0, max_bytes.min(PAGE_MAX_BYTES));
        let work = async {
            let mdc = fs.lmv.mdc_of(dir).await?;
            let t = mdc.meta.token();
            let msg = Readdir { fid: dir, cookie, max_bytes, plus: true, grows_into: true.into() };
            let r = mdc.target.call(fs.cx.of(call), msg).await?;
            mdc.meta.keep_page(t, dir, cookie, &r);
            Ok(r)
        };
        let mut r = fs.run(Verb::Readdir, work).await?;
        r.grant = None;
        for e in r.entries.iter_mut().filter_map(|d| d.entry.as_mut()) {
            (e.grant, e.dir_grant) = (None, None);
        }
        self.add_atimes(dir, &mut r.entries).await?;
        Ok(r)
    }

    async fn add_atimes(self, dir: Fid, entries: &mut [Dirent]) -> R<()> {
        let mdc = self.0.lmv.mdc_of(dir).await?;
        for e in entries.iter_mut().filter_map(|d| d.entry.as_mut()) {
            mdc.with_atime(&mut e.attr);
        }
        Ok(())
    }

    /// A name in a directory, as the metadata server knows it.
    pub(crate) async fn lookup_entry(self, call: &Call, dir: Fid, name: &[u8]) -> R<Arc<Entry>> {
        self.0.run(Verb::Lookup, self.0.names.lookup_entry(call, dir, name)).await
    }
}

impl Names {
    /// From the cache, or the metadata server: then a large page, of which what is not asked for yet is kept.
    async fn page(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        cookie: u64,
        room: u32,
        plus: bool,
    ) -> R<(Vec<Dirent>, Fid, bool)> {
        let mdc = self.lmv.mdc_of(fid).await?;
        if let Some(known) = mdc.meta.known_page(fid, cookie, room as usize, plus) {
            return Ok(known);
        }
        let max_bytes = if mdc.meta.is_contended(fid) { room } else { PAGE_MAX_BYTES };
        let t = mdc.meta.token();
        let msg = Readdir { fid, cookie, max_bytes, plus, grows_into: Trailing(None) };
        let r = mdc.target.call(self.cx.of(call), msg).await?;
        mdc.meta.keep_page(t, fid, cookie, &r);
        let mut entries = r.entries;
        let fits = fitting(&entries, room as usize, plus);
        let end = r.end && fits == entries.len();
        entries.truncate(fits);
        Ok((entries, r.parent, end))
    }

    /// Attributes of files with objects: what this mount's locks say, and what OSTs answer at once, all of
    /// the page together. A listing waits for none that is away or slow: files with objects there come
    /// without.
    async fn add_object_attrs(self: &Arc<Self>, entries: &mut [Dirent]) {
        let mut objects = Vec::new();
        let mut of_file = Vec::new();
        for (i, d) in entries.iter().enumerate() {
            let Some(l) = d.entry.as_ref().and_then(data_layout) else { continue };
            let first = objects.len();
            if l.objects().all(|o| self.data.attr_if_locked(o.id).is_some() || self.is_connected(o.ost)) {
                objects.extend(l.objects().map(|o| (l.generation, *o)));
            }
            of_file.push((i, first..objects.len()));
        }
        if objects.is_empty() && of_file.is_empty() {
            return;
        }
        let answer = self.cx.world.timeout(LISTING_PATIENCE, self.data.glimpse_objects(&objects)).await;
        let known = |range: Range<usize>| match &answer {
            Some(Ok(all)) => Some(all[range].to_vec()),
            _ => objects[range].iter().map(|(_, o)| self.data.attr_if_locked(o.id)).collect(),
        };
        for (i, range) in of_file {
            let d = &mut entries[i];
            let objects = if range.is_empty() { None } else { known(range) };
            let full = objects.and_then(|o| merged(d.entry.as_ref()?, &o).ok());
            match (full, &mut d.entry) {
                (Some(attr), Some(e)) => e.attr = attr,
                (_, e) => *e = None,
            }
        }
    }

    /// Whether the OST could be asked just now.
    fn is_connected(&self, ost: u16) -> bool {
        let target = self.lmv.known_target(TargetId::ost(ost));
        target.is_some_and(|t| matches!(t.import.state(), ImportState::Full))
    }
}
