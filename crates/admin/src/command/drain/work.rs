//! Moves what lies on an OST, by several threads, pass by pass.

use super::ost::Ost;
use crate::command::migrate::{Options, one};
use crate::command::osts::files_on;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::live::ProgressLine;
use client::control::Name;
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use world::sys;

/// A file that fails so often is given up.
const TRIES: u32 = 3;
/// Before files that failed are tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Files that fail and are remembered; with more of them it ends.
const FAILED_MAX: usize = 100_000;
/// Between two looks of a thread at what there is to do.
const TICK: Duration = Duration::from_millis(20);
/// Files that wait for a thread, for each thread.
const AHEAD: usize = 4;

#[derive(Clone, Copy)]
pub struct Settings {
    /// Files that are moved at a time.
    pub threads: usize,
    /// Bytes that each copies in a second, at most; 0: no bound.
    pub bandwidth_bytes: u64,
}

/// A file that could not be moved.
pub struct Failed {
    pub path: PathBuf,
    pub fid: Fid,
    pub errno: Errno,
    /// Why not, for people.
    pub what: String,
    tries: u32,
}

/// What came of it so far.
#[derive(Default)]
pub struct Tally {
    pub moved: u64,
    pub failed: BTreeMap<Fid, Failed>,
}

struct File {
    fid: Fid,
    path: PathBuf,
}

/// What the threads share.
struct Shared {
    settings: Settings,
    queue: Mutex<VecDeque<File>>,
    /// Queued, or at a thread.
    under_way: Mutex<BTreeSet<Fid>>,
    tally: Mutex<Tally>,
    over: AtomicBool,
}

impl Shared {
    /// One of the threads.
    fn work(&self) {
        let options = Options { bandwidth_bytes: self.settings.bandwidth_bytes, ..Options::default() };
        while !self.over.load(Relaxed) {
            let next = self.queue.lock().pop_front();
            let Some(f) = next else {
                sys::sleep(TICK);
                continue;
            };
            let r = one(&f.path, &options);
            self.note(&f, r);
            self.under_way.lock().remove(&f.fid);
        }
    }

    fn note(&self, f: &File, r: Result<(), Failure>) {
        let mut t = self.tally.lock();
        let Err(failure) = r else {
            t.moved += 1;
            t.failed.remove(&f.fid);
            return;
        };
        let errno = match &failure {
            Failure::Op { errno, .. } => *errno,
            Failure::Usage(_) => Errno::EINVAL,
        };
        let tries = t.failed.get(&f.fid).map_or(0, |f| f.tries) + 1;
        let what = words(&failure, errno);
        t.failed.insert(f.fid, Failed { path: f.path.clone(), fid: f.fid, errno, what, tries });
    }

    /// Whether a file is to be tried (again), and is not under way.
    fn wants(&self, fid: Fid) -> bool {
        let tries = self.tally.lock().failed.get(&fid).map_or(0, |f| f.tries);
        tries < TRIES && !self.under_way.lock().contains(&fid)
    }
}

fn words(f: &Failure, errno: Errno) -> String {
    match errno {
        Errno::ENOSPC => format!("{f}: no other OST, of its pool if it has one, takes its objects"),
        _ => f.to_string(),
    }
}

/// Moves what can be moved. Ends when every file that is left was tried often enough, or when it is stopped:
/// what is under way then ends with the program.
pub fn run(
    ost: &Ost,
    settings: Settings,
    line: &ProgressLine,
    interrupt: &Interrupt,
) -> Result<Tally, Failure> {
    let total = count(ost, line, interrupt)?;
    let shared = Arc::new(Shared {
        settings,
        queue: Mutex::default(),
        under_way: Mutex::default(),
        tally: Mutex::default(),
        over: AtomicBool::new(false),
    });
    for _ in 0..settings.threads {
        let here = shared.clone();
        sys::thread("drain", move || here.work()).map_err(|e| Failure::io("cannot start", "a thread", e))?;
    }
    let begun = sys::wall_seconds();
    let show = |moved: u64, failed: usize| {
        line.show(|| {
            let seconds = sys::wall_seconds().saturating_sub(begun).max(0) as u64;
            format!("{}: {}", ost.label, progress(moved, total, failed, seconds))
        });
    };
    let r = passes(ost, &shared, interrupt, &show);
    shared.over.store(true, Relaxed);
    let tally = std::mem::take(&mut *shared.tally.lock());
    r.map(|()| tally)
}

/// Until a pass finds no file that is to be tried.
fn passes(ost: &Ost, s: &Shared, interrupt: &Interrupt, show: &dyn Fn(u64, usize)) -> Result<(), Failure> {
    loop {
        let (mut after, mut found) = (None, false);
        loop {
            let (files, next) = files_on(&ost.mount.dir, ost.index, after)?;
            for (fid, paths) in files {
                if !s.wants(fid) {
                    continue;
                }
                let Some(path) = paths.first() else { continue };
                found = true;
                if !give(s, File { fid, path: under(ost, path) }, interrupt, show) {
                    return Ok(());
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        // What is under way may be found again by the next pass, or not.
        while !s.under_way.lock().is_empty() {
            if interrupt.stopped() {
                return Ok(());
            }
            tell(s, show);
            sys::sleep(TICK);
        }
        tell(s, show);
        if !found || interrupt.stopped() {
            return Ok(());
        }
        if !s.tally.lock().failed.is_empty() {
            interrupt.pause(AGAIN);
        }
    }
}

fn tell(s: &Shared, show: &dyn Fn(u64, usize)) {
    let (moved, failed) = {
        let t = s.tally.lock();
        (t.moved, t.failed.len())
    };
    show(moved, failed);
}

/// Gives a file to the threads when they have room. False: it is to end.
fn give(s: &Shared, f: File, interrupt: &Interrupt, show: &dyn Fn(u64, usize)) -> bool {
    while s.queue.lock().len() >= s.settings.threads * AHEAD {
        if interrupt.stopped() {
            return false;
        }
        tell(s, show);
        sys::sleep(TICK);
    }
    if interrupt.stopped() || s.tally.lock().failed.len() >= FAILED_MAX {
        return false;
    }
    s.under_way.lock().insert(f.fid);
    s.queue.lock().push_back(f);
    true
}

fn under(ost: &Ost, path: &Name) -> PathBuf {
    ost.mount.dir.join(OsStr::from_bytes(&path.0))
}

/// Files that have objects there, for the display.
fn count(ost: &Ost, line: &ProgressLine, interrupt: &Interrupt) -> Result<u64, Failure> {
    let (mut after, mut n) = (None, 0);
    while line.is_shown() && !interrupt.stopped() {
        let (files, next) = files_on(&ost.mount.dir, ost.index, after)?;
        n += files.len() as u64;
        line.show(|| format!("{}: {n} files found", ost.label));
        after = next;
        if after.is_none() {
            break;
        }
    }
    Ok(n)
}

/// `120 of 4000 files moved (3%), 2 failed, 12 a second, 5m20s left`.
fn progress(moved: u64, total: u64, failed: usize, seconds: u64) -> String {
    let total = total.max(moved);
    let pct = (moved * 100).checked_div(total).unwrap_or(100);
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let rate = moved / seconds.max(1);
    let left = match (total - moved) * seconds {
        _ if moved == 0 => String::new(),
        n => format!(", {} left", duration(n / moved)),
    };
    format!("{moved} of {total} files moved ({pct}%){failed}, {rate} a second{left}")
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, _) => format!("{h}h{m}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_says_how_long_it_will_take() {
        let line = "100 of 400 files moved (25%), 2 failed, 10 a second, 30s left";
        assert_eq!(progress(100, 400, 2, 10), line);
        assert_eq!(progress(0, 400, 0, 10), "0 of 400 files moved (0%), 0 a second");
        assert_eq!(progress(0, 0, 0, 0), "0 of 0 files moved (100%), 0 a second");
        assert_eq!(
            (duration(59), duration(61), duration(7300)),
            ("59s".into(), "1m1s".into(), "2h1m".into())
        );
    }

    #[test]
    fn a_file_that_fails_is_tried_again_and_then_given_up() {
        let s = Shared {
            settings: Settings { threads: 1, bandwidth_bytes: 0 },
            queue: Mutex::default(),
            under_way: Mutex::default(),
            tally: Mutex::default(),
            over: AtomicBool::new(false),
        };
        let f = File { fid: Fid::new(1, 2, 0), path: "/x/f".into() };
        for _ in 0..TRIES {
            assert!(s.wants(f.fid));
            s.note(&f, Err(Failure::op("cannot migrate", "f", Errno::ENOSPC)));
        }
        assert!(!s.wants(f.fid));
        let failed = |s: &Shared| s.tally.lock().failed.values().map(|f| f.what.clone()).collect::<Vec<_>>();
        assert!(failed(&s)[0].contains("no other OST"), "{:?}", failed(&s));
        s.note(&f, Ok(()));
        assert!(failed(&s).is_empty() && s.tally.lock().moved == 1);
    }
}
