//! Files whose data lies with their inodes, and the moment in which it does no more.

use super::*;
use crate::testing::Hold;
use model::perm::O_APPEND;
use std::time::Duration;
use wire::Op;
use wire::msg::grow::Grow;

#[test]
fn small_data_goes_to_the_metadata_server_at_once_and_other_data_is_kept_for_the_object_servers() {
    run(1, |r| async move {
        let (small, large) = (r.small(1, b""), r.striped(2));
        let (_s, l) = (r.open(small, O_RDWR).await, r.open(large, O_RDWR).await);
        assert_eq!((r.write(small, 3, *b"small").await, r.write(large, 0, *b"large").await), (Ok(3), Ok(0)));
        assert_eq!(r.mdt().script().inode(small).unwrap().data, b"\0\0\0small");
        assert_eq!((r.mdt().count(Op::Write), r.ost_writes()), (1, 0));
        r.fsync(&l).await.unwrap();
        assert_eq!((r.mdt().count(Op::Write), r.stored(large)[0].as_slice()), (1, &b"large"[..]));
    });
}

#[test]
fn a_write_past_the_room_with_the_inode_asks_for_growth_once_and_nobody_else_waits_for_that() {
    run(2, |r| async move {
        let (fid, other) = (r.small(1, b"kept"), r.small(2, b""));
        let (f, _o) = (r.open(fid, O_RDWR).await, r.open(other, O_RDWR).await);
        r.mdt().hold(Hold::Of(Op::Grow));
        let fs = r.fs.clone();
        let grown = r.beside(async move { write(&fs, fid, Some(UNIT - 10), pattern(100)).await });
        r.until("it asks for room", || r.mdt().running() == 1).await;
        assert_eq!(r.write(other, 0, *b"beside").await, Ok(0));
        assert_eq!(r.read(fid, 0, 9).await.unwrap(), b"kept", "as it was");
        r.world.sleep(Duration::from_secs(10)).await;
        assert_eq!(*grown.lock(), None);
        r.mdt().hold(Hold::Nothing);
        r.until("it is written", || *grown.lock() == Some(Ok(UNIT - 10))).await;
        let whole = [&b"kept"[..], &vec![0; UNIT as usize - 14], &pattern(100)].concat();
        assert_eq!(r.read(fid, 0, 2 * UNIT).await.unwrap(), whole);
        r.fsync(&f).await.unwrap();
        assert_eq!(r.stored(fid).concat(), whole);
        assert_eq!(r.mdt().asked::<Grow>(), [Grow { fid }]);
        assert_eq!(r.mdt().count(Op::Write), 1, "what has no room there is not sent there");
    });
}

#[test]
fn an_append_that_the_server_finds_too_long_grows_the_file_and_lands_at_its_end() {
    run(3, |r| async move {
        let before = pattern(UNIT - 10);
        let fid = r.small(1, &before);
        let _f = r.open(fid, O_RDWR | O_APPEND).await;
        assert_eq!(r.append(fid, *b"0123456789").await, Ok(UNIT - 10), "just room");
        assert_eq!(r.append(fid, *b"behind").await, Ok(UNIT));
        assert_eq!((r.mdt().count(Op::Grow), r.mdt().count(Op::Write)), (1, 2), "only the server knew");
        let whole = [&before[..], b"0123456789behind"].concat();
        assert_eq!(r.read(fid, 0, 2 * UNIT).await.unwrap(), whole);
    });
}

#[test]
fn a_write_during_which_another_mount_grew_the_file_goes_to_its_objects() {
    run(4, |r| async move {
        r.mdt().script().leases = false;
        let fid = r.small(1, b"");
        let f = r.open(fid, O_RDWR).await;
        r.mdt().hold(Hold::Of(Op::Write));
        let fs = r.fs.clone();
        let written = r.beside(async move { write(&fs, fid, Some(5), *b"late").await });
        r.until("it is at the server", || r.mdt().running() == 1).await;
        {
            let mut s = r.mdt().script();
            let i = s.inode(fid).unwrap();
            i.layout = i.grows_into.take();
        }
        r.mdt().hold(Hold::Nothing);
        r.until("it is written", || *written.lock() == Some(Ok(5))).await;
        r.fsync(&f).await.unwrap();
        assert_eq!((r.stored(fid)[0].as_slice(), r.mdt().count(Op::Grow)), (&b"\0\0\0\0\0late"[..], 0));
    });
}

#[test]
fn a_server_that_refuses_for_ever_is_not_asked_for_ever() {
    run(5, |r| async move {
        let (small, large) = (r.small(1, b""), r.striped(2));
        let (_s, _l) = (r.open(small, O_RDWR).await, r.open(large, O_RDWR).await);
        r.mdt().refuse(Op::Write, Errno::ERELAYOUT, 1000);
        assert_eq!(r.write(small, 0, *b"x").await, Err(Errno::EIO), "not the servers' own errno");
        assert_eq!(r.mdt().count(Op::Write), 9);
        r.c.osts.iter().for_each(|o| o.fake.script().oldest_generation = 99);
        assert_eq!(r.read(large, 0, 1).await, Err(Errno::EIO));
        assert_eq!(r.mdt().count(Op::Layout), 8);
    });
}

#[test]
fn what_was_read_of_a_small_file_is_not_asked_for_again_and_own_changes_are_in_it() {
    run(6, |r| async move {
        let fid = r.small(1, b"as it was");
        let _f = r.open(fid, O_RDWR).await;
        assert_eq!(r.read(fid, 3, 100).await.unwrap(), b"it was");
        let before = r.c.requests();
        assert_eq!(r.read(fid, 0, 2).await.unwrap(), b"as");
        assert_eq!(r.c.requests(), before);
        r.write(fid, 3, *b"IT").await.unwrap();
        assert_eq!(r.read(fid, 0, 100).await.unwrap(), b"as IT was");
        assert_eq!(r.truncate(fid, 5).await, Ok(5));
        assert_eq!(r.read(fid, 0, 100).await.unwrap(), b"as IT");
        assert_eq!(r.c.requests(), before + 2, "the changes and nothing else");
    });
}
