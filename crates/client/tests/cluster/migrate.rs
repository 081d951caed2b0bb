//! Files that are moved to other objects while they are used.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, O_CREAT, O_RDWR, call};
use client::{Fs, OpenHandle};
use model::{Fid, Layout, LayoutSpec, SetAttr};
use std::sync::Arc;
use std::time::Duration;

async fn migrate(fs: &Arc<Fs>, fid: Fid, stripe_count: i32) -> Layout {
    let spec = LayoutSpec { stripe_count, stripe_size: 65536, ..LayoutSpec::default() };
    client::Admin(fs).migrate(call(), fid, spec).await.unwrap()
}

async fn open(fs: &Arc<Fs>, fid: Fid) -> Arc<OpenHandle> {
    Arc::new(fs.clone().open(call(), fid, O_RDWR).await.unwrap())
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + n) as u8).collect()
}

#[test]
fn open_files_go_on_where_the_data_went() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = striped(&a, "f", 2).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        let mut want = bytes(1, 300_000);
        write(&a, &fa, 0, want.clone()).await;
        a.clone().fsync(call(), fid).await.unwrap();
        for (n, stripes) in [3, 1, 2, 3].into_iter().enumerate() {
            // Kept by one, and not sent yet; read and kept by the other.
            let part = bytes(n as u64, 5000);
            want[n * 50_000..n * 50_000 + 5000].copy_from_slice(&part);
            write(&b, &fb, n as u64 * 50_000, part).await;
            let before = a.clone().getattr(call(), fid).await.unwrap();
            let l = c.within(migrate(if n % 2 == 0 { &a } else { &b }, fid, stripes)).await;
            assert_eq!((l.stripe_count(), l.generation), (stripes as usize, n as u32 + 1));
            let after = b.clone().getattr(call(), fid).await.unwrap();
            assert_eq!(
                (after.size, after.mtime, after.ctime),
                (before.size, before.mtime, before.ctime),
                "nobody changed the file"
            );
            for fs in [&a, &b] {
                assert_eq!(client::Admin(fs).getlayout(call(), fid).await.unwrap(), Some(l.clone()));
            }
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "after move {n}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "after move {n}, the other mount");
            let tail = bytes(9, 1000);
            b.clone().write(call(), fid, 0, true, false, tail.clone().into()).await.unwrap();
            want.extend_from_slice(&tail);
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "appended after move {n}");
        }
        let set = SetAttr { size: Some(70_000), ..SetAttr::default() };
        a.clone().setattr(call(), fid, set).await.unwrap();
        migrate(&b, fid, 1).await;
        assert!(read(&b, &fb, 0, 1 << 20).await == want[..70_000]);
    });
}

#[test]
fn holes_stay_holes_and_a_file_without_bytes_has_none() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "sparse", 2).await;
        let set = SetAttr { size: Some(10 << 20), ..SetAttr::default() };
        a.clone().setattr(call(), f.fid, set).await.unwrap();
        migrate(&a, f.fid, 3).await;
        let e = b.clone().getattr(call(), f.fid).await.unwrap();
        assert_eq!((e.size, e.blocks), (10 << 20, 0), "a hole takes no space");
        write(&b, &f, 5 << 20, bytes(3, 100)).await;
        migrate(&a, f.fid, 2).await;
        assert_eq!(read(&b, &f, 5 << 20, 100).await, bytes(3, 100));
        let data = b.clone().seek(call(), f.fid, 0, false).await.unwrap();
        assert!((4 << 20..=5 << 20).contains(&data), "{data}");
        assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().size, 10 << 20);
        let empty = striped(&a, "empty", 1).await;
        migrate(&b, empty.fid, 3).await;
        assert_eq!(a.clone().getattr(call(), empty.fid).await.unwrap().size, 0);
        assert!(read(&a, &empty, 0, 10).await.is_empty());
    });
}

/// Bytes that were written to all object servers.
fn written(c: &Cluster) -> u64 {
    let of = |text: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.starts_with("write_bytes "))?;
        line.split_whitespace().nth(6)?.parse().ok()
    };
    c.ost_params("obdfilter.*.stats").iter().filter_map(|(_, text)| of(text)).sum()
}

#[test]
fn what_nobody_changes_is_copied_once() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let (f, data) = (striped(&a, "f", 2).await, bytes(5, 3_000_000));
        write(&a, &f, 0, data.clone()).await;
        // What a client keeps is written before anything is copied.
        let before = written(&c);
        migrate(&b, f.fid, 3).await;
        assert_eq!(written(&c) - before, 2 * 3_000_000, "from the client, and to the new objects");
        assert!(read(&b, &f, 0, 4 << 20).await == data);
    });
}

#[test]
fn a_group_that_holds_the_file_is_waited_for() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 2).await;
        a.clone().group_lock(f.clone(), 7, true).await.unwrap();
        write(&a, &f, 0, vec![1; 100_000]).await;
        let mut moving = {
            let (b, fid) = (b.clone(), f.fid);
            c.spawn(async move { migrate(&b, fid, 1).await })
        };
        c.world.sleep(Duration::from_millis(100)).await;
        assert!(moving.try_recv().is_err(), "the group is at work");
        write(&a, &f, 100_000, vec![2; 100_000]).await;
        a.clone().group_unlock(f.clone(), 7).await.unwrap();
        assert_eq!(c.within(moving).await.unwrap().stripe_count(), 1);
        let got = read(&b, &f, 0, 1 << 20).await;
        assert!(got.len() == 200_000 && got[..100_000].iter().all(|x| *x == 1));
        assert!(got[100_000..].iter().all(|x| *x == 2));
    });
}

#[test]
fn writers_lose_no_byte_while_the_file_goes_back_and_forth() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 3).await;
        let mut writers = Vec::new();
        for (n, fs) in [&a, &b].into_iter().enumerate() {
            let (fs, f) = (fs.clone(), open(fs, f.fid).await);
            writers.push(c.spawn(async move {
                for i in 0..200u64 {
                    let at = (2 * i + n as u64) * 3000;
                    write(&fs, &f, at, vec![i as u8 + 1; 3000]).await;
                    let got = read(&fs, &f, at, 3000).await;
                    assert!(got.len() == 3000 && got.iter().all(|x| *x == i as u8 + 1), "record {i} of {n}");
                }
            }));
        }
        for n in 0..12 {
            c.within(migrate(if n % 2 == 0 { &a } else { &b }, f.fid, n % 3 + 1)).await;
        }
        for w in writers {
            c.within(w).await.unwrap();
        }
        let got = read(&b, &f, 0, 2 << 20).await;
        assert_eq!(got.len(), 400 * 3000);
        for (i, r) in got.chunks(3000).enumerate() {
            assert!(r.iter().all(|x| *x == (i / 2) as u8 + 1), "record {i}");
        }
    });
}

/// As [`migrate`], to the inode if there is room for it, and later to so many stripes.
async fn bring_in(fs: &Arc<Fs>, fid: Fid, stripe_count: i32) -> Layout {
    let mut spec = LayoutSpec { stripe_count, stripe_size: 65536, ..LayoutSpec::default() };
    spec.set_mdt_bytes(65536);
    client::Admin(fs).migrate(call(), fid, spec).await.unwrap()
}

#[test]
fn a_file_comes_to_its_inode_and_leaves_it_while_two_mounts_use_it() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = striped(&a, "f", 2).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        let mut want = bytes(1, 40_000);
        write(&a, &fa, 0, want.clone()).await;
        for n in 0..6u64 {
            // Kept by one mount, and not sent yet.
            let (user, uf) = if n % 3 == 0 { (&b, &fb) } else { (&a, &fa) };
            let part = bytes(n + 20, 500);
            want[n as usize * 3000..n as usize * 3000 + 500].copy_from_slice(&part);
            write(user, uf, n * 3000, part).await;
            let before = a.clone().getattr(call(), fid).await.unwrap();
            let mover = if n % 2 == 0 { &a } else { &b };
            let within = n % 2 == 0;
            let l = if within {
                c.within(bring_in(mover, fid, 2)).await
            } else {
                c.within(migrate(mover, fid, 3)).await
            };
            assert_eq!(l.mdt_component().is_some(), within, "move {n}: {l:?}");
            assert_eq!(l.object_count(), if within { 0 } else { 3 }, "move {n}");
            for fs in [&a, &b] {
                let after = fs.clone().getattr(call(), fid).await.unwrap();
                assert_eq!(
                    (after.size, after.mtime, after.ctime),
                    (before.size, before.mtime, before.ctime),
                    "move {n} is no change of the file"
                );
                assert_eq!(client::Admin(fs).getlayout(call(), fid).await.unwrap(), Some(l.clone()));
            }
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "after move {n}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "after move {n}, the other mount");
            let tail = bytes(9, 100);
            b.clone().write(call(), fid, 0, true, false, tail.clone().into()).await.unwrap();
            want.extend_from_slice(&tail);
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "appended after move {n}");
            let set = SetAttr { size: Some(want.len() as u64 - 7), ..SetAttr::default() };
            a.clone().setattr(call(), fid, set).await.unwrap();
            want.truncate(want.len() - 7);
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "cut after move {n}");
        }
        // It outgrows its inode as any other file does, and goes where it was said to go.
        bring_in(&a, fid, 2).await;
        write(&b, &fb, 100_000, bytes(3, 10)).await;
        let l = client::Admin(&a).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(l.stripe_count(), 2);
        want.resize(100_000, 0);
        want.extend(bytes(3, 10));
        assert!(read(&a, &fa, 0, 1 << 20).await == want);
    });
}

#[test]
fn a_file_without_room_at_its_inode_gets_what_it_would_have_grown_into() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "large", 1).await;
        write(&a, &f, 0, bytes(1, 65_537)).await;
        let l = bring_in(&b, f.fid, 3).await;
        assert_eq!((l.mdt_component(), l.object_count()), (None, 3));
        assert!(read(&b, &f, 0, 1 << 20).await == bytes(1, 65_537));
        // With a hole at its end, and one within.
        let f = striped(&a, "sparse", 2).await;
        write(&a, &f, 30_000, bytes(2, 100)).await;
        let set = SetAttr { size: Some(60_000), ..SetAttr::default() };
        a.clone().setattr(call(), f.fid, set).await.unwrap();
        let l = bring_in(&b, f.fid, 2).await;
        assert!(l.mdt_component().is_some());
        let e = a.clone().getattr(call(), f.fid).await.unwrap();
        assert_eq!((e.size, e.blocks), (60_000, 8), "holes stay holes");
        let data = b.clone().seek(call(), f.fid, 0, false).await.unwrap();
        assert!((26_000..=30_000).contains(&data), "{data}");
        // Another room, and another layout behind it; nothing moves.
        let mut spec = LayoutSpec { stripe_count: 1, stripe_size: 65536, ..LayoutSpec::default() };
        spec.set_mdt_bytes(131_072);
        let l = client::Admin(&a).migrate(call(), f.fid, spec).await.unwrap();
        assert_eq!((l.data_room(), l.generation), (Some(131_072), 2));
        write(&b, &f, 100_000, bytes(4, 100)).await;
        assert_eq!(read(&a, &f, 30_000, 100).await, bytes(2, 100));
        assert_eq!(read(&a, &f, 100_000, 1000).await, bytes(4, 100));
        let empty = striped(&a, "empty", 1).await;
        assert!(bring_in(&b, empty.fid, 1).await.mdt_component().is_some());
        assert!(read(&a, &empty, 0, 10).await.is_empty());
        write(&a, &empty, 0, bytes(1, 10)).await;
        assert_eq!(read(&b, &empty, 0, 100).await, bytes(1, 10));
    });
}

#[test]
fn what_an_owner_wrote_and_has_not_told_keeps_nobody_from_moving_the_file() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let flags = O_RDWR | O_CREAT;
        let (_, f) = a.clone().create(call(), dir, b"f".to_vec(), 0o644, flags, None).await.unwrap();
        let f = Arc::new(f);
        for n in 0..10 {
            let want = bytes(n, 3000);
            let before = a.pending_state().0;
            write(&a, &f, 0, want.clone()).await;
            assert!(n > 0 || a.pending_state().0 > before, "a mount executed it by itself");
            let l = c.within_secs(5, migrate(&b, f.fid, 1 + n as i32 % 2)).await;
            assert!(l.has_objects());
            assert_eq!(read(&a, &f, 0, 1 << 20).await, want);
            let mut spec = LayoutSpec { stripe_count: 1, ..LayoutSpec::default() };
            spec.set_mdt_bytes(65536);
            let l = c.within_secs(5, client::Admin(&b).migrate(call(), f.fid, spec)).await.unwrap();
            assert!(l.mdt_component().is_some());
        }
    });
}
