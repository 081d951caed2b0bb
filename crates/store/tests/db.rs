//! The database from outside: what is durable, what is visible, what survives.

mod common;

use common::{Bed, tiny};
use std::collections::BTreeMap;
use store::{Db, ReplyRecord, Txn};
use world::rng::Rng;

fn put(k: &str, v: &str) -> Txn {
    let mut t = Txn::new();
    t.put(k, v);
    t
}

#[test]
fn what_is_durable_is_there_after_a_power_cut() {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    bed.world.disk.sync_dir("/").unwrap();
    Db::create(&bed.world, "/t").unwrap();
    let mut rng = Rng::new(7);
    let mut model = BTreeMap::new();
    for epoch in 1..6 {
        let db = Db::open(&bed.world, "/t", epoch, tiny()).unwrap();
        assert_eq!(db.scan(b"", b"\xff", usize::MAX).unwrap(), model.clone().into_iter().collect::<Vec<_>>());
        for i in 0..100 {
            let (k, v) = (format!("k{}", i % 30), format!("{epoch}.{i}"));
            let lsn = db.submit(put(&k, &v)).unwrap();
            model.insert(k.into_bytes(), v.into_bytes());
            bed.rt.block_on(db.durable(lsn)).unwrap();
        }
        bed.disk.crash(&mut rng);
        drop(db);
    }
}

#[test]
fn reply_slots_carry_their_transaction_number() {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    Db::create(&bed.world, "/t").unwrap();
    let db = Db::open(&bed.world, "/t", 3, tiny()).unwrap();
    let client = [9; 16];
    let mut t = put("a", "b");
    t.put_reply(&client, 5, &ReplyRecord { xid: 77, status: 2, body: b"body".to_vec() });
    let lsn = db.submit(t).unwrap();
    let r = db.reply(&client, 5).unwrap().unwrap();
    assert_eq!((r.xid, r.status, r.body.as_slice(), r.transno), (77, 2, b"body".as_slice(), db.transno(lsn)));
    bed.rt.block_on(db.close()).unwrap();
    drop(db);
    let db = Db::open(&bed.world, "/t", 4, tiny()).unwrap();
    assert_eq!(db.reply(&client, 5).unwrap().unwrap().transno, 3 << 40 | lsn);
    let mut t = Txn::new();
    db.delete_replies(&client, &mut t).unwrap();
    db.submit(t).unwrap();
    assert_eq!(db.reply(&client, 5).unwrap(), None);
}
