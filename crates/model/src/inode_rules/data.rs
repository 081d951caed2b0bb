//! Data that lies with its inode: in blocks of 4 KiB, of which those that hold nothing but zeros may be
//! missing.

use super::{RuledInode, touch_mtime};
use crate::Timestamp;
use std::ops::Range;

pub const DATA_BLOCK_BYTES: u64 = 4096;

/// Numbers of blocks.
pub type BlockRange = Range<u64>;

/// The blocks that bytes `off..end` lie in.
pub fn blocks_of(off: u64, end: u64) -> BlockRange {
    assert!(off <= end, "a range ends behind its beginning");
    off / DATA_BLOCK_BYTES..end.div_ceil(DATA_BLOCK_BYTES)
}

/// How many blocks a file of this size can have that end at or before its end.
pub fn blocks_within(size: u64) -> u64 {
    size.div_ceil(DATA_BLOCK_BYTES)
}

/// The data changed: as on an object server, every change is later than the one before.
pub fn data_changed(i: &mut impl RuledInode, now: Timestamp) {
    let before = *i.fields().ctime;
    touch_mtime(i, now.max(before.plus_nanos(1)));
}

/// The file reaches to `end` at least.
pub fn grow_to(i: &mut impl RuledInode, end: u64) {
    let size = i.data_size().max(end);
    i.set_data_size(size);
}

/// Bytes were written from `off` up to `end`. Set-id bits go by a `setattr` of their own, which the client
/// sends first.
pub fn wrote(i: &mut impl RuledInode, off: u64, end: u64, now: Timestamp) {
    assert!(off < end, "a write has bytes");
    grow_to(i, end);
    assert!(i.data_size() >= end, "a file reaches to what was written last");
    data_changed(i, now);
}

/// The file has this size now. What was behind it goes: blocks from the returned number on, what was reserved
/// behind the end included. `None`: it grew by a hole.
pub fn cut(i: &mut impl RuledInode, size: u64) -> Option<u64> {
    let shrinks = size <= i.data_size();
    i.set_data_size(size);
    shrinks.then(|| blocks_within(size))
}
