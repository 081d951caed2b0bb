//! Errors that came when nobody was there to be told: a write in the background that failed, an operation
//! that had been answered and is lost. They are told as Linux tells them (errseq_t, since 4.13), file by file
//! and directory by directory.
//!
//! Each error of a file has a number, greater than those of all errors before. Each open file remembers, in
//! its [`ErrorCursor`], up to where it was told; its fsync tells what is newer and moves it on, nobody else's
//! does. So each descriptor that was open when something went wrong is told at its next fsync, once, however
//! many processes have the file open, and whatever is closed meanwhile. Who opens a file with an error that
//! nobody was told yet is told, too: the process that wrote may be gone.
//!
//! An error is never forgotten before it was told. What is kept is bounded nevertheless: beyond
//! [`UNTOLD_MAX`] files that nobody has open, errors are kept of the mount as a whole, and told to more than
//! must know.

use crate::R;
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, Fid, Map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Files that nobody has open, with an error that nobody was told. All that one eviction can take at once has
/// room.
const UNTOLD_MAX: usize = 1 << 17;

/// The newest error of something.
#[derive(Clone, Copy, Debug)]
struct Last {
    number: u64,
    errno: Errno,
}

/// A file or directory that is open, or has an error that nobody was told.
#[derive(Default)]
struct Known {
    /// Cursors on it.
    open: usize,
    last: Option<Last>,
    /// Somebody was told the newest error.
    seen: bool,
}

impl Known {
    fn is_untold(&self) -> bool {
        self.last.is_some() && !self.seen
    }
}

#[derive(Default)]
struct ErrorTable {
    files: Map<Fid, Known>,
    /// Number of the newest error of any file.
    number: u64,
    /// Entries of `files` without a cursor, which are there for their untold error.
    untold: usize,
    /// The newest error that may be any file's.
    anywhere: Option<Last>,
    /// It may be one of files that are not open: whoever opens one is told.
    anywhere_untold: bool,
}

impl ErrorTable {
    fn next(&mut self, errno: Errno) -> Last {
        self.number += 1;
        Last { number: self.number, errno }
    }

    /// Where a cursor on the file begins.
    fn start(&self, fid: Fid) -> u64 {
        let untold = self.anywhere_untold || self.files.get(&fid).is_some_and(Known::is_untold);
        if untold { 0 } else { self.number }
    }

    /// The newest error that concerns the file, if it is newer than `since`.
    fn newer(&self, fid: Fid, since: u64) -> Option<Errno> {
        let own = self.files.get(&fid).and_then(|f| f.last);
        let newest = own.into_iter().chain(self.anywhere).max_by_key(|l| l.number)?;
        (newest.number > since).then_some(newest.errno)
    }

    /// Too many files have an untold error: it is anybody's from now on.
    fn bound(&mut self, max: usize) {
        if self.untold <= max {
            return;
        }
        tracing::error!(
            "errors of more than {max} files wait for an fsync: from now on every file that is opened reports one"
        );
        self.files.retain(|_, f| f.open > 0);
        self.untold = 0;
        self.anywhere = Some(self.next(Errno::EIO));
        self.anywhere_untold = true;
    }
}

/// All of a mount.
#[derive(Default)]
pub(crate) struct ErrorBook(Mutex<ErrorTable>);

impl ErrorBook {
    fn lock(&self) -> MutexGuard<'_, ErrorTable> {
        self.0.lock()
    }

    /// Somebody opens a file or a directory.
    pub fn open(self: &Arc<Self>, fid: Fid) -> ErrorCursor {
        let mut s = self.lock();
        let told = s.start(fid);
        let f = s.files.entry(fid).or_default();
        f.open += 1;
        if f.open == 1 && f.is_untold() {
            s.untold -= 1;
        }
        drop(s);
        ErrorCursor { book: self.clone(), fid, told: AtomicU64::new(told) }
    }

    fn close(&self, fid: Fid) {
        let mut s = self.lock();
        let f = s.files.get_mut(&fid).expect("it is open");
        f.open -= 1;
        if f.open > 0 {
            return;
        }
        if f.is_untold() {
            s.untold += 1;
            s.bound(UNTOLD_MAX);
        } else {
            s.files.remove(&fid);
        }
    }

    /// Something of this file or directory went wrong behind the back of its users.
    pub fn add(&self, fid: Fid, errno: Errno) {
        if planted::on(Bug::ErrorToldToNobody) {
            return;
        }
        let mut s = self.lock();
        let last = s.next(errno);
        let f = s.files.entry(fid).or_default();
        let fresh = f.open == 0 && !f.is_untold();
        (f.last, f.seen) = (Some(last), false);
        if fresh {
            s.untold += 1;
            s.bound(UNTOLD_MAX);
        }
    }

    /// The same of a file that can only be known to those who have it open: it does not exist (any more).
    pub fn add_if_open(&self, fid: Fid, errno: Errno) {
        if self.lock().files.contains_key(&fid) {
            self.add(fid, errno);
        }
    }

    /// Something went wrong, and it cannot be said with which file.
    pub fn add_anywhere(&self, errno: Errno) {
        let mut s = self.lock();
        s.anywhere = Some(s.next(errno));
        s.anywhere_untold = true;
    }

    /// An administrator has taken note: errors that may be any file's are told to those who have something
    /// open, not to who opens something from now on.
    pub fn acknowledge(&self) {
        self.lock().anywhere_untold = false;
    }

    /// A point in time, for [`ErrorBook::since`].
    pub fn mark(&self) -> ErrorMark {
        ErrorMark(self.lock().number)
    }

    /// The newest error of the file since then.
    pub fn since(&self, fid: Fid, mark: ErrorMark) -> R<()> {
        self.lock().newer(fid, mark.0).map_or(Ok(()), Err)
    }

    /// The same of any file: for whoever makes all of the mount durable. It is told to nobody by that.
    pub fn any_since(&self, mark: ErrorMark) -> R<()> {
        if self.count_since(mark) > 0 { Err(Errno::EIO) } else { Ok(()) }
    }

    /// How many errors of any file there were since then.
    pub fn count_since(&self, mark: ErrorMark) -> u64 {
        let number = self.lock().number;
        assert!(number >= mark.0, "errors are only added");
        number - mark.0
    }
}

/// A point in time, as errors are counted.
#[derive(Clone, Copy, Debug)]
pub struct ErrorMark(u64);

/// Up to where an open file or directory was told of errors: one for each open file description, shared by
/// the descriptors that were made from it.
pub struct ErrorCursor {
    book: Arc<ErrorBook>,
    fid: Fid,
    told: AtomicU64,
}

impl ErrorCursor {
    /// The file or directory.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// The newest error that this open file was not told. It is not told by that: for closes, of which there
    /// is one for each descriptor, also those of a child that never wrote.
    pub fn check(&self) -> R<()> {
        let s = self.book.lock();
        s.newer(self.fid, self.told.load(Relaxed)).map_or(Ok(()), Err)
    }

    /// The same, and now it is told.
    pub(crate) fn advance(&self) -> R<()> {
        let mut s = self.book.lock();
        let Some(errno) = s.newer(self.fid, self.told.load(Relaxed)) else { return Ok(()) };
        self.told.store(s.number, Relaxed);
        s.files.get_mut(&self.fid).expect("it is open").seen = true;
        Err(errno)
    }
}

impl Drop for ErrorCursor {
    fn drop(&mut self) {
        self.book.close(self.fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid::new(9, oid, 0)
    }

    fn book() -> Arc<ErrorBook> {
        Arc::default()
    }

    #[test]
    fn each_open_file_is_told_once() {
        let b = book();
        let (one, two, other) = (b.open(fid(1)), b.open(fid(1)), b.open(fid(2)));
        b.add(fid(1), Errno::EIO);
        assert_eq!(one.advance(), Err(Errno::EIO));
        assert_eq!(one.advance(), Ok(()));
        assert_eq!(two.advance(), Err(Errno::EIO));
        assert_eq!(two.advance(), Ok(()));
        assert_eq!(other.advance(), Ok(()), "no stake in it");
        b.add(fid(1), Errno::ENOSPC);
        b.add(fid(1), Errno::EDQUOT);
        assert_eq!(one.advance(), Err(Errno::EDQUOT), "the newest");
        assert_eq!(one.advance(), Ok(()));
        assert_eq!(two.advance(), Err(Errno::EDQUOT));
    }

    #[test]
    fn a_close_tells_and_takes_nothing() {
        let b = book();
        let one = b.open(fid(1));
        b.add(fid(1), Errno::EIO);
        assert_eq!((one.check(), one.check()), (Err(Errno::EIO), Err(Errno::EIO)));
        assert_eq!(one.advance(), Err(Errno::EIO));
        assert_eq!(one.check(), Ok(()));
    }

    #[test]
    fn who_opens_is_told_what_nobody_was_told() {
        let b = book();
        let one = b.open(fid(1));
        b.add(fid(1), Errno::EIO);
        let late = b.open(fid(1));
        assert_eq!(late.advance(), Err(Errno::EIO));
        assert_eq!(b.open(fid(1)).advance(), Ok(()), "somebody was told");
        assert_eq!(one.advance(), Err(Errno::EIO), "who was there is told all the same");
        drop((one, late));
        assert!(b.lock().files.is_empty());
        // Nobody has it open when it happens, or when it is told.
        b.add(fid(1), Errno::ENOSPC);
        drop(b.open(fid(1)));
        let next = b.open(fid(1));
        assert_eq!(next.check(), Err(Errno::ENOSPC));
        assert_eq!(next.advance(), Err(Errno::ENOSPC));
        drop(next);
        let s = b.lock();
        assert!(s.files.is_empty() && s.untold == 0);
    }

    #[test]
    fn errors_of_many_files_are_all_told() {
        let b = book();
        let open: Vec<ErrorCursor> = (0..10_001).map(|i| b.open(fid(i))).collect();
        (0..20_002).for_each(|i| b.add(fid(i), Errno::EIO));
        assert!(open.iter().all(|c| c.advance() == Err(Errno::EIO) && c.advance() == Ok(())));
        assert!((10_001..20_002).all(|i| b.open(fid(i)).advance() == Err(Errno::EIO)));
        assert_eq!(b.open(fid(20_002)).advance(), Ok(()));
        drop(open);
        assert!(b.lock().files.is_empty());
    }

    #[test]
    fn beyond_the_bound_more_are_told_than_must_know_never_fewer() {
        let b = book();
        let (open, clean) = (b.open(fid(1)), b.open(fid(2)));
        b.add(fid(1), Errno::ENOSPC);
        assert_eq!(open.advance(), Err(Errno::ENOSPC));
        let many = 10..11 + UNTOLD_MAX as u32;
        many.clone().for_each(|i| b.add(fid(i), Errno::ENOSPC));
        let kept = |s: &ErrorTable| (s.files.len(), s.untold);
        assert_eq!(kept(&b.lock()), (2, 0));
        for c in [&open, &clean] {
            assert_eq!((c.advance(), c.advance()), (Err(Errno::EIO), Ok(())));
        }
        for i in many.step_by(1000) {
            let late = b.open(fid(i));
            assert_eq!((late.advance(), late.advance()), (Err(Errno::EIO), Ok(())));
        }
        b.acknowledge();
        assert_eq!(b.open(fid(11)).advance(), Ok(()));
        assert_eq!(open.advance(), Ok(()));
    }

    #[test]
    fn a_file_that_never_was_is_an_error_for_those_only_who_have_it_open() {
        let b = book();
        let one = b.open(fid(1));
        b.add_if_open(fid(1), Errno::EIO);
        b.add_if_open(fid(2), Errno::EIO);
        assert_eq!(one.advance(), Err(Errno::EIO));
        assert!(!b.lock().files.contains_key(&fid(2)));
    }

    #[test]
    fn what_cannot_be_assigned_is_told_to_all() {
        let b = book();
        let one = b.open(fid(1));
        b.add_anywhere(Errno::EIO);
        let late = b.open(fid(2));
        for c in [&one, &late] {
            assert_eq!((c.check(), c.advance(), c.advance()), (Err(Errno::EIO), Err(Errno::EIO), Ok(())));
        }
    }

    #[test]
    fn an_error_since_a_mark_is_found_without_telling_it() {
        let b = book();
        let c = b.open(fid(1));
        b.add(fid(1), Errno::EIO);
        let mark = b.mark();
        assert_eq!(b.since(fid(1), mark), Ok(()));
        b.add(fid(1), Errno::ENOSPC);
        assert_eq!(b.since(fid(1), mark), Err(Errno::ENOSPC));
        assert_eq!(c.advance(), Err(Errno::ENOSPC));
    }
}
