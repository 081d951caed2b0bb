//! Callers that go away while something is under way, and mounts that do not wait.

use super::*;
use crate::testing::Hold;
use std::time::Duration;
use wire::Op;
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::enqueue::{Enqueue, LockMode};
use wire::msg::notify::Notify;

#[test]
fn an_open_whose_caller_went_away_is_closed_again() {
    run(1, |r| async move {
        r.mdt().script().leases = false;
        let fid = r.small(1, b"");
        r.mdt().hold(Hold::Of(Op::Open));
        r.interrupted(r.fs.clone().open(Call::default(), fid, O_RDWR), || r.mdt().running() == 1).await;
        assert_eq!(r.fs.meta.opens.len(), 1, "a restarted server must hear of it");
        r.mdt().hold(Hold::Nothing);
        r.until("it is closed", || r.mdt().count(Op::Close) == 1).await;
        assert_eq!(r.fs.meta.opens.len(), 0);
    });
}

#[test]
fn a_create_whose_caller_went_away_leaves_no_open_file() {
    run(2, |r| async move {
        r.mdt().script().leases = false;
        r.mdt().hold(Hold::Of(Op::Create));
        let (fs, name) = (r.fs.clone(), b"f".to_vec());
        let create = fs.create(Call::default(), Fid::ROOT, name, 0o644, O_RDWR, None);
        r.interrupted(create, || r.mdt().running() == 1).await;
        r.mdt().hold(Hold::Nothing);
        r.until("it is closed", || r.mdt().count(Op::Close) == 1).await;
        assert_eq!(r.fs.meta.opens.len(), 0);
        assert!(r.fs.clone().lookup(Call::default(), Fid::ROOT, b"f".to_vec()).await.is_ok());
    });
}

#[test]
fn a_close_whose_caller_went_away_leaves_the_group_and_closes_the_file() {
    run(3, |r| async move {
        r.mdt().script().leases = false;
        let fid = r.striped(1);
        let f = r.open(fid, O_RDWR).await;
        r.fs.clone().group_lock(f.clone(), 7, true).await.unwrap();
        r.write(fid, 0, *b"for the group").await.unwrap();
        r.ost(0).hold(Hold::Of(Op::Write));
        r.interrupted(r.fs.clone().close(f), || r.ost(0).running() == 1).await;
        assert_eq!(r.mdt().count(Op::Close), 0, "what the group wrote goes first");
        r.ost(0).hold(Hold::Nothing);
        r.until("it is closed", || r.mdt().count(Op::Close) == 1).await;
        assert_eq!(r.stored(fid)[0], b"for the group");
        let other = r.open(fid, O_RDWR).await;
        assert_eq!(r.fs.clone().group_lock(other, 8, false).await, Ok(()), "nobody of group 7 is left");
    });
}

#[test]
fn a_file_lock_whose_caller_went_away_is_given_back_after_it_was_asked_for() {
    run(4, |r| async move {
        let fid = r.small(1, b"");
        let lock = || Locks(&r.fs).flock(fid, 77, 1, LockMode::Write, true);
        r.mdt().script().waits = true;
        r.interrupted(lock(), || r.mdt().count(Op::Enqueue) == 1).await;
        r.until("it does not wait any more", || r.mdt().count(Op::Cancel) == 1).await;
        // Once more while the question is under way: what took it back must not overtake it.
        r.mdt().hold(Hold::Of(Op::Enqueue));
        r.interrupted(lock(), || r.mdt().running() == 1).await;
        r.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(r.mdt().count(Op::Cancel), 1);
        r.mdt().hold(Hold::Nothing);
        r.until("this one is taken back", || r.mdt().count(Op::Cancel) == 2).await;
        let ids: Vec<_> = r.mdt().asked::<Enqueue>().iter().map(|m| CancelWhat::Id(m.lock.id)).collect();
        let back: Vec<_> = r.mdt().asked::<Cancel>().into_iter().map(|m| m.what).collect();
        assert_eq!(back, ids);
    });
}

#[test]
fn a_soft_mount_gives_up_on_a_silent_server_but_not_on_a_lock_that_a_process_has() {
    run_with(
        5,
        |o| o.soft_timeout_ms = Some(3000),
        |r| async move {
            let fid = r.small(1, b"");
            r.mdt().script().waits = true;
            let fs = r.fs.clone();
            let locked = r.beside(async move { Locks(&fs).flock(fid, 77, 1, LockMode::Write, true).await });
            r.world.sleep(Duration::from_secs(20)).await;
            assert_eq!(*locked.lock(), None);
            let id = r.mdt().asked::<Enqueue>()[0].lock.id;
            r.c.mdts[0].peers.notify(r.client(), Notify::LockGranted { id, errno: 0 });
            r.until("it is had", || *locked.lock() == Some(Ok(()))).await;
            r.mdt().hold(Hold::Everything);
            let start = r.world.now();
            assert_eq!(r.size(fid).await, Err(Errno::EIO));
            assert_eq!(r.world.now().since(start), Duration::from_secs(3));
        },
    );
}
