//! Servers that stop and start again under their clients.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, O_RDWR, call};
use bytes::Bytes;
use client::PosixLock;
use model::{Errno, SetAttr};
use std::sync::Arc;
use wire::msg::enqueue::LockMode::Write;

#[test]
fn opens_and_locks_outlive_a_metadata_server() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 2).await;
        write(&a, &f, 0, "before").await;
        client::Locks(&a)
            .setlk(f.fid, PosixLock { owner: 1, pid: 1, mode: Write, start: 0, end: 9 }, false)
            .await
            .unwrap();
        client::Locks(&a).flock(f.fid, 3, 1, Write, false).await.unwrap();
        b.clone().unlink(call(), b.root(), b"f".to_vec()).await.unwrap();
        let waiter = {
            let (b, fid) = (b.clone(), f.fid);
            c.spawn(async move { client::Locks(&b).flock(fid, 3, 2, Write, true).await })
        };
        c.world.sleep(std::time::Duration::from_millis(50)).await;
        c.stop_mdt().await;
        c.start_mdt().await;
        // Unlinked and open: there because a said so. Locks are held as before.
        assert_eq!(c.within(a.clone().getattr(call(), f.fid)).await.unwrap().nlink, 0);
        let l = PosixLock { owner: 1, pid: 2, mode: Write, start: 5, end: 5 };
        assert_eq!(c.within(client::Locks(&b).setlk(f.fid, l, false)).await, Err(Errno::EAGAIN));
        client::Locks(&a).funlock(f.fid, 3).await.unwrap();
        c.within(waiter).await.unwrap().unwrap();
        assert_eq!(&read(&a, &f, 0, 10).await[..], b"before");
        write(&a, &f, 100_000, "after").await;
        client::Locks(&b).funlock(f.fid, 3).await.unwrap();
        let fid = f.fid;
        a.clone().close(f).await.unwrap();
        assert!(a.clone().getattr(call(), fid).await.is_err());
        striped(&a, "new", 2).await;
    });
}

/// Writes and creates go on while servers restart under them; all that was acknowledged is there.
#[test]
fn work_goes_on_over_restarts() {
    let c = Cluster::start(3);
    c.run(async {
        let a = c.mount().await;
        let work = {
            let a = a.clone();
            c.spawn(async move {
                for i in 0..60u32 {
                    let f = striped(&a, &format!("w{i}"), (i % 3 + 1) as i32).await;
                    for part in 0..3u32 {
                        let data = Bytes::from(vec![(i + part) as u8; 70_000]);
                        let at = a.clone().write(call(), f.fid, 0, true, false, data).await.unwrap();
                        assert_eq!(at, u64::from(part) * 70_000, "exactly once");
                    }
                    a.clone().close(f).await.unwrap();
                }
            })
        };
        for round in 0..3u16 {
            c.world.sleep(std::time::Duration::from_millis(100)).await;
            c.stop_mdt().await;
            c.start_mdt().await;
            c.stop_ost(round).await;
            c.start_ost(round).await;
        }
        c.stop_mgs().await;
        c.start_mgs().await;
        c.within_secs(120, work).await.unwrap();
        let b = c.mount().await;
        for i in 0..60u32 {
            let attr = b.clone().lookup(call(), b.root(), format!("w{i}").into_bytes()).await.unwrap();
            assert_eq!(attr.size, 210_000);
            let f = std::sync::Arc::new(b.clone().open(call(), attr.fid, 0).await.unwrap());
            let got = read(&b, &f, 0, 300_000).await;
            for part in 0..3usize {
                assert!(
                    got[part * 70_000..(part + 1) * 70_000].iter().all(|&x| x == (i as usize + part) as u8)
                );
            }
            b.clone().close(f).await.unwrap();
        }
    });
}

/// Files with objects on an OST that was lost and replaced are errors, not empty, until they are truncated to
/// nothing or removed. New files there are as good as anywhere.
#[test]
fn what_a_replaced_target_had_is_lost_not_empty() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let mut files = Vec::new();
        for (name, stripes) in [("cut", 2), ("gone", 2), ("kept", 2)] {
            let f = striped(&a, name, stripes).await;
            write(&a, &f, 0, vec![7; 200_000]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            files.push(f);
        }
        let empty = striped(&a, "empty", 2).await;
        a.clone().unmount().await;
        c.replace_ost(1).await;
        let b = c.mount().await;
        let stat = async |name: &str| {
            let fid = b.clone().lookup(call(), b.root(), name.into()).await.unwrap().fid;
            b.clone().getattr(call(), fid).await
        };
        for f in &files {
            let f = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
            assert_eq!(b.clone().getattr(call(), f.fid).await.err(), Some(Errno::EIO));
            assert_eq!(b.clone().read(call(), f.clone(), 0, 200_000).await.err(), Some(Errno::EIO));
            let both = Bytes::from(vec![1; 131_072]);
            let written = b.clone().write(call(), f.fid, 0, false, false, both).await;
            assert_eq!(written.err(), Some(Errno::EIO));
            let cut = SetAttr { size: Some(70_000), ..SetAttr::default() };
            assert_eq!(b.clone().setattr(call(), f.fid, cut).await.err(), Some(Errno::EIO));
            assert!(b.clone().seek(call(), f.fid, 0, true).await.is_err());
            b.clone().close(f).await.unwrap();
        }
        // Nobody can tell whether it had something.
        assert_eq!(stat("empty").await.err(), Some(Errno::EIO));
        b.clone().unlink(call(), b.root(), b"empty".to_vec()).await.unwrap();
        let _ = empty;
        b.clone().unlink(call(), b.root(), b"gone".to_vec()).await.unwrap();
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(b.clone().setattr(call(), files[0].fid, cut).await.unwrap().size, 0);
        let f = Arc::new(b.clone().open(call(), files[0].fid, O_RDWR).await.unwrap());
        write(&b, &f, 0, vec![8; 200_000]).await;
        b.clone().fsync(call(), f.fid).await.unwrap();
        let new = striped(&b, "new", 2).await;
        assert_eq!(stat("new").await.unwrap().size, 0);
        write(&b, &new, 0, vec![9; 200_000]).await;
        b.clone().fsync(call(), new.fid).await.unwrap();
        // As good after a restart, and to others.
        c.stop_ost(1).await;
        c.start_ost(1).await;
        let d = c.mount().await;
        for (f, byte) in [(&f, 8), (&new, 9)] {
            let f = Arc::new(d.clone().open(call(), f.fid, 0).await.unwrap());
            assert_eq!(&read(&d, &f, 0, 300_000).await[..], &[byte; 200_000]);
        }
        assert_eq!(d.clone().getattr(call(), files[2].fid).await.err(), Some(Errno::EIO));
    });
}
