//! Metadata clients against fake MDTs: real sessions in virtual time, servers that grant every lease.

use super::{Mdc, Shared};
use crate::Call;
use crate::base::Context;
use crate::testing::{self, Fake, FakeMdt, Hold, ip};
use model::{Cred, Errno, Fid, FileType, Nid, TargetId, Timestamp};
use rpc::testing::Lab;
use rpc::{ClientId, Peers, Server};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use wire::Op;
use wire::msg::getattr::Getattr;
use wire::msg::lookup::bits;
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::{LeaseItem, Notify};
use world::World;

const CLIENT: u8 = 9;

fn dir(mdt: u16) -> Fid {
    Fid::new(model::fid::SEQ_NORMAL + u64::from(mdt), 7, 0)
}

/// A target and this mount's side of it.
struct Side {
    mdt: Arc<Fake<FakeMdt>>,
    server: Arc<Server>,
    peers: Peers,
    mdc: Arc<Mdc>,
}

struct Rig {
    cx: Arc<Context>,
    world: World,
    sides: Vec<Side>,
}

impl Rig {
    fn client(&self) -> ClientId {
        ClientId(self.cx.uuid)
    }

    async fn mkdir(&self, side: usize, name: &str) -> bool {
        let call = Call { cred: Cred::root(), pid: 1, ..Call::default() };
        let name = name.as_bytes().to_vec();
        let msg = Mkdir { parent: dir(side as u16), name, fid: Fid::NONE, mode: 0o755, umask: 0 };
        self.sides[side].mdc.mkdir_here(&call, &msg).await.unwrap().is_some()
    }

    async fn getattr(&self, side: usize) {
        let e = self.sides[side].mdc.getattr_entry(self.cx.own(), dir(side as u16)).await.unwrap();
        assert_eq!(e.attr.fid, dir(side as u16));
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }
}

/// A mount with two metadata targets, in virtual time.
fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    let lab = Lab::new(seed);
    let node = |n: u8| lab.node(ip(n), Arc::new(world::mem::MemDisk::new())).0;
    let (world, servers) = (node(CLIENT), [node(1), node(2)]);
    lab.run(async {
        let cx = testing::context(&world);
        let shared = Shared::new(100);
        shared.locate.learn(dir(1).seq, dir(1).seq, 1);
        let mut sides = Vec::new();
        for (i, w) in servers.iter().enumerate() {
            let id = TargetId::mdt(i as u16);
            let mdt = Fake::new(w, id, FakeMdt::new(Vec::new()));
            {
                let mut s = mdt.script();
                s.owns = true;
                s.add(dir(i as u16), FileType::Directory, None);
            }
            let at = ip(i as u8 + 1);
            let (server, peers) = testing::serve(w, at, mdt.clone()).await;
            let mdc = Mdc::new(&cx, &shared, 1 << 20, id, vec![Nid { addr: at, net: 0 }]);
            mdc.target.import.connected().await.unwrap();
            sides.push(Side { mdt, server, peers, mdc });
        }
        test(Rig { cx, world, sides }).await;
    });
}

#[test]
fn what_a_lease_covers_is_asked_for_once_and_again_when_the_lease_is_gone() {
    run(1, |r| async move {
        let s = &r.sides[0];
        r.getattr(0).await;
        r.getattr(0).await;
        assert_eq!(s.mdt.count(Op::Getattr), 1);
        let item = LeaseItem { fid: dir(0), bits: bits::ALL, seq: s.mdt.script().transno(), look: false };
        s.peers.notify(r.client(), Notify::Revoke { items: vec![item] });
        r.until("it is given back", || s.mdt.script().cancelled.iter().any(|i| i.fid == dir(0))).await;
        assert!(s.mdc.meta.known_entry(dir(0)).is_none());
        r.getattr(0).await;
        assert_eq!(s.mdt.count(Op::Getattr), 2);
    });
}

#[test]
fn what_was_executed_here_goes_before_the_next_request() {
    run(2, |r| async move {
        let s = &r.sides[0];
        assert!(r.mkdir(0, "a").await && r.mkdir(0, "b").await, "the directory is this mount's alone");
        assert_eq!(s.mdt.count(Op::Own), 1);
        let e = s.mdc.target.call(r.cx.own(), Getattr { fid: Fid::ROOT }).await.unwrap();
        assert_eq!(e.attr.fid, Fid::ROOT);
        let seen = s.mdt.seen().clone();
        let place = |op: Op| seen.iter().rposition(|o| *o == op).expect("it came");
        assert!(place(Op::Batch) < place(Op::Getattr), "{seen:?}");
        assert!(!s.mdc.has_pending());
    });
}

#[test]
fn an_eviction_by_one_target_takes_nothing_that_is_anothers() {
    run(3, |r| async move {
        r.getattr(0).await;
        r.getattr(1).await;
        let hurt = r.cx.told.open(dir(1));
        let unhurt = r.cx.told.open(dir(0));
        for s in &r.sides {
            s.mdt.hold(Hold::Nothing);
        }
        assert!(r.mkdir(0, "kept").await && r.mkdir(1, "lost").await);
        // Before the batch is answered.
        r.sides[1].mdt.hold(Hold::Everything);
        assert!(r.mkdir(1, "lost too").await);
        assert!(r.sides[1].server.evict(TargetId::mdt(1), r.client()));
        r.until("who has the directory open is told", || hurt.check() == Err(Errno::EIO)).await;
        assert!(r.sides[1].mdc.meta.known_entry(dir(1)).is_none());
        assert!(r.sides[0].mdc.meta.known_entry(dir(0)).is_some(), "the other target's leases are good");
        assert_eq!(unhurt.check(), Ok(()));
        r.sides[1].mdt.hold(Hold::Nothing);
        r.until("what was executed on the other is told", || !r.sides[0].mdc.has_pending()).await;
    });
}

#[test]
fn a_layout_outlives_the_silence_of_its_server_but_not_for_ever() {
    run(5, |r| async move {
        let s = &r.sides[0];
        r.getattr(0).await;
        assert!(s.mdc.meta.layout_is_leased(dir(0), 0));
        s.server.stop().await;
        r.world.sleep(Duration::from_secs(600)).await;
        assert!(s.mdc.meta.known_entry(dir(0)).is_none(), "leases are over");
        assert!(s.mdc.meta.layout_is_leased(dir(0), 0), "object servers refuse it if it is too old");
        r.world.sleep(Duration::from_secs(1300)).await;
        assert!(!s.mdc.meta.layout_is_leased(dir(0), 0), "they may have forgotten the objects by now");
    });
}

#[test]
fn access_times_of_closed_files_are_seen_here_before_they_are_stored() {
    run(4, |r| async move {
        let s = &r.sides[0];
        r.getattr(0).await;
        let later = Timestamp { sec: 5_000, nsec: 0 };
        s.mdc.store_atime(dir(0), 1, later).await;
        let e = s.mdc.meta.inode_at_hand(dir(0)).expect("it is under a lease");
        assert_eq!(e.attr.atime, later);
        r.until("it is sent", || s.mdt.count(Op::Batch) == 1).await;
    });
}
