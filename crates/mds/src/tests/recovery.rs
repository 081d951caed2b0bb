//! Restarts: what was acknowledged is there, opens and locks come back, clients that do not are evicted.

use super::*;
use std::time::Duration;
use wire::msg::enqueue::{Enqueue, LockKind, LockMode, LockSpec};
use wire::msg::reclaim::Reclaim;

const R: Fid = Fid::ROOT;

/// Waits until something is so; longer than clients use their leases, for which a recovery window waits at
/// least.
fn until(rig: &Rig, what: &str, mut f: impl FnMut() -> bool) {
    assert!(rpc::Peers::new().lease_life() < Duration::from_secs(20));
    for _ in 0..6000 {
        if f() {
            return;
        }
        block_on(rig.world.sleep(Duration::from_millis(5)));
    }
    panic!("it never was so: {what}");
}

#[test]
fn others_wait_until_all_known_clients_came_back() {
    let mut rig = Rig::new();
    let f = rig.create(R, "f");
    let h = rig.open(f, 0);
    rig.unlink(R, "f").unwrap();
    rig.crash(7);
    let o = rig.connect(A);
    assert!(!o.new_client && o.recovering);
    let waiting = rig.incoming(A, &Cred::root(), &msg::getattr::Getattr { fid: f });
    let waiting = rig.mdt.clone().handle(waiting);
    let (tx, mut rx) = world::sync::oneshot::channel();
    rig.world.spawn("test", async move {
        let _ = tx.send(waiting.await);
    });
    let lost = rig.reclaim(A, &[(f, h), (Fid::new(1, 1, 1), 77)]);
    assert_eq!(lost.lost_opens, [77]);
    block_on(rig.world.sleep(Duration::from_millis(50)));
    assert!(rx.try_recv().is_err(), "B has not come back yet");
    rig.reclaim(B, &[]);
    block_on(rx).unwrap().status.unwrap();
    assert_eq!(rig.attr(f).nlink, 0, "still open");
    rig.close(f, h);
    assert_eq!(rig.root(msg::getattr::Getattr { fid: f }).unwrap_err(), Errno::ENOENT);
    rig.assert_clean();
}

#[test]
fn orphans_that_nobody_has_open_go_after_recovery() {
    let mut rig = Rig::new();
    let f = rig.create_striped(R, "f", 1);
    rig.open(f, 0);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.assert_clean().orphans, 1);
    rig.crash(3);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    until(&rig, "no orphans", || check::check(&rig.mdt.db).unwrap().orphans == 0);
    assert_eq!(rig.assert_clean().outbox, 1);
}

#[test]
fn a_client_that_does_not_come_back_is_evicted() {
    let mut rig = Rig::new();
    let f = rig.create(R, "f");
    rig.open(f, 0);
    rig.unlink(R, "f").unwrap();
    rig.crash(3);
    let p = msg::param::SetParam {
        name: "mdt.*.recovery_time_soft".into(),
        value: "1".into(),
        permanent: false,
        delete: false,
    };
    rig.connect(B);
    // Parameters can be set by nobody before recovery ends: do it directly.
    world::block_on(crate::ops::param::set(&rig.mdt, p)).unwrap();
    rig.reclaim(B, &[]);
    until(&rig, "recovered", || !rig.mdt.recovering());
    assert!(rig.connect(A).new_client, "evicted: a new client now");
    until(&rig, "no orphans", || check::check(&rig.mdt.db).unwrap().orphans == 0);
    // The sequence is still its own.
    rig.create(R, "again");
    let status = rig.root(msg::param::GetParam { pattern: "mdt.*.recovery_status".into() }).unwrap().values
        [0]
    .1
    .clone();
    assert!(status.starts_with("status: COMPLETE") && status.contains("completed_clients: 1/2"), "{status}");
    rig.assert_clean();
}

#[test]
fn a_clients_departure_closes_and_unlocks() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let open = OpenSpec { handle: 5, flags: 0, lease: false };
    rig.call(B, &Cred::root(), msg::open::Open { fid: f, open, data: 0 }).unwrap();
    rig.unlink(R, "f").unwrap();
    let g = rig.create(R, "g");
    let lock = |id| LockSpec {
        id,
        fid: g,
        kind: LockKind::Posix,
        mode: LockMode::Write,
        owner: 1,
        pid: 1,
        start: 0,
        end: 9,
    };
    let ask = |c, id, wait| rig.call(c, &Cred::root(), Enqueue { lock: lock(id), wait });
    assert!(ask(B, 1, false).unwrap().granted);
    assert_eq!(ask(A, 2, false).unwrap_err(), Errno::EAGAIN);
    let q = msg::getlock::Getlock { lock: lock(3) };
    assert_eq!(rig.root(q.clone()).unwrap().conflict.map(|l| l.id), Some(1));
    rig.depart(B, Departure::Disconnected);
    assert_eq!(rig.root(q).unwrap().conflict, None);
    assert!(ask(A, 4, false).unwrap().granted);
    assert_eq!(rig.root(msg::getattr::Getattr { fid: f }).unwrap_err(), Errno::ENOENT);
    assert_eq!(ask(B, 5, false).unwrap_err(), Errno::ENOTCONN);
    assert_eq!(
        rig.call(B, &Cred::root(), msg::unlink::Unlink { parent: R, name: b"g".to_vec() }),
        Err(Errno::ENOTCONN)
    );
    let cancel = msg::cancel::Cancel { fid: g, what: msg::cancel::CancelWhat::Id(4) };
    rig.root(cancel).unwrap();
    rig.assert_clean();
}

#[test]
fn locks_are_reclaimed() {
    let mut rig = Rig::new();
    let f = rig.create(R, "f");
    rig.crash(1);
    let lock = |id, mode| LockSpec {
        id,
        fid: f,
        kind: LockKind::Flock,
        mode,
        owner: id,
        pid: 1,
        start: 0,
        end: u64::MAX,
    };
    for (c, l, lost) in [(A, lock(1, LockMode::Write), vec![]), (B, lock(2, LockMode::Read), vec![2])] {
        rig.connect(c);
        let m = Reclaim { locks: vec![l], last: true, ..Reclaim::default() };
        assert_eq!(rig.call(c, &Cred::root(), m).unwrap().lost_locks, lost);
    }
}

#[test]
fn replies_are_stored_with_their_effect() {
    let mut rig = Rig::new();
    let m = create_msg(R, "f", rig.fid(), 0o644);
    let mut req = rig.incoming(A, &Cred::root(), &m);
    (req.slot, req.xid) = (3, 1000);
    let out = block_on(rig.mdt.clone().handle(req));
    assert!(out.transno > 0);
    rig.crash(5);
    let stored = rig.mdt.stored_reply(A, 3).unwrap();
    assert_eq!((stored.xid, stored.status, &stored.body), (1000, 0, &out.body));
    assert_eq!(stored.transno, out.transno);
    assert!(rig.mdt.last_committed() >= out.transno);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    rig.depart(A, Departure::Evicted);
    assert_eq!(rig.mdt.stored_reply(A, 3), None);
    rig.assert_clean();
}

#[test]
fn sequences_are_never_leased_twice() {
    let mut rig = Rig::new();
    let seq = |rig: &Rig, c| rig.call(c, &Cred::root(), msg::allocseq::Allocseq { kind: 0 }).unwrap().seq;
    let mut seen = vec![rig.seqs[0], rig.seqs[1], seq(&rig, A)];
    for round in 0..3 {
        rig.crash(round);
        rig.reclaim(A, &[]);
        rig.reclaim(B, &[]);
        seen.push(seq(&rig, A));
        seen.push(seq(&rig, B));
    }
    let n = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), n);
    rig.assert_clean();
}
