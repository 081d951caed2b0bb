//! What strangers may take of a server before it knows who they are: connections, hellos, durable records of
//! new clients. Bounded in all and for each address, so that one host that floods a server leaves room for
//! the others.

use model::limits;
use model::mutex::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use world::Instant;

/// Addresses whose newcomers are counted at a time.
const ADDRESSES_MAX: usize = 4096;

#[derive(Default)]
struct Address {
    connections: usize,
    hellos: usize,
}

#[derive(Default)]
struct AdmissionState {
    connections: usize,
    hellos: usize,
    by: BTreeMap<IpAddr, Address>,
    newcomers: BTreeMap<IpAddr, Newcomers>,
}

/// New clients of one address: so many at once, and so many each second.
struct Newcomers {
    left: u32,
    /// When `left` was right.
    at: Instant,
}

#[derive(Default)]
pub(super) struct Admission(Mutex<AdmissionState>);

/// A connection that is counted until this is dropped.
pub(super) struct Counted {
    admission: Arc<Admission>,
    from: IpAddr,
    /// It did not say hello yet.
    greets: bool,
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        self.0.lock()
    }

    /// Counts a new connection. The error says which limit it is over.
    pub fn enter(self: &Arc<Self>, from: IpAddr, connections_max: usize) -> Result<Counted, String> {
        let mut g = self.lock();
        let here = g.by.get(&from).map_or((0, 0), |a| (a.connections, a.hellos));
        let bounds = [
            (g.connections, connections_max, "connections"),
            (g.hellos, limits::HELLOS_MAX, "connections without a hello"),
            (here.0, limits::CONNECTIONS_PER_ADDRESS_MAX, "connections from this address"),
            (here.1, limits::HELLOS_PER_ADDRESS_MAX, "connections without a hello from this address"),
        ];
        if let Some((_, max, what)) = bounds.iter().find(|(n, max, _)| n >= max) {
            return Err(format!("over the limit of {max} {what}"));
        }
        g.connections = g.connections.saturating_add(1);
        g.hellos = g.hellos.saturating_add(1);
        let a = g.by.entry(from).or_default();
        (a.connections, a.hellos) = (a.connections.saturating_add(1), a.hellos.saturating_add(1));
        assert!(a.hellos <= a.connections, "who is to say hello is connected");
        let within = a.connections <= g.connections && g.hellos <= g.connections;
        assert!(within, "the connections of one address are among all");
        Ok(Counted { admission: self.clone(), from, greets: true })
    }

    /// Whether there is room for a client that no target knows: a quarter of all connections is kept for
    /// those that come back.
    pub fn room_for_strangers(&self, connections_max: usize) -> bool {
        self.lock().connections <= connections_max.saturating_sub(connections_max / 4)
    }

    /// Whether a client that the target does not know may be recorded now.
    pub fn newcomer(&self, from: IpAddr, now: Instant) -> bool {
        let mut g = self.lock();
        if g.newcomers.len() >= ADDRESSES_MAX && !g.newcomers.contains_key(&from) {
            // Whoever has waited longest has its whole allowance again, or nearly so.
            let oldest = g.newcomers.iter().min_by_key(|(_, n)| n.at).map(|(a, _)| *a);
            oldest.map(|a| g.newcomers.remove(&a));
        }
        let full = Newcomers { left: limits::NEW_CLIENTS_AT_ONCE, at: now };
        let n = g.newcomers.entry(from).or_insert(full);
        assert!(n.left <= limits::NEW_CLIENTS_AT_ONCE, "an allowance does not grow without end");
        let each = Duration::from_secs(1) / limits::NEW_CLIENTS_PER_SECOND;
        let more = now.since(n.at).as_nanos() / each.as_nanos();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            (n.left, n.at) = (n.left.saturating_add(more).min(limits::NEW_CLIENTS_AT_ONCE), now);
        }
        n.left.checked_sub(1).inspect(|left| n.left = *left).is_some()
    }
}

impl Counted {
    /// It said hello, and was let in.
    pub fn greeted(&mut self) {
        if std::mem::take(&mut self.greets) {
            let mut g = self.admission.lock();
            g.hellos = g.hellos.saturating_sub(1);
            if let Some(a) = g.by.get_mut(&self.from) {
                a.hellos = a.hellos.saturating_sub(1);
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.greeted();
        let mut g = self.admission.lock();
        g.connections = g.connections.saturating_sub(1);
        let Some(a) = g.by.get_mut(&self.from) else { return };
        a.connections = a.connections.saturating_sub(1);
        if a.connections == 0 {
            g.by.remove(&self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn one_address_leaves_room_for_the_others() {
        let a = Arc::new(Admission::default());
        let mut flood: Vec<_> =
            (0..limits::HELLOS_PER_ADDRESS_MAX).map(|_| a.enter(from(1), 10_000)).collect();
        assert!(flood.iter().all(Result::is_ok));
        assert!(a.enter(from(1), 10_000).is_err_and(|e| e.contains("without a hello from this address")));
        assert!(a.enter(from(2), 10_000).is_ok());
        assert!(a.enter(from(2), limits::HELLOS_PER_ADDRESS_MAX).is_err_and(|e| e.ends_with("connections")));
        flood.iter_mut().flatten().for_each(Counted::greeted);
        assert!(a.enter(from(1), 10_000).is_ok());
        drop(flood);
        let g = a.lock();
        assert_eq!((g.connections, g.hellos, g.by.len()), (0, 0, 0));
    }

    #[test]
    fn new_clients_come_at_a_rate() {
        let a = Admission::default();
        let at = |ms: u64| Instant(ms * 1_000_000);
        let burst = (0..5000).filter(|_| a.newcomer(from(1), at(0))).count();
        assert_eq!(burst, limits::NEW_CLIENTS_AT_ONCE as usize);
        assert!(a.newcomer(from(2), at(0)), "another address");
        let later = (0..5000).filter(|_| a.newcomer(from(1), at(1000))).count();
        assert_eq!(later, limits::NEW_CLIENTS_PER_SECOND as usize);
        for n in 0..10_000u32 {
            a.newcomer(n.to_be_bytes().into(), at(2000));
        }
        assert!(a.lock().newcomers.len() <= ADDRESSES_MAX);
    }
}
