//! readdir: a page of a directory, with attributes if wanted.

use super::getattr::{data_layout, merged};
use crate::meta::fitting;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::readdir::{Dirent, Readdir};

/// Most bytes of one page.
const PAGE_MAX_BYTES: u32 = 1 << 20;

impl Fs {
    /// Entries behind `cookie`, with attributes (sizes included) if `plus`; (entries, parent, end). An entry whose
    /// attributes this mount and the metadata server do not know (an OST would have to be asked, the file went away
    /// meanwhile) comes without them.
    pub async fn readdir(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
        cookie: u64,
        max_bytes: u32,
        plus: bool,
    ) -> R<(Vec<Dirent>, Fid, bool)> {
        let work = async {
            let room = max_bytes.min(PAGE_MAX_BYTES);
            let (mut entries, parent, end) = self.page(&call, fid, cookie, room, plus).await?;
            if plus {
                self.add_object_attrs(&mut entries);
            }
            // Nothing above the mount's root is shown.
            let parent = if fid == self.root() { fid } else { parent };
            Ok((entries, parent, end))
        };
        self.run(Verb::Readdir, work).await
    }

    /// From the cache, or the metadata server: then a large page, of which what is not asked for yet is kept.
    async fn page(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        cookie: u64,
        room: u32,
        plus: bool,
    ) -> R<(Vec<Dirent>, Fid, bool)> {
        if let Some(known) = self.known_page(fid, cookie, room as usize, plus) {
            return Ok(known);
        }
        let max_bytes = if self.is_contended(fid) { room } else { PAGE_MAX_BYTES };
        let mdt = self.mdt_of(fid).await?;
        let t = self.meta.token();
        let r = mdt.call(self.ctx(call), Readdir { fid, cookie, max_bytes, plus }).await?;
        self.keep_page(t, fid, cookie, &r);
        let mut entries = r.entries;
        let fits = fitting(&entries, room as usize, plus);
        let end = r.end && fits == entries.len();
        entries.truncate(fits);
        Ok((entries, r.parent, end))
    }

    /// Attributes of files with objects, as far as this mount's locks on them say what they are: no OST is asked, for
    /// a listing does not wait for one that is away. The others come without.
    fn add_object_attrs(&self, entries: &mut [Dirent]) {
        for d in entries {
            let Some(l) = d.entry.as_ref().and_then(data_layout) else { continue };
            let objects: Option<Vec<_>> = l.objects().map(|o| self.attr_if_locked(o.id)).collect();
            match (objects.and_then(|o| merged(d.entry.as_ref()?, &o).ok()), &mut d.entry) {
                (Some(attr), Some(e)) => e.attr = attr,
                (_, e) => *e = None,
            }
        }
    }
}
