//! What is known without asking, under leases that are good at this moment, and what answers add to it.

use super::cache::{Brought, Cache, Token};
use super::meta_cache::MetaCache;
use model::Fid;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::lookup::{Entry, LookupReply};
use wire::msg::readdir::{Dirent, ReaddirReply};

/// About what an entry takes in the kernel's buffer, with its attributes, besides its name.
const ENTRY_BYTES: usize = 32;
const PLUS_BYTES: usize = 128;

/// A server that was not heard from for so long may have moved a file and let its old objects go. Object
/// servers remember those for an hour; after that they would be taken for such that were never written.
const LAYOUT_UNHEARD_MAX: Duration = Duration::from_secs(1800);

/// What the cache says of a name.
pub(crate) enum Found {
    There(Arc<Entry>),
    Absent,
    /// The server must be asked.
    Unknown,
}

impl MetaCache {
    /// Whether leases are good at this moment.
    pub(crate) fn leases_good(&self) -> bool {
        self.target.is_leased()
    }

    /// A file's inode, if it is known; the objects' part is not in it.
    pub(crate) fn known_entry(&self, fid: Fid) -> Option<Arc<Entry>> {
        let e = if self.leases_good() { self.lock().entry(fid, self.cx.world.now()) } else { None };
        self.shared.count(e.is_some());
        e
    }

    /// As [`MetaCache::known_entry`], not counted: nobody asked for it.
    pub(crate) fn inode_at_hand(&self, fid: Fid) -> Option<Arc<Entry>> {
        if self.leases_good() { self.lock().entry(fid, self.cx.world.now()) } else { None }
    }

    /// Whether this is a file's layout as far as this mount knows, and it would be asked before that changes.
    /// The server may be away for a while: object servers refuse what comes by a layout that it changed
    /// meanwhile. But not for ever: see [`LAYOUT_UNHEARD_MAX`].
    pub(crate) fn layout_is_leased(&self, fid: Fid, generation: u32) -> bool {
        let now = self.cx.world.now();
        let heard = now.since(self.target.import.heard()) < LAYOUT_UNHEARD_MAX;
        // A newer one may have come with an answer that nobody asked for because of this file.
        heard && self.lock().nodes.leased_layout(fid, now).is_some_and(|newest| newest <= generation)
    }

    pub(crate) fn known_name(&self, dir: Fid, name: &[u8]) -> Found {
        let mut found = Found::Unknown;
        if self.leases_good() {
            let (now, mut c) = (self.cx.world.now(), self.lock());
            match c.name(dir, name, now) {
                Some(None) => found = Found::Absent,
                Some(Some(fid)) => {
                    if let Some(e) = c.entry(fid, now) {
                        found = Found::There(e);
                    }
                }
                None => {}
            }
        }
        self.shared.count(!matches!(found, Found::Unknown));
        found
    }

    /// Entries of a directory behind `cookie`, about `max_bytes` of them, with what is known of their inodes
    /// if `plus`; (entries, parent, end). `None` if the server must be asked, also when of too many the inode
    /// is not known.
    pub(crate) fn known_page(
        &self,
        dir: Fid,
        cookie: u64,
        max_bytes: usize,
        plus: bool,
    ) -> Option<(Vec<Dirent>, Fid, bool)> {
        if !self.leases_good() {
            return None;
        }
        let (now, mut c) = (self.cx.world.now(), self.lock());
        let parent = c.entry(dir, now)?.parent;
        let (mut page, end) = c.listing(dir, now, |l| {
            let (items, end) = l.behind(cookie)?;
            let (mut page, mut used) = (Vec::new(), 0);
            for i in items {
                used += entry_bytes(&i.name, plus);
                if !page.is_empty() && used > max_bytes {
                    return Some((page, false));
                }
                let (cookie, fid, kind, name) = (i.cookie, i.fid, i.kind, i.name.to_vec());
                page.push(Dirent { cookie, fid, kind, name, entry: None });
            }
            Some((page, end))
        })??;
        if plus {
            let mut unknown = 0;
            for d in &mut page {
                d.entry = c.entry(d.fid, now).map(|e| (*e).clone());
                unknown += usize::from(d.entry.is_none());
            }
            if unknown * 4 > page.len() {
                return None;
            }
        }
        // A listing that goes on is known up to its last page: an empty one would say that it ends.
        if page.is_empty() && !end { None } else { Some((page, parent, end)) }
    }

    pub(crate) fn is_contended(&self, dir: Fid) -> bool {
        self.lock().left_alone.is_contended(dir)
    }

    pub(crate) fn keep_entry(self: &Arc<Self>, t: Token, e: &Entry) {
        if e.grant.is_some() {
            self.with_cache(|c, now| c.put_entry(t, e, now));
        }
    }

    /// As [`MetaCache::keep_entry`], with the file's data if the answer brought it.
    pub(crate) fn keep_file(self: &Arc<Self>, t: Token, e: &Entry, data: Brought) {
        if e.grant.is_some() {
            self.with_cache(|c, now| c.put_file(t, e, data, now));
        }
    }

    pub(crate) fn keep_lookup(
        self: &Arc<Self>,
        t: Token,
        dir: Fid,
        name: &[u8],
        r: &LookupReply,
        data: Brought,
    ) {
        self.with_cache(|c, now| {
            if let Some(e) = &r.entry {
                c.put_file(t, e, data, now);
            }
            c.put_name(t, dir, name, r.entry.as_ref().map(|e| e.attr.fid), r.dir_grant, now);
        });
        if r.entry.is_some() {
            self.consider_fetching_ahead(dir);
        }
    }

    pub(crate) fn keep_page(self: &Arc<Self>, t: Token, dir: Fid, cookie: u64, r: &ReaddirReply) {
        self.with_cache(|c, now| c.put_page(t, dir, cookie, r, now));
    }

    /// What there is too much of afterwards goes back.
    pub(crate) fn with_cache<T>(&self, f: impl FnOnce(&mut Cache, world::Instant) -> T) -> T {
        let now = self.cx.world.now();
        let (out, back) = {
            let mut c = self.lock();
            let out = f(&mut c, now);
            let mut back = c.take_unwanted();
            back.extend(c.shrink(now));
            (out, back)
        };
        self.give_back(back);
        out
    }
}

fn entry_bytes(name: &[u8], plus: bool) -> usize {
    ENTRY_BYTES + name.len() + if plus { PLUS_BYTES } else { 0 }
}

/// How many of the entries fit into about `room` bytes; at least one.
pub(crate) fn fitting(entries: &[Dirent], room: usize, plus: bool) -> usize {
    let mut used = 0;
    let over = entries.iter().position(|d| {
        used += entry_bytes(&d.name, plus);
        used > room
    });
    over.map_or(entries.len(), |n| n.max(1))
}
