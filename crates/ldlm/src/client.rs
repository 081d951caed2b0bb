//! The client's half: which locks this mount holds and waits for.
//!
//! It sends nothing itself. The order of events is the network's: a grant's notify may overtake the reply
//! that says "waits", and a lock may be granted while its caller gives up. The caller's part: `begin`, send
//! `Enqueue`, `answered`, await the [`Waiter`]; on giving up, `abandon` and send the `Cancel` it returns.

use crate::posix::Pieces;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::enqueue::{LockKind, LockSpec};
use world::sync::oneshot;

/// A grant that nobody waits for: its caller gave up. Send this `Cancel`.
pub type Stray = Cancel;

#[derive(Default)]
struct ClientLocks {
    last_id: u64,
    asked: BTreeMap<u64, Asked>,
    /// Granted flocks and extents.
    held: BTreeMap<u64, LockSpec>,
    /// Granted POSIX pieces, as the server splits them.
    posix: BTreeMap<(Fid, u64), Pieces>,
    /// Owners of whom a cancelled wait may have been granted all the same: closing must unlock.
    uncertain: BTreeSet<(Fid, u64)>,
}

struct Asked {
    spec: LockSpec,
    /// `None`: the caller gave up.
    waiter: Option<oneshot::Sender<Result<(), Errno>>>,
    /// The server said "waits": after a reconnect it must be asked again.
    parked: bool,
}

/// A lock on its way; resolves when it is granted or failed.
pub struct Waiter {
    pub id: u64,
    rx: oneshot::Receiver<Result<(), Errno>>,
}

impl Waiter {
    /// `Err` with the server's errno, or ESHUTDOWN if the mount ends.
    pub async fn wait(&mut self) -> Result<(), Errno> {
        (&mut self.rx).await.unwrap_or(Err(Errno::ESHUTDOWN))
    }
}

/// Locks of one mount.
#[derive(Default)]
pub struct LockClient {
    inner: Mutex<ClientLocks>,
}

impl ClientLocks {
    fn granted(&mut self, spec: LockSpec) {
        match spec.kind {
            LockKind::Posix => {
                let pieces = self.posix.entry((spec.fid, spec.owner)).or_default();
                pieces.carve(spec.start, spec.end);
                pieces.insert(spec);
            }
            LockKind::Flock => {
                self.held.retain(|_, s| !same_flock(s, spec.fid, spec.owner));
                self.held.insert(spec.id, spec);
            }
            LockKind::Extent => {
                self.held.insert(spec.id, spec);
            }
        }
    }

    fn drop_empty(&mut self, key: (Fid, u64)) {
        if self.posix.get(&key).is_some_and(Pieces::is_empty) {
            self.posix.remove(&key);
        }
    }
}

fn same_flock(s: &LockSpec, fid: Fid, owner: u64) -> bool {
    s.kind == LockKind::Flock && s.fid == fid && s.owner == owner
}

impl LockClient {
    pub fn new() -> LockClient {
        LockClient::default()
    }

    fn lock(&self) -> MutexGuard<'_, ClientLocks> {
        self.inner.lock()
    }

    /// A lock id that this mount never used.
    pub fn new_id(&self) -> u64 {
        let mut g = self.lock();
        g.last_id += 1;
        g.last_id
    }

    /// Notes a request before it is sent.
    pub fn begin(&self, spec: LockSpec) -> Waiter {
        let (tx, rx) = oneshot::channel();
        let id = spec.id;
        let mut g = self.lock();
        if spec.kind == LockKind::Flock {
            // A change of mode gives the old lock back whatever becomes of the new one (flock(2)).
            g.held.retain(|_, s| !(same_flock(s, spec.fid, spec.owner) && s.mode != spec.mode));
        }
        let old = g.asked.insert(id, Asked { spec, waiter: Some(tx), parked: false });
        assert!(old.is_none(), "lock ids are used once");
        Waiter { id, rx }
    }

    /// The server's reply to `Enqueue`. Returns a cancel to send if the lock came and nobody wants it.
    pub fn answered(&self, id: u64, reply: Result<bool, Errno>) -> Option<Stray> {
        match reply {
            Ok(true) => self.resolve(id, None),
            Ok(false) => {
                // Unless the grant overtook this reply.
                if let Some(a) = self.lock().asked.get_mut(&id) {
                    a.parked = true;
                }
                None
            }
            Err(e) => self.resolve(id, Some(e)),
        }
    }

    /// `Notify::LockGranted`. Returns a cancel to send if nobody wants the lock any more.
    pub fn on_granted(&self, id: u64, errno: u16) -> Option<Stray> {
        self.resolve(id, (errno != 0).then_some(Errno(i32::from(errno))))
    }

    fn resolve(&self, id: u64, error: Option<Errno>) -> Option<Stray> {
        let mut g = self.lock();
        let a = g.asked.remove(&id)?;
        if let Some(e) = error {
            if let Some(w) = a.waiter {
                let _ = w.send(Err(e));
            }
            return None;
        }
        let fid = a.spec.fid;
        let wanted = a.waiter.filter(|w| !w.is_closed());
        g.granted(a.spec);
        match wanted.map(|w| w.send(Ok(()))) {
            Some(Ok(())) => None,
            _ => Some(Cancel { fid, what: CancelWhat::Id(id) }),
        }
    }

    /// The caller stops waiting. Returns the cancel to send, or nothing if the request is settled (granted:
    /// the caller decides whether it keeps the lock; failed: nothing is left).
    pub fn abandon(&self, id: u64) -> Option<Cancel> {
        let mut g = self.lock();
        let a = g.asked.get_mut(&id)?;
        a.waiter = None;
        let (fid, owner, kind) = (a.spec.fid, a.spec.owner, a.spec.kind);
        if kind == LockKind::Posix {
            g.uncertain.insert((fid, owner));
        }
        Some(Cancel { fid, what: CancelWhat::Id(id) })
    }

    /// The server confirmed the cancel of an id: whatever it was, it is gone.
    pub fn cancelled(&self, id: u64) {
        let mut g = self.lock();
        g.asked.remove(&id);
        g.held.remove(&id);
        let mut touched = Vec::new();
        for (key, pieces) in &mut g.posix {
            let before = pieces.len();
            pieces.retain(|p| p.id != id);
            if pieces.len() != before {
                touched.push(*key);
            }
        }
        for key in touched {
            g.drop_empty(key);
        }
    }

    /// The server confirmed an unlock of a range (POSIX) or of the owner's flock.
    pub fn unlocked(&self, fid: Fid, kind: LockKind, owner: u64, start: u64, end: u64) {
        let mut g = self.lock();
        match kind {
            LockKind::Flock => g.held.retain(|_, s| !same_flock(s, fid, owner)),
            LockKind::Posix => {
                if let Some(pieces) = g.posix.get_mut(&(fid, owner)) {
                    pieces.carve(start, end);
                }
                g.drop_empty((fid, owner));
                if start == 0 && end == u64::MAX {
                    g.uncertain.remove(&(fid, owner));
                }
            }
            LockKind::Extent => {}
        }
    }

    /// Whether closing must unlock this owner's POSIX ranges of a file: it holds some, asks for some, or may
    /// have been granted some after it gave up.
    pub fn has_posix_locks(&self, fid: Fid, owner: u64) -> bool {
        let g = self.lock();
        let asks = |a: &Asked| a.spec.kind == LockKind::Posix && a.spec.fid == fid && a.spec.owner == owner;
        g.posix.contains_key(&(fid, owner))
            || g.uncertain.contains(&(fid, owner))
            || g.asked.values().any(asks)
    }

    /// Whether this owner has, or asks for, a flock on a file.
    pub fn has_flock(&self, fid: Fid, owner: u64) -> bool {
        let g = self.lock();
        g.held.values().any(|s| same_flock(s, fid, owner))
            || g.asked.values().any(|a| same_flock(&a.spec, fid, owner))
    }

    /// Whether this owner holds POSIX bytes in `start..=end`.
    pub fn holds_posix(&self, fid: Fid, owner: u64, start: u64, end: u64) -> bool {
        self.lock().posix.get(&(fid, owner)).is_some_and(|p| p.overlapping(start, end).next().is_some())
    }

    /// What was granted, for `Reclaim`. (What waits is asked for again: [`LockClient::parked`].)
    pub fn reclaim(&self) -> Vec<LockSpec> {
        let g = self.lock();
        g.held.values().chain(g.posix.values().flat_map(Pieces::iter)).cloned().collect()
    }

    /// Locks that others took while this client was away (`ReclaimReply::lost_locks`). Returns what they
    /// were.
    pub fn lost(&self, ids: &[u64]) -> Vec<LockSpec> {
        let ids: BTreeSet<u64> = ids.iter().copied().collect();
        let mut g = self.lock();
        let mut out: Vec<LockSpec> = ids.iter().filter_map(|id| g.held.remove(id)).collect();
        for pieces in g.posix.values_mut() {
            pieces.retain(|p| {
                let lost = ids.contains(&p.id);
                if lost {
                    out.push(p.clone());
                }
                !lost
            });
        }
        g.posix.retain(|_, p| !p.is_empty());
        out
    }

    /// Requests that the server had put to wait: after a reconnect each is sent again with `wait`, under its
    /// id, and its reply goes to [`LockClient::answered`]. (Repeating one that still waits does no harm.)
    pub fn parked(&self) -> Vec<LockSpec> {
        let g = self.lock();
        g.asked.values().filter(|a| a.parked && a.waiter.is_some()).map(|a| a.spec.clone()).collect()
    }

    /// (granted pieces, requests under way)
    pub fn load(&self) -> (usize, usize) {
        let g = self.lock();
        (g.held.len() + g.posix.values().map(Pieces::len).sum::<usize>(), g.asked.len())
    }

    /// The mount ends: nobody waits any more.
    pub fn shut_down(&self) {
        self.lock().asked.clear();
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
