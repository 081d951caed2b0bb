//! Requests of the kernel: the header, and the arguments of each opcode.

use super::Target;
use fuse::parse_request;

pub const TARGET: Target = Target {
    name: "fuse_request",
    what: "requests from /dev/fuse, mount options",
    run,
    samples,
    fix: Some(fix),
    words: &[b"name\0", b"\0\0\0\0\0\0\0\0", b"allow_other", b"soft,timeo="],
    max_bytes: 8192,
};

const HEADER_BYTES: usize = 40;

fn run(bytes: &[u8]) {
    let _ = parse_request(bytes);
    if let Ok(s) = std::str::from_utf8(bytes) {
        let _ = fuse::parse_options(s);
    }
}

fn samples() -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = (1..=60u32)
        .map(|opcode| {
            let mut v = vec![0; HEADER_BYTES];
            v[4..8].copy_from_slice(&opcode.to_le_bytes());
            v[8..16].copy_from_slice(&7u64.to_le_bytes());
            v[16..24].copy_from_slice(&1u64.to_le_bytes());
            v.extend_from_slice(&[0; 64]);
            v.extend_from_slice(b"name\0other\0value");
            fix(&mut v);
            v
        })
        .collect();
    out.push(b"rw,allow_other,default_permissions,soft,timeo=20,fd=3".to_vec());
    out
}

/// The length in the header is what read(2) gave.
fn fix(v: &mut Vec<u8>) {
    if v.len() >= HEADER_BYTES {
        let len = (v.len() as u32).to_le_bytes();
        v[..4].copy_from_slice(&len);
    }
}
