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

mod owned;

pub(crate) use owned::{Owned, Wants, Who};

use super::content::{CONTENT_MAX_BYTES, Came, Contents, Edit};
use super::follow::{RunId, Runs};
use super::listing::Listing;
use super::log::Log;
use super::rules::Blocks;
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Fid, FileType, Layout, Map, Set, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::lookup::{Entry, Grant, bits};
use wire::msg::notify::LeaseItem;
use wire::msg::readdir::ReaddirReply;
use world::Instant;

/// Changes and revocations remembered; what was asked for before the oldest is not kept.
const MARKS_MAX: usize = 16_384;
/// Names kept for each file that may be kept.
const NAMES_PER_FILE: usize = 2;
/// Directories remembered as contended.
const CONTENDED_MAX: usize = 4096;
/// Lookups in a directory, one after the other, that had to ask the server, before it is fetched in bulk.
const AHEAD_AFTER: u32 = 8;
/// Entries fetched the first time; twice as many each time after that.
const AHEAD_FIRST: usize = 1024;

/// When a request started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token(u64);

/// A part of a file that changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Part {
    /// Everything in the inode.
    Attr,
    /// One name of a directory, by its hash.
    Name(u64),
    /// The order of a directory's names.
    List,
}

/// The part of a directory that is this name.
pub(crate) fn name_part(name: &[u8]) -> Part {
    use std::hash::BuildHasher;
    Part::Name(Map::<(), ()>::default().hasher().hash_one(name))
}

#[derive(Clone, Copy)]
enum Cause {
    /// A change of this mount's own ended.
    Own(Fid, Part),
    /// A change of this mount's own ended that may have been of any inode.
    OwnAnyInode,
    /// These bits were asked for back.
    Revoked(Fid, u8),
    /// All of the file was given back unasked: what older answers grant may be gone with it.
    GivenBack(Fid),
}

struct Mark {
    at: u64,
    cause: Cause,
}

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Is(Fid),
    Absent,
    /// Also in a directory of which all other names are known.
    Unknown,
}

#[derive(Default)]
struct Dir {
    names: Map<Vec<u8>, Known>,
    /// A name that is not in `names` is not in the directory.
    complete: bool,
    /// Of `names`, those that lead somewhere, and those that are unknown.
    present: usize,
    unknown: usize,
    listing: Option<Listing>,
    ahead: Ahead,
    /// Reading of its files, one after the other.
    runs: Runs,
    /// The inodes in it were asked for.
    children_asked: bool,
    files: Option<NewFiles>,
}

/// What a new file of a directory gets that asks for nothing special.
#[derive(Clone, Debug)]
struct NewFiles {
    /// `None`: only the server knows.
    layout: Option<Arc<Layout>>,
    /// Said under the lease on [`Fid::DEFAULTS`] that is held since then.
    since: u64,
}

impl Dir {
    /// Whether it is known of every name where it leads.
    fn is_known(&self) -> bool {
        self.complete && self.unknown == 0
    }

    fn count(&mut self, k: Option<Known>, n: isize) {
        match k {
            Some(Known::Is(_)) => self.present = self.present.wrapping_add_signed(n),
            Some(Known::Unknown) => self.unknown = self.unknown.wrapping_add_signed(n),
            _ => {}
        }
        assert!(self.present.max(self.unknown) <= isize::MAX as usize, "a name is counted once");
    }

    /// Returns by how many more names are kept.
    fn know(&mut self, name: &[u8], known: Known) -> isize {
        self.count(Some(known), 1);
        // Of a directory whose names are known it need not be said which are not there.
        let old = if self.complete && known == Known::Absent {
            self.names.remove(name).map(|old| (old, -1))
        } else {
            self.names.insert(name.to_vec(), known).map(|old| (old, 0))
        };
        self.count(old.map(|o| o.0), -1);
        match old {
            Some((_, n)) => n,
            None => isize::from(!(self.complete && known == Known::Absent)),
        }
    }
}

/// Fetching a directory in bulk because it is looked up name by name.
#[derive(Default)]
struct Ahead {
    misses: u32,
    entries: usize,
    cookie: u64,
    done: bool,
    running: bool,
}

#[derive(Default)]
struct Node {
    bits: u8,
    /// Of those, exclusive.
    exclusive: u8,
    /// It was made here and the server has not said so yet: nobody else can know of it.
    made_here: bool,
    /// The server asked for what is exclusive: nothing more is executed here.
    leaving: bool,
    seq: u64,
    /// The counts when something was last executed here on the inode, on its names: older answers are not
    /// kept.
    inode_at: u64,
    names_at: u64,
    /// Where data lies with the inode, if that is known.
    blocks: Option<Blocks>,
    /// The count when the lease on its entries was granted.
    listed_since: u64,
    /// The count when the lease on the inode was granted.
    inode_since: u64,
    /// A directory in which it was found, for what is worth fetching with it.
    home: Fid,
    entry: Option<Arc<Entry>>,
    dir: Option<Box<Dir>>,
    used: Instant,
    /// When it was put at the end of the queue.
    queued: Instant,
}

impl Node {
    fn new(now: Instant) -> Node {
        Node { used: now, queued: now, ..Node::default() }
    }

    fn forget_entry(&mut self) {
        self.entry = None;
        self.blocks = None;
    }
}

/// A change of this mount's own that is under way.
#[derive(Debug)]
pub(crate) struct Change {
    token: Token,
    parts: Vec<(Fid, Part)>,
    any_inode: bool,
}

pub(crate) struct Cache {
    nodes: Map<Fid, Node>,
    /// Each node once, about in the order of use.
    queue: VecDeque<Fid>,
    names: usize,
    /// Files kept at most.
    pub max_files: usize,
    count: u64,
    marks: VecDeque<Mark>,
    /// What was asked for before this is not kept.
    floor: u64,
    busy: Map<(Fid, Part), u32>,
    any_inode_busy: u32,
    contended: Set<Fid>,
    unwanted: Vec<LeaseItem>,
    /// Data and extended attributes; used while the inode is known at the version that they are of.
    pub contents: Contents,
    /// What was executed here and the server does not know of yet.
    pub log: Log,
    /// Directories that cannot be had exclusively before that time.
    not_before: Map<Fid, Instant>,
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
            nodes: Map::default(),
            queue: VecDeque::new(),
            names: 0,
            max_files,
            count: 1,
            marks: VecDeque::new(),
            floor: 1,
            busy: Map::default(),
            any_inode_busy: 0,
            contended: Set::default(),
            unwanted: Vec::new(),
            contents,
            log: Log::default(),
            not_before: Map::default(),
        }
    }

    pub(crate) fn token(&self) -> Token {
        Token(self.count)
    }

    /// Files with a lease.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Everything is forgotten, the leases too.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.queue.clear();
        self.marks.clear();
        self.unwanted.clear();
        self.contents.clear();
        self.names = 0;
        self.count += 1;
        self.floor = self.count;
    }

    // what is known

    fn inode_busy(&self, fid: Fid) -> bool {
        self.any_inode_busy > 0 || self.busy.contains_key(&(fid, Part::Attr))
    }

    /// The inode, if it is known.
    pub(crate) fn entry(&mut self, fid: Fid, now: Instant) -> Option<Arc<Entry>> {
        if self.inode_busy(fid) {
            return None;
        }
        let n = self.nodes.get_mut(&fid)?;
        n.used = now;
        n.entry.clone()
    }

    /// A file was read, and the server hears of it soon.
    pub(crate) fn set_atime(&mut self, fid: Fid, atime: Timestamp) {
        if self.inode_busy(fid) {
            return;
        }
        if let Some(e) = self.nodes.get_mut(&fid).and_then(|n| n.entry.as_mut())
            && e.attr.atime < atime
        {
            Arc::make_mut(e).attr.atime = atime;
        }
    }

    /// What a name leads to: `Some(None)` is a name that is not there.
    pub(crate) fn name(&mut self, dir: Fid, name: &[u8], now: Instant) -> Option<Option<Fid>> {
        if self.busy.contains_key(&(dir, name_part(name))) {
            return None;
        }
        let n = self.nodes.get_mut(&dir)?;
        n.used = now;
        let d = n.dir.as_ref()?;
        match d.names.get(name) {
            Some(Known::Is(fid)) => {
                let fid = *fid;
                self.found_in(dir, fid);
                Some(Some(fid))
            }
            Some(Known::Absent) => Some(None),
            Some(Known::Unknown) => None,
            None => d.complete.then_some(None),
        }
    }

    fn found_in(&mut self, dir: Fid, fid: Fid) {
        if let Some(n) = self.nodes.get_mut(&fid) {
            n.home = dir;
        }
    }

    /// All data of a file, if it is known; and which files are worth fetching because it is read.
    pub(crate) fn content(&mut self, fid: Fid, now: Instant) -> Option<(Bytes, Option<ToFetch>)> {
        let version = self.entry(fid, now)?.attr.version;
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
        let dir = self.nodes.get(&fid)?.home;
        let mut d = self.nodes.get_mut(&dir)?.dir.take()?;
        let Dir { runs, listing, .. } = &mut *d;
        let out = listing.as_ref().and_then(|l| {
            let run = step(runs, l)?;
            let files = runs.next(run, l, |f| self.worth_fetching(f));
            (!files.is_empty()).then_some(ToFetch { dir, run, files })
        });
        self.nodes.get_mut(&dir)?.dir = Some(d);
        out
    }

    /// As far as is known: its data is not here and may lie with its inode.
    fn worth_fetching(&self, fid: Fid) -> bool {
        let Some(e) = self.nodes.get(&fid).and_then(|n| n.entry.as_ref()) else { return true };
        let small = e.layout.as_ref().is_some_and(|l| l.mdt_component().is_some());
        let fits = e.attr.size > 0 && e.attr.size <= CONTENT_MAX_BYTES as u64;
        small && fits && !self.contents.has(fid, e.attr.version)
    }

    /// What was worth fetching is here, or as much of it as there was room for: these files, of all up to
    /// `last`.
    pub(crate) fn followed(&mut self, dir: Fid, run: RunId, files: &[Fid], last: Option<Fid>) {
        if let Some(d) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
            d.runs.arrived(run, files, last);
        }
    }

    /// Whether this mount changes the inode at this moment, or may.
    pub(crate) fn is_changing(&self, fid: Fid) -> bool {
        self.inode_busy(fid)
    }

    /// The value of an extended attribute, if it is known (`Some(None)`: there is none), for root or others.
    pub(crate) fn xattr(
        &mut self,
        fid: Fid,
        root: bool,
        name: &[u8],
        now: Instant,
    ) -> Option<Option<Vec<u8>>> {
        let version = self.entry(fid, now)?.attr.version;
        self.contents.xattr(fid, version, root, name)
    }

    /// As [`Cache::xattr`], the names of all.
    pub(crate) fn xattr_names(&mut self, fid: Fid, root: bool, now: Instant) -> Option<Vec<Vec<u8>>> {
        let version = self.entry(fid, now)?.attr.version;
        self.contents.xattr_names(fid, version, root)
    }

    /// The version of the inode that an answer shows which says none, if it was the same all the time since
    /// `token`.
    pub(crate) fn version_since(&mut self, token: Token, fid: Fid) -> Option<u64> {
        let n = self.nodes.get(&fid)?;
        let held = n.bits & bits::UPDATE != 0 && n.inode_since <= token.0 && token.0 >= self.floor;
        let same = held && !self.inode_busy(fid) && self.overtaken(token, fid, Part::Attr).is_none();
        n.entry.as_ref().filter(|_| same).map(|e| e.attr.version)
    }

    /// Works on a directory's known order of names, if it may be used.
    pub(crate) fn listing<T>(&mut self, dir: Fid, now: Instant, f: impl FnOnce(&Listing) -> T) -> Option<T> {
        if self.busy.contains_key(&(dir, Part::List)) {
            return None;
        }
        let n = self.nodes.get_mut(&dir)?;
        n.used = now;
        n.dir.as_ref()?.listing.as_ref().map(f)
    }

    /// Others change this directory all the time: there is no use in asking for more than is needed now.
    pub(crate) fn is_contended(&self, dir: Fid) -> bool {
        self.contended.contains(&dir)
    }

    // answers

    /// Why a part of a file that was asked for at `token` may not be kept.
    fn overtaken(&self, token: Token, fid: Fid, part: Part) -> Option<Cause> {
        let bit = if part == Part::Attr { bits::UPDATE } else { bits::LOOKUP };
        let newer = self.marks.iter().rev().take_while(|m| m.at > token.0);
        let hit = |m: &&Mark| match m.cause {
            Cause::Own(f, p) => f == fid && p == part,
            Cause::OwnAnyInode => part == Part::Attr,
            Cause::GivenBack(f) => f == fid,
            Cause::Revoked(f, b) => f == fid && b & bit != 0 && !planted::on(Bug::RaceRuleIgnored),
        };
        let mut own = None;
        for m in newer.filter(hit) {
            if let Cause::Revoked(..) | Cause::GivenBack(_) = m.cause {
                return Some(m.cause);
            }
            own = Some(m.cause);
        }
        own
    }

    /// Takes a lease over. False if what came with it is not to be kept because the lease is gone again.
    fn hold(&mut self, token: Token, fid: Fid, bit: u8, g: Option<Grant>, now: Instant) -> bool {
        assert!(bit == bits::UPDATE || bit == bits::LOOKUP, "a lease is on the inode or on the names");
        let Some(g) = g.filter(|g| g.bits & bit != 0) else { return false };
        let part = if bit == bits::UPDATE { Part::Attr } else { Part::List };
        let given_back = match self.overtaken(token, fid, part) {
            Some(Cause::Revoked(..)) => return false,
            Some(Cause::GivenBack(_)) => true,
            _ => false,
        };
        if given_back || token.0 < self.floor {
            // Too long ago to know whether it is still there.
            if let Some(n) = self.nodes.get_mut(&fid) {
                // Another one is, and perhaps what was executed under it: this one goes with that.
                n.seq = n.seq.max(g.seq);
            } else {
                self.mark(Cause::GivenBack(fid));
                self.unwanted.push(LeaseItem { fid, bits: bits::ALL, seq: g.seq, look: false });
            }
            return false;
        }
        let n = self.nodes.entry(fid).or_insert_with(|| {
            self.queue.push_back(fid);
            Node::new(now)
        });
        if bit & !n.bits != 0 {
            self.count += 1;
            *(if bit == bits::LOOKUP { &mut n.listed_since } else { &mut n.inode_since }) = self.count;
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
            self.contended.remove(&fid);
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
                && !self.names_newer(fid, token)
                && let Some(d) = self.nodes.get_mut(&fid).and_then(|n| n.dir.as_mut())
                && d.names.is_empty()
                && d.listing.is_none()
                && self.busy.keys().all(|(f, _)| *f != fid)
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
        let busy = self.busy.get(&(fid, Part::Attr)).copied().unwrap_or(0);
        let free = busy <= mine && self.any_inode_busy <= any;
        let keep = free && self.overtaken(token, fid, Part::Attr).is_none();
        let n = self.nodes.get_mut(&fid).expect("held a moment ago");
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
            self.note_contended(dir);
        }
        if !self.hold(token, dir, bits::LOOKUP, g, now) {
            return;
        }
        let part = name_part(name);
        let busy = self.busy.get(&(dir, part)).copied().unwrap_or(0);
        if busy > mine || self.overtaken(token, dir, part).is_some() || self.names_newer(dir, token) {
            return;
        }
        let known = leads.map_or(Known::Absent, Known::Is);
        self.know(dir, name, known);
        if let Some(fid) = leads {
            self.found_in(dir, fid);
        }
    }

    fn know(&mut self, dir: Fid, name: &[u8], known: Known) {
        let Some(d) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) else { return };
        self.names = self.names.wrapping_add_signed(d.know(name, known));
        assert!(self.names <= isize::MAX as usize, "no more names go than were kept");
    }

    /// Something was executed here on the names of this directory since.
    fn names_newer(&self, dir: Fid, token: Token) -> bool {
        self.nodes.get(&dir).is_some_and(|n| n.names_at > token.0)
    }

    fn note_contended(&mut self, dir: Fid) {
        if self.contended.len() >= CONTENDED_MAX {
            self.contended.clear();
        }
        self.contended.insert(dir);
        assert!(self.contended.len() <= CONTENDED_MAX, "what is remembered of contention is bounded");
    }

    /// A page of a directory that was asked for behind `cookie`.
    pub(crate) fn put_page(&mut self, token: Token, dir: Fid, cookie: u64, r: &ReaddirReply, now: Instant) {
        for e in r.entries.iter().filter_map(|d| d.entry.as_ref()) {
            self.put_entry(token, e, now);
        }
        if r.grant.is_none() {
            self.note_contended(dir);
        }
        if !self.hold(token, dir, bits::LOOKUP, r.grant, now) || self.names_newer(dir, token) {
            return;
        }
        for d in &r.entries {
            let part = name_part(&d.name);
            if !self.busy.contains_key(&(dir, part)) && self.overtaken(token, dir, part).is_none() {
                self.know(dir, &d.name, Known::Is(d.fid));
                self.found_in(dir, d.fid);
            }
        }
        let busy = self.busy.contains_key(&(dir, Part::List));
        let keep = !busy && self.overtaken(token, dir, Part::List).is_none();
        let Some(d) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) else { return };
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
        for part in &parts {
            *self.busy.entry(*part).or_default() += 1;
        }
        self.any_inode_busy += u32::from(any_inode);
        Change { token: self.token(), parts, any_inode }
    }

    /// A change ended. What it left behind is kept if nothing else happened to it meanwhile.
    pub(crate) fn end(&mut self, c: Change, now: Instant, outcome: &Outcome) {
        // What is not said in the outcome is unknown now.
        for &(fid, part) in &c.parts {
            self.forget(c.token, fid, part, outcome);
        }
        if c.any_inode && outcome.unknown {
            self.nodes.values_mut().for_each(Node::forget_entry);
        }
        let any = u32::from(c.any_inode);
        for e in &outcome.entries {
            let mine = u32::from(c.parts.contains(&(e.attr.fid, Part::Attr)));
            if let Some(n) = self.nodes.get_mut(&e.attr.fid) {
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
            if let Some(n) = self.nodes.get_mut(fid) {
                n.forget_entry();
            }
            self.contents.remove(*fid);
        }
        for (dir, name, leads, g) in &outcome.names {
            let mine = u32::from(c.parts.contains(&(*dir, name_part(name))));
            self.set_name(c.token, *dir, name, *leads, *g, now, mine);
        }
        for part in &c.parts {
            let n = self.busy.get_mut(part).expect("begun before");
            assert!(*n > 0, "a part that changes is counted");
            *n -= 1;
            if *n == 0 {
                self.busy.remove(part);
            }
        }
        assert!(self.any_inode_busy >= u32::from(c.any_inode), "a change ends once");
        self.any_inode_busy -= u32::from(c.any_inode);
        for (fid, part) in c.parts {
            self.mark(Cause::Own(fid, part));
        }
        if c.any_inode {
            self.mark(Cause::OwnAnyInode);
        }
    }

    fn forget(&mut self, token: Token, fid: Fid, part: Part, outcome: &Outcome) {
        let alone = self.busy.get(&(fid, part)) == Some(&1) && self.overtaken(token, fid, part).is_none();
        let Some(n) = self.nodes.get_mut(&fid) else { return };
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
                    self.names = self.names.wrapping_add_signed(d.know(name, known));
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

    fn mark(&mut self, cause: Cause) {
        self.count += 1;
        self.marks.push_back(Mark { at: self.count, cause });
        if self.marks.len() > MARKS_MAX
            && let Some(m) = self.marks.pop_front()
        {
            self.floor = self.floor.max(m.at);
        }
        assert!(
            self.floor <= self.count && self.marks.len() <= MARKS_MAX,
            "what is remembered ends with now"
        );
    }

    // leases that go

    /// Whether this mount would be asked before a file's layout changes.
    pub(crate) fn layout_is_leased(&mut self, fid: Fid, now: Instant) -> bool {
        let Some(n) = self.nodes.get_mut(&fid).filter(|n| n.bits & bits::INODE != 0) else { return false };
        n.used = now;
        true
    }

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
        self.mark(Cause::Revoked(item.fid, item.bits));
        self.revoke_bits(item);
        LeaseItem { look: false, ..*item }
    }

    fn revoke_bits(&mut self, item: &LeaseItem) {
        let Some(n) = self.nodes.get_mut(&item.fid) else { return };
        if item.bits & bits::UPDATE != 0 && !planted::on(Bug::StaleAttrKept) {
            n.forget_entry();
        }
        if item.bits & bits::UPDATE != 0 && !planted::on(Bug::ContentKeptAfterRevoke) {
            self.contents.remove(item.fid);
        }
        if item.bits & bits::LOOKUP != 0 {
            let gone = n.dir.take().map_or(0, |d| d.names.len());
            assert!(self.names >= gone, "names are counted");
            self.names -= gone;
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
        let n = self.nodes.remove(&fid)?;
        if !planted::on(Bug::ContentKeptAfterRevoke) {
            self.contents.remove(fid);
        }
        let gone = n.dir.as_ref().map_or(0, |d| d.names.len());
        assert!(self.names >= gone, "names are counted");
        self.names -= gone;
        Some(n)
    }

    fn is_over(&self) -> bool {
        self.nodes.len() > self.max_files || self.names > self.max_files.saturating_mul(NAMES_PER_FILE)
    }

    /// Makes room, a little more than is needed so that leases go back in batches. What is given back is not
    /// used any more.
    pub(crate) fn shrink(&mut self, now: Instant) -> Vec<LeaseItem> {
        let mut out = Vec::new();
        if self.queue.len() > 2 * self.nodes.len() + 1024 {
            self.tidy_queue();
        }
        if !self.is_over() {
            return out;
        }
        let spare = self.max_files / 32;
        let mut pinned = Vec::new();
        while self.nodes.len() + spare > self.max_files
            || self.names + spare > self.max_files.saturating_mul(NAMES_PER_FILE)
        {
            let Some(fid) = self.queue.pop_front() else { break };
            if self.is_pinned(fid) {
                pinned.push(fid);
                continue;
            }
            let Some(n) = self.nodes.get_mut(&fid) else { continue };
            if n.used > n.queued {
                // Used since it was looked at last: once more around.
                n.queued = now.max(n.used);
                self.queue.push_back(fid);
                continue;
            }
            out.extend(self.give_up(fid));
        }
        self.queue.extend(pinned);
        out
    }

    /// A directory that was listed, removed and listed again stands in the queue more than once.
    fn tidy_queue(&mut self) {
        let mut seen = Set::default();
        self.queue.retain(|f| self.nodes.contains_key(f) && seen.insert(*f));
    }

    /// Everything that was not used for so long.
    pub(crate) fn expire(&mut self, now: Instant, age: Duration) -> Vec<LeaseItem> {
        let old: Vec<Fid> =
            self.nodes.iter().filter(|(_, n)| now.since(n.used) >= age).map(|(f, _)| *f).collect();
        let old = old.into_iter().filter(|f| !self.is_pinned(*f)).collect::<Vec<_>>();
        old.into_iter().filter_map(|f| self.give_up(f)).collect()
    }

    fn give_up(&mut self, fid: Fid) -> Option<LeaseItem> {
        let n = self.drop_node(fid)?;
        self.mark(Cause::GivenBack(fid));
        Some(LeaseItem { fid, bits: bits::ALL, seq: n.seq, look: false })
    }

    /// Leases that were granted and are not wanted.
    pub(crate) fn take_unwanted(&mut self) -> Vec<LeaseItem> {
        std::mem::take(&mut self.unwanted)
    }

    // fetching ahead

    /// A lookup in `dir` had to ask the server. Says where to fetch the directory from, and how many entries,
    /// if that looks worth while; [`Cache::ahead_done`] must follow.
    pub(crate) fn missed(&mut self, dir: Fid, max: usize) -> Option<(u64, usize)> {
        let d = self.nodes.get_mut(&dir)?.dir.as_mut()?;
        let a = &mut d.ahead;
        a.misses += 1;
        if a.misses < AHEAD_AFTER || a.running || a.done || max == 0 {
            return None;
        }
        a.entries = if a.entries == 0 { AHEAD_FIRST } else { a.entries * 2 }.min(max);
        assert!((1..=max).contains(&a.entries), "something is fetched, and no more than is allowed");
        (a.running, a.misses) = (true, 0);
        Some((a.cookie, a.entries))
    }

    /// The directory was fetched up to `cookie`; `end`: that was all, or nothing more is to be had.
    pub(crate) fn ahead_done(&mut self, dir: Fid, cookie: u64, end: bool) {
        if let Some(d) = self.nodes.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
            d.ahead.cookie = cookie;
            d.ahead.done |= end;
            d.ahead.running = false;
        }
    }
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
