//! Servers fail again and again while applications on all clients work, and none of those notices: what the
//! tests of all engines of failover share.

use crate::cluster::wait_until;
use crate::load::{self, LoadReport};
use crate::programs;
use crate::rng::Rng;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Operations of the load after a fault by which it is known to go on.
const GOES_ON: u64 = 40;
const WORKERS: usize = 3;

/// A file system, its hosts and what can happen to them.
pub trait Site {
    type Fault: Copy + Ord + Debug + 'static;
    /// In the order in which they come first; then by chance.
    const FAULTS: &'static [Self::Fault];
    /// So long the load may stand.
    const LIMIT: Duration;

    /// Returns when what must serve anew does, with the number of targets that moved.
    fn happens(&mut self, fault: Self::Fault, rng: &mut Rng) -> Result<u64>;
    /// After the load went on.
    fn put_right(&mut self) -> Result<()>;
    /// What all of them logged, for the message of a failure.
    fn said(&self) -> String;
}

/// Of a random run: `NACRE_SEED`.
pub fn seed() -> u64 {
    crate::env_number("NACRE_SEED").unwrap_or(20_261_122)
}

struct Counts<F> {
    times: Vec<Duration>,
    faults: BTreeMap<F, u64>,
    moved: u64,
}

/// Those of `all` that `NACRE_FAULTS` names, separated by commas; without it all of them.
fn chosen<F: Copy + Debug>(all: &[F]) -> Result<Vec<F>> {
    let Ok(names) = std::env::var("NACRE_FAULTS") else { return Ok(all.to_vec()) };
    let named = |n: &str| all.iter().copied().find(|f| format!("{f:?}") == n);
    names.split(',').map(|n| named(n).with_context(|| format!("no fault '{n}' in {all:?}"))).collect()
}

/// The first `short` faults of the site's list; with `NACRE_THRASH_MINUTES` all of them, and so long on by
/// chance. `NACRE_FAULTS` names fewer, `NACRE_THRASH_PACE` has one begin in so many seconds at most.
/// Prints what happened; the last line says failovers, faults, application errors, wrong bytes. `mounts`: the
/// clients'; `scratch`: a folder that is on none of them.
pub fn run<S: Site>(
    name: &str,
    site: &mut S,
    mounts: &[PathBuf],
    scratch: &Path,
    short: usize,
) -> Result<()> {
    let minutes = crate::env_number("NACRE_THRASH_MINUTES");
    let end = minutes.map(|m| Instant::now() + Duration::from_secs(60 * m));
    let pace = crate::env_number("NACRE_THRASH_PACE").map_or(Duration::ZERO, Duration::from_secs);
    let faults = chosen(S::FAULTS)?;
    let first = if minutes.is_some() { faults.len() } else { short.min(faults.len()) };
    let (stop, done, programs_done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut counts = Counts { times: Vec::new(), faults: BTreeMap::new(), moved: 0 };
    let report = std::thread::scope(|s| {
        let load = s.spawn(|| load::run(mounts, WORKERS, seed(), &stop, &done));
        let programs = s.spawn(|| programs::run(mounts, scratch, &stop, &programs_done));
        let mut rng = Rng::new(seed());
        let ended = || load.is_finished() || programs.is_finished();
        let mut turn = |n: usize| -> Result<()> {
            let fault = if n < first { faults[n] } else { faults[rng.below(faults.len() as u64) as usize] };
            let start = Instant::now();
            let what = || format!("fault {n} ({fault:?})");
            counts.moved += site.happens(fault, &mut rng).with_context(what)?;
            let before = done.load(Ordering::Relaxed);
            let goes_on = || ended() || done.load(Ordering::Relaxed) > before + GOES_ON;
            wait_until(&format!("{}: the load goes on", what()), S::LIMIT, goes_on)
                .with_context(|| site.said())?;
            println!("{fault:?}: the load went on after {:.1?}", start.elapsed());
            counts.times.push(start.elapsed());
            *counts.faults.entry(fault).or_default() += 1;
            let right = site.put_right();
            right.with_context(|| site.said()).with_context(|| format!("after {}", what()))?;
            let is_time = || ended() || start.elapsed() >= pace || end.is_some_and(|t| Instant::now() >= t);
            wait_until("the next one's turn", pace + S::LIMIT, is_time)
        };
        let more = |n: &usize| !ended() && (*n < first || end.is_some_and(|t| Instant::now() < t));
        // Said at once: what works on the mounts may not come to an end now.
        let result =
            (0..).take_while(more).try_for_each(&mut turn).inspect_err(|e| println!("FAILED: {e:#}"));
        stop.store(true, Ordering::Relaxed);
        let mut report = load.join().expect("load");
        report.errors.extend(programs.join().expect("programs"));
        result.map(|()| report)
    })?;
    counts.print(name, &report, programs_done.into_inner());
    ensure!(report.errors.is_empty(), "application errors:\n{}\n{}", report.errors.join("\n"), site.said());
    let met = |f: &S::Fault| counts.faults.contains_key(f);
    ensure!(faults[..first].iter().all(met), "faults that never were: {:?}", counts.faults);
    Ok(())
}

impl<F: Debug> Counts<F> {
    fn print(&mut self, name: &str, report: &LoadReport, programs: u64) {
        self.times.sort();
        let last = self.times.len().saturating_sub(1);
        let at =
            |p: usize| self.times.get((self.times.len() * p / 100).min(last)).copied().unwrap_or_default();
        println!(
            "{name}: until the load went on: p50 {:.1?}, p99 {:.1?}, max {:.1?}; {} operations, {programs} programs (seed {}); faults {:?}",
            at(50),
            at(99),
            at(100),
            report.operations,
            seed(),
            self.faults,
        );
        let is_wrong = |e: &&String| ["instead of", "miscompar", "verif"].iter().any(|w| e.contains(w));
        let wrong = report.errors.iter().filter(is_wrong).count();
        println!(
            "{name}: {} failovers, {} faults, {} application errors, {wrong} files with wrong bytes",
            self.moved,
            self.times.len(),
            report.errors.len() - wrong
        );
    }
}
