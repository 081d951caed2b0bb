//! What owners use of an object target.

mod common;

use bytes::Bytes;
use common::{Bed, Ost, after_power_cut, format, id, nothing, open, open_with, tiny};
use model::nodemap::Owner;
use model::usage::{QuotaId, QuotaType};
use model::{Fid, Timestamp};
use std::time::Duration;
use store::DbOptions;
use store::object::ObjectMeta;
use world::rng::Rng;

const PUNCH: u32 = 3;

fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 0 }
}

/// A write of this user's file, by a client that knew the inode as it was then.
fn by(uid: u32, as_of: i64) -> ObjectMeta {
    ObjectMeta { owner: Owner::new(uid, uid, 0), owner_as_of: Some(at(as_of)), ..common::meta() }
}

/// As the metadata target says it.
fn owner(uid: u32, as_of: i64) -> ObjectMeta {
    ObjectMeta { time: None, data_version: Some(0), ..by(uid, as_of) }
}

fn blocks(o: &Ost, uid: u32) -> u64 {
    let of = |of| o.objects.usage().get(QuotaId { of, id: uid }).blocks;
    assert_eq!(of(QuotaType::User), of(QuotaType::Group), "both are counted alike");
    assert_eq!(o.objects.usage_difference().unwrap(), None);
    of(QuotaType::User)
}

async fn write(o: &Ost, n: u32, off: u64, len: usize, meta: ObjectMeta) {
    let w = o.objects.write(id(n), Some(off), Bytes::from(vec![7; len]), meta, nothing());
    o.db.durable(w.await.unwrap().2).await.unwrap();
}

/// Waits until records have the blocks of files that nobody changes.
async fn settled(bed: &Bed, o: &Ost, objects: &[u32]) {
    for _ in 0..1000 {
        let of = |n: &u32| {
            let said = o.objects.attr(id(*n)).unwrap().0.blocks;
            let all = o.objects.list(None, 100).unwrap();
            all.iter().any(|(i, _, a)| *i == id(*n) && a.blocks == said)
        };
        if objects.iter().all(of) {
            return;
        }
        bed.world.sleep(Duration::from_millis(20)).await;
    }
    panic!("blocks are not set right");
}

/// Waits until user 5 uses so many blocks. Files change behind their records, and records are set right
/// behind that: a record that is as its file for a moment shows nothing.
async fn until(bed: &Bed, o: &Ost, expected: u64, why: &str) {
    for _ in 0..1000 {
        if blocks(o, 5) == expected {
            return;
        }
        bed.world.sleep(Duration::from_millis(20)).await;
    }
    panic!("{why}: user 5 has {} blocks of {expected}", blocks(o, 5));
}

#[test]
fn blocks_are_counted_to_the_owner_wherever_the_bytes_lie() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        write(&o, 1, 0, 100, by(5, 1)).await;
        assert_eq!(blocks(&o, 5), 8, "inline");
        write(&o, 1, 0, 20_000, by(5, 1)).await;
        assert_eq!(blocks(&o, 5), 40, "packed");
        write(&o, 1, 0, 200_000, by(5, 1)).await;
        until(&bed, &o, 49 * 8, "a file of its own").await;
        // Into a hole behind its end's journal payload: the file gets these blocks later than the record.
        o.objects.truncate(id(1), 1 << 20, by(5, 1), nothing()).await.unwrap();
        write(&o, 1, 500_000, 8192, by(5, 1)).await;
        until(&bed, &o, (49 + 3) * 8, "three pages behind a hole").await;
        o.objects.fallocate(id(1), PUNCH, 0, 100 * 1024, by(5, 1), nothing()).await.unwrap();
        until(&bed, &o, (49 + 3 - 25) * 8, "a hole where it began").await;
        o.objects.truncate(id(1), 0, by(5, 1), nothing()).await.unwrap();
        until(&bed, &o, 0, "empty").await;
        write(&o, 2, 0, 100, by(5, 1)).await;
        o.objects.destroy(vec![id(1), id(2)], nothing()).await.unwrap();
        assert_eq!(blocks(&o, 5), 0);
    });
    bed.rt.block_on(o.db.close()).unwrap();
}

#[test]
fn what_was_said_before_a_chown_does_not_undo_it() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        write(&o, 1, 0, 100, by(5, 10)).await;
        let version = o.objects.attr(id(1)).unwrap().0.data_version;
        o.objects.set_owner(id(1), owner(6, 20), nothing()).await.unwrap();
        assert_eq!((blocks(&o, 5), blocks(&o, 6)), (0, 8));
        assert_eq!(o.objects.attr(id(1)).unwrap().0.data_version, version, "no byte changed");
        write(&o, 1, 4096, 100, by(5, 10)).await;
        assert_eq!((blocks(&o, 5), blocks(&o, 6)), (0, 16), "kept since before");
        o.objects.set_owner(id(1), owner(7, 15), nothing()).await.unwrap();
        assert_eq!(blocks(&o, 7), 0, "the outbox of before a restart");
        write(&o, 1, 8192, 100, by(8, 30)).await;
        assert_eq!((blocks(&o, 6), blocks(&o, 8)), (24, 0), "a client's clock may be ahead");
        o.objects.set_owner(id(1), owner(8, 30), nothing()).await.unwrap();
        assert_eq!((blocks(&o, 6), blocks(&o, 8)), (0, 24));
        // Never written before.
        o.objects.set_owner(id(2), owner(9, 40), nothing()).await.unwrap();
        write(&o, 2, 0, 100, by(5, 10)).await;
        assert_eq!((blocks(&o, 5), blocks(&o, 9)), (0, 8));
    });
    let file = o.objects.list(None, 10).unwrap()[0].1;
    assert_eq!(file, Fid::new(1, 2, 3));
    bed.rt.block_on(o.db.close()).unwrap();
}

#[test]
fn after_power_cuts_totals_are_what_objects_have() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let bed = Bed::new();
        format(&bed.world);
        let o = open_with(&bed.world, 1, tiny());
        bed.rt.block_on(async {
            for _ in 0..rng.range(1, 40) {
                let (n, uid) = (rng.range(1, 6) as u32, rng.range(1, 4) as u32);
                let (off, len) = (rng.below(100_000), rng.range(1, 90_000) as usize);
                let meta = by(uid, rng.range(1, 100) as i64);
                // Some of them not durable when power fails.
                let _ = match rng.below(6) {
                    0 => o.objects.truncate(id(n), off, meta, nothing()).await.map(drop),
                    1 => o.objects.destroy(vec![id(n)], nothing()).await.map(drop),
                    2 => o.objects.set_owner(id(n), owner(uid, 50), nothing()).await.map(drop),
                    _ => {
                        let data = Bytes::from(vec![3; len]);
                        o.objects.write(id(n), Some(off), data, meta, nothing()).await.map(drop)
                    }
                };
            }
        });
        let disk = after_power_cut(&bed.disk, &mut rng);
        let world = bed.world_on(&disk);
        let o = open_with(&world, 2, DbOptions { checkpoints: seed % 2 == 0, ..tiny() });
        assert_eq!(o.objects.usage_difference().unwrap(), None, "seed {seed}");
        bed.rt.block_on(settled(&bed, &o, &[]));
        // Nobody knows what the crash left unsettled: all are looked at.
        let ids: Vec<u32> = o.objects.list(None, 100).unwrap().iter().map(|(i, ..)| i.origin.oid).collect();
        bed.rt.block_on(settled(&bed, &o, &ids));
        assert_eq!(o.objects.usage_difference().unwrap(), None, "seed {seed}");
    }
}

#[test]
fn directories_have_what_lies_in_those_below() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let usage = o.objects.usage();
    usage.change_tree(|tree| {
        tree.set(2, 1);
        tree.set(3, 2);
    });
    let has = |id| usage.get(QuotaId { of: QuotaType::Directory, id }).blocks;
    let lies_in = |directory, as_of| {
        let meta = by(5, as_of);
        ObjectMeta { owner: Owner { directory, ..meta.owner }, ..meta }
    };
    bed.rt.block_on(async {
        write(&o, 1, 0, 100, lies_in(3, 1)).await;
        write(&o, 2, 0, 20_000, lies_in(1, 1)).await;
        assert_eq!((has(1), has(2), has(3)), (48, 8, 8));
        write(&o, 1, 0, 100, lies_in(2, 2)).await;
        assert_eq!((has(1), has(2), has(3)), (48, 8, 0));
        usage.change_tree(|tree| tree.set(2, 0));
        assert_eq!((has(1), has(2)), (40, 8), "it lies elsewhere, with what it has");
        usage.change_tree(|tree| tree.set(2, 1));
        let page = usage.page(QuotaType::Directory, None, 10);
        assert_eq!(page.iter().map(|(id, u)| (*id, u.blocks)).collect::<Vec<_>>(), [(1, 48), (2, 8)]);
        assert_eq!(blocks(&o, 5), 48, "each is counted once to its user");
        o.objects.destroy(vec![id(1), id(2)], nothing()).await.unwrap();
        assert_eq!((has(1), has(2)), (0, 0));
    });
    bed.rt.block_on(o.db.close()).unwrap();
}
