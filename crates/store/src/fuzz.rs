//! Entries for the fuzzers: the decoders of what lies on disk, on any bytes. None may panic or allocate
//! more than its input warrants; what decodes must encode to the same again.

use crate::Txn;
use crate::journal::record::{self, RecordHeader};
use crate::journal::segment::SegmentHeader;
use crate::object::Redo;
use crate::object::location::{self, Location, ObjectRecord, Place};
use crate::object::sums::{Group, id_of_sums_key};
use crate::object::unfinished::{decode_open, encode_open};
use crate::txn::{ReplyRecord, decode_reply, encode_reply};
use bytes::Bytes;
use model::{Fid, ObjectId, Timestamp};

fn object() -> ObjectId {
    ObjectId { origin: Fid::new(1, 2, 3), component: 4, stripe: 5 }
}

/// The salt that the fuzzer of records looks for.
const SAMPLE_SALT: u64 = 0x1122_3344_5566_7788;

/// A superblock file.
pub fn superblock(bytes: &[u8]) {
    crate::format::fuzz(bytes);
}

pub fn superblock_samples() -> Vec<Vec<u8>> {
    vec![crate::format::fuzz_sample()]
}

/// The payload of a journal record.
pub fn transaction(bytes: &[u8]) {
    let decode = |bytes: &[u8]| {
        let mut writes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let redo = record::decode_txn(bytes, |span| {
            let value = span.value_at().map(|place| bytes[place].to_vec());
            writes.push((span.key_of(bytes).to_vec(), value));
        })?;
        Some((writes, redo))
    };
    if let Some((writes, redo)) = decode(bytes) {
        let mut w = record::begin();
        record::encode_txn(&mut w, &writes, &redo);
        let again = decode(&w.0[record::RECORD_HEADER_BYTES..]).expect("what was encoded decodes");
        assert!(again == (writes, redo));
    }
}

pub fn transaction_samples() -> Vec<Vec<u8>> {
    let mut t = Txn::new();
    t.put("key", "value");
    t.delete("gone");
    let (object, data) = (object(), Bytes::from_static(b"data"));
    t.redo = vec![
        Redo::WritePacked {
            object,
            place: Place { class: 1, container: 2, slot: 3 },
            offset: 4,
            data: data.clone(),
        },
        Redo::WriteOwn { object, offset: 5, data },
        Redo::Truncate { object, size: 6 },
        Redo::Allocate { object, mode: 3, offset: 7, len: 8 },
        Redo::Flushed { object },
        Redo::Unlink { object },
        Redo::Ordered { object, offset: 4000, len: 200, crcs: vec![9, 10] },
    ];
    let mut w = record::begin();
    record::encode_txn(&mut w, &t.writes, &t.redo);
    vec![w.0[record::RECORD_HEADER_BYTES..].to_vec()]
}

/// A journal record, and a segment's header.
pub fn journal(bytes: &[u8]) {
    for salt in [None, Some(SAMPLE_SALT)] {
        if let Some((h, payload)) = record::parse(bytes, 1, salt) {
            assert!(h.segment == 1 && h.committed < h.lsn && payload.len() <= bytes.len());
        }
    }
    if let Ok(Some(h)) = SegmentHeader::find(bytes, 1, "segment") {
        assert!(h.encode().len() <= bytes.len() && h.committed < h.first_lsn);
    }
}

pub fn journal_samples() -> Vec<Vec<u8>> {
    let mut w = record::begin();
    record::encode_txn(&mut w, &[(b"key".to_vec(), None)], &[]);
    let mut samples = Vec::new();
    for salt in [None, Some(SAMPLE_SALT)] {
        let mut rec = w.0.clone();
        record::seal(&mut rec, RecordHeader { lsn: 7, epoch: 2, committed: 6, segment: 1, salt });
        samples.push(rec);
        let header = SegmentHeader { epoch: 2, number: 1, first_lsn: 7, committed: 6, salt };
        samples.push(header.encode().to_vec());
    }
    samples
}

/// As many bytes as a user may store who wants a target not to start: whole records of segments `from..from +
/// 63`, without a salt and with a guess at it, that say that everything up to a far position was durable,
/// with the checksums that go with that. In 50 KiB each of these numbers is at every alignment, wherever the
/// journal puts them.
pub fn forged_journal(len: usize, from: u64, guess: u64) -> Vec<u8> {
    // Odd: the next round has them at another alignment.
    const NUMBERS: u64 = 63;
    let mut out = Vec::with_capacity(len + 2 * record::RECORD_HEADER_BYTES);
    for n in 0.. {
        if out.len() >= len {
            break;
        }
        out.push(0);
        for salt in [None, Some(guess)] {
            let mut rec = record::begin().0;
            let (lsn, segment) = (1 << 41, from + n % NUMBERS);
            record::seal(&mut rec, RecordHeader { lsn, epoch: 1, committed: lsn - 1, segment, salt });
            out.extend_from_slice(&rec);
        }
    }
    out.truncate(len);
    out
}

/// Values of the table that belong to the store: objects, tombstones, reply slots.
pub fn values(bytes: &[u8]) {
    if let Ok(r) = ObjectRecord::decode(object(), bytes) {
        assert!(ObjectRecord::decode(object(), &r.encode()).is_ok_and(|a| a == r));
    }
    if let Some(t) = location::decode_tombstone(bytes) {
        assert_eq!(location::decode_tombstone(&location::encode_tombstone(t)), Some(t));
    }
    if let Some(g) = Group::decode(bytes) {
        assert_eq!(Group::decode(&g.encode()), Some(g));
    }
    if let Some(c) = decode_open(bytes) {
        assert_eq!(decode_open(&encode_open(&c)), Some(c));
    }
    let _ = id_of_sums_key(bytes);
    let _ = decode_reply(bytes);
    let _ = location::id_of_key(bytes);
    let _ = std::str::from_utf8(bytes).map(location::id_of_name);
}

pub fn values_samples() -> Vec<Vec<u8>> {
    let inline = ObjectRecord {
        location: Location::Inline(Bytes::from_static(b"hello")),
        extra: vec![(9, vec![1, 2, 3])],
        ..ObjectRecord::empty()
    };
    let packed = Location::Packed(Place { class: 3, container: 1, slot: 9 });
    let packed = ObjectRecord { location: packed, ..ObjectRecord::empty() };
    let own = ObjectRecord { location: Location::Own, ..ObjectRecord::empty() };
    let reply = encode_reply(&ReplyRecord { xid: 1, status: 2, body: vec![3] }, 4);
    let mut sums = Group::default();
    [0, 1, 63].into_iter().for_each(|i| sums.set(i, Some(i as u32)));
    let summed = ObjectRecord { sums: sums.clone(), stale: Some((1, 9)), ..inline.clone() };
    vec![
        inline.encode(),
        packed.encode(),
        own.encode(),
        summed.encode(),
        sums.encode(),
        encode_open(&[1, 2, 3]),
        location::encode_tombstone(Timestamp::ZERO),
        reply,
    ]
}
