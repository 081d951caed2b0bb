//! File locks and group locks, as processes ask for them.

use super::*;
use model::layout::EOF;
use std::time::Duration;
use wire::Op;
use wire::msg::enqueue::{Enqueue, LockMode};
use wire::msg::instantiate::Instantiate;

#[test]
fn a_lock_that_was_granted_with_a_word_that_was_lost_is_asked_for_again() {
    run(1, |r| async move {
        let fid = r.small(1, b"");
        r.mdt().script().waits = true;
        let fs = r.fs.clone();
        let locked = r.beside(async move { Locks(&fs).flock(fid, 77, 1, LockMode::Write, true).await });
        r.until("it waits", || r.mdt().count(Op::Enqueue) == 1).await;
        let now = Locks(&r.fs).flock(fid, 78, 1, LockMode::Write, false).await;
        assert_eq!(now, Err(Errno::EAGAIN), "who does not want to wait");
        r.mdt().script().waits = false;
        r.world.sleep(Duration::from_secs(6)).await;
        assert_eq!(*locked.lock(), Some(Ok(())));
        let ids: Vec<_> = r.mdt().asked::<Enqueue>().iter().map(|m| (m.lock.owner, m.lock.id)).collect();
        assert_eq!((ids.len(), ids[0]), (3, ids[2]), "the same lock");
    });
}

#[test]
fn a_group_lock_needs_a_descriptor_that_may_write_and_is_one_for_each() {
    run(2, |r| async move {
        let fid = r.striped(1);
        let (reader, f) = (r.open(fid, O_RDONLY).await, r.open(fid, O_RDWR).await);
        let lock = |f: &Arc<OpenHandle>, gid| r.fs.clone().group_lock(f.clone(), gid, false);
        let unlock = |f: &Arc<OpenHandle>, gid| r.fs.clone().group_unlock(f.clone(), gid);
        let before = r.c.requests();
        assert_eq!((lock(&reader, 7).await, lock(&f, 0).await), (Err(Errno::EBADF), Err(Errno::EINVAL)));
        assert_eq!(r.c.requests(), before);
        assert_eq!((lock(&f, 7).await, lock(&f, 7).await), (Ok(()), Err(Errno::EINVAL)));
        assert_eq!((unlock(&f, 8).await, unlock(&reader, 7).await), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
        r.write(fid, 0, *b"of the group").await.unwrap();
        assert_eq!((r.ost_writes(), unlock(&f, 7).await), (0, Ok(())));
        assert_eq!(r.stored(fid)[0], b"of the group", "before others get in");
        assert_eq!(unlock(&f, 7).await, Err(Errno::EINVAL));
    });
}

#[test]
fn a_file_has_all_the_objects_that_it_is_ever_to_have_before_a_group_locks_it() {
    run(3, |r| async move {
        let (small, parts) = (r.small(1, b"data"), r.composite(2));
        for fid in [small, parts] {
            let f = r.open(fid, O_RDWR).await;
            r.fs.clone().group_lock(f.clone(), 7, false).await.unwrap();
            r.fs.clone().close(f).await.unwrap();
        }
        assert_eq!(r.mdt().count(Op::Grow), 1);
        assert_eq!(r.mdt().asked::<Instantiate>(), [Instantiate { fid: parts, start: 0, end: EOF }]);
        let locks: Vec<usize> = r.c.osts.iter().map(|o| o.fake.script().locks.len()).collect();
        assert_eq!(locks, [2, 2, 0], "an object of each file on each of two");
    });
}
