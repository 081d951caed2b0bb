//! The order of a directory's names, as far as it was listed.

use model::{Fid, FileType};
use std::collections::VecDeque;
use wire::msg::readdir::Dirent;

/// Entries kept of one directory: what was listed first goes first.
const ENTRIES_MAX: usize = 131_072;

/// A name is looked for among so many: programs that remove a tree do so in the order of its listing.
const LOOK_FOR_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub cookie: u64,
    pub fid: Fid,
    pub kind: FileType,
    pub name: Box<[u8]>,
}

/// All entries with cookies above `base`, up to the last of them, or (`end`) up to the directory's end.
#[derive(Debug)]
pub(crate) struct Listing {
    base: u64,
    items: VecDeque<Item>,
    end: bool,
}

impl Listing {
    /// Of a new directory.
    pub(crate) fn empty() -> Listing {
        Listing { base: 0, items: VecDeque::new(), end: true }
    }

    pub(crate) fn page(cookie: u64, entries: &[Dirent], end: bool) -> Listing {
        let mut l = Listing { base: cookie, items: VecDeque::new(), end: false };
        l.add(cookie, entries, end);
        l
    }

    fn last(&self) -> u64 {
        self.items.back().map_or(self.base, |i| i.cookie)
    }

    /// A page that was asked for behind `cookie`: continues what is here, or replaces it.
    pub(crate) fn add(&mut self, cookie: u64, entries: &[Dirent], end: bool) {
        if cookie < self.base || cookie > self.last() {
            *self = Listing { base: cookie, items: VecDeque::new(), end: false };
        }
        let last = self.last();
        for d in entries.iter().filter(|d| d.cookie > last) {
            let name = d.name.clone().into_boxed_slice();
            self.items.push_back(Item { cookie: d.cookie, fid: d.fid, kind: d.kind, name });
        }
        self.end |= end;
        while self.items.len() > ENTRIES_MAX {
            if let Some(i) = self.items.pop_front() {
                self.base = i.cookie;
            }
        }
        assert!(
            self.base <= self.last() && self.items.len() <= ENTRIES_MAX,
            "a listing goes on behind its base"
        );
    }

    /// The entries behind `cookie`, and whether the directory ends with them; `None`: not known.
    pub(crate) fn behind(&self, cookie: u64) -> Option<(impl Iterator<Item = &Item>, bool)> {
        let known = cookie >= self.base && (self.end || cookie < self.last());
        known.then(|| {
            let at = self.items.partition_point(|i| i.cookie <= cookie);
            (self.items.iter().skip(at), self.end)
        })
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }

    /// The place of a file's first name at or behind `near`, or else of its first.
    pub(crate) fn place_of(&self, fid: Fid, near: usize) -> Option<usize> {
        let near = near.min(self.items.len());
        let behind = self.items.range(near..).position(|i| i.fid == fid).map(|p| near + p);
        behind.or_else(|| self.items.range(..near).position(|i| i.fid == fid))
    }

    /// The place of a file at most `far` behind the place `at`.
    pub(crate) fn place_behind(&self, at: usize, far: usize, fid: Fid) -> Option<usize> {
        let from = (at + 1).min(self.items.len());
        let to = (from + far).min(self.items.len());
        self.items.range(from..to).position(|i| i.fid == fid).map(|p| from + p)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.base == 0 && self.end
    }

    /// Takes a name out. False if it was not found with little effort: then the listing is of no use any
    /// more.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let at = self.items.iter().take(LOOK_FOR_MAX).position(|i| &*i.name == name);
        at.is_some_and(|i| self.items.remove(i).is_some())
    }
}
