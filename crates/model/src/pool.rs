//! OST pools: named sets of a file system's OSTs, from which objects of a file may have to come.

use crate::limits;
use serde::{Deserialize, Serialize};

/// In a layout's specification: no pool, whatever the directory says.
pub const IGNORE: &str = "ignore";
/// Words that mean something else where a pool may be named.
const RESERVED: [&str; 3] = ["none", "inherit", IGNORE];

/// A pool of one file system.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// Indices, growing.
    pub osts: Vec<u16>,
}

/// Whether a pool may have this name: 1–15 of `[A-Za-z0-9_-]`, and none of the words that `lfs setstripe -p`
/// takes for something else.
pub fn name_is_valid(name: &str) -> bool {
    (1..=limits::POOL_NAME_MAX_BYTES).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-')
        && !RESERVED.contains(&name)
}

impl Pool {
    pub fn new(name: &str) -> Pool {
        Pool { name: name.to_string(), osts: Vec::new() }
    }

    pub fn has(&self, ost: u16) -> bool {
        self.osts.binary_search(&ost).is_ok()
    }

    /// False: it is in there already.
    pub fn add(&mut self, ost: u16) -> bool {
        match self.osts.binary_search(&ost) {
            Ok(_) => false,
            Err(at) => {
                self.osts.insert(at, ost);
                true
            }
        }
    }

    /// False: it is not in there.
    pub fn remove(&mut self, ost: u16) -> bool {
        self.osts.binary_search(&ost).map(|at| self.osts.remove(at)).is_ok()
    }

    /// As it is stored and sent (`docs/formats/mgt.md`).
    pub fn encode(&self) -> Vec<u8> {
        assert!(name_is_valid(&self.name), "pool '{}' was let in by its name", self.name);
        assert!(self.osts.is_sorted_by(|a, b| a < b), "pool {} has an OST once", self.name);
        let count = u16::try_from(self.osts.len()).expect("indices of OSTs are fewer");
        let mut out = vec![self.name.len() as u8];
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        self.osts.iter().for_each(|i| out.extend_from_slice(&i.to_le_bytes()));
        out
    }

    /// `None`: the bytes are no pool. What stands behind it is a later version's.
    pub fn decode(bytes: &[u8]) -> Option<Pool> {
        let (&len, rest) = bytes.split_first()?;
        let (name, rest) = rest.split_at_checked(len.into())?;
        let name = std::str::from_utf8(name).ok().filter(|n| name_is_valid(n))?;
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let members = rest.get(..usize::from(u16::from_le_bytes(*count)) * 2)?;
        let osts: Vec<u16> = members.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        osts.is_sorted_by(|a, b| a < b).then(|| Pool { name: name.to_string(), osts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_read_as_it_was_written() {
        let mut p = Pool::new("flash");
        assert!(p.add(7) && p.add(1) && p.add(300) && !p.add(7));
        assert!(p.remove(1) && !p.remove(1) && p.has(7) && !p.has(1));
        let bytes = p.encode();
        assert_eq!(Pool::decode(&bytes), Some(p.clone()));
        assert_eq!(Pool::decode(&[&bytes[..], b"later"].concat()), Some(p));
        assert!((0..bytes.len()).all(|n| Pool::decode(&bytes[..n]).is_none()), "cut short");
        let twice = [&[1, b'x', 2, 0][..], &[5, 0, 5, 0]].concat();
        assert_eq!(Pool::decode(&twice), None, "an OST twice");
        assert_eq!(Pool::decode(&[1, b'.', 0, 0]), None, "not a pool's name");
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "flash-1_x", "fifteen_letters"] {
            assert!(name_is_valid(good), "{good}");
        }
        for bad in ["", "sixteen__letters", "a.b", "a b", "ä", "none", "inherit", "ignore"] {
            assert!(!name_is_valid(bad), "{bad}");
        }
    }
}
