//! statfs(2), and the root of a mount, with servers away.

use super::*;
use crate::FsSpace;
use crate::testing::Hold;
use rpc::ImportState;
use std::time::Duration;
use wire::Op;
use wire::msg::statfs::StatfsReply;

impl Rig {
    async fn space(&self) -> FsSpace {
        let ost = StatfsReply { total: 100, free: 60, available: 50, ..StatfsReply::default() };
        self.c.osts.iter().for_each(|o| o.fake.script().space = ost);
        self.mdt().script().space = StatfsReply { files: 9, files_free: 7, ..StatfsReply::default() };
        self.fs.clone().statfs().await.unwrap()
    }

    async fn lose_ost_1(&self) {
        self.c.away(self.c.osts[1].at);
        let t = self.fs.lmv.known_osc(1).unwrap().target.import.clone();
        self.until("it is noticed", || t.state() != ImportState::Full).await;
        self.world.sleep(Duration::from_secs(2)).await;
    }
}

#[test]
fn statfs_is_answered_within_a_second_from_what_was_known_and_asks_again_next_time() {
    run(1, |r| async move {
        let all = r.space().await;
        assert_eq!((all.total, all.free, all.available, all.files, all.files_free), (300, 180, 150, 9, 7));
        let before = r.c.requests();
        assert_eq!((r.space().await.total, r.c.requests()), (300, before), "for a second it is as it was");
        r.lose_ost_1().await;
        let start = r.world.now();
        assert_eq!(r.space().await.total, 300, "what it said last counts");
        assert!(r.world.now().since(start) < Duration::from_secs(1));
        let asked = r.ost(0).count(Op::Statfs);
        r.space().await;
        assert_eq!(r.ost(0).count(Op::Statfs), asked + 1, "that was not all, and is not kept");
    });
}

#[test]
fn without_lazystatfs_every_active_server_is_waited_for_and_no_inactive_one() {
    run(2, |r| async move {
        r.space().await;
        r.fs.set_lazystatfs(false);
        r.lose_ost_1().await;
        let fs = r.fs.clone();
        let asked = r.beside(async move { fs.statfs().await.map(|s| s.total) });
        r.world.sleep(Duration::from_secs(30)).await;
        assert_eq!(*asked.lock(), None);
        r.fs.lmv.known_osc(1).unwrap().target.set_active(false);
        r.until("nobody waits for it", || asked.lock().is_some()).await;
        assert_eq!(*asked.lock(), Some(Ok(300)));
    });
}

#[test]
fn the_root_is_shown_as_it_was_while_its_server_is_away_and_as_it_is_while_it_is_only_slow() {
    run(3, |r| async move {
        r.mdt().script().leases = false;
        let root = |r: &Rig| r.fs.clone().getattr_root(Call::default());
        let mode = |m: u32| r.mdt().script().inode(Fid::ROOT).unwrap().attr.mode = m;
        mode(0o755);
        assert_eq!(root(&r).await.unwrap().mode, 0o755);
        mode(0o700);
        r.mdt().hold(Hold::Of(Op::Getattr));
        let fs = r.fs.clone();
        let slow = r.beside(async move { Ok(fs.getattr_root(Call::default()).await?.mode) });
        r.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(*slow.lock(), None);
        r.mdt().hold(Hold::Nothing);
        r.until("it answers", || *slow.lock() == Some(Ok(0o700))).await;
        mode(0o711);
        r.c.away(r.c.mdts[0].at);
        let mdt = r.fs.lmv.mdcs()[0].target.import.clone();
        r.until("it is noticed", || mdt.state() != ImportState::Full).await;
        let start = r.world.now();
        assert_eq!(root(&r).await.unwrap().mode, 0o700);
        assert!(r.world.now().since(start) < Duration::from_secs(1));
    });
}
