//! What the clients at each address did: `obdfilter.*.exports.NID.*`, `mdt.*.exports.NID.*`. Several mounts of a
//! host are one, as in Lustre.

use crate::counters::Counters;
use crate::mutex::{Mutex, MutexGuard};
use crate::{Nid, Timestamp};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses that are counted apart; what others do is in the target's own counters only.
const EXPORTS_MAX: usize = 4096;

/// The clients at one address.
pub struct Export {
    pub addr: IpAddr,
    pub stats: Counters,
}

/// Of one target.
pub struct Exports {
    table: Vec<(Cow<'static, str>, &'static str)>,
    known: Mutex<BTreeMap<IpAddr, Arc<Export>>>,
}

impl Exports {
    /// With these counters for each address.
    pub fn new(table: &[(&'static str, &'static str)]) -> Exports {
        Exports::named(table.iter().map(|(n, u)| (Cow::Borrowed(*n), *u)).collect())
    }

    /// With names that are made at run time.
    pub fn named(table: Vec<(Cow<'static, str>, &'static str)>) -> Exports {
        Exports { table, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Export>>> {
        self.known.lock()
    }

    /// The one of this address, made at first; `None` if there are too many.
    pub fn of(&self, addr: IpAddr, now: Timestamp) -> Option<Arc<Export>> {
        let mut g = self.lock();
        if let Some(e) = g.get(&addr) {
            return Some(e.clone());
        }
        if g.len() >= EXPORTS_MAX {
            return None;
        }
        let e = Arc::new(Export { addr, stats: Counters::named(self.table.clone(), now) });
        g.insert(addr, e.clone());
        Some(e)
    }

    /// Forgets addresses that no client has any more.
    pub fn keep(&self, addresses: &BTreeSet<String>) {
        self.lock().retain(|a, _| addresses.contains(&a.to_string()));
    }

    pub fn list(&self) -> Vec<(Nid, Arc<Export>)> {
        self.lock().values().map(|e| (Nid { addr: e.addr, net: 0 }, e.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_bounded_and_go_with_their_clients() {
        let x = Exports::new(&[("read", "usecs")]);
        let addr = |i: u32| IpAddr::from(i.to_be_bytes());
        for i in 0..EXPORTS_MAX as u32 {
            x.of(addr(i), Timestamp::ZERO).unwrap().stats.add_named("read", 1);
        }
        assert!(x.of(addr(1 << 20), Timestamp::ZERO).is_none());
        assert_eq!(x.of(addr(7), Timestamp::ZERO).unwrap().stats.total("read"), (1, 1));
        x.keep(&BTreeSet::from(["0.0.0.7".to_string(), "::1".to_string()]));
        let left: Vec<String> = x.list().iter().map(|(n, _)| n.to_string()).collect();
        assert_eq!(left, ["0.0.0.7@tcp"]);
    }
}
