//! Locks of programs on files (flock, POSIX ranges): the table of crate `ldlm`, and telling those who waited.

use ldlm::{Event, LockTable};
use model::mutex::Mutex;
use model::{Errno, Fid};
use rpc::{ClientId, Peers};
use wire::msg::enqueue::{LockKind, LockSpec};
use wire::msg::notify::Notify;

/// Who has what locked, and who waits for it.
pub struct Locks {
    table: Mutex<LockTable>,
    /// Who waits hears that its turn came.
    peers: Peers,
}

impl Locks {
    pub fn new(peers: Peers) -> Locks {
        Locks { table: Mutex::new(LockTable::new()), peers }
    }

    /// Asks for a lock; errors as [`LockTable::enqueue`]. True if it is granted, false if it waits: then the
    /// client is told when its turn comes.
    pub fn enqueue(&self, client: ClientId, lock: &LockSpec, wait: bool) -> Result<bool, Errno> {
        let step = self.table.lock().enqueue(client.0, lock, wait);
        self.tell(step.events);
        step.result
    }

    /// Gives one lock back, or stops waiting for it.
    pub fn cancel(&self, client: ClientId, fid: Fid, id: u64) {
        let events = self.table.lock().cancel(client.0, fid, id);
        self.tell(events);
    }

    /// Gives back what `owner` has of `range` (both ends are in it); errors as [`LockTable::cancel_range`].
    pub fn cancel_range(
        &self,
        client: ClientId,
        fid: Fid,
        kind: LockKind,
        owner: u64,
        range: (u64, u64),
    ) -> Result<(), Errno> {
        let step = self.table.lock().cancel_range(client.0, fid, kind, owner, range.0, range.1);
        self.tell(step.events);
        step.result.map(|_| ())
    }

    /// A lock that conflicts with this one.
    pub fn getlock(&self, client: ClientId, lock: &LockSpec) -> Option<LockSpec> {
        self.table.lock().getlock(client.0, lock)
    }

    /// What a client had before this target restarted: the ids of those that it cannot have again.
    pub fn reclaim(&self, client: ClientId, locks: &[LockSpec]) -> Vec<u64> {
        let mut table = self.table.lock();
        locks.iter().filter(|l| !table.reclaim(client.0, l)).map(|l| l.id).collect()
    }

    /// The client has no locks any more, and waits for none.
    pub fn client_gone(&self, client: ClientId) {
        let granted = self.table.lock().client_gone(client.0);
        self.tell(granted);
    }

    /// Locks of programs that are held, and that are waited for.
    pub fn count(&self) -> (usize, usize) {
        self.table.lock().held_and_waiting()
    }

    /// Tells waiting clients what became of their locks. A notify that is lost with its connection is made
    /// good by the client, which asks again after it reconnected.
    fn tell(&self, events: Vec<Event>) {
        for e in events {
            let errno = e.error.map_or(0, |e| u16::try_from(e.0).unwrap_or(u16::MAX));
            self.peers.notify(ClientId(e.client), Notify::LockGranted { id: e.id, errno });
        }
    }
}
