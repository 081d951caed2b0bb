//! What is known of each file with a lease, and of the names of directories.

use super::changes::Token;
use crate::mdc::follow::Runs;
use crate::mdc::listing::Listing;
use crate::mdc::rules::Blocks;
use model::{Fid, Layout, Map, Set};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::msg::lookup::{Entry, bits};
use world::Instant;

/// Names kept for each file that may be kept.
pub(super) const NAMES_PER_FILE: usize = 2;
/// Lookups in a directory, one after the other, that had to ask the server, before it is fetched in bulk.
const AHEAD_AFTER: u32 = 8;
/// Entries fetched the first time; twice as many each time after that.
const AHEAD_FIRST: usize = 1024;

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    Is(Fid),
    Absent,
    /// Also in a directory of which all other names are known.
    Unknown,
}

/// What is known of a directory's names.
#[derive(Default)]
pub(super) struct Dir {
    pub(super) names: Map<Vec<u8>, Known>,
    /// A name that is not in `names` is not in the directory.
    pub(super) complete: bool,
    /// Of `names`, those that lead somewhere, and those that are unknown.
    pub(super) present: usize,
    pub(super) unknown: usize,
    pub(super) listing: Option<Listing>,
    pub(super) ahead: Ahead,
    /// Reading of its files, one after the other.
    pub(super) runs: Runs,
    /// The inodes in it were asked for.
    pub(super) children_asked: bool,
    pub(super) files: Option<NewFiles>,
}

/// What a new file of a directory gets that asks for nothing special.
#[derive(Clone, Debug)]
pub(super) struct NewFiles {
    /// `None`: only the server knows.
    pub(super) layout: Option<Arc<Layout>>,
    /// Said under the lease on [`Fid::DEFAULTS`] that is held since then.
    pub(super) since: u64,
    /// As [`wire::msg::own::OwnReply::limited`] says.
    pub(super) limited: bool,
}

impl Dir {
    /// Whether it is known of every name where it leads.
    pub(super) fn is_known(&self) -> bool {
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
    pub(super) fn know(&mut self, name: &[u8], known: Known) -> isize {
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
pub(super) struct Ahead {
    misses: u32,
    entries: usize,
    cookie: u64,
    done: bool,
    running: bool,
}

/// What is known of a file, and the lease under which it is.
#[derive(Default)]
pub(super) struct Node {
    pub(super) bits: u8,
    /// Of those, exclusive.
    pub(super) exclusive: u8,
    /// Of a file: the newest generation of its layout that was shown under the lease.
    pub(super) layout: u32,
    /// It was made here and the server has not said so yet: nobody else can know of it.
    pub(super) made_here: bool,
    /// The server asked for what is exclusive: nothing more is executed here.
    pub(super) leaving: bool,
    pub(super) seq: u64,
    /// The counts when something was last executed here on the inode, on its names: older answers are not
    /// kept.
    pub(super) inode_at: u64,
    pub(super) names_at: u64,
    /// Where data lies with the inode, if that is known.
    pub(super) blocks: Option<Blocks>,
    /// The count when the lease on its entries was granted.
    pub(super) listed_since: u64,
    /// The count when the lease on the inode was granted.
    pub(super) inode_since: u64,
    /// A directory in which it was found, for what is worth fetching with it.
    pub(super) home: Fid,
    pub(super) entry: Option<Arc<Entry>>,
    pub(super) dir: Option<Box<Dir>>,
    pub(super) used: Instant,
    /// When it was put at the end of the queue.
    pub(super) queued: Instant,
}

impl Node {
    pub(super) fn new(now: Instant) -> Node {
        Node { used: now, queued: now, ..Node::default() }
    }

    pub(super) fn forget_entry(&mut self) {
        self.entry = None;
        self.blocks = None;
    }

    /// Whether operations may be executed here on what these bits cover.
    pub(super) fn may_execute(&self, want: u8) -> bool {
        !self.leaving && (self.made_here || self.exclusive & want == want)
    }
}

/// All files with a lease, and the names that are kept of directories.
#[derive(Default)]
pub(crate) struct Nodes {
    pub(super) map: Map<Fid, Node>,
    /// Each node once, about in the order of use.
    pub(super) queue: VecDeque<Fid>,
    /// Names that are kept, of all directories.
    pub(super) names: usize,
}

impl Nodes {
    /// Everything is forgotten.
    pub(super) fn clear(&mut self) {
        self.map.clear();
        self.queue.clear();
        self.names = 0;
    }

    /// Files with a lease.
    pub(in crate::mdc) fn len(&self) -> usize {
        self.map.len()
    }

    /// The file was found in this directory.
    pub(super) fn found_in(&mut self, dir: Fid, fid: Fid) {
        if let Some(n) = self.map.get_mut(&fid) {
            n.home = dir;
        }
    }

    /// A name of a directory, if names of it may be kept.
    pub(super) fn know(&mut self, dir: Fid, name: &[u8], known: Known) {
        let Some(d) = self.map.get_mut(&dir).and_then(|n| n.dir.as_mut()) else { return };
        self.names = self.names.wrapping_add_signed(d.know(name, known));
        assert!(self.names <= isize::MAX as usize, "no more names go than were kept");
    }

    /// Something was executed here on the names of this directory since.
    pub(super) fn names_newer(&self, dir: Fid, token: Token) -> bool {
        self.map.get(&dir).is_some_and(|n| n.names_at > token.0)
    }

    /// Whether this mount would be asked before a file's layout changes: the generation of the layout that it
    /// was shown with the lease.
    pub(in crate::mdc) fn leased_layout(&mut self, fid: Fid, now: Instant) -> Option<u32> {
        let n = self.map.get_mut(&fid).filter(|n| n.bits & bits::INODE != 0)?;
        n.used = now;
        Some(n.layout)
    }

    /// Whether there is more than what goes with so many files.
    pub(super) fn is_over(&self, max_files: usize) -> bool {
        self.map.len() > max_files || self.names > max_files.saturating_mul(NAMES_PER_FILE)
    }

    /// A directory that was listed, removed and listed again stands in the queue more than once.
    pub(super) fn tidy_queue(&mut self) {
        let mut seen = Set::default();
        self.queue.retain(|f| self.map.contains_key(f) && seen.insert(*f));
    }

    /// A lookup in `dir` had to ask the server. Says where to fetch the directory from, and how many entries,
    /// if that looks worth while; [`Nodes::ahead_done`] must follow.
    pub(in crate::mdc) fn missed(&mut self, dir: Fid, max: usize) -> Option<(u64, usize)> {
        let d = self.map.get_mut(&dir)?.dir.as_mut()?;
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
    pub(in crate::mdc) fn ahead_done(&mut self, dir: Fid, cookie: u64, end: bool) {
        if let Some(d) = self.map.get_mut(&dir).and_then(|n| n.dir.as_mut()) {
            d.ahead.cookie = cookie;
            d.ahead.done |= end;
            d.ahead.running = false;
        }
    }

    pub(super) fn dir_mut(&mut self, fid: Fid) -> Option<&mut Dir> {
        self.map.get_mut(&fid)?.dir.as_deref_mut()
    }

    /// What new files of a directory get, if that is still so.
    pub(super) fn new_files(&self, dir: Fid) -> Option<&NewFiles> {
        let files = self.map.get(&dir)?.dir.as_ref()?.files.as_ref()?;
        let defaults = self.map.get(&Fid::DEFAULTS)?;
        (defaults.bits & bits::UPDATE != 0 && defaults.inode_since == files.since).then_some(files)
    }

    /// What a name of an owned directory leads to.
    pub(super) fn named(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        match self.map.get(&dir)?.dir.as_ref()?.names.get(name)? {
            Known::Is(fid) => Some(*fid),
            _ => None,
        }
    }

    /// Whether an owned directory does not have this name.
    pub(super) fn absent(&self, dir: Fid, name: &[u8]) -> bool {
        let d = self.map.get(&dir).and_then(|n| n.dir.as_ref());
        d.is_some_and(|d| matches!(d.names.get(name), None | Some(Known::Absent)))
    }

    /// Whether an owned directory has no names.
    pub(super) fn is_empty_dir(&self, fid: Fid) -> bool {
        self.map.get(&fid).is_some_and(|n| {
            let empty = |d: &Dir| d.is_known() && d.present == 0;
            n.may_execute(bits::DIRECTORY) && n.dir.as_deref().is_some_and(empty)
        })
    }
}
