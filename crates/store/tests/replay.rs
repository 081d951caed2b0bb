//! How long a target takes to replay its journal after a kill: a measurement, with the host's real disk.
//!
//!   cargo test --release -p store --test replay -- --ignored --nocapture a_journal
//!
//! `NACRE_REPLAY_OPS` operations (default 1,000,000), each a create as an MDT makes it: inode, name,
//! back-pointer, reply.

use store::{Db, DbOptions, Txn};
use world::sys::{files, process};

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

/// What a round is about: `OPS BATCH CHECKPOINTS DIR` of [`FILL`], the child's environment.
const FILL: &str = "NACRE_REPLAY_FILL";

fn options(checkpoints: bool) -> DbOptions {
    DbOptions { checkpoints, ..DbOptions::default() }
}

/// In a process of its own, which is gone afterwards with all its memory, as a killed server: fills a
/// journal.
#[test]
#[ignore = "the other half of a_journal_is_replayed"]
fn fill() {
    let Ok(told) = std::env::var(FILL) else { return };
    let told: Vec<&str> = told.splitn(4, ' ').collect();
    let [ops, batch, checkpoints, dir] = told[..] else { panic!("{told:?}") };
    let (ops, batch): (u64, u64) = (ops.parse().unwrap(), batch.parse().unwrap());
    let (world, rt) = world::real::start(2).unwrap();
    Db::create(&world, dir).unwrap();
    let db = Db::open(&world, dir, 1, options(checkpoints == "true")).unwrap();
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
    // No close, no checkpoint.
    drop(db);
}

/// Prints the time of the opening.
fn round(what: &str, ops: u64, batch: u64, checkpoints: bool) {
    let (world, rt) = world::real::start(2).unwrap();
    let dir = std::env::temp_dir().join(format!("nacre-replay-{}", std::process::id()));
    files::create_dir_all(&dir).unwrap();
    let path = dir.to_str().unwrap();
    let exe = process::own_executable().unwrap();
    let told = format!("{FILL}={ops} {batch} {checkpoints} {path}");
    let args = [&told, exe.to_str().unwrap(), "--ignored", "--exact", "fill"];
    let filled = process::run("env", &args).unwrap();
    assert_eq!(filled.status, Some(0), "{}", filled.out);
    let journal: u64 = files::list_raw(&dir.join("journal"))
        .unwrap()
        .iter()
        .map(|n| files::stat(&dir.join("journal").join(n), false).map_or(0, |s| s.size))
        .sum();
    let start = world.now();
    let db = Db::open(&world, path, 2, options(checkpoints)).unwrap();
    let took = world.now().since(start);
    println!(
        "{what}: {ops} creates, {batch} in a transaction, journal {} MiB: served after {:.2} s",
        journal >> 20,
        took.as_secs_f64()
    );
    for n in [0, ops / 2, ops - 1] {
        let key = [&b"I"[..], &n.to_be_bytes(), &[7; 12]].concat();
        assert!(db.get(&key).unwrap().is_some(), "create {n} is there");
    }
    let start = world.now();
    rt.block_on(db.close()).unwrap();
    println!("  in the table after {:.2} s more", world.now().since(start).as_secs_f64());
    drop(db);
    files::remove_tree(&dir).unwrap();
}

#[test]
#[ignore = "a measurement of some minutes"]
fn a_journal_is_replayed() {
    let ops = std::env::var("NACRE_REPLAY_OPS").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000_000);
    // The longest that a server's own limits leave: two overlays.
    round("as served, one each", 39_000, 1, true);
    round("as served, batches", 100_000, 250, true);
    round("without checkpoints", ops, 1, false);
    round("without checkpoints", ops, 250, false);
}
