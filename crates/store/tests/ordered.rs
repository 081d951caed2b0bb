//! Large writes whose files are flushed with the group commit: no order in which the host writes its pages
//! shows.

mod common;

use common::{Bed, Ost, format, id, meta, nothing, open, open_with, tiny, write_journal_back};
use model::planted::{self, Bug};
use std::sync::RwLock;
use store::object::location::own_path;
use store::{DbOptions, Lsn};
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::rng::Rng;

/// Bugs are planted for the whole process.
static PLANTED: RwLock<()> = RwLock::new(());

/// Which pages reached the disk before the power went.
#[derive(Clone, Copy, Debug)]
enum Cut {
    JournalOnly,
    FilesOnly,
    Random,
    JournalAndSome,
}

const CUTS: [Cut; 4] = [Cut::JournalOnly, Cut::FilesOnly, Cut::Random, Cut::JournalAndSome];

fn cut(bed: &Bed, disk: &MemDisk, how: Cut, objects: &[u32], rng: &mut Rng) -> MemDisk {
    let next = disk.fork();
    let world = bed.world_on(&next);
    match how {
        Cut::JournalOnly | Cut::JournalAndSome => write_journal_back(&world),
        Cut::FilesOnly => {
            for n in objects {
                if let Ok(f) = world.disk.open(&own_path("/t", id(*n)), world::OpenMode::WRITE) {
                    f.sync_data().unwrap();
                }
            }
        }
        Cut::Random => {}
    }
    let lose = matches!(how, Cut::JournalOnly | Cut::FilesOnly);
    next.crash_with(if lose { CrashMode::LoseAll } else { CrashMode::Random }, rng);
    next
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(255) as u8 + 1).collect()
}

/// What an object was after each of its writes: the one found must be one of those from the acknowledged on.
async fn one_of(o: &Ost, n: u32, states: &[Vec<u8>], why: &str) -> usize {
    let got = o.all(n).await.unwrap_or_else(|e| panic!("{why}: {e}"));
    states.iter().rposition(|s| *s == got).unwrap_or_else(|| {
        let near = states.iter().rev().find(|s| s.len() == got.len());
        let at = near.and_then(|s| s.iter().zip(&got).position(|(a, b)| a != b));
        panic!("{why}: {} bytes that never were there, first difference at {at:?}", got.len())
    })
}

/// Power cuts after every change of the disk during large writes behind the end and into holes of two
/// objects, with small ones, cuts and punches between. Returns how often the journal's end had to be cut
/// because data was missing.
fn power_cuts(seed: u64) -> u32 {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let mut rng = Rng::new(seed);
    let mut states: Vec<Vec<Vec<u8>>> = vec![vec![Vec::new()]; 2];
    // Image name, and what was acknowledged of each object by then.
    bed.disk.record();
    bed.rt.block_on(async {
        let mut acked = [0, 0];
        for i in 0..30 {
            let n = rng.below(2) as usize;
            let mut c = states[n].last().unwrap().clone();
            let len = c.len() as u64;
            let unaligned = rng.below(3) == 0;
            let (size, off) = match rng.below(10) {
                0..4 => (rng.range(70_000, 150_000), len),
                4..7 => (rng.range(70_000, 150_000), len + rng.range(1, 300_000)),
                7 => (rng.range(1, 9000), rng.below(len + 1)),
                _ => (rng.range(70_000, 100_000), rng.below(len + 1)),
            };
            let off = if unaligned { off } else { off & !4095 };
            let lsn = match rng.below(10) {
                0 => {
                    c.truncate(off as usize);
                    let size = c.len() as u64;
                    o.objects.truncate(id(n as u32), size, meta(), nothing()).await.unwrap().1
                }
                1 => {
                    let (a, b) = ((off as usize).min(c.len()), ((off + size) as usize).min(c.len()));
                    c[a..b].fill(0);
                    o.objects.fallocate(id(n as u32), 3, off, size, meta(), nothing()).await.unwrap().1
                }
                _ => {
                    let data = noise(&mut rng, size as usize);
                    let end = (off + size) as usize;
                    c.resize(c.len().max(end), 0);
                    c[off as usize..end].copy_from_slice(&data);
                    o.submit_write(n as u32, off, data).await.unwrap()
                }
            };
            assert!(o.all(n as u32).await.unwrap() == c, "seed {seed} step {i}");
            states[n].push(c);
            if rng.below(3) == 0 {
                o.db.durable(lsn).await.unwrap();
                acked = [states[0].len() - 1, states[1].len() - 1];
            }
            let name = format!("/at.{i}.{}.{}", acked[0], acked[1]);
            bed.world.disk.mkdir(&name).unwrap();
        }
    });
    drop(o);
    let images = bed.disk.images();
    let (mut acked, mut cuts) = ([0, 0], 0);
    for (at, image) in images.iter().enumerate() {
        if let Some(name) = image.what.strip_prefix("mkdir /at.") {
            let p: Vec<usize> = name.split('.').map(|x| x.parse().unwrap()).collect();
            acked = [p[1], p[2]];
        }
        if rng.below(2) != 0 {
            continue;
        }
        let how = CUTS[rng.below(4) as usize];
        let disk = cut(&bed, &image.disk(), how, &[0, 1], &mut rng);
        let why = format!("seed {seed} image {at} ({}) {how:?}", image.what);
        let kept = disk.fork();
        let o = open(&bed.world_on(&disk), 2);
        bed.rt.block_on(async {
            for n in 0..2 {
                let s = one_of(&o, n, &states[n as usize], &why).await;
                assert!(
                    s >= acked[n as usize],
                    "{why}: object {n} is as it was at {s}, acknowledged {acked:?}"
                );
            }
            // What is there can be written on, and survives the next cut.
            let before = o.all(0).await.unwrap();
            let lsn = o.submit_write(0, before.len() as u64 + 5000, vec![9; 70_000]).await.unwrap();
            o.db.durable(lsn).await.unwrap();
            let disk = cut(&bed, &disk, Cut::Random, &[0, 1], &mut rng);
            let o = open(&bed.world_on(&disk), 3);
            let got = o.all(0).await.unwrap();
            assert!(got[..before.len()] == before[..], "{why}: second life");
            assert!(
                got[before.len()..before.len() + 5000].iter().all(|b| *b == 0),
                "{why}: gap of the second life"
            );
        });
        cuts += u32::from(last_lsn(&bed, &kept, true) < last_lsn(&bed, &kept, false));
    }
    cuts
}

/// The position a start finds, with or without a look at the data.
fn last_lsn(bed: &Bed, disk: &MemDisk, look: bool) -> Lsn {
    if !look {
        planted::plant(Some(Bug::DataNotLookedFor));
    }
    let o = store::Db::open(&bed.world_on(&disk.fork()), "/t", 9, common::tiny());
    planted::plant(None);
    // Without a look, the start may stumble over a file that is not there.
    o.map_or(Lsn::MAX, |o| o.last_committed())
}

#[test]
fn power_cuts_at_every_point_of_large_writes() {
    let _alone = PLANTED.write().unwrap();
    let cuts: u32 = (0..16).map(power_cuts).sum();
    assert!(cuts > 40, "the journal was ahead of the data in {cuts} cuts only: the rule is hardly tried");
}

#[test]
fn a_record_without_its_data_is_not_taken_for_a_write() {
    let _alone = PLANTED.write().unwrap();
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let mut rng = Rng::new(1);
    let (disk, first) = bed.rt.block_on(async {
        let first = noise(&mut rng, 100_000);
        let lsn = o.submit_write(1, 0, first.clone()).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        // The committer is late: the record is in the journal, the bytes are in the page cache.
        let all = noise(&mut rng, 200_000);
        o.submit_write(1, 100_000, all).await.unwrap();
        o.submit_write(2, 0, vec![7; 100]).await.unwrap();
        (bed.disk.fork(), first)
    });
    for (plant, fine) in [(None, true), (Some(Bug::DataNotLookedFor), false)] {
        let disk = cut(&bed, &disk, Cut::JournalOnly, &[], &mut rng);
        planted::plant(plant);
        let o = open(&bed.world_on(&disk), 2);
        let got = bed.rt.block_on(o.all(1));
        planted::plant(None);
        match got {
            Ok(c) => assert!(fine && c == first, "{plant:?}: {} bytes", c.len()),
            Err(e) => assert!(!fine, "{e}"),
        }
    }
    // A killed process loses nothing.
    let killed = disk.fork();
    killed.kill();
    let o = open(&bed.world_on(&killed), 2);
    assert_eq!(bed.rt.block_on(o.all(1)).unwrap().len(), 300_000);
    assert_eq!(bed.rt.block_on(o.all(2)).unwrap(), [7; 100]);
    // Not even if the power fails right after the start.
    drop(o);
    let disk = cut(&bed, &killed, Cut::Random, &[], &mut rng);
    let o = open(&bed.world_on(&disk), 3);
    assert_eq!(bed.rt.block_on(o.all(1)).unwrap().len(), 300_000);
}

#[test]
fn what_a_lost_write_left_in_a_hole_is_never_seen() {
    let _shared = PLANTED.read().unwrap();
    for seed in 0..8 {
        let bed = Bed::new();
        format(&bed.world);
        let o = open(&bed.world, 1);
        let mut rng = Rng::new(seed);
        let disk = bed.rt.block_on(async {
            o.submit_write(1, 0, vec![1; 70_000]).await.unwrap();
            let lsn = o.submit_write(1, 600_000, vec![1; 70_000]).await.unwrap();
            o.db.durable(lsn).await.unwrap();
            o.submit_write(1, 200_001, vec![2; 200_000]).await.unwrap();
            cut(&bed, &bed.disk, Cut::FilesOnly, &[1], &mut rng)
        });
        let o = open(&bed.world_on(&disk), 2);
        let mut want = vec![0; 670_000];
        want[..70_000].fill(1);
        want[600_000..].fill(1);
        let f = bed.world_on(&disk).disk.open(&own_path("/t", id(1)), world::OpenMode::READ).unwrap();
        let mut byte = [0];
        f.read_at(&mut byte, 300_000).unwrap();
        assert_eq!(byte, [2], "the write left nothing, so this shows nothing");
        bed.rt.block_on(async {
            assert!(o.all(1).await.unwrap() == want, "seed {seed}");
            // Parts of blocks, by small and large writes, up to the end and inside.
            for (off, len) in
                [(300_001, 10), (310_000, 5000), (220_000, 70_001), (599_000, 400), (350_000, 1)]
            {
                let lsn = o.submit_write(1, off, vec![3; len]).await.unwrap();
                want[off as usize..off as usize + len].fill(3);
                assert!(o.all(1).await.unwrap() == want, "seed {seed} {off}");
                if rng.coin() {
                    o.db.durable(lsn).await.unwrap();
                }
            }
            o.objects.truncate(id(1), 390_000, meta(), nothing()).await.unwrap();
            let lsn = o.objects.truncate(id(1), 395_000, meta(), nothing()).await.unwrap().1;
            want.truncate(390_000);
            want.resize(395_000, 0);
            o.submit_write(1, 395_000, vec![4; 10]).await.unwrap();
            want.resize(395_010, 4);
            assert!(o.all(1).await.unwrap() == want, "seed {seed}");
            let last = o.submit_write(1, 395_010, vec![5; 90_000]).await.unwrap();
            want.resize(485_010, 5);
            o.db.durable(lsn.max(last)).await.unwrap();
            let o = open(&bed.world_on(&cut(&bed, &disk, Cut::Random, &[], &mut rng)), 3);
            assert!(o.all(1).await.unwrap() == want, "seed {seed}: after a cut");
        });
    }
}

/// What a start did again with a file, the next one does not do once more, over bytes that the journal lacks.
#[test]
fn nothing_is_done_again_twice() {
    let _shared = PLANTED.read().unwrap();
    let held = || DbOptions { checkpoints: false, ..tiny() };
    let bed = Bed::new();
    format(&bed.world);
    let mut rng = Rng::new(3);
    let o = open_with(&bed.world, 1, held());
    bed.rt.block_on(async {
        o.submit_write(1, 0, vec![1; 300_000]).await.unwrap();
        let lsn = o.objects.truncate(id(1), 4096, meta(), nothing()).await.unwrap().1;
        o.db.durable(lsn).await.unwrap();
    });
    let mut disk = cut(&bed, &bed.disk, Cut::Random, &[], &mut rng);
    let mut want = vec![1; 4096];
    for epoch in 2..5 {
        let world = bed.world_on(&disk);
        let o = open_with(&world, epoch, held());
        let segments = world.disk.list("/t/journal").unwrap();
        assert!(segments.len() as u32 >= epoch, "earlier segments are kept: {segments:?}");
        bed.rt.block_on(async {
            assert!(o.all(1).await.unwrap() == want, "epoch {epoch}");
            let lsn = o.submit_write(1, want.len() as u64, vec![epoch as u8; 200_000]).await.unwrap();
            want.resize(want.len() + 200_000, epoch as u8);
            o.db.durable(lsn).await.unwrap();
        });
        disk = cut(&bed, &disk, Cut::Random, &[], &mut rng);
    }
    let world = bed.world_on(&disk);
    let o = open(&world, 5);
    bed.rt.block_on(async {
        assert!(o.all(1).await.unwrap() == want, "at last");
        o.db.close().await.unwrap();
    });
    let logs = world.disk.list("/t/journal").unwrap().into_iter().filter(|n| n.ends_with(".log"));
    assert_eq!(logs.count(), 0, "the table has everything");
}

#[test]
fn a_failed_flush_of_data_acknowledges_nothing() {
    let _shared = PLANTED.read().unwrap();
    for errno_of in ["/t/objects/own", "/t/objects"] {
        let bed = Bed::new();
        format(&bed.world);
        let o = open(&bed.world, 1);
        bed.rt.block_on(async {
            let lsn = o.submit_write(1, 0, vec![1; 100_000]).await.unwrap();
            o.db.durable(lsn).await.unwrap();
            let plan = FaultPlan {
                sync_error_ppm: 1_000_000,
                only_below: Some(errno_of.into()),
                ..FaultPlan::default()
            };
            bed.disk.set_faults(plan);
            // Executed, but never durable.
            let lsn = o.submit_write(1, 100_000, vec![2; 100_000]).await.unwrap();
            assert!(o.db.durable(lsn).await.is_err());
            assert!(o.db.last_committed() < lsn);
            assert!(o.db.stopped().unwrap().contains("cannot flush"), "{:?}", o.db.stopped());
            bed.disk.set_faults(FaultPlan::default());
            assert!(o.submit_write(1, 0, vec![1; 10]).await.is_err());
        });
        let mut rng = Rng::new(3);
        let o = open(&bed.world_on(&cut(&bed, &bed.disk, Cut::JournalOnly, &[], &mut rng)), 2);
        let states = [vec![1; 100_000], [vec![1; 100_000], vec![2; 100_000]].concat()];
        bed.rt.block_on(one_of(&o, 1, &states, "after a failed flush"));
    }
}

#[test]
fn dirty_bytes_are_bounded() {
    let _shared = PLANTED.read().unwrap();
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        // Much more than may wait: it goes on because the committer flushes, though nobody asks for it.
        for i in 0..300u64 {
            o.submit_write(1 + (i % 3) as u32, i / 3 * (1 << 20), vec![i as u8; 1 << 20]).await.unwrap();
        }
        o.db.durable(o.db.last_submitted()).await.unwrap();
    });
}
