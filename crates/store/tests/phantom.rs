//! A flush fails, and the target is started again on the same host: what only the page cache has by then is
//! not believed. What such a start shows stays when the power fails, whatever else was lost.

mod common;

use common::{Bed, open, tiny};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Db, DbOptions, Txn};
use world::World;
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::rng::Rng;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn flushes_fail(disk: &MemDisk, seed: u64, ppm: u32, below: &str) {
    let only_below = Some(below.into());
    disk.set_faults(FaultPlan { seed, sync_error_ppm: ppm, only_below, ..FaultPlan::default() });
}

/// The process ends, the host and its page cache stay, the disk is well again. What works in the background
/// does not end at once: it goes on with the old disk.
fn killed(disk: &MemDisk) -> MemDisk {
    disk.set_faults(FaultPlan::default());
    disk.kill();
    disk.fork()
}

/// What nobody flushed is lost.
fn without_power(disk: &MemDisk) -> MemDisk {
    let next = disk.fork();
    next.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
    next
}

fn pairs(db: &Db) -> Pairs {
    db.scan(b"", &[0xff], usize::MAX).unwrap().into_iter().collect()
}

fn open_db(world: &World, epoch: u32, opt: &DbOptions) -> Arc<Db> {
    Db::open(world, "/t", epoch, opt.clone()).unwrap()
}

/// Transaction `i`, with a value of some pages whose end is zeros.
fn put(i: u64) -> Txn {
    let mut t = Txn::default();
    let mut value = vec![0; 6000];
    value[..1000].fill(i as u8 + 1);
    t.put(i.to_be_bytes().to_vec(), value);
    t
}

/// Flushes of `below` fail at some time; the second life shows what the third one has, and all that was
/// acknowledged.
fn of_the_database(below: &str, opt: &DbOptions, ppm: u32, seed: u64) -> bool {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    Db::create(&bed.world, "/t").unwrap();
    bed.world.disk.sync_dir("/").unwrap();
    let db = open_db(&bed.world, 1, opt);
    let mut acked = 0;
    for i in 0..200 {
        if i == 5 {
            flushes_fail(&bed.disk, seed, ppm, below);
        }
        let Ok(lsn) = db.submit(put(i)) else { break };
        match bed.rt.block_on(db.durable(lsn)) {
            Ok(()) => acked = i + 1,
            Err(_) => break,
        }
    }
    let stopped = db.stopped().is_some();
    let disk = killed(&bed.disk);
    drop(db);
    let db = open_db(&bed.world_on(&disk), 2, opt);
    let shown = pairs(&db);
    assert!(shown.len() as u64 >= acked, "{below}, seed {seed}: {} of {acked}", shown.len());
    let after = without_power(&disk);
    drop(db);
    let db = open_db(&bed.world_on(&after), 3, opt);
    assert_eq!(
        pairs(&db).keys().collect::<Vec<_>>(),
        shown.keys().collect::<Vec<_>>(),
        "{below}, seed {seed}"
    );
    assert!(pairs(&db) == shown, "{below}, seed {seed}: other values");
    stopped
}

#[test]
fn records_of_the_journal_that_only_the_page_cache_has_are_not_replayed() {
    let (opt, mut stopped) = (tiny(), 0);
    for seed in 0..30 {
        stopped += u32::from(of_the_database("/t/journal", &opt, 200_000, seed));
    }
    assert!(stopped > 20, "{stopped}");
}

/// A checkpoint's last flush fails: the page cache has a table that needs no journal, the disk an old one.
#[test]
fn a_table_that_only_the_page_cache_has_is_not_opened() {
    // Of what was replayed nothing goes to the table before the power fails.
    let (opt, mut stopped) = (DbOptions { checkpoint_txns: 10, ..tiny() }, 0);
    for seed in 0..40 {
        stopped += u32::from(of_the_database("/t/table.redb", &opt, 400_000, seed));
    }
    assert!(stopped > 20, "{stopped}");
}

#[test]
fn bytes_of_an_object_that_only_the_page_cache_has_are_not_taken_for_written() {
    for (seed, zeros) in (0..20).map(|s| (s, s % 4 == 3)) {
        let bed = Bed::new();
        common::format(&bed.world);
        let o = open(&bed.world, 1);
        let first = vec![1; 100_000];
        let second = if zeros { vec![0; 500_000] } else { vec![2; 500_000] };
        bed.rt.block_on(async {
            let lsn = o.submit_write(1, 0, first.clone()).await.unwrap();
            o.db.durable(lsn).await.unwrap();
            flushes_fail(&bed.disk, seed, 1_000_000, "/t/objects");
            let lsn = o.submit_write(1, 100_000, second.clone()).await.unwrap();
            assert!(o.db.durable(lsn).await.is_err());
        });
        let disk = killed(&bed.disk);
        drop(o);
        let states = [first.clone(), [first, second].concat()];
        let o = open(&bed.world_on(&disk), 2);
        let shown = bed.rt.block_on(o.all(1)).unwrap();
        assert!(states.contains(&shown), "seed {seed}: {} bytes", shown.len());
        let after = without_power(&disk);
        drop(o);
        let o = open(&bed.world_on(&after), 3);
        assert!(bed.rt.block_on(o.all(1)).unwrap() == shown, "seed {seed}");
    }
}

/// A start whose own flush fails is a failed flush, too.
#[test]
fn starts_that_fail_leave_nothing_to_believe_in() {
    for seed in 0..20 {
        let bed = Bed::new();
        common::format(&bed.world);
        let db = open_db(&bed.world, 1, &tiny());
        for i in 0..30 {
            let lsn = db.submit(put(i)).unwrap();
            bed.rt.block_on(db.durable(lsn)).unwrap();
        }
        let mut disk = killed(&bed.disk);
        drop(db);
        let mut epoch = 2;
        loop {
            flushes_fail(&disk, seed * 100 + u64::from(epoch), 300_000, "/t");
            let tried = Db::open(&bed.world_on(&disk), "/t", epoch, tiny());
            let well = tried.is_ok();
            disk = killed(&disk);
            epoch += 1;
            if well || epoch > 40 {
                break;
            }
        }
        let db = open_db(&bed.world_on(&disk), epoch, &tiny());
        assert_eq!(pairs(&db).len(), 30, "seed {seed}");
        let after = without_power(&disk);
        drop(db);
        assert_eq!(pairs(&open_db(&bed.world_on(&after), epoch + 1, &tiny())).len(), 30, "seed {seed}");
    }
}
