//! The server's table of leases: which client may keep what it was shown of a file.
//!
//! A lease is (client, file) with bits, each shared or exclusive; it needs no number of its own. Grants carry
//! a sequence number of one counter, so that "everything up to here" has a meaning when grants, callbacks and
//! cancels cross each other. Nobody ever waits for a lease: what cannot be granted at this moment is shown
//! and not granted. Who changes something first asks the other holders for what they have
//! ([`Leases::conflicts`]), and marks the file ([`Leases::begin_revoke`]), so that nothing is granted on it
//! until the change is made. How long that may take is the caller's business.

use crate::table::Client;
use model::planted::{self, Bug};
use model::{Fid, Map, Set};
use wire::msg::notify::LeaseItem;

/// How a lease is held, or how a file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Looks only: any number of clients at a time.
    Shared,
    /// Changes: no other client has anything.
    Exclusive,
}

/// One client's lease on one file.
#[derive(Clone, Copy, Debug)]
struct Holder {
    client: Client,
    shared: u8,
    exclusive: u8,
    /// Of the newest grant.
    seq: u64,
}

#[derive(Default)]
struct File {
    /// Sorted by client.
    holders: Vec<Holder>,
    /// Changes that wait for holders, or were just made.
    revoking: u32,
}

impl File {
    fn find(&self, client: Client) -> Result<usize, usize> {
        self.holders.binary_search_by(|h| h.client.cmp(&client))
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.revoking == 0
    }
}

/// The table.
pub struct Leases {
    files: Map<Fid, File>,
    clients: Map<Client, Set<Fid>>,
    per_client_max: usize,
    seq: u64,
    /// On how many files each client has exclusive bits; none with 0.
    owners: Map<Client, usize>,
}

impl Leases {
    /// Sequence numbers start above `seq`; a client is granted at most `per_client_max` files at a time.
    pub fn new(seq: u64, per_client_max: usize) -> Leases {
        Leases { files: Map::default(), clients: Map::default(), per_client_max, seq, owners: Map::default() }
    }

    /// The newest sequence number that was given out, in this life or, as far as is known, in a former one.
    pub fn newest_seq(&self) -> u64 {
        self.seq
    }

    /// The next sequence number, for what one answer grants.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Those of `bits` that `client` may be granted now.
    pub fn grantable(&self, client: Client, fid: Fid, bits: u8, mode: Mode) -> u8 {
        let has = self.clients.get(&client);
        if has.is_some_and(|s| s.len() >= self.per_client_max && !s.contains(&fid)) {
            return 0;
        }
        self.free(client, fid, bits, mode)
    }

    /// Those of `bits` that nothing is in the way of.
    fn free(&self, client: Client, fid: Fid, bits: u8, mode: Mode) -> u8 {
        match self.files.get(&fid) {
            Some(f) if f.revoking > 0 && !planted::on(Bug::GrantWhileRevoking) => 0,
            _ => self.fitting(client, fid, bits, mode),
        }
    }

    /// Those of `bits` that no other client has in a way that conflicts.
    pub fn fitting(&self, client: Client, fid: Fid, bits: u8, mode: Mode) -> u8 {
        let Some(f) = self.files.get(&fid) else { return bits };
        let others = f.holders.iter().filter(|h| h.client != client);
        let taken =
            others.fold(0, |t, h| t | h.exclusive | if mode == Mode::Exclusive { h.shared } else { 0 });
        bits & !taken
    }

    /// Grants what [`Leases::grantable`] allowed. Who only looks may have marked the file since
    /// ([`Leases::begin_revoke`]): that waits for exclusive leases alone, and asks again whoever has one by
    /// then. Several requests of one client at a time may exceed its number of files by a few.
    pub fn grant(&mut self, client: Client, fid: Fid, bits: u8, mode: Mode, seq: u64) {
        assert_eq!(self.fitting(client, fid, bits, mode), bits, "a lease on {fid} that conflicts");
        assert!(seq <= self.seq, "a grant has a number that was given out");
        let f = self.files.entry(fid).or_default();
        let i = f.find(client).unwrap_or_else(|i| {
            f.holders.insert(i, Holder { client, shared: 0, exclusive: 0, seq });
            i
        });
        let h = &mut f.holders[i];
        h.seq = h.seq.max(seq);
        match mode {
            Mode::Shared => h.shared |= bits & !h.exclusive,
            Mode::Exclusive => {
                if h.exclusive == 0 && bits != 0 {
                    *self.owners.entry(client).or_default() += 1;
                }
                h.exclusive |= bits;
                h.shared &= !bits;
            }
        }
        assert_eq!(h.shared & h.exclusive, 0, "a bit is held in one way");
        self.clients.entry(client).or_default().insert(fid);
    }

    /// What others than `by` hold that is in the way of using `bits` of a file in this mode.
    pub fn conflicts(&self, by: Option<Client>, fid: Fid, bits: u8, mode: Mode) -> Vec<(Client, LeaseItem)> {
        let Some(f) = self.files.get(&fid) else { return Vec::new() };
        let of = |h: &Holder| bits & (h.exclusive | if mode == Mode::Exclusive { h.shared } else { 0 });
        let others = f.holders.iter().filter(|h| by != Some(h.client) && of(h) != 0);
        let look = mode == Mode::Shared;
        others.map(|h| (h.client, LeaseItem { fid, bits: of(h), seq: h.seq, look })).collect()
    }

    /// Nothing is granted on this file until as many [`Leases::end_revoke`]s follow.
    pub fn begin_revoke(&mut self, fid: Fid) {
        self.files.entry(fid).or_default().revoking += 1;
    }

    pub fn end_revoke(&mut self, fid: Fid) {
        let f = self.files.get_mut(&fid).expect("a file that is being revoked is in the table");
        f.revoking = f.revoking.checked_sub(1).expect("no more ends than begins");
        if f.is_idle() {
            self.files.remove(&fid);
        }
    }

    /// `client` uses these bits no more (with `item.look`: exclusively no more), as far as they were granted
    /// up to `item.seq`. False if it has none.
    pub fn cancel(&mut self, client: Client, item: &LeaseItem) -> bool {
        let Some(f) = self.files.get_mut(&item.fid) else { return false };
        let Ok(i) = f.find(client) else { return false };
        let h = &mut f.holders[i];
        if h.seq > item.seq {
            return false;
        }
        let owned = h.exclusive;
        if item.look {
            h.shared |= h.exclusive & item.bits;
        } else {
            h.shared &= !item.bits;
        }
        h.exclusive &= !item.bits;
        assert_eq!(h.shared & h.exclusive, 0, "a bit is held in one way");
        let (disowned, none) = (owned != 0 && h.exclusive == 0, h.shared | h.exclusive == 0);
        if none {
            f.holders.remove(i);
            self.left(client, item.fid);
        }
        if disowned {
            self.disowned(client);
        }
        true
    }

    /// A client lost its last exclusive bit on a file.
    fn disowned(&mut self, client: Client) {
        let n = self.owners.get_mut(&client).expect("owned files are counted");
        *n -= 1;
        if *n == 0 {
            self.owners.remove(&client);
        }
    }

    /// A client lost its last bit on a file.
    fn left(&mut self, client: Client, fid: Fid) {
        if self.files.get(&fid).is_some_and(File::is_idle) {
            self.files.remove(&fid);
        }
        if let Some(s) = self.clients.get_mut(&client) {
            let was = s.remove(&fid);
            assert!(was, "both tables hold the same leases");
            if s.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// A client is gone with all it had.
    pub fn client_gone(&mut self, client: Client) {
        let (counted, mut owned) = (self.owners.remove(&client).unwrap_or(0), 0);
        for fid in self.clients.remove(&client).unwrap_or_default() {
            let f = self.files.get_mut(&fid).expect("both tables hold the same leases");
            let i = f.find(client).expect("both tables hold the same leases");
            let h = f.holders.remove(i);
            owned += usize::from(h.exclusive != 0);
            if f.is_idle() {
                self.files.remove(&fid);
            }
        }
        assert_eq!(owned, counted, "files that a client owns are counted");
    }

    /// A file is no more: nobody has anything of it.
    pub fn file_gone(&mut self, fid: Fid) {
        let Some(f) = self.files.get_mut(&fid) else { return };
        for h in std::mem::take(&mut f.holders) {
            self.left(h.client, fid);
            if h.exclusive != 0 {
                self.disowned(h.client);
            }
        }
    }

    /// Clients with exclusive leases.
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// Whether a client has exclusive leases on any file.
    pub fn is_owner(&self, client: Client) -> bool {
        self.owners.contains_key(&client)
    }

    /// The bits of a file that a client holds exclusively.
    pub fn owned(&self, client: Client, fid: Fid) -> u8 {
        let f = self.files.get(&fid);
        f.and_then(|f| f.find(client).ok().map(|i| f.holders[i].exclusive)).unwrap_or(0)
    }

    /// Every exclusive lease there is, to be given down to a shared one.
    pub fn exclusive(&self) -> Vec<(Client, LeaseItem)> {
        let of =
            |fid: Fid, h: &Holder| (h.client, LeaseItem { fid, bits: h.exclusive, seq: h.seq, look: true });
        let all = self.files.iter().flat_map(|(fid, f)| f.holders.iter().map(move |h| (*fid, h)));
        all.filter(|(_, h)| h.exclusive != 0).map(|(fid, h)| of(fid, h)).collect()
    }

    /// Files on which a client has anything.
    pub fn files_of(&self, client: Client) -> Vec<Fid> {
        self.clients.get(&client).into_iter().flatten().copied().collect()
    }

    /// What one client holds exclusively: bits of files.
    pub fn exclusive_of(&self, client: Client) -> Vec<(Fid, u8)> {
        if !self.is_owner(client) {
            return Vec::new();
        }
        let held = self.clients.get(&client).into_iter().flatten();
        let bits = |fid: &Fid| {
            let h = self.files.get(fid)?.holders.iter().find(|h| h.client == client)?;
            (h.exclusive != 0).then_some((*fid, h.exclusive))
        };
        let mut all: Vec<_> = held.filter_map(bits).collect();
        all.sort_unstable();
        all
    }

    /// Files on which a client has a lease.
    pub fn count_of(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, Set::len)
    }

    /// Leases of all clients.
    pub fn total(&self) -> usize {
        self.clients.values().map(Set::len).sum()
    }

    /// Whether anybody holds anything of this file.
    pub fn is_held(&self, fid: Fid) -> bool {
        self.files.get(&fid).is_some_and(|f| !f.holders.is_empty())
    }
}

#[cfg(test)]
#[path = "ibits_tests.rs"]
mod tests;
