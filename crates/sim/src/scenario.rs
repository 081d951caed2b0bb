//! One seed: a cluster, actors, faults, and the check at the end.

use crate::barrier::Freezer;
use crate::changelog::{self, LogReader};
use crate::check;
use crate::cluster::Cluster;
use crate::directories::QuotaTrees;
use crate::drain::Drain;
use crate::errors;
use crate::exec::{COMPOSITE, call};
use crate::executor::lock;
use crate::failover::Loss;
use crate::generate::Mix;
use crate::known::COMMIT_PATIENCE;
use crate::lfsck::Checks;
use crate::limits::QuotaUser;
use crate::maintained::Told;
use crate::maintenance::Operator;
use crate::mover::Mover;
use crate::nemesis::{Fault, Nemesis};
use crate::pools;
use crate::purge::Purges;
use crate::rot;
use crate::run::{Run, Violation, Work, keep_working, until_first_error};
use crate::shared::{Often, Shared};
use crate::space::FullOst;
use crate::trash::TrashUser;
use crate::uneven::Uneven;
use crate::workload::Actor;
use crate::{NetFaults, Rest, Sim, Stop};
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use ::world::{Either, select};
use client::Fs;
use model::mutex::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Virtual time that a whole run may take.
const RUN_LIMIT: Duration = Duration::from_secs(40_000);
/// Virtual time in which everything must be well again after the faults ended.
const HEAL_LIMIT: Duration = Duration::from_secs(600);

/// A node that is to be stopped at an await point has so much virtual time to come to it.
const AWAIT_PATIENCE: Duration = Duration::from_secs(3);
/// Of the slowest clock.
const CLOCK_SLOWEST_PPM: u64 = 550_000;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// All actors together.
    pub ops: u64,
    pub actors: usize,
    pub mounts: u8,
    /// Crashes of servers, at least.
    pub crashes: usize,
    pub log: bool,
    /// Numbers of faults of the plan that do not happen.
    pub skip: BTreeSet<usize>,
    /// Operations that are done; the plan is made for `ops`.
    pub stop: Option<u64>,
    /// `ack=durable` on all targets; `None`: as the seed says.
    pub ack_durable: Option<bool>,
}

impl Options {
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            ops: 2000,
            actors: 3,
            mounts: 3,
            crashes: 5,
            log: false,
            skip: BTreeSet::new(),
            stop: None,
            ack_durable: None,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    pub ops: u64,
    pub trace_hash: u64,
    pub steps: u64,
    pub virtual_ns: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults of the plan, whether they happened or not.
    pub planned: usize,
    pub violation: Option<Violation>,
    pub log: Vec<String>,
}

/// Of requests at a server, in some runs: a few small ones, or one large one.
const LITTLE_MEMORY: usize = 12 << 10;

/// Of requests that run at a server before others wait for their turn, in some runs.
const FEW_PLACES: u64 = 2;

/// Runs one seed.
pub fn run(opt: &Options) -> Report {
    let sim = Sim::new(opt.seed);
    let _said = opt.log.then(|| {
        sim.keep_log();
        crate::said::keep(&sim)
    });
    let mut rng = sim.fork_rng();
    let osts = rng.range(2, 4) as u16;
    let ack_durable = opt.ack_durable.unwrap_or(rng.below(4) == 0);
    let mut cluster = Cluster::new(&sim, osts, opt.mounts, ack_durable);
    cluster.request_memory = (opt.seed % 7 == 3).then_some(LITTLE_MEMORY);
    cluster.request_places = matches!(opt.seed % 40, 30 | 34).then_some(FEW_PLACES);
    let cluster = Arc::new(cluster);
    sim.count(if ack_durable { "ack_durable" } else { "ack_exec" });
    let (ops, planned) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (c, o, p, opt2) = (cluster.clone(), ops.clone(), planned.clone(), opt.clone());
    let outcome = match cluster.format() {
        Ok(()) => match sim.run(RUN_LIMIT, async move { whole(c, opt2, osts, rng, (o, p)).await }) {
            Ok(r) => r,
            Err(stuck) => Err(format!("the run does not end: {stuck}")),
        },
        Err(e) => Err(format!("formatting failed: {e:#}")),
    };
    let violation = outcome.err().or_else(|| lock(&cluster.failures).first().cloned());
    Report {
        seed: opt.seed,
        ops: ops.load(Relaxed),
        trace_hash: sim.trace_hash(),
        steps: sim.steps(),
        virtual_ns: sim.now(),
        faults: sim.counters(),
        planned: planned.load(Relaxed) as usize,
        violation,
        log: sim.take_log(),
    }
}

/// What goes on beside the actors in some runs.
#[derive(Default)]
struct Beside {
    mover: Option<Mover>,
    drain: Option<Drain>,
    full: Option<FullOst>,
    quota: Option<QuotaUser>,
    trees: Option<QuotaTrees>,
    trash: Option<TrashUser>,
    reader: Option<LogReader>,
    purges: Option<Purges>,
    freezer: Option<Freezer>,
    checks: Option<Checks>,
    operator: Option<Operator>,
    uneven: Option<Uneven>,
}

impl Beside {
    fn new(opt: &Options, osts: u16, composite: bool) -> Beside {
        let uneven = Uneven::new(opt.seed, osts);
        // Who moves a file looks where it lies afterwards.
        let mover = Mover::new(opt.seed, osts, composite).filter(|_| uneven.is_none());
        let drain = Drain::new(opt.seed, osts, opt.ops);
        let full = FullOst::new(opt.seed, composite && drain.is_none() && uneven.is_none());
        let quota = QuotaUser::new(opt.seed, osts, mover.is_some() || drain.is_some() || uneven.is_some());
        let trees = QuotaTrees::new(opt.seed);
        let (reader, purges) = (LogReader::new(opt.seed), Purges::new(opt.seed));
        // Where space is short it is emptied; what lies in it is not moved away from an OST.
        let trash = TrashUser::new(opt.seed).filter(|_| full.is_none() && drain.is_none());
        let (freezer, checks) = (Freezer::new(opt.seed), Checks::new(opt.seed));
        let operator = Operator::new(opt.seed);
        if operator.is_some() {
            // Others know of no maintenance.
            return Beside { checks, operator, ..Beside::default() };
        }
        Beside { mover, drain, full, quota, trees, trash, reader, purges, freezer, checks, operator, uneven }
    }

    /// Until `over`.
    fn work<'a>(&'a mut self, run: &Arc<Run>, over: &Arc<AtomicBool>) -> Vec<Work<'a>> {
        let (mut all, both): (Vec<Work<'a>>, _) = (Vec::new(), || (run.clone(), over.clone()));
        if let Some(m) = self.mover.clone() {
            let (run, over) = both();
            all.push(Box::pin(m.work(run, over)));
        }
        if let Some(f) = self.full.take() {
            let (run, over) = both();
            all.push(Box::pin(f.work(run, over)));
        }
        if let Some(d) = &mut self.drain {
            let (run, over) = both();
            all.push(Box::pin(d.work(run, over)));
        }
        if let Some(q) = &mut self.quota {
            let (run, over) = both();
            all.push(Box::pin(keep_working(q, run, over)));
        }
        if let Some(t) = &mut self.trees {
            let (run, over) = both();
            all.push(Box::pin(keep_working(t, run, over)));
        }
        if let Some(t) = &mut self.trash {
            let (run, over) = both();
            all.push(Box::pin(keep_working(t, run, over)));
        }
        if let Some(f) = &mut self.freezer {
            let (run, over) = both();
            all.push(Box::pin(f.work(run, over)));
        }
        if let Some(r) = &mut self.reader {
            let (run, over) = both();
            all.push(Box::pin(keep_working(r, run, over)));
        }
        if let Some(k) = &mut self.checks {
            let (run, over) = both();
            all.push(Box::pin(k.work(run, over)));
        }
        if let Some(o) = &mut self.operator {
            let (run, over) = both();
            all.push(Box::pin(o.work(run, over)));
        }
        if let Some(u) = &mut self.uneven {
            let (run, over) = both();
            all.push(Box::pin(u.work(run, over)));
        }
        if let Some(p) = &mut self.purges {
            let (users, policy) = p.parts();
            let (run, over) = both();
            all.push(Box::pin(users.work(run, over)));
            let (run, over) = both();
            all.push(Box::pin(policy.work(run, over)));
        }
        all
    }
}

async fn whole(
    c: Arc<Cluster>,
    opt: Options,
    osts: u16,
    mut rng: Rng,
    (ops, planned): (Arc<AtomicU64>, Arc<AtomicU64>),
) -> Result<(), Violation> {
    set_clocks(&c, &mut rng);
    c.boot_all();
    for i in 0..c.mounts.len() {
        c.mount(i).await.map_err(|e| e.to_string())?;
    }
    let (fs, _) = c.mounts[0].get().ok_or("the first mount is gone")?;
    wait_for_osts(&c, osts).await?;
    changelog::begin(&c, opt.seed).await?;
    let gave = |what: &str, e| format!("{what} at the start gave {e}");
    // Some runs are about one thing that everybody fights for.
    let often = match rng.below(8) {
        0 | 1 => Often::Names,
        2 => Often::Small,
        _ => Often::All,
    };
    // In a third of the seeds files have layouts in components.
    let mut choice = ::world::rng::Rng::new(opt.seed ^ 0x0063_6f6d_706f_7365);
    let composite = (choice.below(3) == 0).then(|| COMPOSITE + choice.below(4) as u32);
    let mut beside = Beside::new(&opt, osts, composite.is_some());
    if let Some(q) = &mut beside.quota {
        if q.pooled {
            pools::make(&c).await;
        }
        q.begin(&fs).await?;
    }
    if let Some(t) = &mut beside.trees {
        t.begin(&fs).await?;
    }
    if let Some(t) = &mut beside.trash {
        t.begin(&fs).await?;
    }
    if let Some(p) = &mut beside.purges {
        p.begin(&fs).await?;
    }
    if beside.mover.as_ref().is_some_and(|m| m.pooled) {
        pools::make(&c).await;
    }
    let many = composite.map_or(i32::from(osts), |kind| kind as i32);
    let shared = Shared::new(&fs, (i32::from(osts), many), often).await;
    let shared = Arc::new(shared.map_err(|e| gave("shared files", e))?);
    let mix = Mix::new(&mut rng, u32::from(osts)).with_composites(composite.is_some());
    let shared_one_in = if often != Often::All { 1 } else { rng.range(4, 12) };
    let run = Arc::new(Run {
        cluster: c.clone(),
        mix,
        ops: AtomicU64::new(0),
        shared_one_in,
        home_percent: *rng.pick(&[70, 98]),
        lost: Mutex::default(),
        maintenance: Told::default(),
    });
    let mut actors = Vec::new();
    for id in 0..opt.actors {
        let name = format!("a{id}").into_bytes();
        let dir = fs.clone().mkdir(call(), fs.root(), name.clone(), 0o755).await;
        let dir = dir.map_err(|e| gave("mkdir", e))?;
        // Those who share files know of no maintenance.
        let common = beside.operator.is_none().then(|| shared.clone());
        let actor = Actor::new(id, run.clone(), common, dir.fid, &name, rng.fork());
        actors.push(actor.with_components(composite.map(|_| choice.fork())));
    }
    fs.clone().fsync(call(), fs.root()).await.map_err(|e| gave("fsync", e))?;
    drop(fs);
    let mut nemesis = Nemesis::new(&c, &opt, &mut rng);
    planned.store(nemesis.points.len() as u64, Relaxed);
    if often != Often::All {
        c.servers[0].set_blocking_time(200, rng.range(500, 6000));
    }
    let over = Arc::new(AtomicBool::new(false));
    let faults = nemesis.torment(run.clone(), over.clone());
    let each = opt.stop.unwrap_or(opt.ops) / opt.actors as u64;
    let work = async {
        let all = actors
            .iter_mut()
            .map(|a| Box::pin(a.work(each)) as std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>>);
        let results = until_first_error(all.collect()).await;
        over.store(true, Relaxed);
        results
    };
    let mut all = beside.work(&run, &over);
    all.insert(0, Box::pin(both(work, faults)));
    let done = until_first_error(all).await;
    ops.store(run.ops.load(Relaxed), Relaxed);
    done?;
    finish(&c, &run, &shared, &mut actors, (beside, &mut rng)).await
}

pub(crate) async fn wait_for_osts(c: &Cluster, osts: u16) -> Result<(), Violation> {
    for _ in 0..600 {
        let seen = c.mounts.iter().all(|m| {
            let known = |fs: &Arc<Fs>| {
                fs.config().targets.iter().filter(|t| t.target.kind == model::TargetKind::Ost).count()
            };
            m.get().is_some_and(|(fs, _)| known(&fs) == usize::from(osts))
        });
        c.sim.sleep(Duration::from_millis(500)).await;
        if seen {
            return Ok(());
        }
    }
    Err("the object servers are not known to everybody within a minute".into())
}

/// The work, and the faults for as long as they last after it.
async fn both(
    work: impl Future<Output = Result<(), Violation>> + Send,
    faults: impl Future<Output = Result<(), Violation>> + Send,
) -> Result<(), Violation> {
    let mut faults = Box::pin(faults);
    let mut work = Box::pin(work);
    match select(&mut work, &mut faults).await {
        Either::Left(r) => {
            r?;
            faults.await
        }
        Either::Right(r) => {
            r?;
            work.await
        }
    }
}

/// The power fails once more, then everything must be there.
async fn finish(
    c: &Arc<Cluster>,
    run: &Arc<Run>,
    shared: &Shared,
    actors: &mut [Actor],
    (beside, rng): (Beside, &mut Rng),
) -> Result<(), Violation> {
    let Beside { mut drain, mover, quota, trees, trash, reader, purges, mut checks, .. } = beside;
    for a in actors.iter_mut() {
        a.finish().await?;
    }
    // Without a restart: that would clean up by itself.
    settle(c).await?;
    check::everything(c, &lock(&run.lost))?;
    if let Some(p) = &purges {
        p.check(c)?;
    }
    if let Some(d) = &mut drain {
        d.complete(run).await?;
    }
    if let Some(mut m) = mover {
        m.at_last(run).await?;
    }
    if let Some(mut q) = quota {
        q.at_last(run).await?;
    }
    if let Some(mut t) = trees {
        t.at_last(run).await?;
    }
    if let Some(mut t) = trash {
        t.at_last(run).await?;
    }
    if let Some(mut r) = reader {
        r.at_last(run).await?;
    }
    for i in 0..c.servers.len() {
        c.crash(i, Some(CrashMode::LoseAll));
    }
    c.sim.sleep(Duration::from_millis(200)).await;
    c.boot_all();
    for a in actors.iter_mut() {
        a.verify().await?;
    }
    let (fs, _) = c.mounts.iter().find_map(|m| m.get()).ok_or("no mount is left")?;
    run.bounded("the check of the shared files", shared.verify(run, &fs)).await??;
    drop(fs);
    c.check_all_replays();
    if let Some(d) = &mut drain {
        d.end(run).await?;
    }
    let errors = rng.below(3) == 0;
    if (errors || rng.coin())
        && let Some((fs, _)) = c.mounts.iter().find_map(|m| m.get())
    {
        if errors {
            errors::strike(c, &fs, rng).await?;
        }
        errors::flushes(c, &fs, rng).await?;
        errors::late_loss(c, &fs, rng).await?;
        drop(fs);
        settle(c).await?;
    }
    rot::strike(c, rng).await?;
    c.unmount_all().await;
    if let Some(why) = c.stopped() {
        return Err(why);
    }
    settle(c).await?;
    check::everything(c, &lock(&run.lost))?;
    if let Some(k) = &mut checks {
        k.at_last(run).await?;
    }
    match purges {
        Some(p) => p.check(c),
        None => Ok(()),
    }
}

pub(crate) async fn settle(c: &Arc<Cluster>) -> Result<(), Violation> {
    match select(check::settled(c), c.sim.sleep(HEAL_LIMIT)).await {
        Either::Left(r) => r,
        Either::Right(()) => {
            let left = check::unsettled(c);
            Err(format!("not settled {HEAL_LIMIT:?} after the last operation: {left}"))
        }
    }
}

/// Wall clocks are off, and some monotonic ones go slow. Lengths of time on two hosts may differ by a factor
/// of two for heartbeats (decision 0021); a server that is faster than its clients could evict them too
/// early, so none is.
fn set_clocks(c: &Cluster, rng: &mut Rng) {
    let skewed = |rng: &mut Rng| rng.below(4_000_000_000) as i64 - 2_000_000_000;
    for m in c.mounts.iter().chain([&c.guest]) {
        m.node.set_clock_skew(skewed(rng));
    }
    c.sim.count("clock_skew");
    if rng.below(3) > 0 {
        return;
    }
    c.sim.count("clock_rate");
    for s in &c.servers {
        for h in &s.hosts {
            h.node.set_clock_rate(rng.range(CLOCK_SLOWEST_PPM, 1_000_000));
            h.node.set_clock_skew(skewed(rng));
        }
    }
}

impl Nemesis {
    fn new(c: &Cluster, opt: &Options, rng: &mut Rng) -> Nemesis {
        let mut net = NetFaults { delay_max_us: rng.range(40, 600), ..NetFaults::default() };
        if rng.coin() {
            net.reset_ppm = rng.below(1500) as u32;
        }
        if rng.coin() {
            net.slow_ppm = rng.below(20_000) as u32;
            net.slow_us = rng.below(50_000);
        }
        if rng.below(4) == 0 {
            net.corrupt_ppm = rng.below(800) as u32;
        }
        if rng.below(4) == 0 {
            net.duplicate_ppm = rng.below(2000) as u32;
        }
        if rng.coin() {
            net.late_ppm = 500_000;
        }
        c.sim.set_net_faults(net);
        if rng.below(3) == 0 {
            // Much is under way to the disk when the power fails.
            c.servers[0].set_blocking_time(200, rng.range(500, 6000));
        }
        let optional = [
            Fault::ResetConnection,
            Fault::Partition { both: true },
            Fault::Partition { both: false },
            Fault::PauseServer,
            Fault::PauseClient,
            Fault::KillClient,
            Fault::SlowDisk,
            Fault::CrashAll,
            Fault::CrashMdsAndCut,
            Fault::CrashOstsUnderFlush,
            Fault::StaleClient,
            Fault::ClockJump,
            Fault::ServerAtAwait,
            Fault::ClientAtAwait,
        ];
        let moves = Loss::ALL.map(Fault::FailOver);
        let optional = optional.into_iter().chain(moves);
        let enabled: Vec<Fault> = optional.filter(|_| rng.below(2) == 0).collect();
        let mut faults = Vec::new();
        for _ in 0..opt.crashes + rng.index(3) {
            faults.push(match rng.below(8) {
                0..2 => Fault::KillServer,
                2..4 => Fault::CrashServerAndClient,
                _ => Fault::CrashServer,
            });
        }
        if !enabled.is_empty() {
            faults.extend((0..rng.below(8)).map(|_| *rng.pick(&enabled)));
        }
        // Waiting out a dead client takes long: three of them are enough.
        let mut clients = 0;
        for f in &mut faults {
            let kills = matches!(f, Fault::KillClient | Fault::CrashServerAndClient | Fault::ClientAtAwait);
            clients += u32::from(kills);
            if clients > 3 {
                *f = match *f {
                    Fault::KillClient | Fault::ClientAtAwait => Fault::ResetConnection,
                    Fault::CrashServerAndClient => Fault::CrashServer,
                    other => other,
                };
            }
        }
        let mut points: Vec<(u64, Fault)> =
            faults.into_iter().map(|f| (rng.below(opt.ops * 19 / 20), f)).collect();
        points.sort_by_key(|p| p.0);
        Nemesis { points, skip: opt.skip.clone(), rng: rng.fork() }
    }

    async fn torment(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        for (i, (at, fault)) in std::mem::take(&mut self.points).into_iter().enumerate() {
            // Each has dice of its own: what the others do then does not depend on whether it happens.
            let dice = self.rng.fork();
            if self.skip.contains(&i) {
                continue;
            }
            let after = std::mem::replace(&mut self.rng, dice);
            while run.ops.load(Relaxed) < at && !over.load(Relaxed) {
                c.sim.sleep(Duration::from_micros(700)).await;
            }
            c.sim.log(|| format!("fault {fault:?}"));
            let _alone = match fault {
                Fault::CrashMdsAndCut | Fault::CrashOstsUnderFlush | Fault::StaleClient => {
                    Some(run.maintenance.nothing_ordered().await)
                }
                _ => None,
            };
            self.strike(&c, fault).await?;
            self.rng = after;
        }
        c.sim.heal();
        Ok(())
    }

    async fn strike(&mut self, c: &Arc<Cluster>, fault: Fault) -> Result<(), Violation> {
        // The metadata server is as important as all others together.
        let server = if self.rng.below(3) == 0 { 0 } else { self.rng.index(c.servers.len()) };
        let mount = self.rng.index(c.mounts.len());
        let pause = Duration::from_micros(self.rng.range(1, 6_000_000));
        match fault {
            Fault::CrashServer => self.restart(c, &[server], true).await,
            Fault::KillServer => self.restart(c, &[server], false).await,
            Fault::CrashAll => {
                let all: Vec<usize> = (0..c.servers.len()).collect();
                self.restart(c, &all, true).await;
            }
            Fault::CrashServerAndClient => {
                let server = if self.rng.coin() { 0 } else { server };
                c.kill_client(mount);
                if self.rng.below(4) == 0 {
                    // By then the server has committed all that the client was answered.
                    let later =
                        COMMIT_PATIENCE + Duration::from_micros(self.rng.range(3_000_000, 15_000_000));
                    c.sim.sleep(later).await;
                    c.sim.count("power_loss_after_client");
                }
                self.restart(c, &[server], true).await;
                c.mount(mount).await.map_err(|e| e.to_string())?;
            }
            Fault::CrashMdsAndCut => self.crash_mds_and_cut(c, pause / 4).await?,
            Fault::CrashOstsUnderFlush => self.crash_osts_under_flush(c).await?,
            Fault::ResetConnection => drop(c.sim.reset_some_connection()),
            Fault::Partition { both } => {
                let (a, b) = (&c.mounts[mount].node, c.servers[server].node());
                if self.rng.coin() {
                    c.sim.partition(a, b, both)
                } else {
                    c.sim.partition(b, a, both)
                }
                c.sim.sleep(pause).await;
                c.sim.heal();
            }
            Fault::PauseServer => {
                c.servers[server].node().pause_with(*self.rng.pick(&Rest::ALL));
                c.sim.sleep(pause).await;
                c.servers[server].node().resume();
            }
            Fault::PauseClient => {
                c.mounts[mount].node.pause_with(*self.rng.pick(&Rest::ALL));
                c.sim.sleep(pause).await;
                c.mounts[mount].node.resume();
            }
            Fault::KillClient => {
                c.kill_client(mount);
                c.sim.sleep(pause).await;
                c.mount(mount).await.map_err(|e| e.to_string())?;
            }
            Fault::FailOver(how) => self.fail_over(c, server, how).await?,
            Fault::StaleClient => self.stale_client(c).await?,
            Fault::ClockJump => {
                let servers = c.servers.iter().flat_map(|s| s.hosts.iter().map(|h| &h.node));
                let nodes: Vec<_> = servers.chain(c.mounts.iter().map(|m| &m.node)).collect();
                let far = self.rng.below(172_800_000_000_000) as i64 - 86_400_000_000_000;
                self.rng.pick(&nodes).set_clock_skew(far);
                c.sim.count("clock_jump");
            }
            Fault::ServerAtAwait => self.server_at_await(c, server).await,
            Fault::ClientAtAwait => self.client_at_await(c, mount).await?,
            Fault::SlowDisk => {
                let node = &c.servers[server];
                let max = self.rng.range(1000, 30_000);
                let before = node.set_blocking_time(20, max);
                c.sim.sleep(pause).await;
                node.set_blocking_time(before.0, before.1);
                c.sim.count("slow_disk");
            }
        }
        Ok(())
    }

    async fn server_at_await(&mut self, c: &Arc<Cluster>, server: usize) {
        let polls = Stop::Polls(self.rng.range(1, 400));
        if !c.servers[server].node().stop_at(polls, AWAIT_PATIENCE).await {
            return;
        }
        c.sim.count("server_crash_at_await");
        let power = self.rng.coin();
        self.restart(c, &[server], power).await;
    }

    async fn client_at_await(&mut self, c: &Arc<Cluster>, mount: usize) -> Result<(), Violation> {
        let polls = Stop::Polls(self.rng.range(1, 400));
        if !c.mounts[mount].node.stop_at(polls, AWAIT_PATIENCE).await {
            return Ok(());
        }
        c.sim.count("client_crash_at_await");
        c.kill_client(mount);
        if self.rng.coin() {
            self.restart(c, &[0], true).await;
        }
        c.mount(mount).await.map_err(|e| e.to_string())
    }
}
