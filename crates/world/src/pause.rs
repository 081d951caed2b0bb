//! A gate that can be closed for a moment: whoever wants to change a file or a name waits before it, so that
//! what lies behind can be copied as it was at one moment. While somebody prepares that, it notes which paths
//! change (decision 0084).
//!
//! A change is noted when it has ended: who copies what was noted while it is under way has copied too early,
//! and is told of it again.
//!
//! Open, it costs three atomic operations a change. It opens by itself after its time, whoever closed it.
//! Heartbeats ([`EXEMPT`]) pass always: a holder that does not beat loses its target.

use crate::gate::{Gate, Kind};
use crate::lock;
use crate::sys::{Deadline, sleep};
use model::mutex::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Names of files that are never held up, nor noted.
pub const EXEMPT: &[&str] = &["mmp", "lock"];
/// Paths that are noted at most; what changes beyond that is only known to be more.
pub const CHANGED_MAX: usize = 50_000;
/// Nobody notes for longer than this without being asked.
const TRACKED: Duration = Duration::from_secs(600);
/// Between two looks whether all are through, or the gate is open again.
const LOOK: Duration = Duration::from_micros(200);

/// The gate of a [`crate::gate::GatedDisk`].
#[derive(Default)]
pub struct DiskPause {
    /// Calls that are through and not at their end.
    inside: AtomicU64,
    /// There is something to look at in `state`.
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Closed until then.
    closed: Option<Deadline>,
    /// Paths that changed; `None`: nobody asked.
    changed: Option<BTreeSet<String>>,
    /// More than could be noted.
    overflow: bool,
    /// Until then they are noted.
    tracked: Option<Deadline>,
}

impl State {
    /// Still closed, or opened by itself.
    fn is_closed(&mut self) -> bool {
        if self.closed.as_ref().is_some_and(Deadline::passed) {
            self.closed = None;
        }
        self.closed.is_some()
    }

    fn note(&mut self, path: &str) {
        if self.tracked.as_ref().is_some_and(Deadline::passed) {
            (self.changed, self.tracked) = (None, None);
        }
        let Some(changed) = &mut self.changed else { return };
        if changed.len() < CHANGED_MAX {
            if !changed.contains(path) {
                changed.insert(path.to_string());
            }
        } else if !changed.contains(path) {
            self.overflow = true;
        }
        assert!(changed.len() <= CHANGED_MAX, "what is noted is bounded");
    }
}

fn is_exempt(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| EXEMPT.contains(&name))
}

impl DiskPause {
    /// From now on what changes is noted. False: it could not be closed for a moment within `limit`, which it
    /// has to be, so that nothing is under way.
    pub fn track(&self, limit: Duration) -> bool {
        if !self.close(limit) {
            return false;
        }
        {
            let mut s = lock(&self.state);
            (s.changed, s.overflow) = (Some(BTreeSet::new()), false);
            s.tracked = Some(Deadline::after(TRACKED));
        }
        self.open()
    }

    /// What changed since this was asked last, or since it is noted. `None`: more than is noted, or nobody
    /// notes any more.
    pub fn take_changed(&self) -> Option<BTreeSet<String>> {
        let mut s = lock(&self.state);
        s.tracked = s.changed.is_some().then(|| Deadline::after(TRACKED));
        let taken = std::mem::take(s.changed.as_mut()?);
        let whole = !std::mem::take(&mut s.overflow);
        whole.then_some(taken)
    }

    /// Lets nobody through for at most `limit`; returns when all who were are at their end. False: they were
    /// not by then, or somebody else closed it; it is as it was.
    pub fn close(&self, limit: Duration) -> bool {
        let until = Deadline::after(limit);
        {
            let mut s = lock(&self.state);
            if s.is_closed() {
                return false;
            }
            s.closed = Some(Deadline::after(limit));
            // Whoever came before this is inside, whoever comes now looks at `state`.
            self.active.store(true, Ordering::SeqCst);
        }
        while self.inside.load(Ordering::SeqCst) > 0 {
            if until.passed() {
                self.open();
                return false;
            }
            sleep(LOOK);
        }
        true
    }

    /// Lets all through again. Whether it was closed until now.
    pub fn open(&self) -> bool {
        let mut s = lock(&self.state);
        let was = s.is_closed();
        s.closed = None;
        if s.changed.is_none() {
            self.active.store(false, Ordering::SeqCst);
        }
        was
    }

    /// Notes nothing any more, and opens.
    pub fn forget(&self) {
        let mut s = lock(&self.state);
        *s = State::default();
        self.active.store(false, Ordering::SeqCst);
    }

    /// Waits while it is closed; then it is inside.
    fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
        if !self.active.load(Ordering::SeqCst) {
            return;
        }
        loop {
            let mut s = lock(&self.state);
            if !s.is_closed() {
                return;
            }
            // Who closes it looks at the number under no lock, but sets it closed under this one.
            self.inside.fetch_sub(1, Ordering::SeqCst);
            drop(s);
            sleep(LOOK);
            self.inside.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It has changed `paths` and is inside no more. Who closes it finds them noted, as he waits for this.
    fn leave(&self, paths: &[&str]) {
        if self.active.load(Ordering::SeqCst) {
            let mut s = lock(&self.state);
            paths.iter().for_each(|p| s.note(p));
        }
        let before = self.inside.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "who leaves was inside");
    }
}

fn is_change(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::Name)
}

impl Gate for DiskPause {
    fn pass(&self, kind: Kind, path: &str) -> io::Result<()> {
        if is_change(kind) && !is_exempt(path) {
            self.enter();
        }
        Ok(())
    }

    fn pass_rename(&self, _from: &str, to: &str) -> io::Result<()> {
        if !is_exempt(to) {
            self.enter();
        }
        Ok(())
    }

    fn passed(&self, kind: Kind, path: &str) {
        if is_change(kind) && !is_exempt(path) {
            self.leave(&[path]);
        }
    }

    fn passed_rename(&self, from: &str, to: &str) {
        if !is_exempt(to) {
            self.leave(&[from, to]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::GatedDisk;
    use crate::mem::MemDisk;
    use crate::{Disk, OpenMode};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn nothing_changes_while_it_is_closed_and_everything_goes_on_after_that() {
        let pause = Arc::new(DiskPause::default());
        let disk = Arc::new(GatedDisk::new(Arc::new(MemDisk::new()), pause.clone()));
        disk.mkdir("/t").unwrap();
        let written = Arc::new(AtomicU32::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            for n in 0..3 {
                let (disk, written, stop) = (disk.clone(), written.clone(), stop.clone());
                scope.spawn(move || {
                    let f = disk.open(&format!("/t/{n}"), OpenMode::CREATE).unwrap();
                    while !stop.load(Ordering::SeqCst) {
                        f.write_at(b"x", 0).unwrap();
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..20 {
                assert!(pause.close(LONG));
                assert!(!pause.close(LONG), "it is closed once");
                sleep(Duration::from_millis(1));
                // Each may have counted what it had written before.
                let at = written.load(Ordering::SeqCst);
                disk.open("/t/mmp", OpenMode::CREATE).unwrap().write_at(b"beat", 0).unwrap();
                assert!(written.load(Ordering::SeqCst) <= at + 3);
                assert!(pause.open());
                let seen = written.load(Ordering::SeqCst);
                let goes_on = || (written.load(Ordering::SeqCst) > seen + 3).then_some(());
                assert!(Deadline::after(LONG).wait_for(goes_on).is_some());
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert!(!pause.open(), "it was not closed");
    }

    /// What was noted may be copied while the change is still under way: that copy has not got it.
    #[test]
    fn what_is_asked_for_in_the_midst_of_a_change_is_told_again_after_it() {
        let pause = Arc::new(DiskPause::default());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (p, a) = (pause.clone(), asked.clone());
        let midst = move |kind: Kind, _: &str| {
            if is_change(kind) {
                lock(&a).push(p.take_changed());
            }
            Ok(())
        };
        let slow = GatedDisk::new(Arc::new(MemDisk::new()), Arc::new(midst));
        let disk = GatedDisk::new(Arc::new(slow), pause.clone());
        assert!(pause.track(LONG));
        let told = |of: &[&str]| {
            assert!(!std::mem::take(&mut *lock(&asked)).is_empty(), "somebody asked in its midst");
            assert_eq!(pause.take_changed().unwrap().into_iter().collect::<Vec<_>>(), of);
        };
        disk.mkdir("/t").unwrap();
        told(&["/t"]);
        let f = disk.open("/t/a", OpenMode::CREATE).unwrap();
        told(&["/t/a"]);
        f.write_at(b"x", 0).unwrap();
        told(&["/t/a"]);
        disk.rename("/t/a", "/t/b").unwrap();
        told(&["/t/a", "/t/b"]);
    }

    #[test]
    fn it_opens_by_itself_and_tells_so() {
        let pause = Arc::new(DiskPause::default());
        let disk = GatedDisk::new(Arc::new(MemDisk::new()), pause.clone());
        assert!(pause.close(Duration::from_millis(5)));
        disk.mkdir("/t").unwrap();
        assert!(!pause.open(), "it was open before");
    }

    #[test]
    fn what_changes_is_noted_with_both_ends_of_a_rename() {
        let pause = Arc::new(DiskPause::default());
        let disk = GatedDisk::new(Arc::new(MemDisk::new()), pause.clone());
        assert_eq!(pause.take_changed(), None, "nobody asked for it");
        disk.mkdir("/t").unwrap();
        assert!(pause.track(LONG));
        let f = disk.open("/t/a", OpenMode::CREATE).unwrap();
        f.write_at(b"x", 0).unwrap();
        f.sync_data().unwrap();
        assert_eq!(f.read_at(&mut [0], 0).unwrap(), 1);
        disk.rename("/t/a", "/t/b").unwrap();
        disk.open("/t/mmp", OpenMode::CREATE).unwrap();
        let all = pause.take_changed().unwrap();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), ["/t/a", "/t/b"]);
        assert_eq!(pause.take_changed(), Some(BTreeSet::new()));
        // An open file that has another name by now is known by its old one, which is gone.
        f.write_at(b"y", 0).unwrap();
        disk.unlink("/t/b").unwrap();
        assert_eq!(pause.take_changed().unwrap().len(), 2);
        pause.forget();
        assert_eq!(pause.take_changed(), None);
    }
}
