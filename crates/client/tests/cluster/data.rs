//! File data: stripes, holes, ends, atomicity between mounts.

use crate::cache::requests;
use crate::harness::{Cluster, O_CREAT, O_RDWR, call, user};
use bytes::Bytes;
use client::control::Flush;
use client::{Fs, OpenHandle};
use model::{Errno, LayoutSpec, SetAttr};
use std::sync::Arc;

/// `count` 0: nothing is said, so that the data lies with the inode at first.
pub async fn striped(fs: &Arc<Fs>, name: &str, count: i32) -> Arc<OpenHandle> {
    let spec = LayoutSpec { stripe_count: count, stripe_size: 65536, ..LayoutSpec::default() };
    let spec = (count > 0).then_some(spec);
    let (_, f) =
        fs.clone().create(call(), fs.root(), name.into(), 0o644, O_CREAT | O_RDWR, spec).await.unwrap();
    Arc::new(f)
}

pub async fn write(fs: &Arc<Fs>, f: &OpenHandle, off: u64, data: impl Into<Bytes>) {
    fs.clone().write(call(), f.fid, off, false, false, data.into()).await.unwrap();
}

pub async fn read(fs: &Arc<Fs>, f: &Arc<OpenHandle>, off: u64, len: u32) -> Bytes {
    fs.clone().read(call(), f.clone(), off, len).await.unwrap()
}

#[test]
fn holes_and_ends_over_several_stripes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in 0..=3 {
            let f = striped(&a, &format!("holes{count}"), count).await;
            assert!(read(&b, &f, 0, 10).await.is_empty());
            write(&a, &f, 200_000, vec![9; 10]).await;
            assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().size, 200_010);
            let got = read(&b, &f, 0, 1 << 20).await;
            assert_eq!(got.len(), 200_010, "{count} stripes");
            assert!(got[..200_000].iter().all(|&x| x == 0) && got[200_000..].iter().all(|&x| x == 9));
            assert_eq!(read(&b, &f, 65_530, 20).await, vec![0; 20]);
            assert!(read(&b, &f, 200_010, 20).await.is_empty());
            assert_eq!(b.clone().seek(call(), f.fid, 0, true).await, Ok(0));
            let data = b.clone().seek(call(), f.fid, 0, false).await.unwrap();
            assert!((131_072..=200_000).contains(&data), "{data}");
            assert_eq!(b.clone().seek(call(), f.fid, 200_005, true).await, Ok(200_010));
            assert_eq!(b.clone().seek(call(), f.fid, 200_010, true).await, Err(Errno::ENXIO));
            a.clone().fsync(call(), f.fid).await.unwrap();
            a.clone().close(f).await.unwrap();
        }
    });
}

#[test]
fn a_data_version_goes_up_with_each_change_of_any_mount() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for (count, flush) in (0..=3).flat_map(|n| [(n, Flush::Written), (n, Flush::Everything)]) {
            let f = striped(&a, &format!("version{count}{flush:?}"), count).await;
            let version = |flush| client::Admin(&a).data_version(call(), f.fid, flush);
            let mut last = version(flush).await.unwrap();
            for n in 0..4u8 {
                let writer = if n % 2 == 0 { &a } else { &b };
                write(writer, &f, 150_000 * u64::from(n), vec![n; 100_000]).await;
                let now = version(flush).await.unwrap();
                assert!(now > last, "{count} stripes, {flush:?}: {last}, then {now}");
                assert_eq!(read(&b, &f, 150_000 * u64::from(n), 5).await, vec![n; 5]);
                assert_eq!(version(flush).await, Ok(now), "nothing was changed");
                last = version(Flush::Nothing).await.unwrap();
                assert_eq!(last, now);
            }
            let set = SetAttr { size: Some(10), ..SetAttr::default() };
            b.clone().setattr(call(), f.fid, set).await.unwrap();
            assert!(version(flush).await.unwrap() > last, "cut");
        }
        let dir = client::Admin(&a).data_version(call(), a.root(), Flush::Written).await;
        assert_eq!(dir, Err(Errno::EINVAL));
        let secret = striped(&a, "secret", 1).await;
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        a.clone().setattr(call(), secret.fid, mode).await.unwrap();
        let denied = client::Admin(&b).data_version(user(7), secret.fid, Flush::Written).await;
        assert_eq!(denied, Err(Errno::EACCES));
    });
}

#[test]
fn locks_that_were_taken_ahead_are_not_asked_for_again() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in 1..=3 {
            let f = striped(&a, &format!("ahead{count}"), count).await;
            write(&b, &f, 0, vec![1; 500_000]).await;
            let admin = client::Admin(&a);
            let first = requests(&a, "ost_extent");
            admin.lock_ahead(call(), f.fid, true, (0, 499_999)).await.unwrap();
            let before = requests(&a, "ost_extent");
            assert!(before >= first + count as u64, "one for each object at least");
            write(&a, &f, 100, vec![2; 400_000]).await;
            assert_eq!(requests(&a, "ost_extent"), before, "{count} stripes");
            assert_eq!(read(&b, &f, 99, 3).await.as_ref(), [1, 2, 2]);
            assert_eq!(admin.lock_ahead(call(), f.fid, true, (5, 4)).await, Err(Errno::EINVAL));
            assert_eq!(admin.lock_ahead(user(7), f.fid, true, (0, 4)).await, Err(Errno::EACCES));
        }
        let inside = striped(&a, "inside", 0).await;
        client::Admin(&a).lock_ahead(call(), inside.fid, false, (0, 10)).await.unwrap();
    });
}

#[test]
fn truncate_cuts_and_extends() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in 0..=3 {
            let f = striped(&a, &format!("cut{count}"), count).await;
            write(&a, &f, 0, vec![5; 400_000]).await;
            for size in [399_999, 131_072, 131_073, 70_000, 1, 0, 500_000, 65_536, 0] {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                assert_eq!(
                    b.clone().setattr(call(), f.fid, set).await.unwrap().size,
                    size,
                    "{count} stripes"
                );
                assert_eq!(a.clone().getattr(call(), f.fid).await.unwrap().size, size);
                assert_eq!(read(&a, &f, 0, 1 << 20).await.len() as u64, size);
            }
            write(&a, &f, 100_000, vec![6; 100_000]).await;
            let set = SetAttr { size: Some(150_000), ..SetAttr::default() };
            b.clone().setattr(call(), f.fid, set).await.unwrap();
            let set = SetAttr { size: Some(200_000), ..SetAttr::default() };
            b.clone().setattr(call(), f.fid, set).await.unwrap();
            let got = read(&a, &f, 0, 1 << 20).await;
            assert!(got[150_000..].iter().all(|&x| x == 0), "no old bytes come back behind a cut");
            a.clone().close(f).await.unwrap();
        }
    });
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let f = striped(&a, "big", 2).await;
        let max = i64::MAX as u64;
        let one = || Bytes::from_static(b"x");
        assert_eq!(a.clone().write(call(), f.fid, max, false, false, one()).await, Err(Errno::EFBIG));
        assert_eq!(a.clone().write(call(), f.fid, u64::MAX, false, false, one()).await, Err(Errno::EFBIG));
        let set = SetAttr { size: Some(max + 1), ..SetAttr::default() };
        assert_eq!(a.clone().setattr(call(), f.fid, set).await.unwrap_err(), Errno::EFBIG);
        assert!(read(&a, &f, max - 1, 10).await.is_empty());
        assert_eq!(a.clone().fallocate(call(), f.fid, 0, max, 1).await, Err(Errno::EFBIG));
    });
}

#[test]
fn fallocate_over_several_stripes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in 0..=3 {
            let f = striped(&a, &format!("fa{count}"), count).await;
            a.clone().fallocate(call(), f.fid, 0, 10, 199_990).await.unwrap();
            assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().size, 200_000);
            a.clone().fallocate(call(), f.fid, 1, 0, 400_000).await.unwrap();
            assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().size, 200_000);
            write(&b, &f, 0, vec![3; 200_000]).await;
            a.clone().fallocate(call(), f.fid, 3, 60_000, 80_000).await.unwrap();
            b.clone().fallocate(call(), f.fid, 0x10, 190_000, 20_000).await.unwrap();
            let got = read(&a, &f, 0, 1 << 20).await;
            assert_eq!(got.len(), 210_000);
            for (i, &x) in got.iter().enumerate() {
                let zero = (60_000..140_000).contains(&i) || i >= 190_000;
                assert_eq!(x, if zero { 0 } else { 3 }, "byte {i} of {count} stripes");
            }
            assert_eq!(a.clone().fallocate(call(), f.fid, 8, 0, 4096).await, Err(Errno::EOPNOTSUPP));
            a.clone().close(f).await.unwrap();
        }
    });
}

#[test]
fn ranges_are_copied() {
    let c = Cluster::start(3);
    c.run(async {
        let a = c.mount().await;
        let (f, g) = (striped(&a, "from", 2).await, striped(&a, "to", 3).await);
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        write(&a, &f, 0, bytes.clone()).await;
        let n = a.clone().copy_file_range(call(), f.fid, 1000, g.fid, 7, 1 << 30).await.unwrap();
        assert_eq!(n, 299_000);
        assert_eq!(read(&a, &g, 7, 1 << 20).await, bytes[1000..]);
        assert_eq!(a.clone().copy_file_range(call(), f.fid, 0, f.fid, 10, 11).await, Err(Errno::EINVAL));
        assert_eq!(a.clone().copy_file_range(call(), f.fid, 0, f.fid, 300_000, 1000).await, Ok(1000));
        assert_eq!(a.clone().copy_file_range(call(), f.fid, 400_000, g.fid, 0, 10).await, Ok(0));
    });
}

/// Records of several mounts that append at the same time: all there, none torn.
#[test]
fn appends_from_two_mounts_lose_nothing() {
    let c = Cluster::start(3);
    c.run(async {
        let mounts = [c.mount().await, c.mount().await];
        for count in [0, 1, 3] {
            let f = striped(&mounts[0], &format!("log{count}"), count).await;
            let record = |who: u8, i: u16| -> Vec<u8> {
                let mut v = vec![who; 9_001];
                v[1..3].copy_from_slice(&i.to_le_bytes());
                v
            };
            let tasks = mounts.iter().enumerate().map(|(who, fs)| {
                let (fs, fid) = (fs.clone(), f.fid);
                c.spawn(async move {
                    for i in 0..40u16 {
                        let data = Bytes::from(record(who as u8, i));
                        fs.clone().write(call(), fid, 0, true, false, data).await.unwrap();
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            for t in tasks {
                t.await.unwrap();
            }
            let got = read(&mounts[1], &f, 0, 4 << 20).await;
            assert_eq!(got.len(), 80 * 9_001);
            let mut next = [0u16; 2];
            for r in got.chunks(9_001) {
                let who = r[0] as usize;
                assert_eq!(r, record(r[0], next[who]), "{count} stripes");
                next[who] += 1;
            }
            assert_eq!(next, [40, 40]);
        }
    });
}

/// Records with gaps between them, as one of several processes writes them: not a request each.
#[test]
fn records_with_gaps_go_in_one_request() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await;
        let record = |i: u64| vec![i as u8 + 1; 5_000];
        let writes = |fs: &Arc<Fs>| requests(fs, "ost_write");
        for i in 0..60 {
            write(&a, &f, 10_000 * i, record(i)).await;
        }
        a.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(writes(&a), 1);
        // The gaps, from elsewhere, while more comes here.
        let g = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
        for i in 0..60 {
            write(&b, &g, 10_000 * i + 5_000, record(100 + i)).await;
        }
        for i in 0..60 {
            write(&a, &f, 10_000 * i, record(30 + i)).await;
        }
        let got = read(&b, &g, 0, 1 << 20).await;
        assert_eq!(got.len(), 600_000);
        for (i, r) in (0..).zip(got.chunks(10_000)) {
            assert!(r[..5_000] == record(30 + i) && r[5_000..] == record(100 + i), "{i}");
        }
        assert!(writes(&a) + writes(&b) <= 6, "{} and {}", writes(&a), writes(&b));
    });
}

/// Two mounts overwrite the same range over several stripes while a third reads it: always one whole write.
#[test]
fn striped_writes_are_seen_whole() {
    let c = Cluster::start(3);
    c.run(async {
        let mounts = [c.mount().await, c.mount().await, c.mount().await];
        let f = striped(&mounts[0], "whole", 3).await;
        write(&mounts[0], &f, 0, vec![0; 200_000]).await;
        let writers = (0..2u8).map(|who| {
            let (fs, fid) = (mounts[who as usize].clone(), f.fid);
            c.spawn(async move {
                for i in 0..30u8 {
                    let data = Bytes::from(vec![who * 100 + i; 200_000]);
                    fs.clone().write(call(), fid, 0, false, false, data).await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        for _ in 0..60 {
            let got = read(&mounts[2], &f, 0, 200_000).await;
            assert_eq!(got.len(), 200_000);
            assert!(got.iter().all(|&x| x == got[0]), "a read saw parts of two writes");
        }
        for w in writers {
            w.await.unwrap();
        }
    });
}

async fn size_of(fs: &Arc<Fs>, f: &OpenHandle) -> u64 {
    fs.clone().getattr(call(), f.fid).await.unwrap().size
}

async fn on_mdt(fs: &Arc<Fs>, f: &OpenHandle) -> bool {
    client::Admin(fs).getlayout(call(), f.fid).await.unwrap().unwrap().mdt_component().is_some()
}

/// Small data lies with the inode, moves when it outgrows it, and is the same for a mount that knows the old
/// layout.
#[test]
fn a_small_file_grows_onto_objects() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let bytes: Vec<u8> = (0..70_000u32).map(|i| (i % 251) as u8).collect();
        for (i, last) in [65_537u64, 70_000].into_iter().enumerate() {
            let f = striped(&a, &format!("small{i}"), 0).await;
            let theirs = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
            write(&a, &f, 0, bytes[..30_000].to_vec()).await;
            write(&b, &theirs, 40_000, bytes[40_000..65_536].to_vec()).await;
            assert!(on_mdt(&a, &f).await);
            let before = b.clone().getattr(call(), f.fid).await.unwrap();
            assert_eq!((before.size, before.blocks), (65_536, (8 + 7) * 8), "with a hole");
            a.clone().fsync(call(), f.fid).await.unwrap();
            let got = read(&b, &theirs, 0, 1 << 20).await;
            assert_eq!((&got[..30_000], &got[40_000..]), (&bytes[..30_000], &bytes[40_000..65_536]));
            assert!(got[30_000..40_000].iter().all(|&x| x == 0));
            // One byte too many, written by the other.
            write(&b, &theirs, 65_536, bytes[65_536..last as usize].to_vec()).await;
            assert!(!on_mdt(&a, &f).await);
            // This mount still goes by what it knew.
            let got = read(&a, &f, 0, 1 << 20).await;
            assert_eq!((got.len() as u64, &got[40_000..]), (last, &bytes[40_000..last as usize]));
            assert!(got[30_000..40_000].iter().all(|&x| x == 0));
            write(&a, &f, 30_000, bytes[30_000..40_000].to_vec()).await;
            assert_eq!(read(&b, &theirs, 0, 1 << 20).await, bytes[..last as usize]);
            assert_eq!(size_of(&a, &f).await, last);
        }
    });
}

/// The way to objects by other verbs, and none where there is room.
#[test]
fn truncates_and_reservations_let_a_file_grow() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let f = striped(&a, "cut", 0).await;
        let theirs = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
        write(&a, &f, 0, vec![7; 100]).await;
        assert_eq!(a.clone().setattr(call(), f.fid, cut(65_536)).await.unwrap().size, 65_536);
        assert!(on_mdt(&a, &f).await);
        let before = size_and_times(&a, &f).await;
        assert_eq!(b.clone().setattr(call(), f.fid, cut(200_000)).await.unwrap().size, 200_000);
        assert!(!on_mdt(&a, &f).await);
        let got = read(&a, &f, 0, 1 << 20).await;
        assert!(got[..100].iter().all(|&x| x == 7) && got[100..].iter().all(|&x| x == 0));
        assert_eq!(got.len(), 200_000);
        assert!(size_and_times(&a, &f).await.1 > before.1);
        // Small again, but it stays where it is.
        b.clone().setattr(call(), f.fid, cut(0)).await.unwrap();
        write(&a, &f, 0, vec![8; 10]).await;
        assert!(!on_mdt(&a, &f).await);
        assert_eq!(read(&b, &theirs, 0, 100).await, vec![8; 10]);

        let g = striped(&a, "reserve", 0).await;
        write(&a, &g, 0, vec![9; 100]).await;
        a.clone().fallocate(call(), g.fid, 0, 100, 60_000).await.unwrap();
        assert!(on_mdt(&a, &g).await);
        a.clone().fallocate(call(), g.fid, 3, 0, 1 << 30).await.unwrap();
        assert!(on_mdt(&a, &g).await, "a hole needs no room");
        a.clone().fallocate(call(), g.fid, 0, 60_000, 60_000).await.unwrap();
        assert!(!on_mdt(&a, &g).await);
        assert_eq!(read(&b, &g, 0, 1 << 20).await, vec![0; 120_000]);
        assert_eq!(a.clone().fallocate(call(), g.fid, 8, 0, 1).await, Err(Errno::EOPNOTSUPP));
        assert_eq!(b.clone().seek(call(), g.fid, 200_000, true).await, Err(Errno::ENXIO));
    });
}

async fn size_and_times(fs: &Arc<Fs>, f: &OpenHandle) -> (u64, model::Timestamp) {
    let a = fs.clone().getattr(call(), f.fid).await.unwrap();
    (a.size, a.mtime)
}

/// Both mounts make it grow at once, by appends and by writes behind the limit.
#[test]
fn two_mounts_let_a_file_grow_at_once() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for round in 0..10u8 {
            let f = striped(&a, &format!("race{round}"), 0).await;
            let theirs = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
            write(&a, &f, 0, vec![1; 60_000]).await;
            let (fs, fid) = (a.clone(), f.fid);
            let one = c.spawn(async move {
                fs.clone().write(call(), fid, 0, true, false, Bytes::from(vec![2; 10_000])).await.unwrap()
            });
            let (fs, fid) = (b.clone(), theirs.fid);
            let two = c.spawn(async move {
                fs.clone().write(call(), fid, 0, true, false, Bytes::from(vec![3; 10_000])).await.unwrap()
            });
            let (x, y) = (one.await.unwrap(), two.await.unwrap());
            assert!(x != y && x + y == 130_000 && x.min(y) == 60_000, "{x} {y}");
            let got = read(&b, &theirs, 0, 1 << 20).await;
            assert_eq!(got.len(), 80_000);
            assert!(got[..60_000].iter().all(|&v| v == 1));
            assert!(got[x as usize..][..10_000].iter().all(|&v| v == 2));
            assert!(got[y as usize..][..10_000].iter().all(|&v| v == 3));
        }
    });
}
