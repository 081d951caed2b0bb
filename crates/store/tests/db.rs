//! The database from outside: what is durable, what is visible, what survives.

mod common;

use common::{Bed, after_power_cut, tiny, tiny_or_held};
use model::Errno;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::fuzz::forged_journal;
use store::{Db, DbOptions, FrozenView, Read, ReplyRecord, StoreError, Txn};
use world::World;
use world::mem::{CrashMode, FaultPlan};
use world::rng::Rng;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn put(k: &str, v: &str) -> Txn {
    let mut t = Txn::new();
    t.put(k, v);
    t
}

fn format(world: &World) {
    world.disk.mkdir("/t").unwrap();
    world.disk.sync_dir("/").unwrap();
    Db::create(world, "/t").unwrap();
}

fn open(world: &World, epoch: u32) -> Arc<Db> {
    Db::open(world, "/t", epoch, tiny()).unwrap()
}

fn all(db: &Db) -> Model {
    db.scan(b"", b"\xff", usize::MAX).unwrap().into_iter().collect()
}

#[test]
fn what_is_durable_is_there_after_a_power_cut() {
    let bed = Bed::new();
    format(&bed.world);
    let mut rng = Rng::new(7);
    let mut model = Model::new();
    let mut disk = bed.disk.clone();
    for epoch in 1..6 {
        let db = open(&bed.world_on(&disk), epoch);
        assert_eq!(all(&db), model);
        for i in 0..100 {
            let (k, v) = (format!("k{}", i % 30), format!("{epoch}.{i}"));
            let lsn = db.submit(put(&k, &v)).unwrap();
            model.insert(k.into_bytes(), v.into_bytes());
            bed.rt.block_on(db.durable(lsn)).unwrap();
        }
        disk = after_power_cut(&disk, &mut rng);
        drop(db);
    }
}

#[test]
fn what_is_looked_at_stands_still() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let (mut model, mut rng) = (Model::new(), Rng::new(3));
    let mut kept: Vec<(FrozenView, Model)> = Vec::new();
    let mut newest = 0;
    // Checkpoints happen all the time, before, between and after.
    for i in 0..400 {
        let k = format!("k{:03}", rng.below(150));
        let mut t = Txn::new();
        if rng.below(4) == 0 {
            t.delete(k.as_bytes());
            model.remove(k.as_bytes());
        } else {
            t.put(k.as_bytes(), i.to_string().as_bytes());
            model.insert(k.into_bytes(), i.to_string().into_bytes());
        }
        newest = db.submit(t).unwrap();
        if i % 40 == 7 {
            kept.push((db.still().unwrap(), model.clone()));
        }
    }
    bed.rt.block_on(db.durable(newest)).unwrap();
    for (still, was) in &kept {
        let got: Model = still.scan(b"", b"\xff", usize::MAX).unwrap().into_iter().collect();
        assert_eq!(got, *was);
        for k in (0..150).map(|n| format!("k{n:03}").into_bytes()) {
            assert_eq!(still.get(&k).unwrap(), was.get(&k).cloned());
        }
        let some: Vec<_> = was.iter().skip(5).take(7).map(|(k, v)| (k.clone(), v.clone())).collect();
        if let Some((first, _)) = some.first() {
            assert_eq!(still.scan(first, b"\xff", some.len()).unwrap(), some);
        }
    }
}

/// Transaction `i` of a run: several keys, some deleted; `seq` tells which one was the last.
fn txn(i: u64, rng: &mut Rng, model: &mut Model) -> Txn {
    let mut t = Txn::new();
    for _ in 0..rng.range(1, 4) {
        let k = format!("k{}", rng.below(40));
        if rng.below(4) == 0 {
            t.delete(k.clone());
            model.remove(k.as_bytes());
        } else {
            let max = if rng.below(10) == 0 { 20_000 } else { 300 };
            let len = rng.range(0, max) as usize;
            // Some users store what looks like a journal.
            let v =
                if rng.below(4) == 0 { forged_journal(len, rng.below(30), i) } else { vec![i as u8; len] };
            t.put(k.clone(), v.clone());
            model.insert(k.into_bytes(), v);
        }
    }
    t.put("seq", i.to_le_bytes());
    model.insert(b"seq".to_vec(), i.to_le_bytes().to_vec());
    t
}

fn seq(db: &Db) -> u64 {
    db.get(b"seq").unwrap().map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()))
}

#[test]
fn crash_images_recover_to_a_prefix_that_holds_everything_acknowledged() {
    for seed in 0..3 {
        let bed = Bed::new();
        format(&bed.world);
        let db = open(&bed.world, 1);
        let mut rng = Rng::new(seed);
        let mut models = vec![Model::new()];
        bed.disk.record();
        for i in 1..150u64 {
            let mut m = models.last().unwrap().clone();
            bed.world.disk.mkdir(&format!("/begin.{i}")).unwrap();
            let lsn = db.submit(txn(i, &mut rng, &mut m)).unwrap();
            assert_eq!(all(&db), m);
            models.push(m);
            if rng.below(3) == 0 {
                bed.rt.block_on(db.durable(lsn)).unwrap();
                bed.world.disk.mkdir(&format!("/acked.{i}")).unwrap();
            }
        }
        drop(db);
        let images = bed.disk.images();
        let (mut acked, mut begun) = (0, 0);
        let stride = (images.len() as u64 / 200).max(1);
        for (at, image) in images.iter().enumerate() {
            let number = |prefix: &str| image.what.strip_prefix(prefix).map(|i| i.parse::<u64>().unwrap());
            acked = number("mkdir /acked.").unwrap_or(acked);
            begun = number("mkdir /begin.").unwrap_or(begun);
            if rng.below(stride) != 0 {
                continue;
            }
            let disk = image.disk();
            let mode = [CrashMode::Random, CrashMode::LoseAll, CrashMode::KeepAll][rng.below(3) as usize];
            disk.crash_with(mode, &mut rng);
            let world = bed.world_on(&disk);
            let options = tiny_or_held(&mut rng);
            let held = !options.checkpoints;
            let db = Db::open(&world, "/t", 2, options).unwrap();
            let got = seq(&db);
            let why =
                format!("seed {seed} image {at} ({}) {mode:?} held {held}: recovered {got}", image.what);
            assert!(got >= acked && got <= begun, "{why}, acknowledged {acked}, begun {begun}");
            assert_eq!(all(&db), models[got as usize], "{why}");
            // What was cut off stays cut off, whatever is written now and lost again.
            let mut now = models[got as usize].clone();
            let mut last = now.clone();
            for i in 0..rng.below(4) {
                db.submit(txn(1000 + i, &mut rng, &mut now)).unwrap();
                last = now.clone();
            }
            let disk = after_power_cut(&disk, &mut rng);
            drop(db);
            let db = open(&bed.world_on(&disk), 3);
            let again = seq(&db);
            assert!(again == got || again >= 1000, "{why}, then {again}");
            if again == got {
                assert_eq!(all(&db), models[got as usize], "{why}");
            } else if again == 1000 + 3 {
                assert_eq!(all(&db), last, "{why}");
            }
        }
    }
}

#[test]
fn reply_slots_carry_their_transaction_number() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 3);
    let client = [9; 16];
    let mut t = put("a", "b");
    t.put_reply(&client, 5, &ReplyRecord { xid: 77, status: 2, body: b"body".to_vec() });
    let lsn = db.submit(t).unwrap();
    let r = db.reply(&client, 5).unwrap().unwrap();
    assert_eq!((r.xid, r.status, r.body.as_slice(), r.transno), (77, 2, b"body".as_slice(), db.transno(lsn)));
    bed.rt.block_on(db.close()).unwrap();
    drop(db);
    let db = open(&bed.world, 4);
    assert_eq!(db.reply(&client, 5).unwrap().unwrap().transno, 3 << 40 | lsn);
    let mut t = Txn::new();
    db.delete_replies(&client, &mut t).unwrap();
    db.submit(t).unwrap();
    assert_eq!(db.reply(&client, 5).unwrap(), None);
}

#[test]
fn a_view_knows_what_it_depends_on() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let first = db.submit(put("b", "1")).unwrap();
    bed.rt.block_on(db.close()).unwrap();
    drop(db);
    let db = open(&bed.world, 2);
    let mut v = db.view();
    assert_eq!(v.get(b"b").unwrap(), Some(b"1".to_vec()));
    assert_eq!(v.get(b"nothing").unwrap(), None);
    assert_eq!(v.seen(), 0, "the table is durable");
    let mut t = Txn::new();
    t.delete("b");
    let gone = db.submit(t).unwrap();
    assert!(gone > first);
    let other = db.submit(put("x", "2")).unwrap();
    let mut v = db.view();
    assert_eq!(v.get(b"b").unwrap(), None);
    assert_eq!(v.seen(), gone, "a miss that a deletion caused depends on it");
    let mut v = db.view();
    assert_eq!(v.scan(b"a", b"c", 10).unwrap(), vec![]);
    assert_eq!(v.seen(), gone);
    assert_eq!(v.scan(b"a", b"z", 10).unwrap(), vec![(b"x".to_vec(), b"2".to_vec())]);
    assert_eq!(v.seen(), other);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn scans_merge_what_is_recent_with_the_table(
        ops in proptest::collection::vec((0u8..30, any::<bool>(), any::<u8>(), 0u8..8), 1..200),
        ranges in proptest::collection::vec((0u8..32, 0u8..32, 0usize..12), 8),
    ) {
        let bed = Bed::new();
        format(&bed.world);
        let db = open(&bed.world, 1);
        let mut model = Model::new();
        for (k, is_put, v, wait) in ops {
            let mut t = Txn::new();
            if is_put {
                t.put(vec![k], vec![v]);
                model.insert(vec![k], vec![v]);
            } else {
                t.delete(vec![k]);
                model.remove(&vec![k]);
            }
            let lsn = db.submit(t).unwrap();
            if wait == 0 {
                bed.rt.block_on(db.durable(lsn)).unwrap();
            }
            for (a, b, limit) in &ranges {
                let (a, b) = (vec![*a], vec![*b]);
                let want: Vec<_> = model.iter().filter(|(k, _)| **k >= a && **k < b).take(*limit)
                    .map(|(k, v)| (k.clone(), v.clone())).collect();
                prop_assert_eq!(db.scan(&a, &b, *limit).unwrap(), want);
            }
            prop_assert_eq!(db.get(&[k]).unwrap(), model.get(&vec![k]).cloned());
        }
    }
}

#[test]
fn a_failed_flush_stops_the_target_and_wakes_every_waiter() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let good = db.submit(put("a", "1")).unwrap();
    bed.rt.block_on(db.durable(good)).unwrap();
    let plan = FaultPlan { sync_error_ppm: 1_000_000, ..FaultPlan::default() };
    bed.disk.set_faults(plan);
    let lost = db.submit(put("a", "2")).unwrap();
    let waiters: Vec<_> = (0..5).map(|_| db.durable(lost)).collect();
    for w in waiters {
        assert!(matches!(bed.rt.block_on(w), Err(StoreError::Stopped(_))));
    }
    bed.disk.set_faults(FaultPlan::default());
    assert!(
        db.stopped().unwrap().contains("cannot flush journal segment '/t/journal/"),
        "{:?}",
        db.stopped()
    );
    assert!(matches!(db.submit(put("a", "3")), Err(StoreError::Stopped(_))));
    assert!(bed.rt.block_on(db.durable(good)).is_ok(), "what was acknowledged stays so");
    assert!(bed.rt.block_on(db.close()).is_err());
    bed.disk.kill();
    drop(db);
    // The change was answered to nobody; whether it came to the disk is seen now, and stays so.
    let db = open(&bed.world, 2);
    let shown = seqless(&db);
    assert!(["1", "2"].contains(&shown.as_str()), "{shown}");
    let disk = bed.disk.fork();
    disk.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
    drop(db);
    assert_eq!(seqless(&open(&bed.world_on(&disk), 3)), shown);
}

fn seqless(db: &Db) -> String {
    String::from_utf8(db.get(b"a").unwrap().unwrap()).unwrap()
}

#[test]
fn a_failed_write_stops_the_target() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    db.submit(put("a", "1")).unwrap();
    bed.disk.set_faults(FaultPlan { write_error_ppm: 1_000_000, ..FaultPlan::default() });
    assert!(matches!(db.submit(put("a", "2")), Err(StoreError::Stopped(_))));
    bed.disk.set_faults(FaultPlan::default());
    assert!(db.stopped().is_some());
    assert_eq!(seqless(&db), "1", "what failed was never visible");
}

/// The only journal segment of a database with `n` committed transactions, the process killed.
fn killed_with(bed: &Bed, n: u64) -> String {
    format(&bed.world);
    let opt = DbOptions { checkpoint_txns: 1 << 20, segment_bytes: 1 << 20, ..tiny() };
    let db = Db::open(&bed.world, "/t", 1, opt).unwrap();
    for i in 1..=n {
        let mut t = Txn::new();
        t.put("seq", i.to_le_bytes());
        let lsn = db.submit(t).unwrap();
        bed.rt.block_on(db.durable(lsn)).unwrap();
    }
    bed.disk.kill();
    drop(db);
    let logs = bed.world.disk.list("/t/journal").unwrap();
    let log = logs.into_iter().find(|l| l.ends_with(".log")).expect("one segment");
    format!("/t/journal/{log}")
}

const RECORD: u64 = 48 + 32; // header, and one key of 3 bytes with a value of 8, padded

#[test]
fn damage_in_the_middle_is_reported_and_a_torn_tail_is_cut() {
    let bed = Bed::new();
    let log = killed_with(&bed, 10);
    for record in 0..10u64 {
        let disk = bed.disk.fork();
        disk.corrupt(&log, 64 + record * RECORD + 60, 1).unwrap();
        let opened = Db::open(&bed.world_on(&disk), "/t", 2, tiny());
        if record < 9 {
            let e = opened.err().expect("damage must not pass").to_string();
            assert!(e.contains(&log) && e.contains("is missing or unreadable"), "{e}");
        } else {
            // Nothing behind it says that the last one was durable.
            assert_eq!(seq(&opened.unwrap()), 9);
        }
    }
}

#[test]
fn an_older_epoch_is_refused() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 5);
    let lsn = db.submit(put("a", "1")).unwrap();
    bed.rt.block_on(db.durable(lsn)).unwrap();
    bed.disk.kill();
    drop(db);
    for epoch in [4, 5] {
        let e = Db::open(&bed.world, "/t", epoch, tiny()).err().expect("refused").to_string();
        assert!(e.contains("epoch 5"), "{e}");
    }
    assert_eq!(seqless(&open(&bed.world, 6)), "1");
}

#[test]
fn a_database_is_opened_once_and_made_once() {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    let e = Db::open(&bed.world, "/t", 1, tiny()).err().unwrap().to_string();
    assert!(e.contains("not formatted") && e.contains("mkfs.nacre"), "{e}");
    Db::create(&bed.world, "/t").unwrap();
    assert!(matches!(Db::create(&bed.world, "/t"), Err(StoreError::Refused(_))));
    let db = open(&bed.world, 1);
    let e = Db::open(&bed.world, "/t", 2, tiny()).err().unwrap().to_string();
    assert!(e.contains("in use"), "{e}");
    for n in 0..1000 {
        db.submit(put(&format!("k{n}"), "old")).unwrap();
    }
    bed.rt.block_on(db.durable(db.last_submitted())).unwrap();
    let still = db.still().unwrap();
    bed.rt.block_on(db.close()).unwrap();
    assert!(matches!(db.submit(put("a", "b")), Err(StoreError::Stopped(_))));
    assert_eq!(db.stopped(), None, "closing is no failure");
    assert_eq!(bed.world.disk.list("/t/journal").unwrap().iter().filter(|n| n.ends_with(".log")).count(), 0);
    // Whoever was still looking keeps nobody from it, and sees no other's bytes.
    let next = open(&bed.world, 2);
    for n in 0..1000 {
        next.submit(put(&format!("k{n}"), "new")).unwrap();
    }
    bed.rt.block_on(next.close()).unwrap();
    for n in 0..1000 {
        match still.get(format!("k{n}").as_bytes()) {
            Ok(seen) => assert_eq!(seen, Some(b"old".to_vec())),
            Err(e) => assert!(matches!(e, StoreError::Stopped(_)), "{e}"),
        }
    }
}

#[test]
fn a_transaction_without_bounds_is_refused() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let mut t = Txn::new();
    t.put("a", vec![0; 65 << 20]);
    assert_eq!(db.submit(t).unwrap_err().errno(), Errno::E2BIG);
    let mut t = Txn::new();
    t.put("a", vec![0; 3 << 20]);
    let lsn = db.submit(t).unwrap();
    bed.rt.block_on(db.durable(lsn)).unwrap();
    assert_eq!(db.submit(Txn::new()).unwrap(), lsn);
}

#[test]
fn the_journal_stays_small_and_waiters_are_held_back() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let mut last = 0;
    for i in 0..3000u32 {
        last = db.submit(put(&format!("k{i}"), "0123456789")).unwrap();
        if i % 40 == 0 {
            bed.rt.block_on(db.durable(last)).unwrap();
        }
    }
    bed.rt.block_on(db.durable(last)).unwrap();
    // 80 transactions may be waiting for a checkpoint, as many in one: some 10 segments of 8 KiB.
    let segments = bed.world.disk.list("/t/journal").unwrap().len();
    assert!(segments <= 20, "{segments} segments");
    assert_eq!(all(&db).len(), 3000);
}

#[test]
fn the_host_disk_takes_many_transactions() {
    let (world, rt) = world::real::start(2).unwrap();
    let name = world.random_uuid().iter().map(|b| format!("{b:02x}")).collect::<String>();
    let dir = format!("{}/store-test-{name}", env!("CARGO_TARGET_TMPDIR"));
    world.disk.mkdir(&dir).unwrap();
    Db::create(&world, &dir).unwrap();
    let db = Db::open(&world, &dir, 1, DbOptions { segment_bytes: 4 << 20, ..DbOptions::default() }).unwrap();
    let mut last = 0;
    for i in 0..100_000u32 {
        last = db.submit(put(&format!("key{i:08}"), "some value of ordinary length")).unwrap();
        if i % 1000 == 999 {
            rt.block_on(db.durable(last)).unwrap();
        }
    }
    rt.block_on(db.durable(last)).unwrap();
    assert_eq!(db.scan(b"key", b"kez", usize::MAX).unwrap().len(), 100_000);
    rt.block_on(db.close()).unwrap();
    drop(db);
    let db = Db::open(&world, &dir, 2, DbOptions::default()).unwrap();
    assert_eq!(db.get(b"key00099999").unwrap(), Some(b"some value of ordinary length".to_vec()));
    drop((db, rt));
    let remove = |names: Vec<String>, d: &str| {
        names.iter().for_each(|n| world.disk.unlink(&format!("{d}/{n}")).unwrap())
    };
    let journal = format!("{dir}/journal");
    remove(world.disk.list(&journal).unwrap(), &journal);
    world.disk.rmdir(&journal).unwrap();
    remove(world.disk.list(&dir).unwrap(), &dir);
    world.disk.rmdir(&dir).unwrap();
}

#[test]
fn errors_of_the_disk_never_lose_or_invent_anything() {
    for seed in 0..20 {
        let bed = Bed::new();
        format(&bed.world);
        let mut rng = Rng::new(seed);
        let db = open(&bed.world, 1);
        bed.disk.set_faults(FaultPlan {
            seed,
            sync_error_ppm: 20_000,
            write_error_ppm: 2_000,
            ..FaultPlan::default()
        });
        let (mut acked, mut begun) = (0, 0);
        let mut models = vec![Model::new()];
        for i in 1..400u64 {
            let mut m = models.last().unwrap().clone();
            let t = txn(i, &mut rng, &mut m);
            models.push(m);
            begun = i;
            let Ok(lsn) = db.submit(t) else { break };
            if rng.below(3) == 0 {
                match bed.rt.block_on(db.durable(lsn)) {
                    Ok(()) => acked = i,
                    Err(_) => break,
                }
            }
        }
        bed.disk.set_faults(FaultPlan::default());
        let disk = after_power_cut(&bed.disk, &mut rng);
        drop(db);
        let db = open(&bed.world_on(&disk), 2);
        let got = seq(&db);
        assert!(
            got >= acked && got <= begun,
            "seed {seed}: recovered {got}, acknowledged {acked}, begun {begun}"
        );
        assert_eq!(all(&db), models[got as usize], "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_and_goes_on() {
    let bed = Bed::new();
    format(&bed.world);
    let db = open(&bed.world, 1);
    let lsn = db.submit(put("a", "1")).unwrap();
    bed.rt.block_on(db.durable(lsn)).unwrap();
    let full =
        FaultPlan { capacity_bytes: Some(0), only_below: Some("/t/journal".into()), ..FaultPlan::default() };
    bed.disk.set_faults(full);
    let mut t = Txn::new();
    t.put("big", vec![0; 1 << 20]);
    assert_eq!(db.submit(t).unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(db.get(b"big").unwrap(), None);
    assert!(db.space_low());
    assert_eq!(db.stopped(), None);
    bed.disk.set_faults(FaultPlan::default());
    let lsn = db.submit(put("a", "2")).unwrap();
    bed.rt.block_on(db.durable(lsn)).unwrap();
    assert!(!db.space_low());
}

#[test]
fn a_damaged_table_is_an_error_and_no_panic() {
    let bed = Bed::new();
    format(&bed.world);
    // Checkpoints at starts only: the table is the same in each run, as which of redb's own pages are damaged
    // matters. Where a list of freed ones is, redb ends the process (decision 0039).
    for life in 1..=3u32 {
        let options = DbOptions { checkpoints: life > 1, checkpoint_txns: 1000, ..tiny() };
        let db = Db::open(&bed.world, "/t", life, options).unwrap();
        for i in 0..150u32 * (3 - life) / 2 {
            let lsn = db.submit(put(&format!("k{i}.{life}"), &"v".repeat(50))).unwrap();
            bed.rt.block_on(db.durable(lsn)).unwrap();
        }
        bed.rt.block_on(db.close()).unwrap();
    }
    let mut rng = Rng::new(3);
    let len = bed.world.disk.open("/t/table.redb", world::OpenMode::READ).unwrap().stat().unwrap().len;
    let (mut refused, mut fine) = (0, 0);
    for _ in 0..1000 {
        let disk = bed.disk.fork();
        disk.corrupt("/t/table.redb", rng.below(len), 1 << rng.below(8)).unwrap();
        let all =
            Db::open(&bed.world_on(&disk), "/t", 2, tiny()).and_then(|db| db.scan(b"", b"\xff", usize::MAX));
        match all {
            Ok(_) => fine += 1,
            Err(e) => {
                assert!(e.to_string().contains("/t/table.redb"), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && fine > 0, "{refused} {fine}");
}

#[test]
fn an_epoch_that_numbers_have_no_room_for_is_refused() {
    let bed = Bed::new();
    format(&bed.world);
    for epoch in [1 << 24, u32::MAX] {
        let e = Db::open(&bed.world, "/t", epoch, tiny()).err().expect("a target that does not start");
        assert!(e.to_string().contains("as its label says"), "{e}");
    }
    let db = open(&bed.world, (1 << 24) - 1);
    let (first, next) = (db.transno(1), db.transno(2));
    assert!(first < next, "the last epoch's transactions are numbered too");
    bed.rt.block_on(db.close()).unwrap();
}
