//! How long a target takes to replay its journal after a kill: a measurement, with the host's real disk.
//!
//!   cargo test --release -p store --test replay -- --ignored --nocapture
//!
//! `NACRE_REPLAY_OPS` operations (default 1,000,000), each a create as an MDT makes it: inode, name, back-pointer, reply.

use store::{Db, DbOptions, StoreError, Txn};
use world::World;
use world::sys::files;

/// What one create puts into a transaction: keys and values as long as those of an MDT.
fn create(i: u64) -> Txn {
    let mut t = Txn::new();
    let key = |tag: u8, n: u64| [&[tag][..], &n.to_be_bytes(), &[7; 12]].concat();
    t.put(key(b'I', i), vec![1; 140]);
    t.put(key(b'D', i.wrapping_mul(0x9e37_79b9_7f4a_7c15)), vec![2; 40]);
    t.put(key(b'P', i), vec![3; 40]);
    t.put(key(b'R', i % 64), vec![4; 180]);
    t.put(key(b'A', i % 16), vec![5; 60]);
    t
}

/// Fills a journal with so many creates, dies, opens again; prints the time of the opening.
fn round(world: &World, rt: &world::real::Runtime, what: &str, ops: u64, batch: u64, options: DbOptions) {
    let dir = std::env::temp_dir().join(format!("nacre-replay-{}", std::process::id()));
    files::create_dir_all(&dir).unwrap();
    let path = dir.to_str().unwrap();
    Db::create(world, path).unwrap();
    let db = Db::open(world, path, 1, options.clone()).unwrap();
    let mut i = 0;
    while i < ops {
        let mut t = create(i);
        for j in i + 1..(i + batch).min(ops) {
            t.writes.extend(create(j).writes);
        }
        i += batch;
        let lsn = db.submit(t).unwrap();
        if (i / batch).is_multiple_of(256) || i >= ops {
            rt.block_on(db.durable(lsn)).unwrap();
        }
    }
    drop(db);
    let journal: u64 = files::list_raw(&dir.join("journal"))
        .unwrap()
        .iter()
        .map(|n| files::stat(&dir.join("journal").join(n), false).map_or(0, |s| s.size))
        .sum();
    let mut start = world.now();
    let db = loop {
        match Db::open(world, path, 2, options.clone()) {
            // A checkpoint of the old one that is under way ends first; with a killed process it would be gone.
            Err(StoreError::Refused(_)) => world::sys::sleep(std::time::Duration::from_millis(10)),
            r => break r.unwrap(),
        }
        start = world.now();
    };
    let took = world.now().since(start);
    println!(
        "{what}: {ops} creates, {batch} in a transaction, journal {} MiB: opened in {:.2} s",
        journal >> 20,
        took.as_secs_f64()
    );
    for n in [0, ops / 2, ops - 1] {
        let key = [&b"I"[..], &n.to_be_bytes(), &[7; 12]].concat();
        assert!(db.get(&key).unwrap().is_some(), "create {n} is there");
    }
    rt.block_on(db.close()).unwrap();
    drop(db);
    files::remove_tree(&dir).unwrap();
}

#[test]
#[ignore = "a measurement of some minutes"]
fn a_journal_is_replayed() {
    let ops = std::env::var("NACRE_REPLAY_OPS").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000_000);
    let (world, rt) = world::real::start(2).unwrap();
    // The longest that a server's own limits leave: two overlays.
    round(&world, &rt, "as served, one each", 39_000, 1, DbOptions::default());
    round(&world, &rt, "as served, batches", 100_000, 250, DbOptions::default());
    let never = DbOptions {
        checkpoint_txns: usize::MAX / 4,
        checkpoint_bytes: usize::MAX / 4,
        ..DbOptions::default()
    };
    round(&world, &rt, "without checkpoints", ops, 1, never.clone());
    round(&world, &rt, "without checkpoints", ops, 250, never);
}
