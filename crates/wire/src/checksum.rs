//! Checksums of data on the wire: one for each piece that block boundaries (4 KiB of the object) make of it.

// Numbers from outside: nothing here may overflow or go past an end (decision 0039).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

use crate::frame::crc32c;
use crate::msg::writelist::WriteRange;
use model::limits::SUM_BLOCK_BYTES;
use serde::{Deserialize, Serialize};

const BLOCK: u64 = SUM_BLOCK_BYTES as u64;
const ADLER_MOD: u32 = 65521;
/// Bytes after which adler32's sums must be reduced, lest they overflow.
const ADLER_RUN: usize = 5552;

/// How data is summed on the wire. At rest it is always crc32c.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ChecksumType {
    /// Not at all (`osc.*.checksums=0`); the frame's own checksum stays.
    None,
    #[default]
    Crc32c,
    Crc32,
    Adler32,
}

impl ChecksumType {
    /// Those that can be chosen.
    pub const ALL: [ChecksumType; 3] = [ChecksumType::Crc32, ChecksumType::Adler32, ChecksumType::Crc32c];

    /// Lustre's name.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumType::None => "none",
            ChecksumType::Crc32c => "crc32c",
            ChecksumType::Crc32 => "crc32",
            ChecksumType::Adler32 => "adler",
        }
    }

    /// By name; `adler32` is `adler`.
    pub fn parse(name: &str) -> Option<ChecksumType> {
        ChecksumType::ALL
            .into_iter()
            .find(|t| t.name() == name || (*t == ChecksumType::Adler32 && name == "adler32"))
    }

    /// The sum of some bytes.
    pub fn of(self, data: &[u8]) -> u32 {
        match self {
            ChecksumType::None => 0,
            ChecksumType::Crc32c => crc32c(data),
            ChecksumType::Crc32 => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, data) as u32,
            ChecksumType::Adler32 => adler32_of(1, data),
        }
    }

    /// The sum of a block of which only the beginning is given: the rest is zeros.
    pub fn padded(self, part: &[u8]) -> u32 {
        assert!(part.len() <= SUM_BLOCK_BYTES, "a piece lies in one block");
        if part.len() == SUM_BLOCK_BYTES {
            return self.of(part);
        }
        let mut block = [0; SUM_BLOCK_BYTES];
        let (begin, _) = block.split_at_mut(part.len().min(SUM_BLOCK_BYTES));
        begin.copy_from_slice(part);
        self.of(&block)
    }

    /// Sums of what a write at `off` sends: of each piece its bytes.
    pub fn of_write(self, off: u64, data: &[u8]) -> Vec<u32> {
        match self {
            ChecksumType::None => Vec::new(),
            t => one_a_block(off, data, pieces(off, data).map(|(_, p)| t.of(p)).collect()),
        }
    }

    /// Sums of what a read at `off` answers: a piece that begins a block and reaches to its end or to the
    /// object's is the block, with zeros behind the object's end; of other pieces their bytes.
    pub fn of_read(self, off: u64, data: &[u8], object_size: u64) -> Vec<u32> {
        match self {
            ChecksumType::None => Vec::new(),
            t => {
                let sum = |(at, p)| t.of_read_piece(at, p, object_size);
                one_a_block(off, data, pieces(off, data).map(sum).collect())
            }
        }
    }

    fn of_read_piece(self, at: u64, piece: &[u8], object_size: u64) -> u32 {
        let whole = at.is_multiple_of(BLOCK) && at.checked_add(piece.len() as u64) == Some(object_size);
        if whole { self.padded(piece) } else { self.of(piece) }
    }

    /// Where a write's data first differs from its sums: an object offset. The end of the data if their
    /// numbers differ, the last offset there is if the data reaches beyond it.
    pub fn differs_in_write(self, off: u64, data: &[u8], sums: &[u32]) -> Option<u64> {
        self.differs(off, data, sums, |t, _, p| t.of(p))
    }

    /// The same for what a read answered.
    pub fn differs_in_read(self, off: u64, data: &[u8], object_size: u64, sums: &[u32]) -> Option<u64> {
        self.differs(off, data, sums, |t, at, p| t.of_read_piece(at, p, object_size))
    }

    fn differs(
        self,
        off: u64,
        data: &[u8],
        sums: &[u32],
        sum: impl Fn(ChecksumType, u64, &[u8]) -> u32,
    ) -> Option<u64> {
        if self == ChecksumType::None {
            return None;
        }
        let Some(end) = off.checked_add(data.len() as u64) else { return Some(u64::MAX) };
        let wanted = if data.is_empty() { 0 } else { blocks(off, end) };
        if sums.len() as u64 != wanted {
            return Some(end);
        }
        pieces(off, data).zip(sums).find(|((at, p), s)| sum(self, *at, p) != **s).map(|((at, _), _)| at)
    }
}

/// Splits the sums of a writelist into those of its ranges: the last one gets what is left, too much or too
/// little.
pub fn sums_of_ranges<'a>(
    sums: &'a [u32],
    ranges: &'a [WriteRange],
) -> impl Iterator<Item = &'a [u32]> + use<'a> {
    let mut rest = sums;
    ranges.iter().enumerate().map(move |(i, r)| {
        let count = blocks(r.offset, r.offset.saturating_add(u64::from(r.len)));
        let is_last = i.saturating_add(1) == ranges.len();
        let count = usize::try_from(count).ok().filter(|n| !is_last && *n < rest.len());
        let (mine, behind) = rest.split_at(count.unwrap_or(rest.len()));
        rest = behind;
        mine
    })
}

/// The sums that were made of data at `off`, which are as many as the receiver expects.
fn one_a_block(off: u64, data: &[u8], sums: Vec<u32>) -> Vec<u32> {
    if let Some(end) = off.checked_add(data.len() as u64).filter(|_| !data.is_empty()) {
        assert_eq!(sums.len() as u64, blocks(off, end), "each block has a sum");
    }
    sums
}

/// Blocks that `off..end` touches; 0 if that is no range.
fn blocks(off: u64, end: u64) -> u64 {
    end.div_ceil(BLOCK).saturating_sub(off / BLOCK)
}

/// (object offset, bytes) of each piece. Of data that reaches beyond the last offset there is, the pieces
/// behind it all lie there.
fn pieces(off: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let to_boundary = BLOCK.saturating_sub(off % BLOCK);
    let head = data.len().min(to_boundary as usize);
    let (first, rest) = data.split_at(head);
    let next = off.saturating_add(head as u64);
    let at = move |i: usize| next.saturating_add((i as u64).saturating_mul(BLOCK));
    let blocks = rest.chunks(SUM_BLOCK_BYTES).enumerate().map(move |(i, p)| (at(i), p));
    std::iter::once((off, first)).filter(|(_, p)| !p.is_empty()).chain(blocks)
}

/// adler32 of more bytes behind those of which `sum` is the sum; that of none is 1.
#[allow(clippy::arithmetic_side_effects)] // both sums stay below 2^32 within a run, whatever the bytes
pub fn adler32_of(sum: u32, data: &[u8]) -> u32 {
    let (mut a, mut b) = ((sum & 0xffff) % ADLER_MOD, (sum >> 16) % ADLER_MOD);
    for run in data.chunks(ADLER_RUN) {
        for x in run {
            a += u32::from(*x);
            b += a;
        }
        a %= ADLER_MOD;
        b %= ADLER_MOD;
    }
    assert!(a < ADLER_MOD && b < ADLER_MOD, "either sum has its 16 bits");
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(ChecksumType::Crc32c.of(b"123456789"), 0xe306_9283);
        assert_eq!(ChecksumType::Crc32.of(b"123456789"), 0xcbf4_3926);
        assert_eq!(ChecksumType::Adler32.of(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(ChecksumType::Adler32.of(&[0xff; 100_000]), 0x149a_302c);
    }

    #[test]
    fn pieces_end_at_blocks() {
        let data = vec![7; 10_000];
        let list: Vec<_> = pieces(4000, &data).map(|(at, p)| (at, p.len())).collect();
        assert_eq!(list, [(4000, 96), (4096, 4096), (8192, 4096), (12_288, 1712)]);
        assert_eq!(pieces(5, &[]).count(), 0);
        assert_eq!(pieces(4096, &data[..4096]).count(), 1);
    }

    #[test]
    fn data_at_the_end_of_all_offsets_is_refused_and_no_more() {
        let (t, sums) = (ChecksumType::Crc32c, [ChecksumType::Crc32c.of(b"x"); 2]);
        for off in [u64::MAX, u64::MAX - 1, u64::MAX - 4096, 1 << 63] {
            let data = [b'x'; 8192];
            for n in 0..=2 {
                assert!(t.differs_in_write(off, &data, &sums[..n]).is_some(), "{off} {n}");
                assert!(t.differs_in_read(off, &data, u64::MAX, &sums[..n]).is_some(), "{off} {n}");
            }
            t.of_write(off, &data);
            t.of_read(off, &data, 0);
            let list = [WriteRange { offset: off, len: u32::MAX }, WriteRange { offset: off, len: 1 }];
            assert_eq!(sums_of_ranges(&sums, &list).flatten().count(), 2);
        }
    }

    #[test]
    fn sums_of_a_list_are_those_of_its_ranges() {
        let ranges = [(0, 4096), (5000, 100), (8000, 9000), (40_960, 1)];
        let ranges = ranges.map(|(offset, len)| WriteRange { offset, len });
        let sums: Vec<u32> = (0..8).collect();
        let of = |n: usize| sums_of_ranges(&sums[..n], &ranges).map(<[u32]>::to_vec).collect::<Vec<_>>();
        assert_eq!(of(7), [vec![0], vec![1], vec![2, 3, 4, 5], vec![6]]);
        // Whose number is wrong: seen when they are compared.
        assert_eq!(of(8)[3], [6, 7]);
        assert_eq!(of(4), [vec![0], vec![1], vec![2, 3], vec![]]);
        let mut at = ranges.iter().zip(of(7));
        assert!(
            at.all(
                |(r, s)| ChecksumType::Crc32c.of_write(r.offset, &vec![0; r.len as usize]).len() == s.len()
            )
        );
    }

    #[test]
    fn any_flipped_bit_is_named() {
        for t in ChecksumType::ALL {
            assert_eq!(ChecksumType::parse(t.name()), Some(t));
            let data: Vec<u8> = (0..9000u32).map(|i| (i * i) as u8).collect();
            for off in [0, 4096, 100, 5000] {
                let size = off + 9000;
                let (w, r) = (t.of_write(off, &data), t.of_read(off, &data, size));
                assert_eq!(t.differs_in_write(off, &data, &w), None);
                assert_eq!(t.differs_in_read(off, &data, size, &r), None);
                for at in [0, 1, 4095, 8999] {
                    let mut bad = data.clone();
                    bad[at] ^= 4;
                    let piece = off.max((off + at as u64) / BLOCK * BLOCK);
                    assert_eq!(t.differs_in_write(off, &bad, &w), Some(piece));
                    assert_eq!(t.differs_in_read(off, &bad, size, &r), Some(piece));
                }
                assert_eq!(t.differs_in_write(off, &data, &w[1..]), Some(size));
                // The last block, read to the object's end, is the block as it is stored.
                let tail = &data[(size / BLOCK * BLOCK - off) as usize..];
                assert_eq!(*r.last().unwrap(), t.padded(tail));
            }
        }
        assert!(ChecksumType::None.of_write(0, &[1]).is_empty());
        assert_eq!(ChecksumType::None.differs_in_read(0, &[1], 1, &[]), None);
    }
}
