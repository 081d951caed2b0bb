//! The target's probes, as they come by themselves: a disk that stalls is counted, a target that takes no
//! changes is left alone.

use super::*;
use std::time::Duration;
use world::faulty::DiskFaults;
use world::gate::GatedDisk;

/// How many there are of a line of `probe_stats`.
fn count(up: &Up, what: &str) -> u64 {
    let text = up.ost.get_params("obdfilter.*.probe_stats").remove(0).1;
    let line = text.lines().find(|l| l.split_whitespace().next() == Some(what));
    line.map_or(0, |l| l.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn until(bed: &Bed, up: &Up, what: &str, more_than: u64) {
    bed.wait(async {
        while count(up, what) <= more_than {
            bed.world.sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn probes_come_by_themselves_and_only_where_changes_are_taken() {
    let mut bed = Bed::new(MemDisk::new());
    let faults = Arc::new(DiskFaults::default());
    bed.world.disk = Arc::new(GatedDisk::new(bed.world.disk.clone(), faults.clone()));
    let up = bed.start(1);
    let set = |name: &str, value: &str| up.ost.set_params(&format!("obdfilter.*.{name}"), value).unwrap();
    set("probe_interval", "1");
    set("probe_slow", "50");
    until(&bed, &up, "done", 0);
    assert_eq!((count(&up, "slow"), count(&up, "failed")), (0, 0));
    faults.set("flush=300ms@/journal").unwrap();
    until(&bed, &up, "slow", 0);
    faults.set("none").unwrap();
    set("readonly", "1");
    until(&bed, &up, "put_off", 0);
    let (done, at) = (count(&up, "done"), up.db.last_submitted());
    until(&bed, &up, "put_off", count(&up, "put_off"));
    assert_eq!((count(&up, "done"), up.db.last_submitted()), (done, at), "read-only");
    set("readonly", "0");
    until(&bed, &up, "done", done);
    set("probe_stats", "0");
    assert_eq!(count(&up, "slow"), 0, "cleared");
    bed.wait(up.ost.stop());
    let at = up.db.last_submitted();
    bed.wait(bed.world.sleep(Duration::from_secs(2)));
    assert_eq!(up.db.last_submitted(), at, "it stopped");
}
