//! The journal: one record, one transaction, and the replay of a whole segment file.

use super::{Target, put_file, world_with};
use store::journal::Replay;
use wire::frame::crc32c;
use world::mem::MemDisk;

pub const RECORD: Target = Target {
    name: "journal_record",
    what: "headers of journal records and segments",
    run: store::fuzz::journal,
    samples: store::fuzz::journal_samples,
    fix: Some(fix_record),
    words: &[],
    max_bytes: 4096,
};

pub const TRANSACTION: Target = Target {
    name: "transaction",
    what: "payloads of journal records",
    run: store::fuzz::transaction,
    samples: store::fuzz::transaction_samples,
    fix: None,
    words: &[&[0xff, 0xff, 0xff, 0xff]],
    max_bytes: 4096,
};

pub const REPLAY: Target = Target {
    name: "journal_replay",
    what: "replay of a segment file of any bytes",
    run: replay,
    samples: segments,
    fix: Some(fix_segment),
    words: &[b"JCR1", b"JCR2"],
    max_bytes: 16384,
};

const SEGMENT_HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 48;

fn replay(bytes: &[u8]) {
    for cut in [false, true] {
        let disk = MemDisk::new();
        put_file(&disk, "/j/0000000000000001.log", bytes);
        if let Ok(r) = Replay::read(&world_with(&disk), "/j", 0, cut) {
            // What counts is in order.
            assert!(r.redo.is_sorted_by_key(|(lsn, _)| *lsn));
            assert!(r.redo.iter().all(|(lsn, _)| (1..=r.last_lsn).contains(lsn)));
            assert!(r.newest().values().all(|e| (1..=r.last_lsn).contains(&e.lsn)));
        }
    }
}

/// A segment with two records; the samples of `store::fuzz` are record and header.
fn segments() -> Vec<Vec<u8>> {
    let parts = store::fuzz::journal_samples();
    let payload = &store::fuzz::transaction_samples()[0];
    let mut header = parts[1].clone();
    header[24..32].copy_from_slice(&1u64.to_le_bytes());
    header[32..40].copy_from_slice(&0u64.to_le_bytes());
    let record = |lsn: u64| {
        let mut r = parts[0][..RECORD_HEADER_BYTES].to_vec();
        r[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        r[16..24].copy_from_slice(&lsn.to_le_bytes());
        r[24..32].copy_from_slice(&(lsn - 1).to_le_bytes());
        r.extend_from_slice(payload);
        r.resize(r.len().next_multiple_of(8), 0);
        r
    };
    let mut whole = [header, record(1), record(2), vec![0; 256]].concat();
    fix_segment(&mut whole);
    vec![whole]
}

fn fix_record(v: &mut Vec<u8>) {
    fix_records(v, 0);
}

fn fix_segment(v: &mut Vec<u8>) {
    if v.len() >= SEGMENT_HEADER_BYTES {
        let crc = crc32c(&v[..SEGMENT_HEADER_BYTES - 4]);
        v[SEGMENT_HEADER_BYTES - 4..SEGMENT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        fix_records(v, SEGMENT_HEADER_BYTES);
    }
}

/// Right checksums for as many records as follow each other.
fn fix_records(v: &mut [u8], mut pos: usize) {
    while let Some(head) = v.get(pos..pos + RECORD_HEADER_BYTES) {
        let len = u32::from_le_bytes(head[8..12].try_into().expect("four")) as usize;
        let Some(record) = v.get_mut(pos..pos.saturating_add(RECORD_HEADER_BYTES).saturating_add(len)) else {
            return;
        };
        let crc = crc32c(&record[8..]);
        record[4..8].copy_from_slice(&crc.to_le_bytes());
        pos += (RECORD_HEADER_BYTES + len).next_multiple_of(8);
    }
}
