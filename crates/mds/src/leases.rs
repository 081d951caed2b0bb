//! What clients may keep of what they were shown: leases on directories' entries and on inodes.
//!
//! Answers grant leases, and never wait for one. A change first runs without being submitted; if other
//! clients hold what it would change it is dropped, they are asked for their leases, and it runs again when
//! they gave them back (`transact`, `callbacks`). What a change touches follows from the keys that it writes,
//! so that no operation can forget to say it.
//!
//! A client may own a directory: hold it exclusively, and inodes in it, change them by itself and tell later
//! (`ops/own.rs`, `ops/batch.rs`). Then even to look at them takes the lease back first, which brings what is
//! not told yet. What an operation looks at follows from the keys that it reads.
//!
//! Order against everything else: leases are granted and looked at under the lock of the core, like the reads
//! and writes that they stand for; cancels need no order. A client's own leases are never in its way: it
//! knows what it changes itself.

use crate::schema::key;
use ldlm::{Leases, Mode};
use model::Fid;
use model::limits::{EPOCHS_MAX, LEASES_PER_CLIENT_MAX_FILES, OWNER_PENDING_MAX_BYTES};
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use rpc::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::lookup::{Grant, bits};
use wire::msg::notify::LeaseItem;
use world::Instant;
use world::sync::Notify;

/// Space that is set aside for what one owner has not told: in the journal and, a little later, in the table.
pub const OWNER_RESERVE_BYTES: u64 = 2 * OWNER_PENDING_MAX_BYTES;

/// The table, and those who wait for it.
pub struct LeaseState {
    table: Mutex<Leases>,
    /// Told whenever a lease is gone, or a client.
    changed: Notify,
    /// Clients that depart: their requests wait for nobody any more.
    leaving: Mutex<BTreeSet<ClientId>>,
    /// When each client told last what it has done under leases of its own.
    told: Mutex<BTreeMap<ClientId, Instant>>,
    /// When owners were asked last to tell what they have done, because space got low.
    shed: Mutex<Option<Instant>>,
}

impl LeaseState {
    /// Sequence numbers grow over restarts, because epochs do.
    pub fn new(epoch: u32) -> LeaseState {
        assert!(epoch < EPOCHS_MAX, "sequence numbers have room for 2^24 epochs");
        let table = Leases::new(u64::from(epoch) << 40, LEASES_PER_CLIENT_MAX_FILES);
        LeaseState {
            table: Mutex::new(table),
            changed: Notify::new(),
            leaving: Mutex::default(),
            told: Mutex::default(),
            shed: Mutex::default(),
        }
    }

    /// What `client` may be granted of `bits`, to be made good with [`LeaseState::grant`] under the same lock
    /// of the core. `seq` 0 gets a number.
    pub fn offer(&self, client: ClientId, fid: Fid, bits: u8, mode: Mode, seq: &mut u64) -> Option<Grant> {
        let mut t = self.table.lock();
        // Who may change an inode by itself has its layout with that.
        let owned = t.owned(client.0, fid) & bits::UPDATE != 0;
        let bits = if owned { bits & !bits::LAYOUT } else { bits };
        let bits = t.grantable(client.0, fid, bits, mode);
        assert!(!owned || bits & bits::LAYOUT == 0, "an owner has the layout with the inode");
        if bits & !bits::LAYOUT == 0 {
            return None; // a layout alone is granted to nobody
        }
        if *seq == 0 {
            *seq = t.next_seq();
        }
        let exclusive = mode == Mode::Exclusive || t.owned(client.0, fid) & bits == bits;
        Some(Grant { bits, seq: *seq, exclusive })
    }

    /// What was offered is the client's.
    pub fn grant(&self, client: ClientId, offers: &[(Fid, Grant)]) {
        let mut t = self.table.lock();
        for (fid, g) in offers {
            assert!(g.bits != 0 && g.seq != 0, "a grant is of something, and has a number");
            let mode = if g.exclusive { Mode::Exclusive } else { Mode::Shared };
            // What it had alone when it was offered it may have given down since, and somebody else looked:
            // it knows, and does not take over what was asked for before that.
            if g.exclusive && t.fitting(client.0, *fid, g.bits, mode) != g.bits {
                continue;
            }
            t.grant(client.0, *fid, g.bits, mode, g.seq);
        }
    }

    /// What a client had before this target restarted, and used. False if it cannot have it again.
    pub fn reclaim(&self, client: ClientId, item: &LeaseItem) -> bool {
        let mut t = self.table.lock();
        // A number that was never given out is no lease of a former life.
        let free = item.seq <= t.newest_seq()
            && t.grantable(client.0, item.fid, item.bits, Mode::Exclusive) == item.bits;
        if free && item.bits != 0 {
            t.grant(client.0, item.fid, item.bits, Mode::Exclusive, item.seq);
        }
        free
    }

    /// A client tells what it has done: it is on its way to giving up what it was asked for.
    pub fn tells(&self, client: ClientId, now: Instant) {
        self.told.lock().insert(client, now);
    }

    /// Whether a client has executed operations that it may not have told.
    pub fn is_owner(&self, client: ClientId) -> bool {
        self.table.lock().is_owner(client.0)
    }

    /// Everything that owners have.
    pub fn owned(&self) -> Touched {
        let mut all = Touched::new();
        for (_, i) in self.table.lock().exclusive() {
            *all.entry(i.fid).or_default() |= i.bits;
        }
        all
    }

    /// How many clients may have executed operations that they have not told.
    pub fn owners(&self) -> usize {
        self.table.lock().owners()
    }

    /// Directories that clients have for themselves.
    pub fn owned_dirs(&self) -> Touched {
        let mut dirs = self.owned();
        dirs.retain(|_, bits| *bits & bits::LOOKUP != 0);
        dirs
    }

    /// What a client has to tell of, if it made files that it did not tell of.
    pub fn owned_by(&self, client: [u8; 16]) -> Vec<(Fid, u8)> {
        self.table.lock().exclusive_of(client)
    }

    /// Whether it matters what `client` looks at: somebody else may have changed it and not told.
    pub fn others_own(&self, client: Option<ClientId>) -> bool {
        let t = self.table.lock();
        t.owners() > usize::from(client.is_some_and(|c| t.is_owner(c.0)))
    }

    /// Space that is promised to owners, with one more if `client` is none yet.
    pub fn promised_bytes(&self, client: Option<ClientId>) -> u64 {
        let t = self.table.lock();
        let new = client.is_some_and(|c| !t.is_owner(c.0));
        (t.owners() + usize::from(new)) as u64 * OWNER_RESERVE_BYTES
    }

    /// What others have of what `by` wants.
    pub fn conflicts(&self, by: Option<ClientId>, wanted: &LeaseNeeds) -> Vec<(ClientId, LeaseItem)> {
        let t = self.table.lock();
        let of = |(fid, bits, mode): (Fid, u8, Mode)| t.conflicts(by.map(|c| c.0), fid, bits, mode);
        wanted.parts().flat_map(of).map(|(c, i)| (ClientId(c), i)).collect()
    }

    /// Files that are no more.
    pub fn files_gone(&self, gone: impl Iterator<Item = Fid>) {
        let mut t = self.table.lock();
        gone.for_each(|fid| t.file_gone(fid));
    }

    /// A client's leases are gone. With `leaving` its requests give up waiting for others.
    pub fn client_gone(&self, client: ClientId, leaving: bool) {
        let mut l = self.leaving.lock();
        if leaving {
            l.insert(client);
        } else {
            l.remove(&client);
        }
        drop(l);
        self.told.lock().remove(&client);
        {
            let mut t = self.table.lock();
            t.client_gone(client.0);
            assert_eq!(t.count_of(client.0), 0, "a client that is gone holds nothing");
        }
        self.changed.notify_waiters();
    }

    /// A client gave leases back.
    pub fn cancel(&self, client: ClientId, items: &[LeaseItem]) {
        let mut t = self.table.lock();
        let mut some = false;
        for i in items {
            some |= t.cancel(client.0, i);
        }
        drop(t);
        if some {
            self.changed.notify_waiters();
        }
    }

    /// Told whenever a lease is gone, or a client.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Its requests wait for nobody any more.
    pub fn is_leaving(&self, client: ClientId) -> bool {
        self.leaving.lock().contains(&client)
    }

    /// When each client told last what it has done under leases of its own.
    pub fn told(&self) -> MutexGuard<'_, BTreeMap<ClientId, Instant>> {
        self.told.lock()
    }

    /// All that these clients keep anything of.
    pub fn files_of(&self, clients: &[ClientId]) -> Touched {
        let t = self.table.lock();
        clients.iter().flat_map(|c| t.files_of(c.0)).map(|fid| (fid, bits::ALL)).collect()
    }

    /// What owners have, to be asked of them because space is low. Nothing if that was `pause` ago or less.
    pub fn to_shed(&self, now: Instant, pause: Duration) -> Vec<(ClientId, LeaseItem)> {
        {
            let mut last = self.shed.lock();
            if last.is_some_and(|l| now.since(l) < pause) {
                return Vec::new();
            }
            *last = Some(now);
        }
        self.table.lock().exclusive().into_iter().map(|(c, i)| (ClientId(c), i)).collect()
    }

    pub fn total(&self) -> usize {
        self.table.lock().total()
    }
}

/// Parts of files: bits of each.
pub type Touched = BTreeMap<Fid, u8>;

/// What a transaction changes, or claims for its client alone, and what it looks at.
#[derive(Clone, Default, Debug)]
pub struct LeaseNeeds {
    pub change: Touched,
    pub look: Touched,
}

impl LeaseNeeds {
    pub fn is_nothing(&self) -> bool {
        self.change.is_empty() && self.look.is_empty()
    }

    /// What is changed need not be looked at too.
    fn parts(&self) -> impl Iterator<Item = (Fid, u8, Mode)> {
        let changed = |fid: &Fid| self.change.get(fid).copied().unwrap_or(0);
        let look = self.look.iter().map(move |(fid, b)| (*fid, b & !changed(fid), Mode::Shared));
        let change = self.change.iter().map(|(fid, b)| (*fid, *b, Mode::Exclusive));
        change.chain(look).filter(|(_, b, _)| *b != 0)
    }
}

/// Adds what reading a key shows. Reverse index, replies and the like show nothing that leases cover.
pub fn add_to_read_set(looked: &mut Touched, k: &[u8]) {
    let (fid, bit) = match k[0] {
        key::INODE => (key::parse_fid(k), bits::UPDATE),
        // Names are shown by what leads from an inode to them, too.
        key::XATTR | key::DATA | key::BACKPTR => (key::parse_file(k), bits::UPDATE),
        key::DENTRY => (key::parse_file(k), bits::LOOKUP),
        _ => return,
    };
    *looked.entry(fid.expect("keys are well-formed")).or_default() |= bit;
}

/// What the keys of a transaction say that it changes.
pub fn touched<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Touched {
    let mut out = Touched::new();
    for k in keys {
        let (fid, bit) = match k[0] {
            key::INODE => (key::parse_fid(k), bits::UPDATE),
            // Of a damaged key that was found below a file, and is removed with it, the file is all that must
            // be right.
            key::XATTR | key::DATA => (key::parse_file(k), bits::UPDATE),
            key::DENTRY => (key::parse_file(k), bits::LOOKUP),
            // Nothing that leases cover: no client is shown it.
            key::BACKPTR
            | key::REVERSE
            | key::REPLY
            | key::CLIENT
            | key::ORPHAN
            | key::TRASH
            | key::OUTBOX
            | key::LEASE
            | key::STATE
            | key::LIMITS
            | key::DIRECTORY
            | key::UNSETTLED
            | key::CHANGELOG => continue,
            tag => unreachable!("a key of an unknown kind: {tag}"),
        };
        *out.entry(fid.expect("keys are well-formed")).or_default() |= bit;
    }
    out
}

/// Files on which nothing is granted until a change is through. The marks go with it.
pub struct RevokeGuard<'a> {
    leases: &'a LeaseState,
    fids: Vec<Fid>,
    waited: bool,
}

impl<'a> RevokeGuard<'a> {
    pub fn new(leases: &'a LeaseState) -> RevokeGuard<'a> {
        RevokeGuard { leases, fids: Vec::new(), waited: false }
    }

    fn set(&mut self, fids: impl Iterator<Item = Fid>) {
        assert!(self.fids.is_empty(), "old marks are taken away first");
        let mut t = self.leases.table.lock();
        for fid in fids {
            t.begin_revoke(fid);
            self.fids.push(fid);
        }
    }

    /// Under the lock of the core: nobody is granted anything before the change is made or marks again.
    pub fn clear(&mut self) {
        if !self.fids.is_empty() {
            let mut t = self.leases.table.lock();
            self.fids.drain(..).for_each(|fid| t.end_revoke(fid));
        }
    }

    /// Whether others hold what is to be changed; then it is marked. Nobody may have been offered a lease
    /// that is not granted yet.
    pub fn mark_conflicts(&mut self, by: Option<ClientId>, wanted: &LeaseNeeds) -> bool {
        let held = self.held(by, wanted);
        self.set(held.iter().copied());
        self.waited |= !held.is_empty();
        !held.is_empty()
    }

    /// Whether others hold what is looked at. Nothing is marked.
    pub fn conflicts_shared(&self, by: Option<ClientId>, wanted: &LeaseNeeds) -> bool {
        !self.held(by, wanted).is_empty()
    }

    fn held(&self, by: Option<ClientId>, wanted: &LeaseNeeds) -> BTreeSet<Fid> {
        if planted::on(Bug::RevokeNotSent) || (self.waited && planted::on(Bug::GrantWhileRevoking)) {
            return BTreeSet::new();
        }
        self.leases.conflicts(by, wanted).into_iter().map(|(_, i)| i.fid).collect()
    }
}

impl Drop for RevokeGuard<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
