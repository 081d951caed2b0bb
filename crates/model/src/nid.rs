//! Network identifiers: `ADDR@NETTYPE[NUM]`. A NID never carries a port.
//!
//! Sites write them in more ways than one: the host by its name, the network left out. [`HostNid`] is what
//! was written, [`Nid`] what it means at the moment.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Longest name of a host (RFC 1035).
const NAME_MAX_BYTES: usize = 253;

/// Address of a server or client node on one network. Only `tcp` networks exist so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Nid {
    pub addr: IpAddr,
    /// Network number: `tcp` is `tcp0`.
    pub net: u16,
}

/// A node as an administrator names it: by an address, or by its host's name, which is looked up when it is
/// used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HostNid {
    Addr(Nid),
    Name { host: String, net: u16 },
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NidParseError {
    #[error("invalid NID '{0}': expected ADDRESS@tcp[N] or HOST@tcp[N], for example 10.0.0.1@tcp")]
    Form(String),
    #[error("invalid NID '{0}': there is no network of type '{1}' here, TCP only: write @tcp")]
    Network(String, String),
    #[error("invalid NID '{0}': an address is needed here, not the name of a host, for example 10.0.0.1@tcp")]
    Name(String),
}

/// The number of `tcp[N]`.
fn network(whole: &str, net: &str) -> Result<u16, NidParseError> {
    let bad = || NidParseError::Form(whole.to_string());
    let Some(number) = net.strip_prefix("tcp") else {
        let kind = net.trim_end_matches(|c: char| c.is_ascii_digit());
        // `o2ib` carries a digit within its name.
        let known = ["o2ib", "gni", "kfi", "efa", "ptlf", "lo"].into_iter().find(|k| kind.starts_with(k));
        let named = kind.chars().all(|c| c.is_ascii_alphanumeric()) && !kind.is_empty();
        return Err(match known.or(named.then_some(kind)) {
            Some(k) => NidParseError::Network(whole.to_string(), k.to_string()),
            None => bad(),
        });
    };
    if number.is_empty() { Ok(0) } else { number.parse().map_err(|_| bad()) }
}

/// Letters, digits, `-`, `_` and dots between; the last part is no number, or it would be a mistyped address.
fn is_host_name(name: &str) -> bool {
    let part = |p: &str| {
        (1..=63).contains(&p.len())
            && !p.starts_with('-')
            && !p.ends_with('-')
            && p.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
    };
    let mut parts = name.split('.');
    let numeric = |p: &str| p.bytes().all(|c| c.is_ascii_digit());
    name.len() <= NAME_MAX_BYTES && parts.clone().all(part) && parts.next_back().is_some_and(|p| !numeric(p))
}

impl FromStr for HostNid {
    type Err = NidParseError;

    fn from_str(s: &str) -> Result<HostNid, NidParseError> {
        let (host, net) = match s.split_once('@') {
            Some((host, net)) => (host, network(s, net)?),
            None => (s, 0),
        };
        match host.parse() {
            Ok(addr) => Ok(HostNid::Addr(Nid { addr, net })),
            Err(_) if is_host_name(host) => Ok(HostNid::Name { host: host.to_string(), net }),
            Err(_) => Err(NidParseError::Form(s.to_string())),
        }
    }
}

impl FromStr for Nid {
    type Err = NidParseError;

    fn from_str(s: &str) -> Result<Nid, NidParseError> {
        match s.parse()? {
            HostNid::Addr(nid) => Ok(nid),
            HostNid::Name { .. } => Err(NidParseError::Name(s.to_string())),
        }
    }
}

/// The number of a network by its name: `tcp`, `tcp1`.
///
/// # Errors
/// It is no network of that kind.
pub fn parse_net(name: &str) -> Result<u16, NidParseError> {
    network(name, name)
}

/// `tcp`, `tcp1`.
pub fn net_name(net: u16) -> String {
    if net == 0 { "tcp".to_string() } else { format!("tcp{net}") }
}

fn write_net(f: &mut fmt::Formatter<'_>, host: &dyn fmt::Display, net: u16) -> fmt::Result {
    write!(f, "{host}@{}", net_name(net))
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_net(f, &self.addr, self.net)
    }
}

impl fmt::Display for HostNid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostNid::Addr(nid) => nid.fmt(f),
            HostNid::Name { host, net } => write_net(f, host, *net),
        }
    }
}

impl From<Nid> for HostNid {
    fn from(nid: Nid) -> HostNid {
        HostNid::Addr(nid)
    }
}

impl PartialEq<Nid> for HostNid {
    fn eq(&self, other: &Nid) -> bool {
        matches!(self, HostNid::Addr(nid) if nid == other)
    }
}

impl HostNid {
    /// The number of its network.
    pub fn net(&self) -> u16 {
        match self {
            HostNid::Addr(nid) => nid.net,
            HostNid::Name { net, .. } => *net,
        }
    }

    /// `None`: it has to be looked up.
    pub fn address(&self) -> Option<Nid> {
        match self {
            HostNid::Addr(nid) => Some(*nid),
            HostNid::Name { .. } => None,
        }
    }
}

/// The NIDs between colons. The colons of an IPv6 address part nothing: with a network behind it, or where
/// everything is one, it is taken as a whole.
fn parse_nodes(s: &str, out: &mut Vec<HostNid>) -> Result<(), NidParseError> {
    let mut rest = s;
    loop {
        // Up to the colon behind the next network.
        let end = rest.find('@').and_then(|at| Some(at + rest[at..].find(':')?)).unwrap_or(rest.len());
        let (these, more) = (&rest[..end], rest.get(end + 1..));
        let host = these.split_once('@').map_or(these, |(host, _)| host);
        if host.parse::<Ipv6Addr>().is_ok() {
            out.push(these.parse()?);
        } else {
            for one in these.split(':') {
                out.push(one.parse()?);
            }
        }
        match more {
            Some(m) => rest = m,
            None => return Ok(()),
        }
    }
}

/// `NID[,NID][:NID…]`: a comma separates NIDs of one node, a colon or a semicolon failover nodes. Returned
/// flat, in the order in which a client tries them.
pub fn parse_nid_list(s: &str) -> Result<Vec<HostNid>, NidParseError> {
    let mut out = Vec::new();
    for nodes in s.split([',', ';']) {
        parse_nodes(nodes, &mut out)?;
    }
    assert!(!out.is_empty(), "a list that has no NID is no list");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(s: &str) -> String {
        match parse_nid_list(s) {
            Ok(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn nids_parse_and_print() {
        for s in ["10.0.0.1@tcp", "10.0.0.1@tcp7", "::1@tcp"] {
            assert_eq!(s.parse::<Nid>().unwrap().to_string(), s);
        }
        assert_eq!("10.0.0.1@tcp0".parse::<Nid>().unwrap().to_string(), "10.0.0.1@tcp");
        assert_eq!("10.0.0.1".parse::<Nid>().unwrap().to_string(), "10.0.0.1@tcp");
        for s in ["10.0.0.1@o2ib", "@tcp", "1.2.3@tcp", "10.0.0.1@tcpx", "10.0.0.1@", "mds05@tcp", ""] {
            assert!(s.parse::<Nid>().is_err(), "{s}");
        }
    }

    #[test]
    fn hosts_have_names() {
        for (written, meant) in [
            ("mds05", "mds05@tcp"),
            ("mds05@tcp0", "mds05@tcp"),
            ("oss-1.cluster.site@tcp2", "oss-1.cluster.site@tcp2"),
            ("10.0.0.5", "10.0.0.5@tcp"),
            ("mds01_a@tcp", "mds01_a@tcp"),
        ] {
            let nid: HostNid = written.parse().unwrap();
            assert_eq!(nid.to_string(), meant);
            assert_eq!(meant.parse(), Ok(nid), "what is printed is read again");
        }
        let long = format!("{}@tcp", "a.".repeat(200));
        for bad in ["", "@tcp", "a b", "-a", "a..b", "1.2.3", "10.0.0.300", "mds/05", "m@tcp@tcp", &long] {
            assert!(bad.parse::<HostNid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_networks_are_refused_by_name() {
        for (written, kind) in
            [("mds01_ib@o2ib", "'o2ib'"), ("10.0.0.1@o2ib3", "'o2ib'"), ("a@gni0", "'gni'"), ("a@ib", "'ib'")]
        {
            let e = written.parse::<HostNid>().unwrap_err().to_string();
            assert!(e.contains(kind) && e.contains("TCP only") && e.contains(written), "{e}");
        }
    }

    #[test]
    fn lists_as_sites_write_them() {
        for (written, meant) in [
            ("10.0.0.1@tcp,10.0.1.1@tcp1:10.0.0.2@tcp", "10.0.0.1@tcp 10.0.1.1@tcp1 10.0.0.2@tcp"),
            ("fd00::1@tcp:fd00::2@tcp", "fd00::1@tcp fd00::2@tcp"),
            ("fd00::1@tcp;fd00::2", "fd00::1@tcp fd00::2@tcp"),
            ("fd00::1", "fd00::1@tcp"),
            ("mds05@tcp0:mds06@tcp0", "mds05@tcp mds06@tcp"),
            ("mds01@tcp;mds02@tcp", "mds01@tcp mds02@tcp"),
            ("mds05:mds06", "mds05@tcp mds06@tcp"),
            ("10.0.0.5:10.0.0.6@tcp", "10.0.0.5@tcp 10.0.0.6@tcp"),
            ("10.0.0.5@tcp:10.0.0.6:10.0.0.7@tcp1", "10.0.0.5@tcp 10.0.0.6@tcp 10.0.0.7@tcp1"),
        ] {
            assert_eq!(list(written), meant, "{written}");
        }
        for bad in ["", ",", "a:", ":a", "a;;b", "a,b@o2ib"] {
            assert!(list(bad).contains("invalid NID"), "{bad}");
        }
    }
}
