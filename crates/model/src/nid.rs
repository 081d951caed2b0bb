//! Network identifiers: `ADDR@NETTYPE[NUM]`. A NID never carries a port.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Address of a server or client node on one network. Only `tcp` networks exist so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Nid {
    pub addr: IpAddr,
    /// Network number: `tcp` is `tcp0`.
    pub net: u16,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid NID '{0}': expected ADDRESS@tcp[N], for example 10.0.0.1@tcp")]
pub struct NidParseError(pub String);

impl FromStr for Nid {
    type Err = NidParseError;

    fn from_str(s: &str) -> Result<Nid, NidParseError> {
        let bad = || NidParseError(s.to_string());
        let (addr, net) = s.split_once('@').ok_or_else(bad)?;
        let num = net.strip_prefix("tcp").ok_or_else(bad)?;
        let net = if num.is_empty() { 0 } else { num.parse().map_err(|_| bad())? };
        Ok(Nid { addr: addr.parse().map_err(|_| bad())?, net })
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.net {
            0 => write!(f, "{}@tcp", self.addr),
            n => write!(f, "{}@tcp{n}", self.addr),
        }
    }
}

/// `NID[,NID][:NID…]`: a comma separates NIDs of one node, a colon failover nodes. Returned flat, in the
/// order in which a client tries them.
pub fn parse_nid_list(s: &str) -> Result<Vec<Nid>, NidParseError> {
    // IPv6 addresses hold colons themselves: split only at a colon that follows a network name.
    let mut out = Vec::new();
    let mut cur = String::new();
    let mut seen_at = false;
    for c in s.chars() {
        match c {
            ',' | ':' if c == ',' || seen_at => {
                out.push(cur.parse()?);
                cur.clear();
                seen_at = false;
            }
            _ => {
                seen_at |= c == '@';
                cur.push(c);
            }
        }
    }
    out.push(cur.parse()?);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_parse_and_print() {
        for s in ["10.0.0.1@tcp", "10.0.0.1@tcp7", "::1@tcp"] {
            assert_eq!(s.parse::<Nid>().unwrap().to_string(), s);
        }
        assert_eq!("10.0.0.1@tcp0".parse::<Nid>().unwrap().to_string(), "10.0.0.1@tcp");
        for s in ["10.0.0.1", "10.0.0.1@o2ib", "@tcp", "1.2.3@tcp", "10.0.0.1@tcpx"] {
            assert!(s.parse::<Nid>().is_err(), "{s}");
        }
        assert_eq!(parse_nid_list("10.0.0.1@tcp,10.0.1.1@tcp1:10.0.0.2@tcp").unwrap().len(), 3);
        assert_eq!(parse_nid_list("fd00::1@tcp:fd00::2@tcp").unwrap().len(), 2);
    }
}
