//! The addresses that a server node answers at: one on each of its networks
//! (docs/decisions/0081-several-networks.md).

use super::ended::StartError;
use model::nid::parse_net;
use model::{HostNid, Nid};
use rpc::look_up;
use std::net::IpAddr;
use store::format::Superblock;
use world::World;
use world::sys;

/// More networks than a server has interfaces.
const MAX_NETWORKS: usize = 16;

/// `tcp1(eth1)`: a network, and the interface that leads to it; without one it is this host's first address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    net: u16,
    interface: Option<String>,
}

/// Lustre's `networks=` line: `tcp0(eth0),tcp1(eth1)`.
pub fn parse_networks(line: &str) -> Result<Vec<Network>, String> {
    let mut out: Vec<Network> = Vec::new();
    for one in line.split(',').map(str::trim) {
        let (net, interface) = match one.split_once('(') {
            Some((net, rest)) => {
                let name = rest.strip_suffix(')').filter(|n| !n.is_empty() && !n.contains(['(', ' ', ',']));
                (net, Some(name.ok_or_else(|| format!("'{one}' is not NETWORK(INTERFACE)"))?.to_string()))
            }
            None => (one, None),
        };
        let net = parse_net(net)
            .map_err(|_| format!("'{one}': networks are tcp, tcp0, tcp1, ...: there is TCP only"))?;
        if out.iter().any(|n| n.net == net) {
            return Err(format!("network '{one}' is given twice: a server has one address on each"));
        }
        out.push(Network { net, interface });
    }
    if out.len() > MAX_NETWORKS {
        return Err(format!("{} networks: no more than {MAX_NETWORKS}", out.len()));
    }
    Ok(out)
}

/// One address for each network; the first of several.
fn one_each(nids: impl IntoIterator<Item = Nid>) -> Vec<Nid> {
    let mut out: Vec<Nid> = Vec::new();
    for n in nids {
        if !out.iter().any(|o| o.net == n.net) {
            out.push(n);
        }
    }
    out
}

/// Of the interfaces that an administrator named.
pub fn of_networks(all: &[Network]) -> Result<Vec<Nid>, StartError> {
    let here = sys::interface_addresses()
        .map_err(|e| StartError::new(format!("cannot list this host's addresses: {e}")))?;
    let mut out = Vec::new();
    for n in all {
        let of = |name: &str, a: &IpAddr| match &n.interface {
            Some(wanted) => name == wanted,
            None => !a.is_loopback(),
        };
        // An address of the old kind first: it is what people mean.
        let mut fit: Vec<IpAddr> = here.iter().filter(|(name, a)| of(name, a)).map(|h| h.1).collect();
        fit.sort_by_key(|a| !a.is_ipv4());
        let Some(addr) = fit.first() else {
            let names: std::collections::BTreeSet<&str> = here.iter().map(|h| h.0.as_str()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let wanted = n.interface.as_deref().unwrap_or("any");
            return Err(StartError::new(format!(
                "--networks: interface '{wanted}' has no address, or is down (this host has {names})"
            )));
        };
        out.push(Nid { addr: *addr, net: n.net });
    }
    Ok(out)
}

/// The addresses of this host that an administrator named.
async fn named(world: &World, wanted: &[HostNid]) -> Result<Vec<Nid>, StartError> {
    let here = sys::host_addresses().unwrap_or_default();
    let mut out: Vec<Nid> = Vec::new();
    for w in wanted {
        let found = look_up(world, std::slice::from_ref(w)).await;
        if let Some((host, why)) = found.unknown.first() {
            return Err(StartError::new(format!("--nid {host}: {why}")));
        }
        let own = found.nids.iter().find(|n| here.contains(&n.addr)).or(found.nids.first());
        let own = own.copied().ok_or_else(|| StartError::new(format!("--nid {w}: it has no address")))?;
        if let Some(o) = out.iter().find(|o| o.net == own.net) {
            return Err(StartError::new(format!(
                "--nid: {o} and {own} are on one network: a server has one address on each (10.1.0.1@tcp1)"
            )));
        }
        out.push(own);
    }
    Ok(out)
}

/// Those of the targets' service NIDs that this host has; none: they have none.
async fn of_service(world: &World, here: &[IpAddr], labels: &[&Superblock]) -> Result<Vec<Nid>, StartError> {
    let service: Vec<HostNid> = labels.iter().flat_map(|l| &l.service_nids).cloned().collect();
    let Some(first) = service.first() else { return Ok(Vec::new()) };
    let found = look_up(world, &service).await;
    for (host, why) in &found.unknown {
        model::event!(WARN, NidPassedOver, host, "service NID {host} is passed over: {why}");
    }
    let own = one_each(found.nids.iter().filter(|n| here.contains(&n.addr)).copied());
    if own.is_empty() {
        let unknown = found.unknown.first().map_or_else(String::new, |(h, why)| format!(" ({h}: {why})"));
        return Err(StartError::new(format!(
            "this host has none of the targets' service NIDs ({first} …){unknown}: run it where they are, or give --nid"
        )));
    }
    let meant = |h: &HostNid, own: &Nid| match h {
        HostNid::Addr(nid) => nid == own,
        HostNid::Name { host, .. } => host == "localhost",
    };
    let strange = |own: &&Nid| own.addr.is_loopback() && !service.iter().any(|h| meant(h, own));
    if let Some(own) = own.iter().find(strange) {
        return Err(StartError::new(format!(
            "the name of this host leads to {} here, where no other host finds it: give it its address in /etc/hosts, or use --nid",
            own.addr
        )));
    }
    Ok(own)
}

/// What was asked for, or the service NIDs of the targets that this host has, or its address towards the MGS,
/// or its first address: one on each network, and at least one.
pub async fn choose(
    world: &World,
    wanted: &[HostNid],
    networks: &[Network],
    labels: &[&Superblock],
) -> Result<Vec<Nid>, StartError> {
    if !networks.is_empty() {
        return of_networks(networks);
    }
    if !wanted.is_empty() {
        return named(world, wanted).await;
    }
    let here = sys::host_addresses()
        .map_err(|e| StartError::new(format!("cannot list this host's addresses: {e}")))?;
    let own = of_service(world, &here, labels).await?;
    if !own.is_empty() {
        return Ok(own);
    }
    let mgs: Vec<HostNid> = labels.iter().flat_map(|l| &l.mgs_nids).cloned().collect();
    let towards = |m: &Nid| sys::address_towards(m.addr).ok().map(|addr| Nid { addr, net: m.net });
    if let Some(n) = look_up(world, &mgs).await.nids.iter().find_map(towards) {
        return Ok(vec![n]);
    }
    let first = here.iter().find(|a| !a.is_loopback()).or(here.first());
    first
        .map(|addr| vec![Nid { addr: *addr, net: 0 }])
        .ok_or_else(|| StartError::new("this host has no address: give --nid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_lustre_writes_them() {
        let net = |net: u16, i: Option<&str>| Network { net, interface: i.map(str::to_string) };
        assert_eq!(
            parse_networks("tcp0(eth0), tcp1(eth1.7)").unwrap(),
            [net(0, Some("eth0")), net(1, Some("eth1.7"))]
        );
        assert_eq!(parse_networks("tcp").unwrap(), [net(0, None)]);
        for (bad, why) in [
            ("o2ib(ib0)", "TCP only"),
            ("tcp(eth0),tcp0(eth1)", "given twice"),
            ("tcp0(", "NETWORK(INTERFACE)"),
            ("tcp0()", "NETWORK(INTERFACE)"),
            ("", "TCP only"),
        ] {
            let said = parse_networks(bad).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_told_with_those_that_are() {
        let wanted = parse_networks("tcp1(nothing0)").unwrap();
        let said = of_networks(&wanted).unwrap_err().text;
        assert!(said.contains("'nothing0'") && said.contains("lo"), "{said}");
        let lo = of_networks(&parse_networks("tcp3(lo)").unwrap()).unwrap();
        assert_eq!(lo, ["127.0.0.1@tcp3".parse().unwrap()]);
    }
}
