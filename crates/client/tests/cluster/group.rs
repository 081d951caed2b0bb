//! Locks that processes on several mounts share.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, call};
use model::Errno;
use std::time::Duration;

#[test]
fn members_write_together_and_others_wait() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b, o) = (c.mount().await, c.mount().await, c.mount().await);
        for count in [0, 1, 3] {
            let fa = striped(&a, &format!("together{count}"), count).await;
            let open =
                |fs: &std::sync::Arc<client::Fs>| fs.clone().open(call(), fa.fid, crate::harness::O_RDWR);
            let fb = std::sync::Arc::new(open(&b).await.unwrap());
            write(&o, &fa, 0, vec![1; 300_000]).await;
            a.clone().group_lock(fa.clone(), 7, true).await.unwrap();
            assert_eq!(read(&a, &fa, 299_999, 10).await, vec![1]);
            let mut other = {
                let (o, f) = (o.clone(), fa.clone());
                c.spawn(
                    async move { o.clone().write(call(), f.fid, 5, false, false, vec![9; 1].into()).await },
                )
            };
            // Also behind somebody who waits for the group's end.
            c.world.sleep(Duration::from_millis(20)).await;
            c.within(b.clone().group_lock(fb.clone(), 7, true)).await.unwrap();
            for i in 0..40u64 {
                let (fs, f) = if i % 2 == 0 { (&a, &fa) } else { (&b, &fb) };
                write(fs, f, i * 10_007, vec![10 + i as u8; 10_007]).await;
            }
            a.clone().group_unlock(fa.clone(), 7).await.unwrap();
            assert_eq!(a.clone().group_unlock(fa.clone(), 7).await, Err(Errno::EINVAL));
            c.world.sleep(Duration::from_millis(100)).await;
            assert!(other.try_recv().is_err(), "a member is left");
            assert_eq!(o.clone().getattr(call(), fa.fid).await.unwrap().size, 400_280);
            b.clone().close(fb).await.unwrap();
            c.within(other).await.unwrap().unwrap();
            let got = read(&o, &fa, 0, 1 << 20).await;
            assert_eq!((got.len(), got[4], got[5], got[6]), (400_280, 10, 9, 10), "{count} stripes");
            for (i, part) in got.chunks(10_007).enumerate().skip(1) {
                assert!(part.iter().all(|x| *x == 10 + i as u8), "record {i}");
            }
            assert_eq!(read(&a, &fa, 0, 1 << 20).await, got);
        }
    });
}

#[test]
fn who_may_only_read_takes_no_group_lock_and_who_holds_one_is_shown() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 2).await;
        let reader = b.clone().open(call(), f.fid, 0).await.unwrap();
        let r = c.within(b.clone().group_lock(std::sync::Arc::new(reader), 7, true)).await;
        assert_eq!(r, Err(Errno::EBADF));
        let shown =
            || -> Vec<String> { c.ost_params("obdfilter.*.group_locks").into_iter().map(|p| p.1).collect() };
        assert_eq!(shown(), ["", ""]);
        a.clone().group_lock(f.clone(), 7, true).await.unwrap();
        for line in shown() {
            let start = format!("file={} ", f.fid);
            assert!(line.starts_with(&start) && line.contains(" group=7 waiting=0 client="), "{line}");
            assert!(line.contains("'test' at 127."), "{line}");
        }
        a.clone().group_unlock(f, 7).await.unwrap();
        c.until("nobody holds it", || async { shown() == ["", ""] }).await;
    });
}

#[test]
fn groups_exclude_each_other_between_mounts_and_on_one() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = striped(&a, "f", 2).await;
        let open = |fs: &std::sync::Arc<client::Fs>| fs.clone().open(call(), fa.fid, crate::harness::O_RDWR);
        let again = std::sync::Arc::new(open(&a).await.unwrap());
        let fb = std::sync::Arc::new(open(&b).await.unwrap());
        assert_eq!(a.clone().group_lock(fa.clone(), 0, true).await, Err(Errno::EINVAL));
        a.clone().group_lock(fa.clone(), 1, true).await.unwrap();
        assert_eq!(a.clone().group_lock(fa.clone(), 1, true).await, Err(Errno::EINVAL), "it has it");
        assert_eq!(a.clone().group_lock(again.clone(), 2, false).await, Err(Errno::EAGAIN));
        assert_eq!(b.clone().group_lock(fb.clone(), 2, false).await, Err(Errno::EAGAIN));
        a.clone().group_lock(again.clone(), 1, false).await.unwrap();
        let mut waiter = {
            let (b, f) = (b.clone(), fb.clone());
            c.spawn(async move { b.group_lock(f, 2, true).await })
        };
        // Longer than anybody has patience with a lock that is not given back.
        c.world.sleep(Duration::from_millis(300)).await;
        assert_eq!(a.clone().group_unlock(fa.clone(), 1).await, Ok(()));
        assert!(waiter.try_recv().is_err());
        assert_eq!(a.clone().group_unlock(again.clone(), 3).await, Err(Errno::EINVAL));
        a.clone().close(again).await.unwrap();
        c.within(waiter).await.unwrap().unwrap();
        // Who gives up waiting leaves nothing behind.
        let gone =
            c.world.timeout(Duration::from_millis(50), a.clone().group_lock(fa.clone(), 1, true)).await;
        assert!(gone.is_none());
        b.clone().group_unlock(fb, 2).await.unwrap();
        a.clone().group_lock(fa.clone(), 4, true).await.unwrap();
        write(&a, &fa, 0, vec![3; 10]).await;
        // At the end: appends of one member go on.
        a.clone().write(call(), fa.fid, 0, true, false, vec![4; 5].into()).await.unwrap();
        a.clone().group_unlock(fa.clone(), 4).await.unwrap();
        assert_eq!(&read(&b, &fa, 0, 100).await[..], [[3; 10].as_slice(), &[4; 5]].concat());
    });
}

/// A question that is given up when it would have to wait is nobody else's: it stays open for as long as the
/// server is away. Found by the simulator (seed 29613625).
#[test]
fn who_waits_is_not_answered_for_who_does_not() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = striped(&a, "f", 1).await;
        let fb = std::sync::Arc::new(b.clone().open(call(), fa.fid, crate::harness::O_RDWR).await.unwrap());
        a.clone().group_lock(fa.clone(), 1, true).await.unwrap();
        c.stop_ost(0).await;
        let mut at_once = {
            let (b, f) = (b.clone(), fb.clone());
            c.spawn(async move { b.group_lock(f, 2, false).await })
        };
        let mut writer = {
            let (b, f) = (b.clone(), fb.clone());
            c.spawn(async move { b.write(call(), f.fid, 0, false, false, vec![9; 10].into()).await })
        };
        c.world.sleep(Duration::from_millis(100)).await;
        assert!(at_once.try_recv().is_err() && writer.try_recv().is_err(), "the OST is away");
        c.start_ost(0).await;
        assert_eq!(c.within(at_once).await.unwrap(), Err(Errno::EAGAIN));
        a.clone().group_unlock(fa.clone(), 1).await.unwrap();
        c.within(writer).await.unwrap().unwrap();
        assert_eq!(read(&a, &fa, 0, 100).await, vec![9; 10]);
    });
}
