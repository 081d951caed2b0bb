//! Attributes: who is asked for them, and how they are changed.

use super::*;
use crate::testing::Hold;
use model::{SetTime, Timestamp};
use std::time::Duration;
use wire::Op;
use wire::msg::fallocate::FALLOC_KEEP_SIZE;
use wire::msg::readdir::{Dirent, Readdir};

async fn list(r: &Rig, plus: bool) -> Vec<Dirent> {
    let page = r.fs.clone().readdir(Call::default(), Fid::ROOT, 0, 1 << 20, plus).await;
    page.unwrap().0
}

#[test]
fn a_size_that_the_metadata_server_cannot_know_is_asked_of_the_object_servers_unless_it_is_known_here() {
    run(1, |r| async move {
        let (fid, small) = (r.striped(1), r.small(2, b"12345"));
        r.store(fid, 0, &pattern(2 * UNIT + 7));
        assert_eq!((r.size(fid).await, r.on_osts(Op::Glimpse)), (Ok(2 * UNIT + 7), 3));
        assert_eq!((r.size(small).await, r.on_osts(Op::Glimpse)), (Ok(5), 3), "that one knows");
        let _f = r.open(fid, O_RDWR).await;
        r.write(fid, 0, pattern(4 * UNIT)).await.unwrap();
        let before = r.c.requests();
        assert_eq!((r.size(fid).await, r.c.requests()), (Ok(4 * UNIT), before), "under this mount's locks");
    });
}

#[test]
fn a_plain_listing_asks_for_no_attributes_and_one_with_them_asks_each_object_server_once() {
    run(2, |r| async move {
        for n in 1..=20 {
            let fid = r.striped(n);
            r.store(fid, 0, &pattern(u64::from(n)));
            r.mdt().script().add_name(Fid::ROOT, format!("f{n}").as_bytes(), fid);
        }
        assert_eq!(list(&r, false).await.len(), 20);
        let asked = |r: &Rig| r.mdt().asked::<Readdir>().iter().map(|m| m.plus).collect::<Vec<_>>();
        assert_eq!((asked(&r), r.on_osts(Op::Glimpse)), (vec![false], 0));
        let all = list(&r, true).await;
        let sizes: Vec<u64> = all.iter().map(|d| d.entry.as_ref().unwrap().attr.size).collect();
        assert_eq!(sizes, (1..=20).collect::<Vec<_>>());
        assert_eq!(r.on_osts(Op::Glimpse), 3);
    });
}

#[test]
fn a_listing_waits_for_no_object_server_that_is_away_or_slow() {
    run(3, |r| async move {
        let on = |n: u32, ost: u16| {
            let fid = r.with_layout(n, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &[ost]));
            r.mdt().script().add_name(Fid::ROOT, format!("f{n}").as_bytes(), fid);
            fid
        };
        let (kept, _away, _slow) = (on(1, 1), on(2, 1), on(3, 2));
        let _f = r.open(kept, O_RDWR).await;
        r.write(kept, 0, *b"here").await.unwrap();
        r.c.away(r.c.osts[1].at);
        r.world.sleep(Duration::from_secs(2)).await;
        let sizes = |all: Vec<Dirent>| -> Vec<Option<u64>> {
            all.iter().map(|d| d.entry.as_ref().map(|e| e.attr.size)).collect()
        };
        let start = r.world.now();
        assert_eq!(sizes(list(&r, true).await), [Some(4), None, Some(0)], "a file of the others is whole");
        r.ost(2).hold(Hold::Of(Op::Glimpse));
        assert_eq!(sizes(list(&r, true).await), [Some(4), None, None]);
        assert!(r.world.now().since(start) < Duration::from_millis(100));
    });
}

#[test]
fn who_may_not_truncate_a_file_cuts_nothing_of_it() {
    run(4, |r| async move {
        let fid = r.striped(1);
        r.store(fid, 0, &pattern(UNIT));
        r.mdt().refuse(Op::Setattr, Errno::EACCES, 2);
        assert_eq!(r.truncate(fid, 5).await, Err(Errno::EACCES));
        let opened = r.fs.clone().open(Call::default(), fid, O_RDWR | super::super::O_TRUNC).await;
        assert_eq!(opened.map(drop), Err(Errno::EACCES));
        assert_eq!((r.on_osts(Op::Truncate), r.fs.meta.opens.len()), (0, 0), "nor is it open");
        assert_eq!(r.stored(fid)[0], pattern(UNIT));
    });
}

#[test]
fn a_read_only_mount_refuses_every_change_and_sends_nothing() {
    run_with(
        5,
        |o| o.read_only = true,
        |r| async move {
            let fid = r.small(1, b"");
            r.open(fid, O_RDONLY).await;
            let before = r.c.requests();
            let (fs, call, name) = (|| r.fs.clone(), Call::default, b"x".to_vec());
            let root = Fid::ROOT;
            let all: Vec<R<()>> = vec![
                fs().open(call(), fid, O_RDWR).await.map(drop),
                r.write(fid, 0, *b"x").await.map(drop),
                r.truncate(fid, 0).await.map(drop),
                fs().fallocate(call(), fid, FALLOC_KEEP_SIZE, 0, 1).await,
                fs().copy_file_range(call(), fid, 0, fid, 9, 1).await.map(drop),
                fs().create(call(), root, name.clone(), 0o644, O_RDWR, None).await.map(drop),
                fs().tmpfile(call(), root, 0o644, O_RDWR).await.map(drop),
                fs().mkdir(call(), root, name.clone(), 0o755).await.map(drop),
                fs().mknod(call(), root, name.clone(), 0o644, 0).await.map(drop),
                fs().symlink(call(), root, name.clone(), name.clone()).await.map(drop),
                fs().link(call(), fid, root, name.clone()).await.map(drop),
                fs().unlink(call(), root, name.clone()).await,
                fs().rmdir(call(), root, name.clone()).await,
                fs().rename(call(), root, name.clone(), root, name.clone(), 0).await,
                fs().setxattr(call(), fid, b"user.x".to_vec(), name, 0, false).await,
                fs().removexattr(call(), fid, b"user.x".to_vec()).await,
            ];
            assert_eq!(all, vec![Err(Errno::EROFS); 16]);
            assert_eq!(r.c.requests(), before);
        },
    );
}

#[test]
fn a_time_that_is_set_wins_over_a_write_that_was_stamped_by_a_clock_ahead_of_this_one() {
    run(6, |r| async move {
        let fid = r.striped(1);
        let (ahead, set) = (Timestamp { sec: 4_000_000_000, nsec: 7 }, Timestamp { sec: 100, nsec: 0 });
        r.ost(1).script().ctime = ahead;
        let times = SetAttr { mtime: Some(SetTime::At(set)), ..SetAttr::default() };
        let a = r.fs.clone().setattr(Call::default(), fid, times).await.unwrap();
        assert_eq!(a.mtime, set);
        let said: Vec<Timestamp> = r.mdt().contexts(Op::Setattr).iter().map(|c| c.client_time).collect();
        assert_eq!((said.len(), said[1]), (2, Timestamp { nsec: 8, ..ahead }));
        assert_eq!(r.fs.clone().getattr(Call::default(), fid).await.unwrap().mtime, set);
    });
}

#[test]
fn the_time_of_the_last_read_is_stored_after_the_close_unless_somebody_does_not_want_that() {
    run(7, |r| async move {
        let fid = r.small(1, b"data");
        let read = |flags: u32| {
            let fs = r.fs.clone();
            async move {
                let f = Arc::new(fs.clone().open(Call::default(), fid, flags).await.unwrap());
                fs.clone().read(Call::default(), f.clone(), 0, 9).await.unwrap();
                fs.close(f).await.unwrap();
            }
        };
        read(super::super::O_NOATIME).await;
        super::super::Admin(&r.fs).set_noatime(true);
        read(O_RDONLY).await;
        super::super::Admin(&r.fs).set_noatime(false);
        r.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(r.mdt().count(Op::Batch), 0);
        read(O_RDONLY).await;
        let shown = r.fs.clone().getattr(Call::default(), fid).await.unwrap().atime;
        assert!(r.world.wall().sec - shown.sec <= 1, "it is seen at once");
        r.until("it is stored", || r.mdt().count(Op::Batch) == 1).await;
    });
}

#[test]
fn a_file_with_lost_objects_is_found_by_its_name_and_begins_anew_when_it_is_cut_to_nothing() {
    run(8, |r| async move {
        let fid = r.with_layout(1, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &[0]));
        r.mdt().script().add_name(Fid::ROOT, b"f", fid);
        let found = || r.fs.clone().lookup(Call::default(), Fid::ROOT, b"f".to_vec());
        r.ost(0).refuse(Op::Glimpse, Errno::ELOST, 2);
        assert_eq!(found().await.map(|a| a.fid), Ok(fid));
        assert_eq!(r.size(fid).await, Err(Errno::EIO), "what it has nobody knows");
        let _f = r.open(fid, O_RDWR).await;
        r.ost(0).refuse(Op::Extent, Errno::ELOST, 2);
        assert_eq!((r.truncate(fid, 5).await, r.on_osts(Op::Truncate)), (Err(Errno::EIO), 0));
        assert_eq!((r.truncate(fid, 0).await, r.on_osts(Op::Truncate)), (Ok(0), 1));
        r.fs.lmv.known_osc(0).unwrap().target.set_active(false);
        assert_eq!((found().await.map(|a| a.fid), r.size(fid).await), (Ok(fid), Err(Errno::EIO)));
    });
}
