//! Directories with a quota (`W`), and trees that are being counted to another one (`V`).

use super::value::{decode, encode};
use crate::MdsError;
use model::Fid;
use serde::{Deserialize, Serialize};

/// A directory whose files are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryQuota {
    pub fid: Fid,
    /// The id of the innermost one around it; 0: there is none.
    pub parent: u32,
    /// It was taken away, and files below may still have its label: what they are counts around it.
    pub ended: bool,
}

impl DirectoryQuota {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<DirectoryQuota, MdsError> {
        decode("directory with a quota", key, v)
    }
}

/// The value of a `V` key: that it is there says all.
pub fn encode_unsettled() -> Vec<u8> {
    encode(&())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::key;

    #[test]
    fn they_come_back() {
        let q = DirectoryQuota { fid: Fid::new(7, 8, 0), parent: 3, ended: true };
        assert_eq!(DirectoryQuota::decode(b"k", &q.encode()).unwrap(), q);
        assert!(DirectoryQuota::decode(b"k", &[1, 7]).is_err());
        assert_eq!(key::parse_directory(&key::directory(0x0102_0304)), Some(0x0102_0304));
        assert_eq!(key::parse_fid(&key::unsettled(q.fid)), Some(q.fid));
        assert_eq!(key::parse_directory(b"W\0\0\0"), None);
    }
}
