//! Checksums at rest: a crc32c for each block of 4 KiB of an object, in the same transaction as its bytes.
//!
//! A block's checksum is that of all its 4,096 bytes, those behind the object's end taken as zeros. A block
//! that was never written, or was punched, has none and reads as zeros. Layout and reasons:
//! `docs/formats/objects.md`.

use crate::bytes::{Reader, Writer};
use model::{ObjectId, limits};

/// Key tag of groups of checksums.
pub const TAG_SUMS: u8 = b'S';
/// Bytes that one checksum covers.
pub const BLOCK_BYTES: u64 = limits::SUM_BLOCK_BYTES as u64;
/// Blocks whose checksums share a key.
pub const GROUP_BLOCKS: u64 = 64;
/// crc32c of a block of zeros.
pub const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;
const GROUP_VERSION: u8 = 1;

/// Checksums of [`GROUP_BLOCKS`] blocks, some of which may have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    mask: u64,
    /// As long as the highest block that has one; 0 where there is none.
    crcs: Vec<u32>,
}

impl Group {
    pub fn get(&self, i: usize) -> Option<u32> {
        (i < self.crcs.len() && self.mask >> i & 1 == 1).then(|| self.crcs[i])
    }

    pub fn set(&mut self, i: usize, crc: Option<u32>) {
        assert!(i < GROUP_BLOCKS as usize, "block {i} of a group");
        if let Some(c) = crc {
            self.mask |= 1 << i;
            if self.crcs.len() <= i {
                self.crcs.resize(i + 1, 0);
            }
            self.crcs[i] = c;
            return;
        }
        self.mask &= !(1 << i);
        if i < self.crcs.len() {
            self.crcs[i] = 0;
            self.crcs.truncate(64 - self.mask.leading_zeros() as usize);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Version, zeros (3), mask, the checksums of the blocks in the mask.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(12 + 4 * self.crcs.len()));
        w.u8(GROUP_VERSION);
        w.raw(&[0; 3]);
        w.u64(self.mask);
        (0..self.crcs.len()).filter_map(|i| self.get(i)).for_each(|c| w.u32(c));
        w.0
    }

    pub(crate) fn decode(v: &[u8]) -> Option<Group> {
        let mut r = Reader(v);
        if r.u8()? != GROUP_VERSION {
            return None;
        }
        r.raw(3)?;
        let mask = r.u64()?;
        let mut g = Group { mask, crcs: vec![0; 64 - mask.leading_zeros() as usize] };
        for i in 0..g.crcs.len() {
            if mask >> i & 1 == 1 {
                g.crcs[i] = r.u32()?;
            }
        }
        Some(g)
    }
}

/// Key of a group of an object in a file of its own.
pub fn sums_key(id: ObjectId, group: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(33);
    k.push(TAG_SUMS);
    k.extend_from_slice(&id.to_bytes());
    k.extend_from_slice(&group.to_be_bytes());
    k
}

/// (Object, group) of such a key.
pub fn id_of_sums_key(key: &[u8]) -> Option<(ObjectId, u64)> {
    let id = ObjectId::from_bytes(key.get(1..25)?.try_into().ok()?);
    Some((id, u64::from_be_bytes(key.get(25..)?.try_into().ok()?)))
}

/// The group of a block, and the block's place in it.
pub(super) fn split(block: u64) -> (u64, usize) {
    (block / GROUP_BLOCKS, (block % GROUP_BLOCKS) as usize)
}

/// The pieces that block boundaries make of a range.
pub(super) fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let start = at;
        at = (start / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(to);
        (start < to).then_some((start, at))
    })
}

#[cfg(test)]
impl Group {
    pub fn of(crcs: &[Option<u32>]) -> Group {
        let mut g = Group::default();
        crcs.iter().enumerate().for_each(|(i, c)| g.set(i, *c));
        g
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::frame::crc32c;

    #[test]
    fn groups_go_there_and_back() {
        assert_eq!(crc32c(&[0; 4096]), ZERO_BLOCK_CRC);
        let mut g = Group::default();
        assert!(g.is_empty() && g.get(63).is_none());
        g.set(63, Some(7));
        g.set(2, Some(0));
        assert_eq!(Group::decode(&g.encode()), Some(g.clone()));
        assert_eq!((g.get(2), g.get(3), g.get(63)), (Some(0), None, Some(7)));
        g.set(63, None);
        assert_eq!(g, Group::of(&[None, None, Some(0)]));
        for n in 0..g.encode().len() {
            assert_eq!(Group::decode(&g.encode()[..n]), None);
        }
        let id = ObjectId { origin: model::Fid::new(7, 8, 9), component: 1, stripe: 2 };
        assert_eq!(id_of_sums_key(&sums_key(id, 77)), Some((id, 77)));
    }
}
