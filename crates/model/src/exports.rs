//! What the clients at each address did: `obdfilter.*.exports.NID.*`, `mdt.*.exports.NID.*`. Several mounts
//! of a host are one, as in Lustre.

use crate::counters::{CounterDecl, CounterSet, Counters, Place};
use crate::mutex::RwLock;
use crate::{Nid, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses that are counted apart; what others do is in the target's own counters only.
const EXPORTS_MAX: usize = 4096;

/// The clients at one address.
pub struct Export<P> {
    pub addr: IpAddr,
    pub stats: Counters<P>,
}

type Known<P> = BTreeMap<IpAddr, Arc<Export<P>>>;

/// Of one target.
pub struct Exports<P> {
    table: Arc<[CounterDecl]>,
    /// Requests only read it, but for the first of an address.
    known: RwLock<Known<P>>,
}

impl<P: CounterSet> Exports<P> {
    /// With the counters of an enum for each address.
    pub fn of_set() -> Exports<P> {
        Exports::new(P::TABLE)
    }
}

impl<P: Place> Exports<P> {
    /// With these counters for each address.
    pub fn new(table: impl Into<Arc<[CounterDecl]>>) -> Exports<P> {
        Exports { table: table.into(), known: RwLock::default() }
    }

    fn read<R>(&self, f: impl FnOnce(&Known<P>) -> R) -> R {
        f(&self.known.read())
    }

    fn write<R>(&self, f: impl FnOnce(&mut Known<P>) -> R) -> R {
        f(&mut self.known.write())
    }

    /// The one of this address, made at first; `None` if there are too many.
    pub fn of(&self, addr: IpAddr, now: impl FnOnce() -> Timestamp) -> Option<Arc<Export<P>>> {
        if let Some(e) = self.read(|known| known.get(&addr).cloned()) {
            return Some(e);
        }
        let now = now();
        self.write(|known| {
            if !known.contains_key(&addr) && known.len() >= EXPORTS_MAX {
                return None;
            }
            let made = || Arc::new(Export { addr, stats: Counters::new(self.table.clone(), now) });
            let export = known.entry(addr).or_insert_with(made).clone();
            assert!(known.len() <= EXPORTS_MAX, "so many addresses are counted apart and no more");
            Some(export)
        })
    }

    /// Forgets addresses that no client has any more.
    pub fn keep(&self, addresses: &BTreeSet<String>) {
        self.write(|known| known.retain(|a, _| addresses.contains(&a.to_string())));
    }

    pub fn list(&self) -> Vec<(Nid, Arc<Export<P>>)> {
        self.read(|known| known.values().map(|e| (Nid { addr: e.addr, net: 0 }, e.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        enum What { Read = "read" in "usecs", }
    }

    #[test]
    fn addresses_are_bounded_and_go_with_their_clients() {
        let x = Exports::<What>::of_set();
        let addr = |i: u32| IpAddr::from(i.to_be_bytes());
        let of = |i: u32| x.of(addr(i), || Timestamp::ZERO);
        for i in 0..EXPORTS_MAX as u32 {
            of(i).unwrap().stats.add(What::Read, 1);
        }
        assert!(of(1 << 20).is_none());
        assert_eq!(of(7).unwrap().stats.total(What::Read), (1, 1));
        x.keep(&BTreeSet::from(["0.0.0.7".to_string(), "::1".to_string()]));
        let left: Vec<String> = x.list().iter().map(|(n, _)| n.to_string()).collect();
        assert_eq!(left, ["0.0.0.7@tcp"]);
    }
}
