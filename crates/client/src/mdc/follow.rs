//! Reading ahead over files: whether the small files of a directory are read one after the other (grep -r,
//! tar, cp -r), and which come next. In the order of the directory's listing or in that of their FIDs, which
//! is the order in which they were made: programs sort by inode number. Several programs may read different
//! files of one directory, each at a place of its own.
//!
//! A state machine without I/O. It sees the files that had to be asked for, and those that it had fetched
//! when they are read; nothing else.

use super::listing::Listing;
use model::{Fid, FileType};
use std::collections::VecDeque;

/// Files that may lie between one that was read and the next: directories, larger ones, ones that are known,
/// those of another reader.
const NEAR: usize = 16;
/// Places of one directory that are followed at the same time.
const RUNS_MAX: usize = 8;
/// Reads of others between two of one reader, before it is known for one.
const BETWEEN_MAX: u32 = 2 * RUNS_MAX as u32;
const WINDOW_FIRST: usize = 8;
const WINDOW_MAX: usize = 128;
/// So many reads out of order are not looked at, at most, after others were.
const PATIENCE_MAX: u32 = 64;

/// Which of a directory's runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunId(u32);

/// How the files of one directory are read.
#[derive(Default, Debug)]
pub(crate) struct Runs {
    /// The one that was last gone on with is last.
    runs: Vec<Run>,
    started: u32,
    /// Reads that had to ask.
    misses: u32,
    skip: u32,
    patience: u32,
}

/// One reader, as far as it can be told.
#[derive(Debug)]
struct Run {
    id: RunId,
    /// The last file: its place in the listing.
    last: (usize, Fid),
    by_fid: bool,
    /// Steps in order, one after the other.
    length: u32,
    /// When it last had to ask.
    missed: u32,
    /// Files of the last fetch.
    window: usize,
    /// Files that were fetched and are still to be read, in order.
    unread: VecDeque<Fid>,
    /// The last one that was fetched.
    end: Option<Fid>,
    running: bool,
}

impl Runs {
    /// A file is read, and had to be asked for. The run whose next files are worth fetching ([`Runs::next`]).
    pub(crate) fn missed(&mut self, l: &Listing, fid: Fid) -> Option<RunId> {
        self.misses = self.misses.wrapping_add(1);
        // The more places there are, the more reads here and there are near one of them.
        let (near, steps_min) = (NEAR / self.runs.len().clamp(1, 4), 1 + self.runs.len() as u32);
        let reach = |r: &Run| if r.length >= steps_min { NEAR } else { near };
        let fits = self.runs.iter().enumerate().filter(|(_, r)| r.step(l, fid, reach(r)).is_some());
        // The longest, if it fits into several: the others are chance.
        if let Some((i, _)) = fits.max_by_key(|(_, r)| r.length) {
            let mut run = self.runs.remove(i);
            run.go(l, fid, self.misses, steps_min);
            let (id, due) = (run.id, run.length >= steps_min && !run.running);
            self.runs.push(run);
            return due.then_some(id);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let at = l.place_of(fid, 0)?;
        if self.runs.len() == RUNS_MAX && self.runs.remove(0).length <= RUNS_MAX as u32 {
            // It was never followed: reads here and there.
            self.patience = (self.patience * 2 + 1).min(PATIENCE_MAX);
            self.skip = self.patience;
        }
        self.started = self.started.wrapping_add(1);
        self.runs.push(Run::new(RunId(self.started), at, fid, self.misses));
        assert!(self.runs.len() <= RUNS_MAX, "so many reads are followed at a time");
        None
    }

    /// A file that was fetched ahead is read. The run for which it is time for the next ones.
    pub(crate) fn read(&mut self, l: &Listing, fid: Fid) -> Option<RunId> {
        let run = self.runs.iter_mut().rev().find_map(|r| r.take(l, fid).then_some(r))?;
        self.patience = 0;
        let due = run.window > 0 && run.unread.len() <= run.window / 2 && !run.running;
        due.then_some(run.id)
    }

    /// The files to fetch, of those that `wanted` says. None if there are no more; otherwise
    /// [`Runs::arrived`] must follow.
    pub(crate) fn next(&mut self, id: RunId, l: &Listing, wanted: impl Fn(Fid) -> bool) -> Vec<Fid> {
        let out = self.run(id).map(|r| r.next(l, wanted)).unwrap_or_default();
        if out.is_empty() {
            // Its reader is nearly through, and is no one whom others could be taken for.
            self.runs.retain(|r| r.id != id);
        }
        out
    }

    /// These files came; everything up to `last` was asked for.
    pub(crate) fn arrived(&mut self, id: RunId, files: &[Fid], last: Option<Fid>) {
        if let Some(r) = self.run(id) {
            r.arrived(files, last);
        }
    }

    fn run(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.iter_mut().find(|r| r.id == id)
    }
}

/// In which orders a file is the next one.
struct Step {
    /// Its place in the listing.
    listed: Option<usize>,
    made: bool,
}

impl Run {
    fn new(id: RunId, at: usize, fid: Fid, missed: u32) -> Run {
        let (last, unread) = ((at, fid), VecDeque::new());
        Run { id, last, by_fid: false, length: 0, missed, window: 0, unread, end: None, running: false }
    }

    /// Whether `fid` is one of the `near` that come after the last one.
    fn step(&self, l: &Listing, fid: Fid, near: usize) -> Option<Step> {
        let (at, last) = self.last;
        let listed = l.place_behind(at, near, fid);
        let made = last.seq == fid.seq && fid.oid > last.oid && (fid.oid - last.oid) as usize <= near;
        (listed.is_some() || made).then_some(Step { listed, made })
    }

    /// A file that comes soon after the last one had to be asked for.
    fn go(&mut self, l: &Listing, fid: Fid, now: u32, steps_min: u32) {
        let Some(Step { listed, made }) = self.step(l, fid, NEAR) else { return };
        if self.length < steps_min && now.wrapping_sub(self.missed) > BETWEEN_MAX {
            self.length = 0;
        }
        self.missed = now;
        if self.length == 0 || (self.by_fid && !made) || (!self.by_fid && listed.is_none()) {
            self.by_fid = listed.is_none();
        }
        self.last = (listed.unwrap_or(self.last.0), fid);
        self.length += 1;
        // What was fetched lies behind it.
        self.end = None;
        self.unread.clear();
    }

    /// Whether this run had fetched a file that is read now.
    fn take(&mut self, l: &Listing, fid: Fid) -> bool {
        let Some(i) = self.unread.iter().position(|f| *f == fid) else { return false };
        self.unread.remove(i);
        // Those far behind it are passed over, or somebody else's.
        self.unread.drain(..i.saturating_sub(NEAR));
        let at = if self.by_fid { None } else { l.place_behind(self.last.0, 2 * WINDOW_MAX, fid) };
        self.last = (at.unwrap_or(self.last.0), fid);
        true
    }

    fn next(&mut self, l: &Listing, wanted: impl Fn(Fid) -> bool) -> Vec<Fid> {
        let (at, last) = self.last;
        let from = self.end.unwrap_or(last);
        self.window = (self.window * 2).clamp(WINDOW_FIRST, WINDOW_MAX);
        let files = |i: &&super::listing::Item| i.kind == FileType::Regular;
        let out: Vec<Fid> = if self.by_fid {
            let behind = |f: &Fid| f.seq == from.seq && f.oid > from.oid;
            let mut all: Vec<Fid> = l.items().filter(files).map(|i| i.fid).filter(behind).collect();
            all.sort_unstable();
            all.into_iter().filter(|f| wanted(*f)).take(self.window).collect()
        } else {
            let Some(place) = l.place_of(from, at) else { return Vec::new() };
            let all = l.items().skip(place + 1).filter(files).map(|i| i.fid);
            all.filter(|f| wanted(*f)).take(self.window).collect()
        };
        assert!(out.len() <= WINDOW_MAX, "no more is fetched than a window");
        self.running = true;
        out
    }

    fn arrived(&mut self, files: &[Fid], last: Option<Fid>) {
        self.running = false;
        self.unread.extend(files);
        if last.is_some() {
            self.end = last;
        }
        if files.is_empty() {
            self.window = 0;
        }
    }
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

    /// What is fetched because `fid` is read: from the server, if `have` does not have it.
    fn read(r: &mut Runs, l: &Listing, have: &mut Vec<Fid>, fid: Fid) -> Vec<Fid> {
        let due = if have.contains(&fid) { r.read(l, fid) } else { r.missed(l, fid) };
        let Some(id) = due else { return Vec::new() };
        let next = r.next(id, l, |f| !have.contains(&f));
        r.arrived(id, &next, next.last().copied());
        have.extend(&next);
        next
    }

    #[test]
    fn files_read_in_the_order_of_the_listing_are_followed() {
        let order = shuffled(101);
        let l = listing(&order);
        let mut r = Runs::default();
        assert!(r.missed(&l, fid(order[0])).is_none() && r.missed(&l, fid(order[1])).is_none());
        let id = r.missed(&l, fid(order[3])).expect("one between them was not asked for");
        let next = r.next(id, &l, |f| f != fid(order[5]));
        let want: Vec<Fid> = [4, 6, 7, 8, 9, 10, 11, 12].iter().map(|i| fid(order[*i])).collect();
        assert_eq!(next, want);
        r.arrived(id, &next, next.last().copied());
        let more: Vec<bool> = next.iter().map(|f| r.read(&l, *f).is_some()).collect();
        assert_eq!(more, [false, false, false, true, true, true, true, true]);
        let next = r.next(id, &l, |_| true);
        assert_eq!((next.len(), next[0]), (16, fid(order[13])), "twice as many");
        assert!(r.missed(&l, fid(order[13])).is_none(), "they are under way");
    }

    #[test]
    fn so_are_files_read_in_the_order_in_which_they_were_made() {
        let l = listing(&shuffled(1009));
        let mut r = Runs::default();
        assert!(r.missed(&l, fid(10)).is_none() && r.missed(&l, fid(11)).is_none());
        let id = r.missed(&l, fid(12)).expect("in order");
        let next = r.next(id, &l, |_| true);
        assert_eq!(next, (13..21).map(fid).collect::<Vec<_>>());
        r.arrived(id, &next, Some(fid(20)));
        assert!((13..16).all(|n| r.read(&l, fid(n)).is_none()));
        assert_eq!(r.read(&l, fid(16)), Some(id));
        assert_eq!(r.next(id, &l, |_| true), (21..37).map(fid).collect::<Vec<_>>());
    }

    #[test]
    fn readers_at_different_places_are_followed_each() {
        let order = shuffled(5003);
        let l = listing(&order);
        for readers in 2..=RUNS_MAX {
            let (mut r, mut have, mut asked) = (Runs::default(), Vec::new(), 0);
            let each = order.len() / RUNS_MAX;
            for i in 0..each {
                for who in 0..readers {
                    // Half of them by the listing, the others by number.
                    let f = if who % 2 == 0 { order[who * each + i] } else { (who * each + i + 1) as u32 };
                    asked += usize::from(!have.contains(&fid(f)));
                    read(&mut r, &l, &mut have, fid(f));
                }
            }
            let most = readers * (readers + 6);
            assert!(asked <= most, "{readers} readers: {asked} of {} files asked for", readers * each);
            let read = readers * each;
            assert!(have.len() <= read + readers * 2 * WINDOW_MAX, "{} fetched for {read}", have.len());
        }
    }

    #[test]
    fn two_readers_of_files_made_in_turns_share_what_is_fetched() {
        // Of files that two processes made, each reads its own, one a hundred files behind the other.
        let l = listing(&shuffled(5003));
        let (mut r, mut have, mut asked) = (Runs::default(), Vec::new(), 0);
        for i in 0..2400u32 {
            let second = i.checked_sub(100).map(|i| 2 * i + 2);
            for f in [Some(2 * i + 1), second].into_iter().flatten() {
                asked += usize::from(!have.contains(&fid(f)));
                read(&mut r, &l, &mut have, fid(f));
            }
        }
        assert!(asked <= 8, "{asked} asked for");
        assert!(have.len() <= 5003);
    }

    #[test]
    fn one_that_leaves_most_out_is_not_fetched_for_far_ahead() {
        let l = listing(&shuffled(5003));
        let (mut r, mut have) = (Runs::default(), Vec::new());
        for i in 0..300 {
            read(&mut r, &l, &mut have, fid(i * 10 + 1));
        }
        assert!(have.len() <= 3000 + 2 * WINDOW_MAX, "{}", have.len());
        assert!(r.runs.iter().all(|r| r.unread.len() <= 2 * WINDOW_MAX));
    }

    #[test]
    fn reads_here_and_there_are_not() {
        for files in [400, 1009, 10_007] {
            let l = listing(&shuffled(files));
            let mut r = Runs::default();
            let mut x = 7u64;
            let mut chance = || {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                fid((x >> 33) as u32 % files + 1)
            };
            let followed = (0..10_000).filter(|_| r.missed(&l, chance()).is_some()).count();
            assert!(followed <= 10, "{followed} of 10,000, {files} files");
            assert!(r.runs.len() <= RUNS_MAX);
        }
    }

    #[test]
    fn at_the_end_of_the_directory_it_ends() {
        let l = listing(&[1, 2, 3]);
        let mut r = Runs::default();
        assert!(r.missed(&l, fid(1)).is_none() && r.missed(&l, fid(2)).is_none());
        let id = r.missed(&l, fid(3)).expect("in order");
        assert!(r.next(id, &l, |_| true).is_empty() && r.runs.is_empty());
        r.arrived(id, &[], None);
    }
}
