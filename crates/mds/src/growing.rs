//! Which files' data is on its way to objects (`growth`): changes of it wait until that ends.

use model::Fid;
use model::mutex::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use world::sync::watch;

/// Files whose data is on its way to objects.
pub struct Growing {
    files: Mutex<BTreeSet<Fid>>,
    /// Counts the ends.
    ended: watch::Sender<u64>,
}

impl Default for Growing {
    fn default() -> Growing {
        Growing { files: Mutex::default(), ended: watch::Sender::new(0) }
    }
}

/// Data of a file is to be frozen when the transaction that asks for it is through: a run of it that has to
/// wait for owners must not be what keeps those from telling what they wrote.
pub struct Freeze {
    fid: Fid,
    in_force: Arc<AtomicBool>,
}

impl Freeze {
    /// With whether it came to that.
    pub fn new(fid: Fid) -> (Freeze, Arc<AtomicBool>) {
        let in_force = Arc::new(AtomicBool::new(false));
        (Freeze { fid, in_force: in_force.clone() }, in_force)
    }

    /// The transaction is through.
    pub fn begin(self, growing: &Growing) {
        let fresh = growing.begin(self.fid);
        assert!(fresh, "{} gets two layouts at once", self.fid);
        self.in_force.store(true, Ordering::SeqCst);
    }
}

impl Growing {
    /// Data of `fid` is frozen from now on. False if it was before.
    fn begin(&self, fid: Fid) -> bool {
        self.files.lock().insert(fid)
    }

    pub fn contains(&self, fid: Fid) -> bool {
        self.files.lock().contains(&fid)
    }

    /// Woken with each end of a growth from now on.
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Something else ended that changes waited for.
    pub fn look_again(&self) {
        self.ended.send_modify(|n| *n += 1);
    }

    /// The file's data can be changed again, or lies elsewhere: who waited looks again.
    pub fn end(&self, fid: Fid) {
        let grew = self.files.lock().remove(&fid);
        assert!(grew, "{fid} ends growing but did not grow");
        self.ended.send_modify(|n| *n += 1);
    }
}
