//! The frame: header, body, bulk.

use super::Target;
use bytes::Bytes;
use wire::frame::{FLAG_BULK_CRC, Frame, FrameKind, HEADER_BYTES, Header, MAGIC, crc32c};

pub const TARGET: Target = Target {
    name: "wire_frame",
    what: "frame header, lengths, checksums",
    run,
    samples,
    fix: Some(fix),
    words: &[&MAGIC.to_le_bytes(), &[1, 0], &[0, 0, 0x40, 0], &[1, 0, 0x40, 0], &[1, 0, 0, 1]],
    max_bytes: 8192,
};

fn run(bytes: &[u8]) {
    if let Ok((frame, len)) = Frame::decode(bytes) {
        assert!(len <= bytes.len());
        let again = frame.encode();
        assert_eq!(Frame::decode(&again), Ok((frame, again.len())));
    }
}

fn samples() -> Vec<Vec<u8>> {
    use FrameKind::*;
    let mut out = Vec::new();
    for (n, kind) in [Request, Reply, Notify, Connect, ConnectReply].into_iter().enumerate() {
        let mut h = Header::new(kind);
        (h.target, h.opcode, h.session, h.xid, h.slot, h.epoch) = (0x3_0000, 80 + n as u16, 9, 11, 3, 5);
        out.push(Frame::new(h, b"body".to_vec(), Bytes::from_static(b"bulk bytes")).encode());
        h.flags &= !FLAG_BULK_CRC;
        out.push(Frame::new(h, Vec::new(), Bytes::from_static(b"x")).encode());
        out.push(Frame::new(h, vec![n as u8; 100], Bytes::new()).encode());
    }
    out
}

/// Puts lengths that fit at times, and right checksums.
fn fix(v: &mut Vec<u8>) {
    if v.len() < HEADER_BYTES {
        return;
    }
    let word = |v: &[u8], at: usize| u32::from_le_bytes(v[at..at + 4].try_into().expect("four")) as usize;
    let rest = v.len() - HEADER_BYTES;
    let (mut body, bulk) = (word(v, 48), word(v, 52));
    if body > rest && v[63] & 1 == 0 {
        body = rest;
        v[48..52].copy_from_slice(&(rest as u32).to_le_bytes());
    }
    if let Some(b) = v.get(HEADER_BYTES..HEADER_BYTES.saturating_add(body)) {
        let crc = crc32c(b);
        v[56..60].copy_from_slice(&crc.to_le_bytes());
    }
    let at = HEADER_BYTES.saturating_add(body);
    if v[7] & FLAG_BULK_CRC != 0
        && bulk > 0
        && let Some(b) = v.get(at..at.saturating_add(bulk))
    {
        let crc = crc32c(b);
        v.truncate(at + bulk);
        v.extend_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c(&v[..HEADER_BYTES - 4]);
    v[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}
