//! A few seeds of the whole cluster, and that a seed repeats.

use sim::scenario::{Options, run};
use sim::worlds;

#[test]
fn some_seeds_find_nothing() {
    for seed in 1..=6 {
        let r = run(&Options::new(seed));
        assert_eq!(r.violation, None, "seed {seed}");
        assert!(r.ops >= 1990 && r.faults.contains_key("power_loss"), "seed {seed}: {r:?}");
        assert_eq!(worlds(), 0, "seed {seed}: what the world took is given back");
    }
}

#[test]
fn a_seed_repeats() {
    let once = || {
        let r = run(&Options { ops: 800, ..Options::new(77) });
        (r.trace_hash, r.steps, r.virtual_ns, r.faults)
    };
    let first = once();
    assert_eq!(first, once());
    assert_ne!(first.0, run(&Options { ops: 800, ..Options::new(78) }).trace_hash);
}
