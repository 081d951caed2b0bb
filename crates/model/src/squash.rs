//! Root squash: root of most hosts is an ordinary user of the file system. Lustre's `root_squash` and
//! `nosquash_nids`.

use crate::nodemap::Nodemap;
use crate::{Cred, Errno};
use std::net::IpAddr;

/// Elements of one list of NIDs.
const NIDS_MAX: usize = 256;

/// Who root is, and from where it is root all the same.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Squash {
    /// `None`: root is root everywhere.
    to: Option<(u32, u32)>,
    except: NidRanges,
}

impl Squash {
    /// `UID:GID`; `0:0` turns it off.
    pub fn set_to(&mut self, text: &str) -> Result<(), Errno> {
        let (uid, gid) = text.trim().split_once(':').ok_or(Errno::EINVAL)?;
        let number = |s: &str| s.parse::<u32>().ok().filter(|n| *n != u32::MAX).ok_or(Errno::EINVAL);
        let (uid, gid) = (number(uid)?, number(gid)?);
        self.to = (uid != 0 || gid != 0).then_some((uid, gid));
        Ok(())
    }

    pub fn set_except(&mut self, text: &str) -> Result<(), Errno> {
        self.except = NidRanges::parse(text)?;
        Ok(())
    }

    /// Whom the users of this host are here.
    pub fn of(&self, host: IpAddr) -> Nodemap {
        match self.to.filter(|_| !self.except.contains(host)) {
            Some((uid, gid)) => Nodemap::squashing_root(Cred::new(uid, gid)),
            None => Nodemap::IDENTITY,
        }
    }
}

/// `10.0.0.[1-5,9]@tcp 10.1.*.*@tcp fd00::7@tcp`, apart by blanks or commas; `NONE`, `clear` or nothing:
/// none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NidRanges(Vec<NidRange>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum NidRange {
    /// For each number of the address, the ranges in which it lies.
    V4([Vec<(u8, u8)>; 4]),
    V6(std::net::Ipv6Addr),
}

impl NidRanges {
    /// `EINVAL` for what is none, `E2BIG` for more than anybody needs.
    pub fn parse(text: &str) -> Result<NidRanges, Errno> {
        let text = text.trim();
        if matches!(text, "NONE" | "clear" | "") {
            return Ok(NidRanges::default());
        }
        let mut inside = false;
        let apart = |c: char| {
            inside = (inside || c == '[') && c != ']';
            c.is_whitespace() || (c == ',' && !inside)
        };
        let all: Vec<&str> = text.split(apart).filter(|s| !s.is_empty()).collect();
        if all.len() > NIDS_MAX {
            return Err(Errno::E2BIG);
        }
        all.into_iter().map(NidRange::parse).collect::<Option<_>>().map(NidRanges).ok_or(Errno::EINVAL)
    }

    pub fn contains(&self, addr: IpAddr) -> bool {
        self.0.iter().any(|r| r.contains(addr))
    }
}

impl NidRange {
    fn parse(text: &str) -> Option<NidRange> {
        let (addr, net) = text.split_once('@')?;
        // Peers are known by their addresses: there is one network.
        if !matches!(net, "tcp" | "tcp0") {
            return None;
        }
        if let Ok(v6) = addr.parse() {
            return Some(NidRange::V6(v6));
        }
        let parts: Vec<Vec<(u8, u8)>> = addr.split('.').map(octet).collect::<Option<_>>()?;
        parts.try_into().ok().map(NidRange::V4)
    }

    fn contains(&self, addr: IpAddr) -> bool {
        match (self, addr) {
            (NidRange::V4(parts), IpAddr::V4(a)) => parts
                .iter()
                .zip(a.octets())
                .all(|(r, o)| r.iter().any(|(from, to)| (*from..=*to).contains(&o))),
            (NidRange::V6(a), IpAddr::V6(b)) => *a == b,
            _ => false,
        }
    }
}

/// `7`, `*` or `[1-5,9]`.
fn octet(text: &str) -> Option<Vec<(u8, u8)>> {
    if text == "*" {
        return Some(vec![(0, u8::MAX)]);
    }
    let list = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let range = |t: &str| {
        let (from, to) = t.split_once('-').unwrap_or((t, t));
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from <= to).then_some((from, to))
    };
    list.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(list: &str, addr: &str) -> bool {
        NidRanges::parse(list).unwrap().contains(addr.parse().unwrap())
    }

    #[test]
    fn nids_are_listed_as_lustre_lists_them() {
        assert!(has("10.0.0.7@tcp", "10.0.0.7") && !has("10.0.0.7@tcp", "10.0.0.8"));
        let two = "10.0.0.[1-3,9]@tcp, 192.168.*.*@tcp0 fd00::7@tcp";
        for yes in ["10.0.0.1", "10.0.0.3", "10.0.0.9", "192.168.4.5", "fd00::7"] {
            assert!(has(two, yes), "{yes}");
        }
        for no in ["10.0.0.4", "10.0.1.1", "192.167.0.1", "fd00::8"] {
            assert!(!has(two, no), "{no}");
        }
        for none in ["NONE", "clear", " "] {
            assert!(!has(none, "10.0.0.1"));
        }
        for bad in [
            "10.0.0.1",
            "10.0.0@tcp",
            "10.0.0.[3-1]@tcp",
            "10.0.0.256@tcp",
            "10.0.0.1@o2ib",
            "x@tcp",
            "10.0.0.1@tcp2",
        ] {
            assert_eq!(NidRanges::parse(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(NidRanges::parse(&"10.0.0.1@tcp ".repeat(300)), Err(Errno::E2BIG));
    }

    #[test]
    fn root_is_somebody_else_but_where_it_is_let() {
        let (here, there): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut s = Squash::default();
        assert_eq!(s.of(here), Nodemap::IDENTITY);
        s.set_to("99:98").unwrap();
        s.set_except("10.0.0.2@tcp").unwrap();
        assert_eq!(s.of(here), Nodemap::squashing_root(Cred::new(99, 98)));
        assert_eq!(s.of(there), Nodemap::IDENTITY);
        for bad in ["99", "a:b", "-1:0", "1:4294967295", "1:2:3"] {
            assert_eq!(s.set_to(bad), Err(Errno::EINVAL), "{bad}");
        }
        s.set_to("0:0").unwrap();
        assert_eq!(s.of(here), Nodemap::IDENTITY);
    }
}
