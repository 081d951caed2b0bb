//! The whole file system is checked and mended while actors use it and servers crash (`lctl lfsck_start`).
//! Nothing is damaged here: whatever a check finds it imagines, and what it mends is a user's. Only objects
//! whose file was lost with its client belong to nobody.

use crate::check;
use crate::cluster::Cluster;
use crate::executor::lock;
use crate::run::{Run, Violation};
use crate::scenario::settle;
use ::world::rng::Rng;
use ::world::{Either, select};
use model::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// One in so many seeds has checks.
const ONE_IN: u64 = 4;
/// An order that gets no answer, because the server is gone, is given again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Between two looks at a check that is to end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A check of so few files takes no longer than this.
const CHECK_LIMIT: Duration = Duration::from_secs(600);
/// What may be found: objects of files that were lost.
const OF_LOST_FILES: [&str; 5] =
    ["orphan_object", "empty_orphan", "lost_file", "lost_component", "contradictory_label"];
/// Where a check shows what it found, and how its two parts stand.
const FOUND: &str = "mdd.*.lfsck";
const PARTS: [&str; 2] = ["mdd.*.lfsck_namespace", "mdd.*.lfsck_layout"];

pub(crate) struct Checks {
    rng: Rng,
}

impl Checks {
    pub(crate) fn new(seed: u64) -> Option<Checks> {
        let mut rng = Rng::new(seed ^ 0x006c_6673_636b);
        (rng.below(ONE_IN) == 0).then_some(Checks { rng })
    }

    /// One check after the other, some of them stopped in the middle, until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            let pause = self.rng.range(1_000, 1_000_000);
            c.sim.sleep(Duration::from_micros(pause)).await;
            let order = *self.rng.pick(&[
                "start",
                "start orphan",
                "start orphan create_ostobj create_mdtobj",
                "start orphan reset",
                "start dryrun orphan",
                "stop",
            ]);
            let speed = *self.rng.pick(&["", " speed=0", " speed=100", " speed=2000"]);
            let words = if order == "stop" { order.to_string() } else { format!("{order}{speed}") };
            if ordered(&c, &words).await? {
                c.sim.count(if order == "stop" { "lfsck_stopped" } else { "lfsck_started" });
            }
            imagines_nothing(&c)?;
        }
        Ok(())
    }

    /// When all is quiet: a whole check finds nothing, and changes nothing that the offline one misses.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = &run.cluster;
        let _ = ordered(c, "stop").await?;
        if !ordered(c, "start orphan reset speed=0").await? {
            return Err("a check cannot be started although none is under way".into());
        }
        let over = async {
            loop {
                let states: Vec<String> = PARTS.iter().filter_map(|p| status(c, p)).collect();
                if states.len() == PARTS.len() && states.iter().all(|s| s == "completed") {
                    return Ok(());
                }
                if let Some(bad) = states.iter().find(|s| matches!(s.as_str(), "failed" | "partial")) {
                    return Err(format!("a check is {bad} although all servers are up"));
                }
                c.sim.sleep(LOOK_AGAIN).await;
            }
        };
        match select(Box::pin(over), c.sim.sleep(CHECK_LIMIT)).await {
            Either::Left(r) => r?,
            Either::Right(()) => return Err(format!("a check does not end within {CHECK_LIMIT:?}")),
        }
        imagines_nothing(c)?;
        c.sim.count("lfsck_completed");
        settle(c).await?;
        check::everything(c, &lock(&run.lost))
    }
}

/// Gives an order. False: it has no meaning now, or the server is away.
async fn ordered(c: &Arc<Cluster>, words: &str) -> Result<bool, Violation> {
    let Some(mdt) = c.mdt() else { return Ok(false) };
    let set = Box::pin(async move { mdt.set_params(FOUND, words).await.map(drop) });
    match select(set, c.sim.sleep(ASK_AGAIN)).await {
        Either::Left(Ok(())) => Ok(true),
        Either::Left(Err(Errno::EINVAL)) => Err(format!("the order '{words}' is not understood")),
        Either::Left(Err(_)) | Either::Right(()) => Ok(false),
    }
}

fn status(c: &Cluster, part: &str) -> Option<String> {
    let (_, text) = c.mdt()?.get_params(part).pop()?;
    text.lines().find_map(|l| l.strip_prefix("status: ")).map(str::to_string)
}

/// What was found lately is of lost files.
fn imagines_nothing(c: &Cluster) -> Result<(), Violation> {
    let Some((_, lines)) = c.mdt().and_then(|m| m.get_params(FOUND).pop()) else { return Ok(()) };
    for line in lines.lines().filter(|l| !l.trim().is_empty()) {
        if !OF_LOST_FILES.iter().any(|kind| line.contains(&format!("\"kind\":\"{kind}\""))) {
            return Err(format!("nothing was damaged, and a check found {line}"));
        }
        c.sim.count("lfsck_lost_object");
    }
    Ok(())
}
