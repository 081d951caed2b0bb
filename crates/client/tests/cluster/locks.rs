//! flock and POSIX locks between mounts.

use crate::data::{striped, write};
use crate::harness::{Cluster, call};
use client::PosixLock;
use model::Errno;
use std::time::Duration;
use wire::msg::enqueue::LockMode::{Read, Write};

fn range(owner: u64, mode: wire::msg::enqueue::LockMode, start: u64, end: u64) -> PosixLock {
    PosixLock { owner, pid: owner as u32, mode, start, end }
}

#[test]
fn flock_holds_on_all_mounts() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        client::Locks(&a).flock(f, 1, 10, Read, false).await.unwrap();
        client::Locks(&b).flock(f, 1, 10, Read, false).await.unwrap();
        assert_eq!(client::Locks(&b).flock(f, 1, 10, Write, false).await, Err(Errno::EAGAIN));
        let waiter = {
            let b = b.clone();
            c.spawn(async move { client::Locks(&b).flock(f, 2, 11, Write, true).await })
        };
        client::Locks(&b).funlock(f, 1).await.unwrap();
        c.world.sleep(Duration::from_millis(50)).await;
        client::Locks(&a).funlock(f, 1).await.unwrap();
        c.within(waiter).await.unwrap().unwrap();
        assert_eq!(client::Locks(&a).flock(f, 1, 10, Read, false).await, Err(Errno::EAGAIN));
        client::Locks(&b).funlock(f, 2).await.unwrap();
        client::Locks(&a).flock(f, 1, 10, Write, false).await.unwrap();
    });
}

#[test]
fn posix_ranges_split_merge_and_wait() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        client::Locks(&a).setlk(f, range(7, Write, 0, 99), false).await.unwrap();
        assert!(client::Locks(&a).has_posix_locks(f, 7) && !client::Locks(&a).has_posix_locks(f, 8));
        client::Locks(&a).unlk(f, 7, 40, 59).await.unwrap();
        client::Locks(&b).setlk(f, range(7, Write, 40, 59), false).await.unwrap();
        assert_eq!(client::Locks(&b).setlk(f, range(7, Read, 30, 45), false).await, Err(Errno::EAGAIN));
        let found = client::Locks(&b).getlk(f, range(7, Write, 0, 39)).await.unwrap().unwrap();
        assert_eq!((found.pid, found.mode, found.start, found.end), (7, Write, 0, 39));
        assert!(client::Locks(&b).getlk(f, range(7, Write, 40, 59)).await.unwrap().is_none());
        let waiter = {
            let b = b.clone();
            c.spawn(async move { client::Locks(&b).setlk(f, range(7, Write, 0, u64::MAX), true).await })
        };
        c.world.sleep(Duration::from_millis(50)).await;
        client::Locks(&a).unlk(f, 7, 0, u64::MAX).await.unwrap();
        assert!(!client::Locks(&a).has_posix_locks(f, 7));
        c.within(waiter).await.unwrap().unwrap();
        assert_eq!(
            client::Locks(&a).setlk(f, range(7, Read, 1_000_000, 1_000_000), false).await,
            Err(Errno::EAGAIN)
        );
    });
}

#[test]
fn deadlocks_are_found_across_mounts() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        client::Locks(&a).setlk(f, range(1, Write, 0, 0), false).await.unwrap();
        client::Locks(&b).setlk(f, range(2, Write, 1, 1), false).await.unwrap();
        let waiter = {
            let a = a.clone();
            c.spawn(async move { client::Locks(&a).setlk(f, range(1, Write, 1, 1), true).await })
        };
        c.world.sleep(Duration::from_millis(100)).await;
        assert_eq!(
            c.within(client::Locks(&b).setlk(f, range(2, Write, 0, 0), true)).await,
            Err(Errno::EDEADLK)
        );
        client::Locks(&b).unlk(f, 2, 0, u64::MAX).await.unwrap();
        c.within(waiter).await.unwrap().unwrap();
    });
}

#[test]
fn a_waiter_that_goes_away_leaves_nothing() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        client::Locks(&a).setlk(f, range(1, Write, 0, 9), false).await.unwrap();
        client::Locks(&b).setlk(f, range(2, Read, 20, 29), false).await.unwrap();
        let wait = client::Locks(&b).setlk(f, range(2, Write, 0, 29), true);
        assert!(c.world.timeout(Duration::from_millis(100), wait).await.is_none());
        let wait = client::Locks(&b).flock(f, 2, 2, Write, true);
        client::Locks(&a).flock(f, 1, 1, Write, false).await.unwrap();
        assert!(c.world.timeout(Duration::from_millis(100), wait).await.is_none());
        client::Locks(&a).unlk(f, 1, 0, 9).await.unwrap();
        client::Locks(&a).funlock(f, 1).await.unwrap();
        // Both waiters were cancelled; the read lock that was there before is still there.
        c.until("the abandoned locks are gone", || async {
            let free = client::Locks(&a).setlk(f, range(1, Write, 0, 19), false).await.is_ok();
            free && client::Locks(&a).flock(f, 1, 1, Write, false).await.is_ok()
        })
        .await;
        client::Locks(&a).setlk(f, range(1, Read, 20, 29), false).await.unwrap();
        assert_eq!(client::Locks(&a).setlk(f, range(1, Write, 20, 29), false).await, Err(Errno::EAGAIN));
    });
}

#[test]
fn a_waiter_that_settles_what_it_gave_up_is_in_nobodys_way() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        for us in [0, 50, 100, 200, 500, 1000, 5000, 100_000] {
            let (first, second) = (client::Locks(&a), client::Locks(&b));
            first.flock(f, 1, 1, Write, false).await.unwrap();
            let wait = second.flock(f, 2, 2, Write, true);
            assert!(c.world.timeout(Duration::from_micros(us), wait).await.is_none());
            c.within(second.settle(f)).await;
            first.funlock(f, 1).await.unwrap();
            let again = first.flock(f, 1, 1, Write, false).await;
            assert_eq!(again, Ok(()), "given up after {us} microseconds");
            first.funlock(f, 1).await.unwrap();
        }
    });
}

#[test]
fn unmount_drops_locks() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 1).await.fid;
        client::Locks(&a).flock(f, 1, 10, Write, false).await.unwrap();
        let waiter = {
            let b = b.clone();
            c.spawn(async move { client::Locks(&b).flock(f, 2, 11, Write, true).await })
        };
        c.world.sleep(Duration::from_millis(50)).await;
        a.unmount().await;
        c.within(waiter).await.unwrap().unwrap();
        assert!(b.clone().getattr(call(), f).await.is_ok());
    });
}

#[test]
fn servers_say_how_many_locks_clients_have_and_wait_for() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let number = |all: Vec<(String, String)>, name: &str| -> u64 {
            assert_eq!(all.len(), 1, "{all:?}");
            assert_eq!(all[0].0, name);
            all[0].1.parse().unwrap()
        };
        let at_mdt = |what: &str| {
            let name = format!("ldlm.namespaces.mdt-demo-MDT0000_UUID.{what}");
            number(c.mdt().get_params(&format!("ldlm.namespaces.mdt-*.{what}")), &name)
        };
        let at_ost = |what: &str| {
            let name = format!("ldlm.namespaces.filter-demo-OST0000_UUID.{what}");
            number(c.ost_params(&format!("ldlm.*.filter-*.{what}")), &name)
        };
        let file = striped(&a, "f", 1).await;
        write(&a, &file, 0, vec![1; 100_000]).await;
        assert_eq!((at_ost("lock_count"), at_ost("lock_waiting_count")), (1, 0), "it is written under one");
        let leases = at_mdt("lock_count");
        assert!(leases > 0, "the mount keeps what it knows under leases");
        client::Locks(&a).flock(file.fid, 1, 10, Write, false).await.unwrap();
        let held = at_mdt("lock_count");
        assert!(held > leases, "{held} with that of the program, {leases} before");
        let waiter = {
            let (b, fid) = (b.clone(), file.fid);
            c.spawn(async move { client::Locks(&b).flock(fid, 2, 11, Write, true).await })
        };
        c.world.sleep(Duration::from_millis(50)).await;
        assert_eq!(at_mdt("lock_waiting_count"), 1);
        client::Locks(&a).funlock(file.fid, 1).await.unwrap();
        c.within(waiter).await.unwrap().unwrap();
        assert_eq!(at_mdt("lock_waiting_count"), 0);
        a.unmount().await;
        b.unmount().await;
        assert_eq!((at_mdt("lock_count"), at_ost("lock_count")), (0, 0), "nobody is there any more");
    });
}
