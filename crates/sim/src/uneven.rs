//! In some runs OSTs are unevenly full, as their disks are used by others, too, and the metadata server moves
//! files from the fullest to the emptiest by itself (decision 0063) while actors use them and servers crash.
//! Which one is the fullest changes. Nothing that an actor sees may tell of it but the layout.

use crate::cluster::Cluster;
use crate::drain::set_permanent;
use crate::run::{Run, Violation};
use ::world::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// One seed in so many has them.
const ONE_IN: u64 = 40;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 22;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Percent of its disk that others use: of the fullest, and of all others.
const FULL: u64 = 70;
const EMPTY: u64 = 10;
/// By how much OSTs may differ. Two, in turns: with each change the metadata server looks again.
const THRESHOLDS: [&str; 2] = ["10", "11"];
/// What is under way may wait for servers that are away.
const ENDS_WITHIN: Duration = Duration::from_secs(600);

pub(crate) struct Uneven {
    rng: Rng,
    osts: u16,
}

impl Uneven {
    pub(crate) fn new(seed: u64, osts: u16) -> Option<Uneven> {
        assert!(osts > 1, "files can go somewhere else");
        let rng = Rng::new(seed ^ 0x0075_6e65_7665_6e00);
        (seed % ONE_IN == THIS_ONE).then_some(Uneven { rng, osts })
    }

    /// While actors work: until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        set_permanent(&c, "lod.*.qos_maxage", "1", false).await;
        let mut turns = 0;
        while !over.load(Relaxed) {
            let full = self.rng.below(u64::from(self.osts)) as u16;
            for ost in 0..self.osts {
                set_used(&c, ost, if ost == full { FULL } else { EMPTY });
            }
            turns += 1;
            set_permanent(&c, "mdt.*.rebalance_threshold", THRESHOLDS[turns % 2], false).await;
            c.sim.log(|| format!("OST {full} is the fullest"));
            let before = moved(&c);
            let mut left = Duration::from_micros(self.rng.range(500_000, 20_000_000));
            while !over.load(Relaxed) && left > LOOK_AGAIN {
                c.sim.sleep(LOOK_AGAIN).await;
                left -= LOOK_AGAIN;
            }
            for _ in before..moved(&c).max(before) {
                c.sim.count("file_rebalanced");
            }
        }
        end(&c).await
    }
}

/// Nothing moves any more.
async fn end(c: &Arc<Cluster>) -> Result<(), Violation> {
    set_permanent(c, "mdt.*.rebalance_threshold", "0", false).await;
    let start = c.sim.now();
    while state(c, "state").as_deref() != Some("off") {
        if c.sim.now() - start > ENDS_WITHIN.as_nanos() as u64 {
            let state = state(c, "state");
            return Err(format!("{ENDS_WITHIN:?} after it was switched off rebalance is {state:?}"));
        }
        c.sim.sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Of the disk of an OST, on whichever host it runs.
fn set_used(c: &Cluster, ost: u16, percent: u64) {
    for h in &c.servers[usize::from(ost) + 1].hosts {
        h.node.set_used_by_others(percent);
    }
}

/// Files that the metadata server has moved since its start.
fn moved(c: &Cluster) -> u64 {
    state(c, "files_moved").and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// A line of what it shows; `None`: it is not there.
fn state(c: &Cluster, name: &str) -> Option<String> {
    let shown = c.mdt()?.get_params("mdt.*.rebalance");
    let (_, text) = shown.first()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    line.map(str::to_string)
}
