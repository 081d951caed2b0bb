//! A failing seed with as few faults and operations as it still fails with.

use crate::scenario::{Options, Report, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs that are spent on one seed.
const RUNS_MAX: usize = 60;

/// One seed; a panic in it is a violation like any other.
pub fn run_caught(o: &Options) -> Result<Report, String> {
    catch_unwind(AssertUnwindSafe(|| run(o))).map_err(|p| {
        let text = p.downcast_ref::<String>().cloned();
        let text = text.or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn fails(o: &Options) -> Option<String> {
    match run_caught(o) {
        Ok(r) => r.violation,
        Err(panic) => Some(panic),
    }
}

/// The smallest options found that still fail, and how. `faults`: how many the plan has.
pub fn minimise(failing: &Options, faults: usize, what: String) -> (Options, String) {
    let (mut best, mut what) = (Options { log: false, ..failing.clone() }, what);
    let mut left = RUNS_MAX;
    let mut try_with = |o: Options, best: &mut Options, what: &mut String| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let Some(how) = fails(&o) else { return false };
        (*best, *what) = (o, how);
        true
    };
    // Fewer operations first: that makes everything else quicker.
    let (mut low, mut high) = (0, failing.stop.unwrap_or(failing.ops));
    while high - low > 20.max(high / 10) {
        let middle = low + (high - low) / 2;
        let o = Options { stop: Some(middle), ..best.clone() };
        if try_with(o, &mut best, &mut what) { high = middle } else { low = middle }
    }
    let mut size = faults.div_ceil(2).max(1);
    loop {
        let all: Vec<usize> = (0..faults).collect();
        for part in all.chunks(size) {
            let mut o = best.clone();
            o.skip.extend(part);
            if o.skip != best.skip {
                try_with(o, &mut best, &mut what);
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    (best, what)
}

/// The command that runs it again.
pub fn command(o: &Options) -> String {
    let mut s = format!(
        "nacre-sim --first {} --seeds 1 --ops {} --crashes {} --actors {} --mounts {}",
        o.seed, o.ops, o.crashes, o.actors, o.mounts
    );
    if let Some(n) = o.stop {
        s += &format!(" --stop {n}");
    }
    if !o.skip.is_empty() {
        let list: Vec<String> = o.skip.iter().map(ToString::to_string).collect();
        s += &format!(" --skip {}", list.join(","));
    }
    s + " --log"
}
