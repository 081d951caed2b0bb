//! The superblock: what is in a target's folder.

use super::Target;
use wire::frame::crc32c;

pub const TARGET: Target = Target {
    name: "superblock",
    what: "superblock files",
    run: store::fuzz::superblock,
    samples: store::fuzz::superblock_samples,
    fix: Some(fix),
    words: &[b"NACRESB1", b"10.0.0.1@tcp", &[3, 0, 0, 0], &[5, 0, 0, 0]],
    max_bytes: 4096,
};

/// A length that fits, and the right checksum.
fn fix(v: &mut Vec<u8>) {
    if v.len() >= 20 {
        let len = (v.len() as u32).to_le_bytes();
        v[16..20].copy_from_slice(&len);
        let crc = crc32c(&v[16..]);
        v[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}
