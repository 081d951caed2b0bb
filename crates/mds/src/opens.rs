//! Which client has which file open. In memory only: clients say again what they had after a restart
//! (`recovery.rs`).

use model::{Errno, Fid, limits};
use rpc::ClientId;
use std::collections::BTreeMap;

/// ENFILE: this client has too many files open.
const ENFILE: Errno = Errno(23);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub fid: Fid,
    /// O_* flags of open(2).
    pub flags: u32,
}

/// A change of the table, staged by an operation until its transaction is submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenChange {
    Add { client: ClientId, handle: u64, open: Open },
    Remove { client: ClientId, handle: u64 },
}

#[derive(Default)]
pub struct Opens {
    by_client: BTreeMap<ClientId, BTreeMap<u64, Open>>,
    counts: BTreeMap<Fid, u32>,
}

impl Opens {
    pub fn get(&self, client: ClientId, handle: u64) -> Option<Open> {
        self.by_client.get(&client)?.get(&handle).copied()
    }

    /// How often a file is open, over all clients.
    pub fn count(&self, fid: Fid) -> u32 {
        self.counts.get(&fid).copied().unwrap_or(0)
    }

    pub fn total(&self) -> usize {
        self.by_client.values().map(BTreeMap::len).sum()
    }

    /// `ENFILE` if `client` may not open one file more.
    pub fn check_room(&self, client: ClientId) -> Result<(), Errno> {
        let n = self.by_client.get(&client).map_or(0, BTreeMap::len);
        if n < limits::OPENS_PER_CLIENT_MAX { Ok(()) } else { Err(ENFILE) }
    }

    pub fn apply(&mut self, change: OpenChange) {
        match change {
            OpenChange::Add { client, handle, open } => {
                let old = self.by_client.entry(client).or_default().insert(handle, open);
                if let Some(old) = old {
                    self.forget(old.fid);
                }
                *self.counts.entry(open.fid).or_default() += 1;
            }
            OpenChange::Remove { client, handle } => {
                let Some(files) = self.by_client.get_mut(&client) else { return };
                assert!(!files.is_empty(), "a client that has nothing open has no entry");
                if let Some(old) = files.remove(&handle) {
                    if files.is_empty() {
                        self.by_client.remove(&client);
                    }
                    self.forget(old.fid);
                }
            }
        }
    }

    fn forget(&mut self, fid: Fid) {
        let n = self.counts.get_mut(&fid).expect("an open file is counted");
        assert!(*n > 0, "a file that nobody has open is not counted");
        *n -= 1;
        if *n == 0 {
            self.counts.remove(&fid);
        }
    }

    /// Everything a client has open.
    pub fn of_client(&self, client: ClientId) -> Vec<(u64, Open)> {
        self.by_client.get(&client).map(|m| m.iter().map(|(&h, &o)| (h, o)).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_opens_and_closes_count_once() {
        let mut o = Opens::default();
        let (a, b, f) = (ClientId([1; 16]), ClientId([2; 16]), Fid::new(1, 2, 3));
        let add = |client, handle| OpenChange::Add { client, handle, open: Open { fid: f, flags: 0 } };
        for c in [add(a, 1), add(a, 1), add(a, 2), add(b, 1)] {
            o.apply(c);
        }
        assert_eq!((o.count(f), o.total()), (3, 3));
        for c in [OpenChange::Remove { client: a, handle: 1 }, OpenChange::Remove { client: a, handle: 1 }] {
            o.apply(c);
        }
        assert_eq!(o.count(f), 2);
        o.apply(OpenChange::Remove { client: a, handle: 2 });
        o.apply(OpenChange::Remove { client: b, handle: 1 });
        assert_eq!((o.count(f), o.total()), (0, 0));
    }
}
