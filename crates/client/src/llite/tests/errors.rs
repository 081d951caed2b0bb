//! What went wrong behind the back of a program: who is told, and how often; and what an fsync, a sync and an
//! unmount wait for.

use super::*;
use rpc::ImportState;
use std::time::Duration;
use wire::Op;

impl Rig {
    /// A write of a file that OST 0 does not take.
    async fn lose(&self, fid: Fid, errno: Errno) {
        self.ost(0).script().write_error = Some(errno);
        self.write(fid, 0, *b"lost").await.unwrap();
    }

    fn syncs(&self) -> Vec<usize> {
        let osts = self.c.osts.iter().map(|s| s.fake.count(Op::Sync));
        std::iter::once(self.mdt().count(Op::Sync)).chain(osts).collect()
    }
}

#[test]
fn each_open_file_is_told_once_that_bytes_were_lost_and_nobodys_close_takes_that_from_another() {
    run(1, |r| async move {
        let fid = r.striped(1);
        let (writer, other) = (r.open(fid, O_RDWR).await, r.open(fid, O_RDWR).await);
        let reader = r.open(fid, O_RDONLY).await;
        r.lose(fid, Errno::ENOSPC).await;
        assert_eq!(r.fsync(&writer).await, Err(Errno::ENOSPC));
        r.ost(0).script().write_error = None;
        assert_eq!((r.fsync(&writer).await, writer.error_at_close()), (Ok(()), Ok(())), "once");
        let closes = [other.error_at_close(), other.error_at_close()];
        assert_eq!(closes, [Err(Errno::ENOSPC); 2], "of each descriptor");
        r.fs.clone().close(writer).await.unwrap();
        assert_eq!((r.fsync(&other).await, r.fsync(&other).await), (Err(Errno::ENOSPC), Ok(())));
        assert_eq!(reader.error_at_close(), Ok(()), "who only reads lost nothing");
        assert_eq!(r.fsync(&reader).await, Err(Errno::ENOSPC));
        let late = r.open(fid, O_RDWR).await;
        assert_eq!(r.fsync(&late).await, Ok(()), "somebody was told already");
    });
}

#[test]
fn an_error_that_nobody_was_told_waits_for_who_opens_the_file_next() {
    run(2, |r| async move {
        let fid = r.striped(1);
        let writer = r.open(fid, O_RDWR).await;
        r.lose(fid, Errno::EIO).await;
        r.fs.clone().close(writer).await.unwrap();
        r.until("it was tried", || r.ost_writes() > 0).await;
        r.world.sleep(Duration::from_secs(1)).await;
        r.ost(0).script().write_error = None;
        let next = r.open(fid, O_RDONLY).await;
        assert_eq!((r.fsync(&next).await, r.fsync(&next).await), (Err(Errno::EIO), Ok(())));
    });
}

#[test]
fn a_flush_says_what_was_lost_since_it_is_asked_about_and_leaves_it_to_the_fsync() {
    run(3, |r| async move {
        let fid = r.striped(1);
        let f = r.open(fid, O_RDWR).await;
        let before = r.fs.error_mark();
        r.lose(fid, Errno::ENOSPC).await;
        assert_eq!(r.fs.clone().flush(fid, before).await, Err(Errno::ENOSPC));
        assert_eq!(r.fs.clone().flush(fid, r.fs.error_mark()).await, Ok(()), "nothing since");
        assert_eq!(r.fsync(&f).await, Err(Errno::ENOSPC));
        assert_eq!(r.fs.clone().sync().await, Ok(()));
        r.lose(fid, Errno::ENOSPC).await;
        assert_eq!(r.fs.clone().sync().await, Err(Errno::EIO), "of all files together");
        assert_eq!(r.fsync(&f).await, Err(Errno::ENOSPC), "nor does that take it");
    });
}

#[test]
fn an_fsync_has_those_servers_commit_that_may_not_have_and_no_others() {
    run(4, |r| async move {
        let (fid, small) = (r.striped(1), r.small(2, b""));
        let (f, s) = (r.open(fid, O_RDWR).await, r.open(small, O_RDWR).await);
        r.fs.clone().sync().await.unwrap();
        let before = r.syncs();
        let since = |r: &Rig| r.syncs().iter().zip(&before).map(|(n, b)| n - b).collect::<Vec<_>>();
        r.write(fid, 0, *b"one stripe").await.unwrap();
        r.fsync(&f).await.unwrap();
        assert_eq!(
            since(&r),
            [0, 0, 1, 1],
            "OST 0 was sent a durable write; others may have written to the rest"
        );
        r.write(small, 0, *b"with the inode").await.unwrap();
        r.fsync(&f).await.unwrap();
        assert_eq!(since(&r), [1, 1, 2, 2], "everything that this mount did on the metadata server");
        r.fsync(&s).await.unwrap();
        assert_eq!(since(&r), [2, 1, 2, 2], "of a small file also what other mounts wrote");
    });
}

#[test]
fn a_sync_does_not_wait_for_a_server_that_is_away_and_owes_nothing() {
    run(5, |r| async move {
        let fid = r.with_layout(1, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &[0]));
        let _f = r.open(fid, O_RDWR).await;
        r.c.away(r.c.osts[2].at);
        let away = r.fs.lmv.known_osc(2).unwrap().target.import.clone();
        r.until("it is noticed", || away.state() != ImportState::Full).await;
        r.write(fid, 0, *b"data").await.unwrap();
        let start = r.world.now();
        r.fs.clone().sync().await.unwrap();
        assert!(r.world.now().since(start) < Duration::from_secs(1));
        assert_eq!(r.stored(fid), [b"data"]);
        assert_eq!(r.syncs()[1..], [1, 1, 0]);
    });
}

#[test]
fn an_unmount_writes_what_is_kept_says_good_bye_and_names_what_was_lost() {
    run(6, |r| async move {
        let (fid, lost) = (r.striped(1), r.striped(2));
        let (_f, _l) = (r.open(fid, O_RDWR).await, r.open(lost, O_RDWR).await);
        r.write(fid, UNIT, pattern(2 * UNIT)).await.unwrap();
        r.lose(lost, Errno::ENOSPC).await;
        r.fs.clone().unmount().await;
        assert_eq!(
            r.stored(fid)[1..],
            [&pattern(2 * UNIT)[..UNIT as usize], &pattern(2 * UNIT)[UNIT as usize..]]
        );
        let text = r.fs.cx.errors.text();
        assert!(text.contains(&lost.to_string()) && text.ends_with("0..4 ENOSPC"), "{text}");
        assert_eq!(r.mdt().clients() + r.c.osts.iter().map(|o| o.fake.clients()).sum::<usize>(), 0);
        let before = r.c.requests();
        assert!(r.read(fid, 0, 1).await.is_err() && r.size(fid).await.is_err());
        assert_eq!(r.c.requests(), before, "it is over");
    });
}

#[test]
fn an_unmount_does_not_wait_for_ever_for_servers_that_are_away() {
    run(7, |r| async move {
        r.mdt().script().owns = true;
        let fid = r.striped(1);
        let _f = r.open(fid, O_RDWR).await;
        r.write(fid, 0, pattern(3 * UNIT)).await.unwrap();
        r.c.away(r.c.osts[1].at);
        r.mdt().hold(crate::testing::Hold::Of(Op::Batch));
        let (fs, name) = (r.fs.clone(), b"dir".to_vec());
        fs.mkdir(Call::default(), Fid::ROOT, name, 0o755).await.unwrap();
        let start = r.world.now();
        r.fs.clone().unmount().await;
        let took = r.world.now().since(start);
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert_eq!((r.stored(fid)[0].len(), r.stored(fid)[2].len()), (UNIT as usize, UNIT as usize));
        let text = r.fs.cx.errors.text();
        assert!(text.contains("mkdir") && text.contains("EIO"), "what was answered and is lost: {text}");
    });
}

#[test]
fn a_mount_that_cannot_write_back_is_not_quiet_says_why_and_tries_again() {
    run(7, |r| async move {
        let fid = r.striped(1);
        let f = r.open(fid, O_RDWR).await;
        let all = Arc::new(Mutex::new(Vec::new()));
        let shown = |name: &str| r.fs.get_param(&format!("llite.*.maintenance_{name}")).remove(0).1;
        r.lose(fid, Errno::ENOSPC).await;
        let looks = all.clone();
        let begun = r.world.now();
        r.fs.set_param("llite.*.maintenance", "read-only reason=a disk").unwrap();
        r.until("it is quiet", || {
            looks.lock().push((shown("quiet"), shown("waits"), shown("lost")));
            shown("quiet") == "1"
        })
        .await;
        assert!(r.world.now().since(begun) >= Duration::from_secs(1), "it was tried once more");
        let looks = std::mem::take(&mut *all.lock());
        let failed: Vec<_> = looks.iter().filter(|l| l.1.contains("it is tried again")).collect();
        assert!(failed.len() > 10, "whoever looks meanwhile sees it: {looks:?}");
        let why = "what was kept could not all be written back (errors: 1); it is tried again";
        assert!(failed.iter().all(|l| *l == &("0".into(), why.into(), "1".into())), "{looks:?}");
        assert_eq!((shown("waits"), shown("lost")), (String::new(), "1".into()), "what is lost is lost");
        assert_eq!(r.fsync(&f).await, Err(Errno::ENOSPC), "and its program is told");
        r.fs.set_param("llite.*.maintenance", "off").unwrap();
        assert_eq!((shown("quiet"), shown("lost")), ("0".into(), "0".into()));
        // The server is away: nothing is lost, and quiet is who has written it back.
        r.ost(0).script().write_error = None;
        r.write(fid, 0, *b"kept").await.unwrap();
        r.c.away(r.c.osts[0].at);
        r.fs.set_param("llite.*.maintenance", "closed reason=a disk").unwrap();
        r.world.sleep(Duration::from_secs(3)).await;
        assert_eq!((shown("quiet"), shown("waits")), ("0".into(), "what began before is not over".into()));
        r.c.back(r.c.osts[0].at);
        r.until("it is quiet", || shown("quiet") == "1").await;
        assert_eq!((shown("lost"), r.stored(fid)[0].as_slice()), ("0".into(), &b"kept"[..]));
    });
}

#[test]
fn the_mgs_is_told_how_a_mount_stands_with_a_maintenance() {
    run(8, |r| async move {
        let last = || r.c.mgs.fake.contexts(Op::Config).pop().unwrap().says_standing();
        assert_eq!(last(), None, "there never was one");
        r.fs.lmv.watch_config();
        let order = |text: &str| {
            let mut c = r.c.mgs.fake.config();
            c.version += 1;
            c.params = vec![("*.fs-*.maintenance".into(), text.into())];
            drop(c);
            r.fs.lmv.config_changed();
        };
        order("closed fs=fs reason=a switch");
        r.until("it is quiet", || last().is_some_and(|s| s.quiet)).await;
        let said = last().unwrap();
        assert_eq!((said.version, said.held, said.lost), (r.c.mgs.fake.config().version, 2, 0));
        order("closed fs=fs reason=another switch");
        let now = r.c.mgs.fake.config().version;
        r.until("it is so with the new order", || last().is_some_and(|s| s.quiet && s.version == now)).await;
        let asked = r.c.mgs.fake.count(Op::Config);
        r.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(r.c.mgs.fake.count(Op::Config), asked, "what the MGS knows is not said again");
        order("off");
        r.until("it is over", || last().is_some_and(|s| s == Default::default())).await;
    });
}
