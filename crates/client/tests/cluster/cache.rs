//! What mounts keep of files' data: that others never see it stale, that it is bounded, and that it gets out.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, call};
use client::{Fs, OpenHandle};
use model::{SetAttr, SetTime};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::writelist::RANGES_MAX;

pub fn number(fs: &Arc<Fs>, name: &str) -> u64 {
    fs.get_param(name).iter().map(|p| p.1.parse::<u64>().unwrap()).sum()
}

async fn settle(c: &Cluster, fs: &Arc<Fs>) {
    for _ in 0..200 {
        if number(fs, "osc.*.cur_dirty_bytes") == 0 {
            return;
        }
        c.world.sleep(Duration::from_millis(50)).await;
    }
    panic!("dirty bytes stay");
}

#[test]
fn written_bytes_stay_a_moment_and_get_out_by_age_by_fsync_and_by_a_look() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in [1, 3] {
            let f = striped(&a, &format!("kept{count}"), count).await;
            write(&a, &f, 0, vec![1; 300_000]).await;
            assert_eq!(number(&a, "osc.*.cur_dirty_bytes"), 300_000);
            assert_eq!(a.size_if_locked(f.fid), Some(300_000));
            assert_eq!(read(&a, &f, 299_990, 100).await, vec![1; 10]);
            assert_eq!(number(&a, "osc.*.cur_dirty_bytes"), 300_000, "own reads flush nothing");
            assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().size, 300_000);
            assert_eq!(number(&a, "osc.*.cur_dirty_bytes"), 300_000, "a glimpse flushes nothing");
            assert_eq!(read(&b, &f, 0, 1 << 20).await, vec![1; 300_000]);
            assert_eq!(number(&a, "osc.*.cur_dirty_bytes"), 0);
            write(&a, &f, 100, vec![2; 100]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            assert_eq!(number(&a, "osc.*.cur_dirty_bytes"), 0);
            write(&a, &f, 100, vec![3; 100]).await;
            settle(&c, &a).await;
            assert_eq!(read(&b, &f, 150, 100).await[..60], [[3u8; 50].as_slice(), &[1; 10]].concat());
        }
        assert_eq!(a.get_param("llite.*.write_errors")[0].1, "total: 0");
    });
}

/// How many requests of a kind went out.
pub fn requests(fs: &Arc<Fs>, kind: &str) -> u64 {
    let all: Vec<_> = ["osc.*.stats", "mdc.*.stats"].iter().flat_map(|n| fs.get_param(n)).collect();
    let lines = all.iter().flat_map(|p| p.1.lines());
    let of_kind = lines.filter(|l| l.split_whitespace().next() == Some(kind));
    of_kind.map(|l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn the_write_of_an_fsync_is_its_only_request() {
    let c = Cluster::start(3);
    c.run(async {
        let a = c.mount().await;
        for count in [1, 3] {
            let f = striped(&a, &format!("one{count}"), count).await;
            let sent = |kinds: [&str; 2]| kinds.map(|k| requests(&a, k));
            write(&a, &f, 0, vec![1; 5000]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            let before = sent(["ost_write", "ost_sync"]);
            write(&a, &f, 1000, vec![2; 4096]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            // The other objects may hold what other mounts wrote.
            let after = sent(["ost_write", "ost_sync"]);
            assert_eq!((after[0] - before[0], after[1] - before[1]), (1, count as u64 - 1));
            assert!(a.commit_state().values().all(|(last, committed, kept)| last <= committed && *kept == 0));
            // Two runs all the same; more than a message holds: written first, then committed.
            for (runs, requests) in [(2, (1, count as u64 - 1)), (RANGES_MAX as u64 + 1, (2, count as u64))] {
                for i in 0..runs {
                    write(&a, &f, 200 + 15 * i, vec![3; 10]).await;
                }
                let before = sent(["ost_write", "ost_sync"]);
                a.clone().fsync(call(), f.fid).await.unwrap();
                let after = sent(["ost_write", "ost_sync"]);
                assert_eq!((after[0] - before[0], after[1] - before[1]), requests);
            }
            // A restart keeps it.
            write(&a, &f, 0, vec![4; 100]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            for ost in 0..3 {
                c.stop_ost(ost).await;
                c.start_ost(ost).await;
            }
            assert_eq!(read(&a, &f, 0, 110).await, [[4u8; 100].as_slice(), &[1; 10]].concat());
        }
    });
}

#[test]
fn interleaved_records_of_several_mounts_are_all_there() {
    const RECORD: usize = 47_008;
    let c = Cluster::start(3);
    c.run(async {
        let mounts = [c.mount().await, c.mount().await, c.mount().await];
        for count in [1, 3] {
            let f = striped(&mounts[0], &format!("shared{count}"), count).await;
            let tasks: Vec<_> = mounts
                .iter()
                .cloned()
                .enumerate()
                .map(|(n, fs)| {
                    let fid = f.fid;
                    c.spawn(async move {
                        for i in 0..60 {
                            let at = ((i * 3 + n) * RECORD) as u64;
                            let data = vec![(i * 3 + n) as u8; RECORD];
                            fs.clone().write(call(), fid, at, false, false, data.into()).await.unwrap();
                        }
                    })
                })
                .collect();
            for t in tasks {
                t.await.unwrap();
            }
            for fs in &mounts {
                for i in (0..180).step_by(7) {
                    let got = read(fs, &f, (i * RECORD) as u64, RECORD as u32).await;
                    assert!(got.len() == RECORD && got.iter().all(|b| *b == i as u8), "record {i}");
                }
                assert_eq!(fs.clone().getattr(call(), f.fid).await.unwrap().size, 180 * RECORD as u64);
            }
        }
    });
}

#[test]
fn times_sizes_and_cuts_go_by_the_call_and_not_by_the_message() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "times", 3).await;
        write(&a, &f, 0, vec![1; 200_000]).await;
        let there = b.clone().getattr(call(), f.fid).await.unwrap();
        let here = a.clone().getattr(call(), f.fid).await.unwrap();
        assert_eq!((there.size, there.mtime), (here.size, here.mtime));
        a.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().mtime, here.mtime);
        // What is dirty when the time is set does not change it when it gets out.
        write(&a, &f, 0, vec![2; 10]).await;
        let old = model::Timestamp { sec: 1000, nsec: 0 };
        let set = SetAttr { mtime: Some(SetTime::At(old)), ..SetAttr::default() };
        a.clone().setattr(call(), f.fid, set).await.unwrap();
        a.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().mtime, old);
        // A cut forgets what is behind it, also when it is not written yet.
        write(&a, &f, 150_000, vec![9; 100_000]).await;
        let cut = SetAttr { size: Some(160_000), ..SetAttr::default() };
        assert_eq!(a.clone().setattr(call(), f.fid, cut).await.unwrap().size, 160_000);
        assert_eq!(read(&a, &f, 159_990, 100).await, vec![9; 10]);
        let cut = SetAttr { size: Some(100_000), ..SetAttr::default() };
        assert_eq!(b.clone().setattr(call(), f.fid, cut).await.unwrap().size, 100_000);
        write(&b, &f, 200_000, vec![7; 1]).await;
        let got = read(&a, &f, 99_999, 200_000).await;
        assert!(got.len() == 100_002 && got[0] == 1 && got[1..100_001].iter().all(|b| *b == 0));
        a.clone().fsync(call(), f.fid).await.unwrap();
    });
}

#[test]
fn what_is_kept_is_bounded_and_what_is_read_in_order_comes_ahead() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        a.set_param("llite.*.max_cached_mb", "64").unwrap();
        a.set_param("osc.*.max_dirty_mb", "4").unwrap();
        let f: Arc<OpenHandle> = striped(&a, "big", 2).await;
        for i in 0..100u64 {
            write(&a, &f, i << 20, vec![i as u8; 1 << 20]).await;
            assert!(number(&a, "osc.*.cur_dirty_bytes") <= 10 << 20);
        }
        settle(&c, &a).await;
        let used = || -> u64 {
            let text = a.get_param("llite.*.used_mb")[0].1.clone();
            text.split_whitespace().filter_map(|w| w.parse::<u64>().ok()).sum()
        };
        assert!(used() <= 64, "{}", used());
        for fs in [&a, &b] {
            for i in 0..100u64 {
                let got = read(fs, &f, i << 20, 1 << 20).await;
                assert!(got.len() == 1 << 20 && got.iter().all(|x| *x == i as u8), "{i}");
            }
        }
        assert!(used() <= 64 + 16, "{}", used());
        b.set_param("llite.*.max_read_ahead_per_file_mb", "0").unwrap();
        assert_eq!(read(&b, &f, 50 << 20, 10).await, vec![50; 10]);
    });
}

/// `lru_size=clear` of the object targets' namespaces writes what is dirty, and drops what is kept of data.
#[test]
fn data_is_dropped_with_its_locks() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let f = striped(&a, "f", 2).await;
        let data: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
        write(&a, &f, 0, data.clone()).await;
        let sum = |name: &str| {
            let values = a.get_param(name);
            assert_eq!(values.len(), 2, "{values:?}");
            values.iter().map(|v| v.1.parse::<u64>().unwrap()).sum::<u64>()
        };
        let kept = || a.get_param("llite.*.used_mb")[0].1.clone();
        let (held, unused) =
            ("ldlm.namespaces.*-osc-*.lock_count", "ldlm.namespaces.*-osc-*.lock_unused_count");
        assert_eq!((sum(held), sum(unused)), (2, 2));
        let before = kept();
        assert!(sum("osc.*.cur_dirty_bytes") > 0);
        a.set_param("ldlm.namespaces.*.lru_size", "clear").unwrap();
        c.within(client::Admin(&a).leases_dropped()).await.unwrap();
        assert_eq!((sum(held), sum(unused), sum("osc.*.cur_dirty_bytes")), (0, 0, 0));
        assert_ne!(kept(), before);
        assert_eq!(read(&a, &f, 0, 4 << 20).await, data);
        assert_eq!(sum(held), 2);
    });
}

/// With a bound the least recently used objects lose their locks; what was written stays written.
#[test]
fn locks_on_data_have_a_bound() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        a.set_param("ldlm.namespaces.*-osc-*.lru_size", "10").unwrap();
        let mut files = Vec::new();
        for i in 0..40u8 {
            let f = striped(&a, &format!("f{i}"), 1).await;
            write(&a, &f, 0, vec![i; 5000]).await;
            files.push(f);
        }
        let held = || a.get_param("ldlm.namespaces.*-osc-*.lock_count")[0].1.parse::<u64>().unwrap();
        c.within(async {
            while held() > 10 {
                c.world.sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert!(held() > 0, "the bound is none of all");
        for (i, f) in files.iter().enumerate() {
            assert_eq!(read(&a, f, 0, 9999).await, vec![i as u8; 5000]);
        }
    });
}
