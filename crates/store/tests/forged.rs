//! What users store never counts as the journal's, and a damaged journal can be cut by who says so.

mod common;

use common::{Bed, after_power_cut, bytes_of, killed_with_value, seq_of, tear, tiny};
use store::fuzz::forged_journal;
use store::{Db, DbOptions, ReplyRecord, Txn};
use world::OpenMode;
use world::mem::CrashMode;
use world::rng::Rng;

const HEADER: usize = 64;
/// Of a record with `seq` only: header, one key of 3 bytes with a value of 8, padded.
const RECORD: u64 = 48 + 32;

/// The torn record of the user's bytes is cut off, and nothing else.
fn opens_without_the_torn_record(bed: &Bed, what: &str) {
    let db = Db::open(&bed.world, "/t", 2, tiny()).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(seq_of(&db), 3, "{what}");
}

/// A user writes a file of forged records; the record that holds it is torn by a power cut. The target
/// refused to start.
#[test]
fn forged_records_behind_a_torn_one_mean_nothing() {
    for from in [0, 1, 50] {
        for shift in 0..8 {
            let bed = Bed::new();
            let forged = |_: &Bed, _: &str| [vec![7; shift], forged_journal(60_000, from, 0)].concat();
            let log = killed_with_value(&bed, forged);
            tear(&bed, &log, 1024);
            opens_without_the_torn_record(&bed, &format!("segments from {from}, shift {shift}"));
        }
    }
}

/// Somebody stores a copy of the journal itself, say in a backup of the server: of this segment, with the
/// numbers of others, and with positions that it never had.
#[test]
fn copies_of_the_journal_behind_a_torn_record_mean_nothing() {
    for shift in 0..8usize {
        for renumber in [0u64, 1, 2] {
            let bed = Bed::new();
            let copy = |bed: &Bed, log: &str| {
                let mut bytes = bytes_of(bed, log);
                bytes.truncate(20_000);
                // With the checksums that go with the new numbers: all that a copy is wrong in is its salt.
                for at in (0..3).map(|i| HEADER + i * RECORD as usize) {
                    let n = u64::from_le_bytes(bytes[at + 32..at + 40].try_into().unwrap()) + renumber;
                    bytes[at + 32..at + 40].copy_from_slice(&n.to_le_bytes());
                    let len = 48 + u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
                    let crc = wire::frame::crc32c(&bytes[at + 8..at + len]);
                    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
                }
                [vec![7; shift], bytes, forged_journal(40_000, n_of(log), 1)].concat()
            };
            let log = killed_with_value(&bed, copy);
            tear(&bed, &log, 1024);
            opens_without_the_torn_record(&bed, &format!("shift {shift}, numbers + {renumber}"));
        }
    }
}

fn n_of(log: &str) -> u64 {
    u64::from_str_radix(&log["/t/journal/".len()..][..16], 16).unwrap()
}

/// Power fails at every point of a life in which users store forged records and what they found in the
/// journal.
#[test]
fn crash_images_with_forged_payloads_recover() {
    for seed in 0..3 {
        let bed = Bed::new();
        bed.world.disk.mkdir("/t").unwrap();
        bed.world.disk.sync_dir("/").unwrap();
        Db::create(&bed.world, "/t").unwrap();
        let db = Db::open(&bed.world, "/t", 1, tiny()).unwrap();
        let mut rng = Rng::new(seed);
        bed.disk.record();
        for i in 1..60u64 {
            let mut t = Txn::new();
            t.put("seq", i.to_le_bytes());
            let len = rng.below(6000) as usize;
            let logs = bed.world.disk.list("/t/journal").unwrap();
            let log = logs.iter().rfind(|l| l.ends_with(".log"));
            let mut value = vec![7; rng.index(8)];
            match log.filter(|_| rng.coin()) {
                Some(log) => {
                    let bytes = bytes_of(&bed, &format!("/t/journal/{log}"));
                    value.extend_from_slice(&bytes[..len.min(bytes.len())]);
                }
                None => value.extend(forged_journal(len, rng.below(20), 0)),
            }
            t.put(format!("value{}", i % 5), value);
            let lsn = db.submit(t).unwrap();
            if rng.below(3) == 0 {
                bed.rt.block_on(db.durable(lsn)).unwrap();
                bed.world.disk.mkdir(&format!("/acked.{i}")).unwrap();
            }
        }
        drop(db);
        let images = bed.disk.images();
        let stride = (images.len() as u64 / 150).max(1);
        let mut acked = 0;
        for (at, image) in images.iter().enumerate() {
            acked = image.what.strip_prefix("mkdir /acked.").map_or(acked, |i| i.parse::<u64>().unwrap());
            if rng.below(stride) != 0 {
                continue;
            }
            let disk = image.disk();
            let mode = [CrashMode::Random, CrashMode::LoseAll, CrashMode::KeepAll][rng.below(3) as usize];
            disk.crash_with(mode, &mut rng);
            let db = Db::open(&bed.world_on(&disk), "/t", 2, tiny())
                .unwrap_or_else(|e| panic!("seed {seed} image {at} ({}) {mode:?}: {e}", image.what));
            let got = db.get(b"seq").unwrap().map_or(0, |_| seq_of(&db));
            assert!(got >= acked, "seed {seed} image {at}: {got} of {acked}");
            let disk = after_power_cut(&disk, &mut rng);
            drop(db);
            Db::open(&bed.world_on(&disk), "/t", 3, tiny()).unwrap();
        }
    }
}

#[test]
fn a_lost_header_is_found_at_the_end() {
    let bed = Bed::new();
    let log = killed_with_value(&bed, |_, _| vec![5; 100]);
    bed.disk.corrupt(&log, 3, 1).unwrap();
    let disk = bed.disk.fork();
    assert_eq!(seq_of(&Db::open(&bed.world_on(&disk), "/t", 2, tiny()).unwrap()), 4);
    // Without either what the records say still counts: they were durable.
    let len = bytes_of(&bed, &log).len() as u64;
    bed.disk.corrupt(&log, len - 61, 1).unwrap();
    let e = Db::open(&bed.world, "/t", 2, tiny()).err().expect("a lost header is damage").to_string();
    assert!(e.contains(&log) && e.contains("is missing or unreadable"), "{e}");
}

#[test]
fn a_segment_of_a_later_version_is_refused_by_name() {
    let bed = Bed::new();
    let log = killed_with_value(&bed, |_, _| vec![5; 100]);
    let mut header = bytes_of(&bed, &log)[..HEADER].to_vec();
    header[8] = 3;
    let crc = wire::frame::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    bed.world.disk.open(&log, OpenMode::WRITE).unwrap().write_at(&header, 0).unwrap();
    let e = Db::open(&bed.world, "/t", 2, tiny()).err().expect("refused").to_string();
    assert!(e.contains("format version 3") && e.contains("upgrade"), "{e}");
}

#[test]
fn a_damaged_journal_is_cut_by_who_says_so() {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    bed.world.disk.sync_dir("/").unwrap();
    Db::create(&bed.world, "/t").unwrap();
    let opt = DbOptions { checkpoint_txns: 1 << 20, segment_bytes: 1 << 20, ..tiny() };
    let db = Db::open(&bed.world, "/t", 1, opt).unwrap();
    for i in 1..=10u64 {
        let mut t = Txn::new();
        t.put("seq", i.to_le_bytes());
        if i > 4 {
            let reply = ReplyRecord { xid: i, status: 0, body: Vec::new() };
            t.put_reply(&[if i % 2 == 0 { 8 } else { 9 }; 16], 1, &reply);
        }
        let lsn = db.submit(t).unwrap();
        bed.rt.block_on(db.durable(lsn)).unwrap();
    }
    bed.disk.kill();
    drop(db);
    assert_eq!(Db::journal_damage(&bed.world, "/t").unwrap(), None);
    let logs = bed.world.disk.list("/t/journal").unwrap();
    let log = format!("/t/journal/{}", logs.iter().find(|l| l.ends_with(".log")).unwrap());
    // The third of them.
    bed.disk.corrupt(&log, HEADER as u64 + 2 * RECORD + 60, 1).unwrap();
    let refused = Db::open(&bed.world, "/t", 2, tiny()).err().expect("damage must not pass").to_string();
    let d = Db::journal_damage(&bed.world, "/t").unwrap().expect("it is damaged");
    assert!(refused.contains(&d.why), "{refused}");
    assert_eq!((d.path, d.from, d.readable, d.clients), (log, 3, 7, vec![[8; 16], [9; 16]]));
    assert_eq!(d.to, 10);
    let cut = DbOptions { cut_damaged_journal: true, ..tiny() };
    let db = Db::open(&bed.world, "/t", 2, cut).unwrap();
    assert_eq!(seq_of(&db), 2);
    bed.rt.block_on(db.close()).unwrap();
    drop(db);
    assert_eq!(Db::journal_damage(&bed.world, "/t").unwrap(), None);
    assert_eq!(seq_of(&Db::open(&bed.world, "/t", 3, tiny()).unwrap()), 2);
}
