//! Each planted bug is found within a bounded number of seeds. One process, one bug at a time: the switch is global.

use model::planted::{self, Bug};
use sim::scenario::{Options, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried for each bug, and as many again with more crashes.
const SEEDS_MAX: u64 = 200;
/// Crashes of the second try.
const MORE_CRASHES: usize = 20;

fn violation(seed: u64) -> Option<String> {
    let mut opt = Options::new(seed);
    if seed > SEEDS_MAX {
        opt.crashes = MORE_CRASHES;
    }
    match catch_unwind(AssertUnwindSafe(|| run(&opt))) {
        Ok(report) => report.violation,
        Err(_) => Some("panic".into()),
    }
}

#[test]
fn every_planted_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    // There is no kernel in the simulator: `client/tests/pages` finds these.
    let elsewhere = [Bug::PagesKeptWithoutLock, Bug::PagesFilledToRead];
    for &bug in Bug::ALL.iter().filter(|b| !elsewhere.contains(b)) {
        planted::plant(Some(bug));
        let found = (1..=2 * SEEDS_MAX).find_map(|seed| Some((seed, violation(seed)?)));
        planted::plant(None);
        match found {
            Some((seed, what)) => {
                let short: String = what.chars().take(160).collect();
                println!("{bug:?}: found with seed {seed}: {short}");
            }
            None => {
                println!("{bug:?}: NOT FOUND");
                missed.push(bug);
            }
        }
    }
    assert!(missed.is_empty(), "not found within {} seeds: {missed:?}", 2 * SEEDS_MAX);
}
