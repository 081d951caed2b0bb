//! Reading ahead over files: whether the small files of a directory are read one after the other (grep -r, tar, cp -r),
//! and which come next. In the order of the directory's listing or in that of their FIDs, which is the order in which
//! they were made: programs sort by inode number.
//!
//! A state machine without I/O. It sees the files that had to be asked for, and those that it had fetched when they are
//! read; nothing else.

use super::listing::Listing;
use model::{Fid, FileType};

/// Files that may lie between one that was read and the next: directories, larger ones, ones that are known.
const NEAR: usize = 16;
/// Reads in order before others are fetched.
const RUN_MIN: u32 = 2;
const WINDOW_FIRST: usize = 8;
const WINDOW_MAX: usize = 128;
/// So many reads out of order are not looked at, at most, after others were.
const PATIENCE_MAX: u32 = 64;

/// How the files of one directory are read.
#[derive(Default, Debug)]
pub(crate) struct Run {
    /// The last one: its place in the listing.
    last: Option<(usize, Fid)>,
    by_fid: bool,
    /// Steps in order, one after the other.
    length: u32,
    /// Files of the last fetch.
    window: usize,
    /// Files that were fetched and not read.
    unread: usize,
    /// The last one that was fetched.
    end: Option<Fid>,
    running: bool,
    skip: u32,
    patience: u32,
}

impl Run {
    /// A file is read, and had to be asked for. Whether the next ones are worth fetching ([`Run::next`]).
    pub(crate) fn missed(&mut self, l: &Listing, fid: Fid) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let Some(at) = l.place_of(fid, self.last.map_or(0, |p| p.0)) else { return false };
        let last = self.last.replace((at, fid));
        let listed = last.is_some_and(|(p, _)| at > p && at - p <= NEAR);
        let made = last.is_some_and(|(_, f)| is_soon_after(f, fid));
        if !listed && !made {
            if last.is_some() {
                self.patience = (self.patience * 2 + 1).min(PATIENCE_MAX);
                self.skip = self.patience;
            }
            *self = Run {
                last: self.last,
                skip: self.skip,
                patience: self.patience,
                running: self.running,
                ..Run::default()
            };
            return false;
        }
        if self.length == 0 || (self.by_fid && !made) || (!self.by_fid && !listed) {
            self.by_fid = !listed;
        }
        self.length += 1;
        // What was fetched lies behind it.
        self.end = None;
        self.unread = 0;
        self.length >= RUN_MIN && !self.running
    }

    /// A file that was fetched ahead is read. Whether it is time for the next ones.
    pub(crate) fn read(&mut self, l: &Listing, fid: Fid) -> bool {
        if let Some(at) = l.place_of(fid, self.last.map_or(0, |p| p.0)) {
            self.last = Some((at, fid));
        }
        self.unread = self.unread.saturating_sub(1);
        self.patience = 0;
        self.window > 0 && self.unread <= self.window / 2 && !self.running
    }

    /// The files to fetch, of those that `wanted` says. None if there are no more; otherwise [`Run::arrived`] must
    /// follow.
    pub(crate) fn next(&mut self, l: &Listing, wanted: impl Fn(Fid) -> bool) -> Vec<Fid> {
        let Some((at, last)) = self.last else { return Vec::new() };
        let from = self.end.unwrap_or(last);
        self.window = (self.window * 2).clamp(WINDOW_FIRST, WINDOW_MAX);
        let files = |i: &&super::listing::Item| i.kind == FileType::Regular;
        let out: Vec<Fid> = if self.by_fid {
            let behind = |f: &Fid| f.seq == from.seq && f.oid > from.oid;
            let mut all: Vec<Fid> = l.items().filter(files).map(|i| i.fid).filter(behind).collect();
            all.sort_unstable();
            all.into_iter().filter(|f| wanted(*f)).take(self.window).collect()
        } else {
            let Some(at) = l.place_of(from, at) else { return Vec::new() };
            let all = l.items().skip(at + 1).filter(files).map(|i| i.fid);
            all.filter(|f| wanted(*f)).take(self.window).collect()
        };
        self.running = !out.is_empty();
        if out.is_empty() {
            self.window = 0;
        }
        out
    }

    /// So many files came, up to `last`.
    pub(crate) fn arrived(&mut self, files: usize, last: Option<Fid>) {
        self.running = false;
        self.unread += files;
        if last.is_some() {
            self.end = last;
        }
        if files == 0 {
            self.window = 0;
        }
    }
}

fn is_soon_after(a: Fid, b: Fid) -> bool {
    a.seq == b.seq && b.oid > a.oid && (b.oid - a.oid) as usize <= NEAR
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::msg::readdir::Dirent;

    fn fid(n: u32) -> Fid {
        Fid::new(9, n, 0)
    }

    /// Cookies in the order of `fids`.
    fn listing(fids: &[u32]) -> Listing {
        let of = |(i, n): (usize, &u32)| Dirent {
            cookie: i as u64 + 1,
            fid: fid(*n),
            kind: FileType::Regular,
            name: format!("f{n}").into_bytes(),
            entry: None,
        };
        let all: Vec<Dirent> = fids.iter().enumerate().map(of).collect();
        Listing::page(0, &all, true)
    }

    fn shuffled(n: u32) -> Vec<u32> {
        (0..n).map(|i| (i * 7919) % n + 1).collect()
    }

    #[test]
    fn files_read_in_the_order_of_the_listing_are_followed() {
        let order = shuffled(101);
        let l = listing(&order);
        let mut r = Run::default();
        assert!(!r.missed(&l, fid(order[0])) && !r.missed(&l, fid(order[1])));
        assert!(r.missed(&l, fid(order[3])), "one between them was not asked for");
        let next = r.next(&l, |f| f != fid(order[5]));
        let want: Vec<Fid> = [4, 6, 7, 8, 9, 10, 11, 12].iter().map(|i| fid(order[*i])).collect();
        assert_eq!(next, want);
        r.arrived(8, next.last().copied());
        let more: Vec<bool> = next.iter().map(|f| r.read(&l, *f)).collect();
        assert_eq!(more, [false, false, false, true, true, true, true, true]);
        let next = r.next(&l, |_| true);
        assert_eq!((next.len(), next[0]), (16, fid(order[13])), "twice as many");
        assert!(!r.missed(&l, fid(order[13])), "they are under way");
    }

    #[test]
    fn so_are_files_read_in_the_order_in_which_they_were_made() {
        let l = listing(&shuffled(1009));
        let mut r = Run::default();
        assert!(!r.missed(&l, fid(10)) && !r.missed(&l, fid(11)));
        assert!(r.missed(&l, fid(12)));
        assert_eq!(r.next(&l, |_| true), (13..21).map(fid).collect::<Vec<_>>());
        r.arrived(8, Some(fid(20)));
        assert!((13..16).all(|n| !r.read(&l, fid(n))) && r.read(&l, fid(16)));
        assert_eq!(r.next(&l, |_| true), (21..37).map(fid).collect::<Vec<_>>());
    }

    #[test]
    fn reads_here_and_there_are_not() {
        let l = listing(&shuffled(1009));
        let mut r = Run::default();
        let far = (0..1000u32).map(|i| fid((i * 389) % 1009 + 1));
        assert!(far.filter(|f| r.missed(&l, *f)).count() <= 2);
        assert!(r.next(&listing(&[]), |_| true).is_empty());
    }

    #[test]
    fn at_the_end_of_the_directory_it_ends() {
        let l = listing(&[1, 2, 3]);
        let mut r = Run::default();
        assert!(!r.missed(&l, fid(1)) && !r.missed(&l, fid(2)) && r.missed(&l, fid(3)));
        assert!(r.next(&l, |_| true).is_empty() && !r.running);
    }
}
