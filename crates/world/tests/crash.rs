//! What survives a loss of power on the disk in memory: all that was flushed, and nothing that was never
//! written.

use proptest::prelude::*;
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::rng::Rng;
use world::{Disk, DiskFile, OpenMode};

fn file(d: &MemDisk, path: &str) -> std::sync::Arc<dyn DiskFile> {
    d.open(path, OpenMode::CREATE).unwrap()
}

fn content(d: &MemDisk, path: &str) -> Vec<u8> {
    let f = d.open(path, OpenMode::READ).unwrap();
    let mut buf = vec![0; f.stat().unwrap().len as usize];
    assert_eq!(f.read_at(&mut buf, 0).unwrap(), buf.len());
    buf
}

#[derive(Clone, Debug)]
enum Op {
    Write { off: u64, len: usize },
    SetLen(u64),
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0..40_000u64, 1..9000usize).prop_map(|(off, len)| Op::Write { off, len }),
        1 => (0..40_000u64).prop_map(Op::SetLen),
        2 => Just(Op::Sync),
    ]
}

proptest! {
    /// Each byte after the crash is one that the last flush left there or that a later change put there.
    #[test]
    fn every_byte_has_a_reason(ops in prop::collection::vec(op(), 1..25), seed: u64) {
        let d = MemDisk::new();
        let f = file(&d, "/f");
        d.sync_dir("/").unwrap();
        // For each offset the values it may have; `None` stands for "behind the end".
        let mut allowed: Vec<Vec<Option<u8>>> = vec![vec![None]; 60_000];
        let mut now: Vec<u8> = Vec::new();
        let mut mark = 0;
        for op in &ops {
            match *op {
                Op::Write { off, len } => {
                    mark += 1;
                    f.write_at(&vec![mark; len], off).unwrap();
                    let end = off as usize + len;
                    now.resize(now.len().max(end), 0);
                    now[off as usize..end].fill(mark);
                    for (i, a) in allowed.iter_mut().enumerate().take(end) {
                        // A kept write moves the end: what lies before it reads as zeros at least.
                        a.push(if i >= off as usize { Some(mark) } else { Some(0) });
                        if i >= off as usize {
                            a.push(Some(0));
                        }
                    }
                }
                Op::SetLen(len) => {
                    f.set_len(len).unwrap();
                    now.resize(len as usize, 0);
                    for (i, a) in allowed.iter_mut().enumerate() {
                        a.push(if i < len as usize { Some(0) } else { None });
                    }
                }
                Op::Sync => {
                    f.sync_data().unwrap();
                    for (i, a) in allowed.iter_mut().enumerate() {
                        *a = vec![now.get(i).copied()];
                    }
                }
            }
        }
        d.crash(&mut Rng::new(seed));
        prop_assert!(f.read_at(&mut [0], 0).is_err(), "old handles are dead");
        let got = content(&d, "/f");
        for (i, a) in allowed.iter().enumerate() {
            prop_assert!(a.contains(&got.get(i).copied()), "byte {i} is {:?}, may be {a:?}", got.get(i));
        }
        // And that is what stays: a second crash changes nothing.
        d.crash(&mut Rng::new(seed ^ 1));
        prop_assert_eq!(content(&d, "/f"), got);
    }

    /// Files are renamed, replaced and removed; after a crash each flushed name is there, with a file that
    /// had that name at the flush or later.
    #[test]
    fn names_survive_a_flush(seed: u64) {
        let mut rng = Rng::new(seed);
        let d = MemDisk::new();
        for dir in ["/d", "/d/e"] {
            d.mkdir(dir).unwrap();
        }
        let names = ["/a", "/b", "/d/a", "/d/b", "/d/e/a"];
        let mut since: Vec<Vec<Option<u8>>> = vec![vec![None]; names.len()];
        let mut now: Vec<Option<u8>> = vec![None; names.len()];
        let mut synced_dirs = 0;
        for mark in 1..40u8 {
            let (i, j) = (rng.index(names.len()), rng.index(names.len()));
            match rng.below(5) {
                0..2 if now[i].is_none() => {
                    let f = file(&d, names[i]);
                    f.write_at(&[mark], 0).unwrap();
                    f.sync_data().unwrap();
                    now[i] = Some(mark);
                }
                2 if now[i].is_some() && i != j => {
                    d.rename(names[i], names[j]).unwrap();
                    now[j] = now[i].take();
                }
                3 if now[i].is_some() => {
                    d.unlink(names[i]).unwrap();
                    now[i] = None;
                }
                4 => {
                    let dir = ["/", "/d", "/d/e"][rng.index(3)];
                    // Parents first, as every program must.
                    for p in ["/", "/d", "/d/e"].iter().filter(|p| dir.starts_with(**p)) {
                        d.sync_dir(p).unwrap();
                        for (n, name) in names.iter().enumerate() {
                            let parent = name.rsplit_once('/').unwrap().0;
                            if (if parent.is_empty() { "/" } else { parent }) == *p {
                                since[n] = Vec::new();
                            }
                        }
                    }
                    synced_dirs += 1;
                }
                _ => {}
            }
            for (s, n) in since.iter_mut().zip(&now) {
                if s.last() != Some(n) {
                    s.push(*n);
                }
            }
        }
        d.crash(&mut rng);
        for (name, may) in names.iter().zip(&since) {
            let got = d.open(name, OpenMode::READ).ok().map(|f| {
                let mut b = [0];
                assert_eq!(f.read_at(&mut b, 0).unwrap(), 1, "contents were flushed");
                b[0]
            });
            let parent_lost = synced_dirs == 0 && name.starts_with("/d");
            prop_assert!(may.contains(&got) || (parent_lost && got.is_none()), "{name} is {got:?}, may be {may:?}");
        }
    }
}

#[test]
fn modes_kill_and_images() {
    let d = MemDisk::new();
    d.record();
    let f = file(&d, "/f");
    d.sync_dir("/").unwrap();
    f.write_at(&[1; 5000], 0).unwrap();
    f.sync_data().unwrap();
    f.write_at(&[2; 5000], 0).unwrap();
    let images = d.images();
    let what: Vec<&str> = images.iter().map(|i| i.what.as_str()).collect();
    assert_eq!(what, ["start", "create /f", "sync_dir /", "write /f 0+5000", "sync /f", "write /f 0+5000"]);

    d.kill();
    assert_eq!(content(&d, "/f"), [2; 5000], "a killed process loses nothing");
    let lost = d.fork();
    lost.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
    assert_eq!(content(&lost, "/f"), [1; 5000]);
    d.crash_with(CrashMode::KeepAll, &mut Rng::new(1));
    assert_eq!(content(&d, "/f"), [2; 5000]);

    let at = |n: usize| {
        let d = images[n].disk();
        d.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
        d
    };
    assert!(!at(1).exists("/f").unwrap());
    assert_eq!(content(&at(3), "/f"), []);
    assert_eq!(content(&at(4), "/f"), [1; 5000]);
}

#[test]
fn torn_writes_are_torn_at_sectors() {
    let mut torn = 0;
    for seed in 0..200 {
        let d = MemDisk::new();
        let f = file(&d, "/f");
        f.write_at(&[1; 8192], 0).unwrap();
        f.sync_data().unwrap();
        d.sync_dir("/").unwrap();
        f.write_at(&[2; 3000], 700).unwrap();
        d.crash(&mut Rng::new(seed));
        let got = content(&d, "/f");
        assert!(got[..700].iter().chain(&got[3700..]).all(|b| *b == 1));
        let pieces = [700..1024, 1024..1536, 1536..2048, 2048..2560, 2560..3072, 3072..3584, 3584..3700];
        let kept = pieces.iter().filter(|p| got[(*p).clone()].iter().all(|b| *b == 2)).count();
        let lost = pieces.iter().filter(|p| got[(*p).clone()].iter().all(|b| *b == 1)).count();
        assert_eq!(kept + lost, pieces.len());
        torn += u32::from(kept > 0 && lost > 0);
    }
    assert!(torn > 30, "{torn}");
}

#[test]
fn faults_fire_and_are_counted() {
    let d = MemDisk::new();
    let f = file(&d, "/t/../x".strip_prefix("/t/..").unwrap());
    d.sync_dir("/").unwrap();
    d.set_faults(FaultPlan { capacity_bytes: Some(40_960), ..FaultPlan::default() });
    let e = f.write_at(&[1; 50_000], 0).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(28));
    assert_eq!((f.stat().unwrap().len, d.used_bytes(), d.space("/").unwrap().free), (40_960, 40_960, 0));
    f.write_at(&[2; 100], 0).unwrap();
    f.set_len(0).unwrap();
    f.allocate(0, 0, 40_960).unwrap();
    assert!(file(&d, "/y").write_at(&[1], 0).is_err());
    f.write_at(&[3; 40_960], 0).unwrap();

    d.set_faults(FaultPlan { sync_error_ppm: 1_000_000, ..FaultPlan::default() });
    assert!(f.sync_data().is_err());
    d.set_faults(FaultPlan::default());
    f.sync_data().unwrap();
    assert_eq!(content(&d, "/x"), [3; 40_960], "the page cache still has it");

    d.set_faults(FaultPlan { ignore_flush: true, only_below: Some("/x".into()), ..FaultPlan::default() });
    f.write_at(&[4; 512], 0).unwrap();
    f.sync_data().unwrap();
    d.crash_with(CrashMode::LoseAll, &mut Rng::new(3));
    assert!(content(&d, "/x").first().is_none_or(|b| *b != 4));

    d.set_faults(FaultPlan {
        read_error_ppm: 300_000,
        write_error_ppm: 300_000,
        bit_flip_ppm: 300_000,
        seed: 5,
        ..FaultPlan::default()
    });
    let f = file(&d, "/z");
    for _ in 0..50 {
        let _ = f.write_at(&[0; 1000], 0);
        let mut b = [0; 1000];
        if f.read_at(&mut b, 0).is_ok() {
            assert!(b.iter().map(|b| b.count_ones()).sum::<u32>() <= 1);
        }
    }
    let c = d.counters();
    assert!(c.read_errors > 5 && c.write_errors > 5 && c.bit_flips > 3, "{c:?}");
    assert!(c.no_space == 2 && c.sync_errors == 1 && c.ignored_flushes == 1 && c.crashes == 1, "{c:?}");
}

/// What Linux does: pages that could not be written are clean, so the next flush says that all is well.
#[test]
fn a_failed_flush_leaves_bytes_that_only_the_page_cache_has() {
    for dropped in [false, true] {
        let d = MemDisk::new();
        let f = file(&d, "/f");
        d.sync_dir("/").unwrap();
        f.write_at(&[1; 10_000], 0).unwrap();
        f.sync_data().unwrap();
        let mut kept = 0;
        for i in 0..64u64 {
            f.write_at(&[2; 4096], 4096 * i).unwrap();
        }
        d.set_faults(FaultPlan { sync_error_ppm: 1_000_000, seed: 4, ..FaultPlan::default() });
        assert!(f.sync_data().is_err());
        d.set_faults(FaultPlan::default());
        assert!(content(&d, "/f").iter().all(|b| *b == 2), "readable");
        f.sync_data().unwrap();
        assert!(content(&d, "/f").iter().all(|b| *b == 2), "and clean");
        if dropped {
            f.drop_cached().unwrap();
            let seen = content(&d, "/f");
            assert_eq!(seen.len(), 64 * 4096, "the size is no page");
            kept = seen.iter().filter(|b| **b == 2).count();
            assert!(kept > 0 && kept < seen.len() && d.counters().phantom_pages > 0);
        }
        // What is written and flushed afterwards is there, and brings nothing back.
        f.write_at(&[3; 10], 100).unwrap();
        f.sync_data().unwrap();
        d.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
        let left = content(&d, "/f");
        assert_eq!(left[100..110], [3; 10]);
        let again = left.iter().filter(|b| **b == 2).count();
        assert!(again < 64 * 4096 - 10, "gone with the power");
        assert!(!dropped || again + 10 >= kept, "what the disk showed is there");
    }
}

#[test]
fn what_is_not_flushed_yet_is_flushed_before_it_is_dropped() {
    let d = MemDisk::new();
    let f = file(&d, "/f");
    d.sync_dir("/").unwrap();
    f.write_at(&[1; 5000], 3).unwrap();
    f.drop_cached().unwrap();
    d.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
    assert_eq!(content(&d, "/f")[3..], [1; 5000]);
    // A disk that lies keeps it dirty.
    let f = file(&d, "/f");
    d.set_faults(FaultPlan { ignore_flush: true, ..FaultPlan::default() });
    f.write_at(&[2; 10], 0).unwrap();
    f.set_len(6000).unwrap();
    f.drop_cached().unwrap();
    let now = content(&d, "/f");
    assert_eq!((now.len(), &now[..11]), (6000, &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1][..]));
    assert_eq!(d.counters().phantom_pages, 0);
}
