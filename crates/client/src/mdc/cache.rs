//! What a mount keeps of names and attributes: only what a lease covers, only until it is asked for back.
//!
//! A state machine without I/O. Three things must never happen, and each has its rule:
//!
//! * An answer is kept that was overtaken by a revocation. A request takes a [`Token`] when it starts; what
//!   was revoked since is not kept.
//! * This mount's own change is not seen by this mount: the server does not ask a client for leases because
//!   of what it does itself. What a change may touch is not used from its start ([`Cache::begin`]) to its end
//!   ([`Cache::end`]), and nothing is kept that was asked for before the end.
//! * A lease that the server grants is not known here, so that it is never given back: what was granted and
//!   is not kept is noted all the same, or given back ([`Cache::take_unwanted`]).
//!
//! `nodes` has what is known, `changes` when parts of files changed, `left_alone` the directories that are
//! not worth asking for; `owned` executes operations on what is held exclusively.

mod changes;
mod left_alone;
mod nodes;
mod owned;

pub(crate) use changes::{Part, Token, name_part};
pub(crate) use owned::{Owned, Wants, Who};

use self::changes::{Busy, Cause, Changes};
use self::left_alone::LeftAlone;
use self::nodes::{Dir, Known, NAMES_PER_FILE, NewFiles, Node, Nodes};
use super::content::{CONTENT_MAX_BYTES, Came, Contents, Edit};
use super::follow::{RunId, Runs};
use super::listing::Listing;
use super::log::Log;
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Fid, FileType, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::lookup::{Entry, Grant, bits};
use wire::msg::notify::LeaseItem;
use wire::msg::readdir::ReaddirReply;
use world::Instant;

/// A change of this mount's own that is under way.
#[derive(Debug)]
pub(crate) struct Change {
    token: Token,
    parts: Vec<(Fid, Part)>,
    any_inode: bool,
}

/// What is kept of one metadata target.
pub(crate) struct Cache {
    pub(super) nodes: Nodes,
    /// Files kept at most.
    pub max_files: usize,
    changes: Changes,
    pub(super) busy: Busy,
    pub(super) left_alone: LeftAlone,
    unwanted: Vec<LeaseItem>,
    /// Data and extended attributes; used while the inode is known at the version that they are of.
    pub contents: Contents,
    /// What was executed here and the server does not know of yet.
    pub log: Log,
}

/// A file's data that an answer brought.
pub(crate) type Brought = Option<(Bytes, Came)>;
/// Files of a directory that are worth fetching, since a run of reads comes to them next.
#[derive(Debug)]
pub(crate) struct ToFetch {
    pub(crate) dir: Fid,
    pub(crate) run: RunId,
    pub(crate) files: Vec<Fid>,
}

impl Cache {
    pub(crate) fn new(max_files: usize, contents: Contents) -> Cache {
        Cache {
            nodes: Nodes::default(),
            max_files,
            changes: Changes::new(),
            busy: Busy::default(),
            left_alone: LeftAlone::default(),
            unwanted: Vec::new(),
            contents,
            log: Log::default(),
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.changes.token()
    }

    /// Everything is forgotten, the leases too.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.changes.clear();
        self.unwanted.clear();
        self.contents.clear();
    }

    // what is known

    /// The inode, if it is known.
    pub(crate) fn entry(&mut self, fid: Fid, now: Instant) -> Option<Arc<Entry>> {
        if self.busy.inode(fid) {
            return None;
        }
        let n = self.nodes.map.get_mut(&fid)?;
        n.used = now;
        n.entry.clone()
    }

    /// A file was read, and the server hears of it soon.
    pub(crate) fn set_atime(&mut self, fid: Fid, atime: Timestamp) {
        if self.busy.inode(fid) {
            return;
        }
        if let Some(e) = self.nodes.map.get_mut(&fid).and_then(|n| n.entry.as_mut())
            && e.attr.atime < atime
        {
            Arc::make_mut(e).attr.atime = atime;
        }
    }

    /// What a name leads to: `Some(None)` is a name that is not there.
    pub(crate) fn name(&mut self, dir: Fid, name: &[u8], now: Instant) -> Option<Option<Fid>> {
        if self.busy.part(dir, name_part(name)) {
            return None;
        }
        let n = self.nodes.map.get_mut(&dir)?;
        n.used = now;
        let d = n.dir.as_ref()?;
        match d.names.get(name) {
            Some(Known::Is(fid)) => {
                let fid = *fid;
                self.nodes.found_in(dir, fid);
                Some(Some(fid))
            }
            Some(Known::Absent) => Some(None),
            Some(Known::Unknown) => None,
            None => d.complete.then_some(None),
        }
    }

    /// All data of a file, if it is known; and which files are worth fetching because it is read.
    pub(crate) fn content(&mut self, fid: Fid, now: Instant) -> Option<(Bytes, Option<ToFetch>)> {
        let version = self.version(fid, now)?;
        let (data, came) = self.contents.get(fid, version)?;
        let next = if came == Some(Came::Ahead) { self.following(fid, |r, l| r.read(l, fid)) } else { None };
        Some((data, next))
    }

    /// A read had to ask for a file's data; which others are worth fetching, too. [`Cache::followed`] must
    /// come after.
    pub(crate) fn missed_content(&mut self, fid: Fid) -> Option<ToFetch> {
        self.contents.missed();
        self.following(fid, |r, l| r.missed(l, fid))
    }

    fn following(
        &mut self,
        fid: Fid,
        step: impl FnOnce(&mut Runs, &Listing) -> Option<RunId>,
    ) -> Option<ToFetch> {
        let dir = self.nodes.map.get(&fid)?.home;
        let mut d = self.nodes.map.get_mut(&dir)?.dir.take()?;
        let Dir { runs, listing, .. } = &mut *d;
        let out = listing.as_ref().and_then(|l| {
            let run = step(runs, l)?;
            let files = runs.next(run, l, |f| is_worth_fetching(&self.nodes, &self.contents, f));
            (!files.is_empty()).then_some(ToFetch { dir, run, files })
        });
        self.nodes.map.get_mut(&dir)?.dir = Some(d);
        out
    }

    /// What was worth fetching is here, or as much of it as there was room for: these files, of all up to
    /// `last`.
    pub(crate) fn followed(&mut self, dir: Fid, run: RunId, files: &[Fid], last: Option<Fid>) {
        if let Some(d) = self.nodes.map.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
            d.runs.arrived(run, files, last);
        }
    }

    /// The version of the inode, if it is known.
    pub(crate) fn version(&mut self, fid: Fid, now: Instant) -> Option<u64> {
        self.entry(fid, now).map(|e| e.attr.version)
    }

    /// The version of the inode that an answer shows which says none, if it was the same all the time since
    /// `token`.
    pub(crate) fn version_since(&mut self, token: Token, fid: Fid) -> Option<u64> {
        let n = self.nodes.map.get(&fid)?;
        let held =
            n.bits & bits::UPDATE != 0 && n.inode_since <= token.0 && !self.changes.is_forgotten(token);
        let same = held && !self.busy.inode(fid) && self.changes.overtaken(token, fid, Part::Attr).is_none();
        n.entry.as_ref().filter(|_| same).map(|e| e.attr.version)
    }

    /// Works on a directory's known order of names, if it may be used.
    pub(crate) fn listing<T>(&mut self, dir: Fid, now: Instant, f: impl FnOnce(&Listing) -> T) -> Option<T> {
        if self.busy.part(dir, Part::List) {
            return None;
        }
        let n = self.nodes.map.get_mut(&dir)?;
        n.used = now;
        n.dir.as_ref()?.listing.as_ref().map(f)
    }

    // answers

    /// Takes a lease over. False if what came with it is not to be kept because the lease is gone again.
    fn hold(&mut self, token: Token, fid: Fid, bit: u8, g: Option<Grant>, now: Instant) -> bool {
        assert!(bit == bits::UPDATE || bit == bits::LOOKUP, "a lease is on the inode or on the names");
        let Some(g) = g.filter(|g| g.bits & bit != 0) else { return false };
        let part = if bit == bits::UPDATE { Part::Attr } else { Part::List };
        let given_back = match self.changes.overtaken(token, fid, part) {
            Some(Cause::Revoked(..)) => return false,
            Some(Cause::GivenBack(_)) => true,
            _ => false,
        };
        if given_back || self.changes.is_forgotten(token) {
            // Too long ago to know whether it is still there.
            if let Some(n) = self.nodes.map.get_mut(&fid) {
                // Another one is, and perhaps what was executed under it: this one goes with that.
                n.seq = n.seq.max(g.seq);
            } else {
                self.changes.mark(Cause::GivenBack(fid));
                self.unwanted.push(LeaseItem { fid, bits: bits::ALL, seq: g.seq, look: false });
            }
            return false;
        }
        let n = self.nodes.map.entry(fid).or_insert_with(|| {
            self.nodes.queue.push_back(fid);
            Node::new(now)
        });
        if bit & !n.bits != 0 {
            *(if bit == bits::LOOKUP { &mut n.listed_since } else { &mut n.inode_since }) =
                self.changes.next();
        }
        n.bits |= bit;
        if bit == bits::UPDATE {
            n.bits |= g.bits & bits::LAYOUT;
        }
        if g.exclusive {
            n.exclusive |= bit;
        }
        assert!(n.exclusive & !n.bits == 0, "what is exclusive is held");
        n.seq = n.seq.max(g.seq);
        n.used = now;
        if bit == bits::LOOKUP {
            n.dir.get_or_insert_default();
            self.left_alone.not_contended(fid);
        }
        true
    }

    /// An inode as an answer showed it.
    pub(crate) fn put_entry(&mut self, token: Token, e: &Entry, now: Instant) {
        self.put_file(token, e, None, now);
    }

    /// As [`Cache::put_entry`], with the file's data if the answer brought it.
    pub(crate) fn put_file(&mut self, token: Token, e: &Entry, data: Brought, now: Instant) {
        let fid = e.attr.fid;
        let race = planted::on(Bug::ContentRaceIgnored) && data.is_some();
        let token = if race { self.token() } else { token };
        if self.put_inode(token, e, now, 0, 0).is_some()
            && let Some((b, came)) = data
        {
            self.contents.put(fid, e.attr.version, b, came);
        }
    }

    /// `mine`, `any`: how many changes of this inode, and of any, may be under way. Whether it is kept;
    /// `None` without a lease.
    fn put_inode(&mut self, token: Token, e: &Entry, now: Instant, mine: u32, any: u32) -> Option<bool> {
        let fid = e.attr.fid;
        if e.attr.kind == FileType::Directory && e.grant.is_some_and(|g| g.bits & bits::LOOKUP != 0) {
            // A new directory: it has no names.
            if self.hold(token, fid, bits::LOOKUP, e.grant, now)
                && !self.nodes.names_newer(fid, token)
                && let Some(d) = self.nodes.map.get_mut(&fid).and_then(|n| n.dir.as_mut())
                && d.names.is_empty()
                && d.listing.is_none()
                && !self.busy.file(fid)
            {
                d.complete = true;
                d.listing = Some(Listing::empty());
            }
        }
        if !self.hold(token, fid, bits::UPDATE, e.grant, now) {
            return None;
        }
        if e.attr.size == 0 && e.layout.as_ref().is_some_and(|l| l.mdt_component().is_some()) {
            self.contents.put(fid, e.attr.version, Bytes::new(), Came::Asked);
        }
        let busy = self.busy.times(fid, Part::Attr);
        let free = busy <= mine && self.busy.any_inode() <= any;
        let keep = free && self.changes.overtaken(token, fid, Part::Attr).is_none();
        let n = self.nodes.map.get_mut(&fid).expect("held a moment ago");
        n.layout = n.layout.max(e.layout.as_ref().map_or(0, |l| l.generation));
        let keep = keep && n.inode_at <= token.0;
        if keep && n.entry.as_ref().is_none_or(|old| old.attr.version <= e.attr.version) {
            if n.entry.as_ref().is_none_or(|old| old.attr.version < e.attr.version) {
                // Then there are none for sure.
                n.blocks = (e.attr.size == 0 && e.attr.blocks == 0).then_some(0);
            }
            let bare = Entry { grant: None, dir_grant: None, content: None, ..e.clone() };
            n.entry = Some(Arc::new(bare));
        }
        Some(keep)
    }

    /// A name as an answer showed it.
    pub(crate) fn put_name(
        &mut self,
        token: Token,
        dir: Fid,
        name: &[u8],
        leads: Option<Fid>,
        g: Option<Grant>,
        now: Instant,
    ) {
        self.set_name(token, dir, name, leads, g, now, 0);
    }

    #[allow(clippy::too_many_arguments)]
    fn set_name(
        &mut self,
        token: Token,
        dir: Fid,
        name: &[u8],
        leads: Option<Fid>,
        g: Option<Grant>,
        now: Instant,
        mine: u32,
    ) {
        if g.is_none() {
            self.left_alone.note_contended(dir);
        }
        if !self.hold(token, dir, bits::LOOKUP, g, now) {
            return;
        }
        let part = name_part(name);
        let busy = self.busy.times(dir, part);
        if busy > mine
            || self.changes.overtaken(token, dir, part).is_some()
            || self.nodes.names_newer(dir, token)
        {
            return;
        }
        let known = leads.map_or(Known::Absent, Known::Is);
        self.nodes.know(dir, name, known);
        if let Some(fid) = leads {
            self.nodes.found_in(dir, fid);
        }
    }

    /// A page of a directory that was asked for behind `cookie`.
    pub(crate) fn put_page(&mut self, token: Token, dir: Fid, cookie: u64, r: &ReaddirReply, now: Instant) {
        for e in r.entries.iter().filter_map(|d| d.entry.as_ref()) {
            self.put_entry(token, e, now);
        }
        if r.grant.is_none() {
            self.left_alone.note_contended(dir);
        }
        if !self.hold(token, dir, bits::LOOKUP, r.grant, now) || self.nodes.names_newer(dir, token) {
            return;
        }
        for d in &r.entries {
            let part = name_part(&d.name);
            if !self.busy.part(dir, part) && self.changes.overtaken(token, dir, part).is_none() {
                self.nodes.know(dir, &d.name, Known::Is(d.fid));
                self.nodes.found_in(dir, d.fid);
            }
        }
        let busy = self.busy.part(dir, Part::List);
        let keep = !busy && self.changes.overtaken(token, dir, Part::List).is_none();
        let Some(d) = self.nodes.map.get_mut(&dir).and_then(|n| n.dir.as_mut()) else { return };
        if !keep {
            return;
        }
        match &mut d.listing {
            Some(l) => l.add(cookie, &r.entries, r.end),
            none => *none = Some(Listing::page(cookie, &r.entries, r.end)),
        }
        // Only then did all its names come by.
        d.complete |= d.listing.as_ref().is_some_and(Listing::is_whole);
    }

    // this mount's changes

    /// A change starts: these parts are not used until it ends. `any_inode`: it may change an inode that is
    /// not named in `parts`.
    pub(crate) fn begin(&mut self, parts: Vec<(Fid, Part)>, any_inode: bool) -> Change {
        self.busy.begin(&parts, any_inode);
        Change { token: self.token(), parts, any_inode }
    }

    /// A change ended. What it left behind is kept if nothing else happened to it meanwhile.
    pub(crate) fn end(&mut self, c: Change, now: Instant, outcome: &Outcome) {
        // What is not said in the outcome is unknown now.
        for &(fid, part) in &c.parts {
            self.forget(c.token, fid, part, outcome);
        }
        if c.any_inode && outcome.unknown {
            self.nodes.map.values_mut().for_each(Node::forget_entry);
        }
        let any = u32::from(c.any_inode);
        for e in &outcome.entries {
            let mine = u32::from(c.parts.contains(&(e.attr.fid, Part::Attr)));
            if let Some(n) = self.nodes.map.get_mut(&e.attr.fid) {
                n.forget_entry();
            }
            // Nothing else changed it meanwhile.
            if self.put_inode(c.token, e, now, mine, any) == Some(true) {
                self.contents.changed(e.attr.fid, e.attr.version, &outcome.edit);
            } else {
                self.contents.remove(e.attr.fid);
            }
        }
        for (fid, _) in c.parts.iter().filter(|p| p.1 == Part::Attr) {
            if !outcome.entries.iter().any(|e| e.attr.fid == *fid) {
                self.contents.remove(*fid);
            }
        }
        for fid in &outcome.gone {
            if let Some(n) = self.nodes.map.get_mut(fid) {
                n.forget_entry();
            }
            self.contents.remove(*fid);
        }
        for (dir, name, leads, g) in &outcome.names {
            let mine = u32::from(c.parts.contains(&(*dir, name_part(name))));
            self.set_name(c.token, *dir, name, *leads, *g, now, mine);
        }
        self.busy.end(&c.parts, c.any_inode);
        for (fid, part) in c.parts {
            self.changes.mark(Cause::Own(fid, part));
        }
        if c.any_inode {
            self.changes.mark(Cause::OwnAnyInode);
        }
    }

    fn forget(&mut self, token: Token, fid: Fid, part: Part, outcome: &Outcome) {
        let alone = self.busy.times(fid, part) == 1 && self.changes.overtaken(token, fid, part).is_none();
        let Some(n) = self.nodes.map.get_mut(&fid) else { return };
        // All the time from the start of the change: nobody else came in between.
        let alone = alone && n.listed_since <= token.0;
        match part {
            Part::Attr => n.forget_entry(),
            Part::Name(_) => {
                let Some(d) = n.dir.as_mut() else { return };
                for (_, name, was_absent) in
                    outcome.touched.iter().filter(|t| t.0 == fid && name_part(&t.1) == part)
                {
                    let known = if *was_absent && alone { Known::Absent } else { Known::Unknown };
                    self.nodes.names = self.nodes.names.wrapping_add_signed(d.know(name, known));
                }
            }
            Part::List => {
                let Some(d) = n.dir.as_mut() else { return };
                let kept = match (&outcome.removed, d.listing.as_mut()) {
                    (Some(name), Some(l)) if alone => l.remove(name),
                    _ => false,
                };
                if !kept {
                    d.listing = None;
                }
            }
        }
    }

    // leases that go

    /// The server asks for this back: from here on nothing of it is used. Returns what goes: with the inode
    /// of a file that is not open (`open`) its layout does.
    pub(crate) fn revoke(&mut self, item: &LeaseItem, open: bool) -> LeaseItem {
        let more = match item.bits & bits::INODE {
            bits::UPDATE if !open => bits::LAYOUT,
            // What else is known of the inode shows the layout, too.
            bits::LAYOUT => bits::UPDATE,
            _ => 0,
        };
        let item = &LeaseItem { bits: item.bits | more, ..*item };
        assert!(item.bits & !bits::ALL == 0, "a lease has bits that are known");
        if item.bits & bits::LAYOUT != 0 && open && planted::on(Bug::LayoutBeyondLease) {
            return LeaseItem { look: false, ..*item };
        }
        self.changes.mark(Cause::Revoked(item.fid, item.bits));
        self.revoke_bits(item);
        LeaseItem { look: false, ..*item }
    }

    fn revoke_bits(&mut self, item: &LeaseItem) {
        let Some(n) = self.nodes.map.get_mut(&item.fid) else { return };
        if item.bits & bits::UPDATE != 0 && !planted::on(Bug::StaleAttrKept) {
            n.forget_entry();
        }
        if item.bits & bits::UPDATE != 0 && !planted::on(Bug::ContentKeptAfterRevoke) {
            self.contents.remove(item.fid);
        }
        if item.bits & bits::LOOKUP != 0 {
            let gone = n.dir.take().map_or(0, |d| d.names.len());
            assert!(self.nodes.names >= gone, "names are counted");
            self.nodes.names -= gone;
        }
        n.bits &= !item.bits;
        n.exclusive &= !item.bits;
        assert!(n.exclusive & !n.bits == 0, "what is exclusive is held");
        n.leaving = false;
        if n.bits == 0 && !planted::on(Bug::StaleAttrKept) {
            self.drop_node(item.fid);
        }
    }

    /// Its place in the queue is left: [`Cache::shrink`] comes by.
    fn drop_node(&mut self, fid: Fid) -> Option<Node> {
        let n = self.nodes.map.remove(&fid)?;
        if !planted::on(Bug::ContentKeptAfterRevoke) {
            self.contents.remove(fid);
        }
        let gone = n.dir.as_ref().map_or(0, |d| d.names.len());
        assert!(self.nodes.names >= gone, "names are counted");
        self.nodes.names -= gone;
        Some(n)
    }

    /// Makes room, a little more than is needed so that leases go back in batches. What is given back is not
    /// used any more.
    pub(crate) fn shrink(&mut self, now: Instant) -> Vec<LeaseItem> {
        let mut out = Vec::new();
        if self.nodes.queue.len() > 2 * self.nodes.map.len() + 1024 {
            self.nodes.tidy_queue();
        }
        if !self.nodes.is_over(self.max_files) {
            return out;
        }
        let spare = self.max_files / 32;
        let mut pinned = Vec::new();
        while self.nodes.map.len() + spare > self.max_files
            || self.nodes.names + spare > self.max_files.saturating_mul(NAMES_PER_FILE)
        {
            let Some(fid) = self.nodes.queue.pop_front() else { break };
            if self.is_pinned(fid) {
                pinned.push(fid);
                continue;
            }
            let Some(n) = self.nodes.map.get_mut(&fid) else { continue };
            if n.used > n.queued {
                // Used since it was looked at last: once more around.
                n.queued = now.max(n.used);
                self.nodes.queue.push_back(fid);
                continue;
            }
            out.extend(self.give_up(fid));
        }
        self.nodes.queue.extend(pinned);
        out
    }

    /// Everything that was not used for so long.
    pub(crate) fn expire(&mut self, now: Instant, age: Duration) -> Vec<LeaseItem> {
        let old: Vec<Fid> =
            self.nodes.map.iter().filter(|(_, n)| now.since(n.used) >= age).map(|(f, _)| *f).collect();
        let old = old.into_iter().filter(|f| !self.is_pinned(*f)).collect::<Vec<_>>();
        old.into_iter().filter_map(|f| self.give_up(f)).collect()
    }

    fn give_up(&mut self, fid: Fid) -> Option<LeaseItem> {
        let n = self.drop_node(fid)?;
        self.changes.mark(Cause::GivenBack(fid));
        Some(LeaseItem { fid, bits: bits::ALL, seq: n.seq, look: false })
    }

    /// Leases that were granted and are not wanted.
    pub(crate) fn take_unwanted(&mut self) -> Vec<LeaseItem> {
        std::mem::take(&mut self.unwanted)
    }
}

/// As far as is known: a file's data is not here and may lie with its inode.
fn is_worth_fetching(nodes: &Nodes, contents: &Contents, fid: Fid) -> bool {
    let Some(e) = nodes.map.get(&fid).and_then(|n| n.entry.as_ref()) else { return true };
    let small = e.layout.as_ref().is_some_and(|l| l.mdt_component().is_some());
    let fits = e.attr.size > 0 && e.attr.size <= CONTENT_MAX_BYTES as u64;
    small && fits && !contents.has(fid, e.attr.version)
}

/// A directory, a name, what that leads to, and the lease under which that is known.
pub(crate) type Named = (Fid, Vec<u8>, Option<Fid>, Option<Grant>);

/// What a change came to. Names of parts that are not in it are unknown afterwards.
#[derive(Default, Debug)]
pub(crate) struct Outcome {
    /// Inodes as they are after it.
    pub entries: Vec<Entry>,
    /// Files that are no more.
    pub gone: Vec<Fid>,
    /// Names with what they lead to now.
    pub names: Vec<Named>,
    /// (directory, name, gone for certain) of every name that it may have changed.
    pub touched: Vec<(Fid, Vec<u8>, bool)>,
    /// A name was taken out of the directory, and nothing else happened to its order.
    pub removed: Option<Vec<u8>>,
    /// Nobody knows what became of it.
    pub unknown: bool,
    /// What it did to the data of the files in `entries`.
    pub edit: Edit,
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
