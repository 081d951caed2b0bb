//! Snapshots of a target's folder: what they hold is of one moment, whatever runs meanwhile.

mod common;

use common::{Bed, Ost, format, tiny};
use model::Errno;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::object::Objects;
use store::snapshot::{self, Making};
use store::{Db, StoreError, Txn};
use world::gate::GatedDisk;
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::pause::DiskPause;
use world::rng::Rng;
use world::{OpenMode, World};

const LONG: Duration = Duration::from_secs(20);
/// Objects that are written, round and round.
const OBJECTS: u64 = 8;
/// Bytes of each: a file of its own.
const BYTES: usize = 200_000;

/// A target in `/t`, with its superblock, behind a gate.
fn bed() -> (Bed, World, Arc<DiskPause>) {
    let bed = Bed::new();
    format(&bed.world);
    bed.world.disk.open("/t/superblock", OpenMode::CREATE).unwrap().write_at(b"label", 0).unwrap();
    let pause = Arc::new(DiskPause::default());
    let disk = Arc::new(GatedDisk::new(Arc::new(bed.disk.clone()), pause.clone()));
    let gated = World { disk, ..bed.world.clone() };
    (bed, gated, pause)
}

/// All at one moment: what an operator's command does, step by step.
fn take(world: &World, pause: &DiskPause, name: &str) -> Result<(), StoreError> {
    let mut m = Making::begin(world, "/t", name)?;
    assert!(pause.track(LONG));
    m.copy_all(&mut |_| true)?;
    let changed = pause.take_changed().expect("there is not much");
    m.copy_changed(&changed, &mut |_| true)?;
    assert!(pause.close(LONG));
    let changed = pause.take_changed().expect("there is not much");
    let done = m.copy_changed(&changed, &mut |_| true);
    assert!(pause.open(), "in time");
    pause.forget();
    done?;
    m.keep(b"{}")
}

fn open_at(world: &World, dir: &str, epoch: u32) -> Ost {
    let db = Db::open(world, dir, epoch, tiny()).unwrap();
    let objects = Objects::open(db.clone()).unwrap();
    Ost { db, objects }
}

async fn step(ost: &Ost, n: u64) -> Result<(), StoreError> {
    let lsn = ost.submit_write((n % OBJECTS) as u32, 0, vec![n as u8; BYTES]).await?;
    ost.db.durable(lsn).await?;
    let mut txn = Txn::new();
    txn.put(b"Zstep".to_vec(), n.to_be_bytes().to_vec());
    let lsn = ost.db.submit(txn)?;
    ost.db.durable(lsn).await
}

/// The last step that a copy has, once everything of it was compared: of each object what its last step wrote
/// up to that, or the step under way then.
async fn compared(ost: &Ost) -> u64 {
    let at = ost.db.get(b"Zstep").unwrap().map_or(0, |v| u64::from_be_bytes(v[..8].try_into().unwrap()));
    for n in 0..OBJECTS.min(at + 1) {
        let last = (0..=at).rev().find(|s| s % OBJECTS == n).expect("it was written");
        let data = ost.all(n as u32).await.unwrap();
        assert_eq!(data.len(), BYTES, "object {n} at step {at}");
        let next = at + 1;
        let under_way = next % OBJECTS == n && data.iter().all(|b| *b == last as u8 || *b == next as u8);
        assert!(under_way || data.iter().all(|b| *b == last as u8), "object {n} at step {at}");
    }
    at
}

fn names(world: &World) -> Vec<String> {
    snapshot::names(world, "/t").unwrap()
}

#[test]
fn a_snapshot_under_load_is_of_one_moment_and_the_target_goes_on() {
    let (bed, world, pause) = bed();
    let ost = Arc::new(open_at(&world, "/t", 1));
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (o, d, s) = (ost.clone(), done.clone(), stop.clone());
    world.spawn("load", async move {
        for n in 0.. {
            if s.load(Ordering::SeqCst) {
                return;
            }
            step(&o, n).await.unwrap();
            d.store(n + 1, Ordering::SeqCst);
        }
    });
    let until = |n: u64| {
        let goes_on = || (done.load(Ordering::SeqCst) >= n).then_some(());
        assert!(world::sys::Deadline::after(LONG).wait_for(goes_on).is_some(), "the load goes on");
    };
    let mut last = 0;
    for n in 0..6 {
        until(done.load(Ordering::SeqCst) + 10);
        let before = done.load(Ordering::SeqCst);
        // The clones are made past the gate.
        take(&bed.world, &pause, &format!("s{n}")).unwrap();
        let after = done.load(Ordering::SeqCst);
        let dir = snapshot::place("/t", &format!("s{n}"));
        let copy = open_at(&bed.world, &dir, 2);
        let at = bed.rt.block_on(async move {
            let at = compared(&copy).await;
            copy.db.close().await.unwrap();
            at
        });
        // What was acknowledged before it is in it, what was begun after it is not.
        assert!((before.saturating_sub(1)..=after).contains(&at), "{before} {at} {after}");
        assert!(at >= last, "later ones have more");
        last = at;
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(names(&bed.world), ["s0", "s1", "s2", "s3", "s4", "s5"]);
    snapshot::destroy(&bed.world, "/t", "s0", &mut |_| true).unwrap();
    snapshot::rename(&bed.world, "/t", "s1", "first").unwrap();
    let taken = snapshot::rename(&bed.world, "/t", "first", "s2").unwrap_err();
    assert_eq!(taken.errno(), Errno::EEXIST);
    assert_eq!(names(&bed.world), ["first", "s2", "s3", "s4", "s5"]);
}

/// A target with some content, and none that uses it.
fn still_bed() -> (Bed, Arc<DiskPause>) {
    let (bed, world, pause) = bed();
    let ost = open_at(&world, "/t", 1);
    bed.rt.block_on(async move {
        for n in 0..20 {
            step(&ost, n).await.unwrap();
        }
        ost.db.close().await.unwrap();
    });
    bed.world.disk.sync_tree("/").unwrap();
    (bed, pause)
}

#[test]
fn nothing_is_left_of_one_that_fails() {
    let (bed, pause) = still_bed();
    let files = |bed: &Bed| bed.world.disk.list("/t/snapshots").unwrap();
    for errors in 1..8 {
        let only_below = Some("/t/snapshots".to_string());
        let write_error_ppm = 20_000 * errors;
        bed.disk.set_faults(FaultPlan {
            seed: u64::from(errors),
            write_error_ppm,
            only_below,
            ..FaultPlan::default()
        });
        let made = Making::begin(&bed.world, "/t", "s").map(|mut m| (m.copy_all(&mut |_| true), m));
        bed.disk.set_faults(FaultPlan::default());
        match made {
            Err(e) => assert_eq!(e.errno(), Errno::EIO),
            Ok((_, m)) => m.drop_all().unwrap(),
        }
        assert!(files(&bed).is_empty(), "{:?}", files(&bed));
    }
    let mut m = Making::begin(&bed.world, "/t", "s").unwrap();
    assert_eq!(m.copy_all(&mut |n| n < 3).unwrap_err().errno(), Errno::EINTR);
    // Who died here left it: the next one takes it away.
    drop(m);
    assert_eq!(names(&bed.world), Vec::<String>::new());
    assert_eq!(files(&bed), [".s.new"]);
    snapshot::tidy(&bed.world, "/t").unwrap();
    assert!(files(&bed).is_empty());
    take(&bed.world, &pause, "s").unwrap();
    let again = Making::begin(&bed.world, "/t", "s").err().expect("there is one of this name");
    assert_eq!(again.errno(), Errno::EEXIST);
}

#[test]
fn after_a_power_cut_a_snapshot_is_whole_or_none() {
    let (bed, pause) = still_bed();
    bed.disk.record();
    take(&bed.world, &pause, "s").unwrap();
    snapshot::destroy(&bed.world, "/t", "s", &mut |_| true).unwrap();
    let images = bed.disk.images();
    let (mut whole, mut rng) = (BTreeSet::new(), Rng::new(7));
    for (n, image) in images.iter().enumerate() {
        let disk: MemDisk = image.disk();
        disk.crash_with(CrashMode::Random, &mut rng);
        let world = bed.world_on(&disk);
        let there = names(&world);
        if there.is_empty() {
            snapshot::tidy(&world, "/t").unwrap();
            continue;
        }
        assert_eq!(
            snapshot::read_record(&world, "/t/snapshots/s").unwrap().unwrap(),
            b"{}",
            "{}",
            image.what
        );
        let copy = open_at(&world, "/t/snapshots/s", 2);
        let at = bed.rt.block_on(async move { compared(&copy).await });
        assert_eq!(at, 19, "{}", image.what);
        whole.insert(n);
    }
    assert!(!whole.is_empty() && whole.len() < images.len(), "{} of {}", whole.len(), images.len());
}

#[test]
fn names_of_snapshots_are_plain_words() {
    for good in ["a", "daily-2026.11.28", "S_1"] {
        assert!(snapshot::name_is_valid(good), "{good}");
        assert_eq!(snapshot::name_of_place(&snapshot::place("/t", good)), Some(good));
    }
    for bad in ["", ".", "..", ".a.new", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert!(!snapshot::name_is_valid(bad), "{bad}");
    }
    assert_eq!(snapshot::name_of_place("/t/objects/a"), None);
}
