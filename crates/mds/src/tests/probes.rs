//! The target's probes: a disk that stalls is told while it does, a target that takes no changes is left
//! alone.

use super::*;
use crate::freeze;
use crate::probes::begin;
use ::model::barrier::{BarrierOrder, BarrierState};
use ::model::maintenance::{Maintenance, Mode};
use rpc::server::probes::{Attempt, ProbeCounter};
use std::time::Duration;
use world::faulty::DiskFaults;
use world::gate::GatedDisk;

fn probe(mdt: &Mdt, world: &World) -> Option<rpc::server::probes::Probe> {
    let begun = world.now();
    let Attempt::Begun(change) = begin(mdt) else { return None };
    block_on(mdt.probes.probe(begun, change))
}

fn frozen(rig: &Rig, order: BarrierOrder, state: BarrierState) {
    block_on(freeze::order(&rig.mdt, order)).unwrap();
    for _ in 0..2000 {
        if block_on(freeze::order(&rig.mdt, BarrierOrder::Stat)).unwrap().state == state {
            return;
        }
        block_on(rig.world.sleep(Duration::from_millis(5)));
    }
    panic!("never {state}");
}

#[test]
fn a_small_change_is_durable_and_leaves_nothing() {
    let rig = Rig::new();
    let before = rig.mdt.db.last_submitted();
    let p = probe(&rig.mdt, &rig.world).expect("it serves");
    assert_eq!((p.failed, p.said), (None, Vec::new()));
    assert_eq!(rig.mdt.db.last_submitted(), before + 1, "a transaction");
    assert!(rig.mdt.db.last_committed() > before, "that is on disk");
    assert_eq!(rig.mdt.db.scan(b"Zp", b"Zq", 10).unwrap(), Vec::new());
    assert_eq!(rig.mdt.probes.stats.total(ProbeCounter::Done).0, 1);
    let shown = rig.mdt.get_params("mdt.*.probe_*");
    let names: Vec<&str> = shown.iter().filter_map(|(n, _)| n.rsplit('.').next()).collect();
    assert_eq!(names, ["probe_interval", "probe_slow", "probe_stats"]);
}

#[test]
fn a_target_that_takes_no_changes_is_not_probed() {
    let rig = Rig::new();
    frozen(&rig, BarrierOrder::Freeze { timeout_s: 100 }, BarrierState::Frozen);
    let at = rig.mdt.db.last_submitted();
    assert_eq!(probe(&rig.mdt, &rig.world), None, "frozen");
    assert_eq!(rig.mdt.db.last_submitted(), at, "nothing is behind the barrier");
    frozen(&rig, BarrierOrder::Thaw, BarrierState::Thawed);
    assert!(probe(&rig.mdt, &rig.world).is_some(), "thawed");
    let order = |mode| {
        let m = Maintenance { mode, ..Maintenance::default() };
        rig.mdt.peers.maintenance().set(m, None, rig.world.now());
    };
    order(Mode::ReadOnly);
    assert_eq!(probe(&rig.mdt, &rig.world), None, "in maintenance");
    order(Mode::Off);
    assert!(probe(&rig.mdt, &rig.world).is_some());
    block_on(rig.mdt.stop());
    assert_eq!(probe(&rig.mdt, &rig.world), None, "it stops");
}

#[test]
fn a_disk_that_stalls_is_told_while_it_does() {
    let (mut world, _rt) = world::real::start(2).unwrap();
    let faults = Arc::new(DiskFaults::default());
    world.disk = Arc::new(GatedDisk::new(Arc::new(MemDisk::new()), faults.clone()));
    world.disk.mkdir(DIR).unwrap();
    Db::create(&world, DIR).unwrap();
    let mdt = start(&world, 1);
    mdt.probes.slow_ms.store(50, Ordering::Relaxed);
    faults.set("flush=400ms:1@/journal").unwrap();
    let p = probe(&mdt, &world).expect("it serves");
    assert!(p.took >= Duration::from_millis(400), "{:?}", p.took);
    let [said] = &p.said[..] else { panic!("{:?}", p.said) };
    assert!(said.starts_with("test-MDT0000: ") && said.contains(" waits since 0."), "{said}");
    assert_eq!(mdt.probes.stats.total(ProbeCounter::Slow).0, 1);
}
