//! An administrator's order to evict clients, by UUID or by NID: the parameter `evict_client` of targets.

use super::session::Why;
use super::{ClientId, Peers};
use crate::credits::Role;
use model::param::Decl;
use model::{Errno, Nid};
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

/// Who is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whom {
    /// All clients at this address, on whatever network.
    At(IpAddr),
    Client(ClientId),
}

/// `EINVAL`: it is neither `nid:NID` nor the UUID of a client.
fn whom(text: &str) -> Result<Whom, Errno> {
    let text = text.trim();
    match text.strip_prefix("nid:") {
        Some(nid) => nid.parse().map(|n: Nid| Whom::At(n.addr)).map_err(|_| Errno::EINVAL),
        None => text.strip_prefix("uuid:").unwrap_or(text).parse().map(Whom::Client),
    }
}

/// `evict_client`, of an OST or MDT.
pub const fn evict_client_decl() -> Decl {
    Decl::order(
        "evict_client",
        |text| whom(text).map(drop),
        "evicts clients from this target at once: nid:ADDRESS[@NET], or the UUID of one (exports.*.uuid); each target is told for itself",
    )
    .until_restart()
}

/// `eviction_count`, of an OST or MDT.
pub const fn eviction_count_decl() -> Decl {
    Decl::counter("eviction_count", "clients", "clients that were evicted since the target started")
}

impl Peers {
    /// Evicts whom an administrator names. `EINVAL`: that is no name of clients; `ENXIO`: there is none.
    pub fn evict_client(&self, text: &str) -> Result<(), Errno> {
        let whom = whom(text)?;
        let is_meant = |s: &super::Session| match whom {
            // Servers have sessions, too, perhaps from the same host.
            Whom::At(addr) => s.principal().address == addr && s.role() == Role::Client,
            Whom::Client(c) => s.client == c,
        };
        let mut meant = self.all();
        meant.retain(|s| is_meant(s));
        meant.iter().for_each(|s| s.condemn(Why::Administrator));
        self.look_now(!meant.is_empty());
        if meant.is_empty() { Err(Errno::ENXIO) } else { Ok(()) }
    }

    /// How many clients were evicted since the target started.
    pub fn eviction_count(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_by_nid_or_uuid() {
        let id = ClientId(*b"0123456789abcdef");
        for text in [format!("{id}"), format!(" uuid:{id}\n"), format!("{id}").to_uppercase()] {
            assert_eq!(whom(&text), Ok(Whom::Client(id)), "{text}");
        }
        let at = |text: &str| whom(text);
        assert_eq!(at("nid:10.0.0.5@tcp"), Ok(Whom::At([10, 0, 0, 5].into())));
        assert_eq!(at("nid:10.0.0.5@tcp1"), at("nid:10.0.0.5"));
        for wrong in ["", "10.0.0.5@tcp", "nid:", "nid:host@tcp", "nid:10.0.0.5@ib", "0123", "uuid:0-1", "é"]
        {
            assert_eq!(whom(wrong), Err(Errno::EINVAL), "{wrong}");
        }
        let long = format!("{id}0");
        assert_eq!(whom(&long), Err(Errno::EINVAL));
    }
}
