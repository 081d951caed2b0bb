//! Layouts as Lustre's user tools read and write them in `lustre.lov`: `struct lov_user_md_v1`, `_v3` (with a
//! pool, or with the OSTs that are asked for), `lov_comp_md_v1` of composite ones, little-endian.
//!
//! What is read of a file and set on another one asks for the same shape: objects, ids and generations say
//! where that file lies, so they are passed over (`decode`), and what stands in the place of the first OST is
//! none that somebody asked for.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::{encode, encode_spec};

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
/// As the third version, with an entry for each OST that is asked for.
const MAGIC_SPECIFIC: u32 = 0x0bd5_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;
const PATTERN_RAID0: u32 = 1;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED: u32 = 0x200;
/// The data is in an archive. Nobody sets that by hand.
const PATTERN_RELEASED: u32 = 0x8000_0000;
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
const OBJECT_BYTES: usize = 24;
/// A pool's name with its zero byte.
const POOL_BYTES: usize = 16;
/// In which the size of a step of growth is told.
const EXTENSION_UNIT: u64 = 1024;
/// No first OST is asked for.
const ANY_OST: u16 = u16::MAX;

/// Whether this is the name of a layout.
pub fn is_name(name: &[u8]) -> bool {
    name == NAME || name == b"trusted.lov"
}

/// Under which a layout is listed.
pub const NAME: &[u8] = b"lustre.lov";
