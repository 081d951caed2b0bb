//! Crashes at every await point of small workloads: all of one and of two operations over a small alphabet,
//! and samples of three. Whichever node ends there and however, what was fsynced is there afterwards, of the
//! rest a prefix, a client that lives has everything done, and the targets' tables are sound.

use crate::check;
use crate::cluster::Cluster;
use crate::exec::call;
use crate::executor::lock;
use crate::generate::Mix;
use crate::oracle::{EXCHANGE, Id, KEEP_SIZE, Op, PUNCH_HOLE, ROOT};
use crate::run::{Run, Violation, Work, until_first_error};
use crate::scenario::{settle, wait_for_osts};
use crate::workload::Actor;
use crate::{Sim, Stop};
use ::world::mem::CrashMode;
use ::world::rng::{Rng, mix};
use model::mutex::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Virtual time of one run.
const RUN_LIMIT: Duration = Duration::from_secs(4000);
/// What was answered becomes durable within this.
const AFTERWARDS: Duration = Duration::from_millis(400);

/// The files that a workload finds: a directory, a small file that lies with its inode, one with an object.
const DIR: Id = 1;
const SMALL: Id = 2;
const BIG: Id = 3;

/// What ends, and where its polls are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Victim {
    /// Power of a server.
    Server(usize),
    /// The process of a server.
    Process(usize),
    Client,
    /// Power of everything, at a point of the metadata server.
    All,
}

impl Victim {
    pub const ALL: [Victim; 6] = [
        Victim::Server(0),
        Victim::Server(1),
        Victim::Process(0),
        Victim::Process(1),
        Victim::Client,
        Victim::All,
    ];

    /// Targets that are recovered from what the crash left.
    fn images(self) -> u64 {
        match self {
            Victim::Server(_) | Victim::Process(_) => 1,
            Victim::Client => 0,
            Victim::All => 2,
        }
    }
}

/// The operations that workloads are made of.
pub fn alphabet() -> Vec<Op> {
    let name = |s: &str| s.as_bytes().to_vec();
    let data = |n: usize, v: u8| vec![v; n];
    let create =
        |dir, s: &str, stripes| Op::Create { dir, name: name(s), mode: 0o644, stripes, exclusive: true };
    let rename =
        |s: &str, to, t: &str, flags| Op::Rename { dir: ROOT, name: name(s), to, to_name: name(t), flags };
    vec![
        create(ROOT, "x", 0),
        create(DIR, "x", 1),
        Op::Mkdir { dir: ROOT, name: name("y"), mode: 0o755 },
        Op::Symlink { dir: ROOT, name: name("s"), target: name("small") },
        Op::Fifo { dir: DIR, name: name("f"), mode: 0o600 },
        Op::Link { node: SMALL, dir: ROOT, name: name("l") },
        Op::Link { node: BIG, dir: DIR, name: name("l") },
        Op::Unlink { dir: ROOT, name: name("small") },
        Op::Unlink { dir: ROOT, name: name("big") },
        Op::Rmdir { dir: ROOT, name: name("dir") },
        rename("small", ROOT, "r", 0),
        rename("small", ROOT, "big", 0),
        rename("big", DIR, "b", 0),
        rename("small", ROOT, "big", EXCHANGE),
        Op::Write { node: SMALL, off: 50, data: data(100, 5) },
        Op::Write { node: BIG, off: 4000, data: data(3000, 6) },
        // It outgrows the metadata server.
        Op::Write { node: SMALL, off: 60_000, data: data(9000, 7) },
        Op::Append { node: SMALL, data: data(300, 8) },
        Op::Append { node: BIG, data: data(5000, 9) },
        Op::Truncate { node: SMALL, size: 10 },
        Op::Truncate { node: BIG, size: 4100 },
        Op::Fallocate { node: BIG, mode: PUNCH_HOLE | KEEP_SIZE, off: 1000, len: 3500 },
        Op::Chmod { node: SMALL, mode: 0o600 },
        Op::Setxattr { node: BIG, name: name("user.one"), value: data(40, 1), flags: 0 },
        Op::Removexattr { node: SMALL, name: name("user.two") },
        Op::Fsync { node: SMALL },
        Op::Fsync { node: BIG },
        Op::Fsync { node: ROOT },
    ]
}

/// All workloads of so many operations, in a fixed order.
fn workloads(length: usize) -> Vec<Vec<Op>> {
    let ops = alphabet();
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        all = all
            .into_iter()
            .flat_map(|w| ops.iter().map(move |o| [w.clone(), vec![o.clone()]].concat()))
            .collect();
    }
    all
}

/// What is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations of a workload at most.
    pub length: usize,
    /// Of the workloads of each length one in so many.
    pub one_in: [u64; 3],
    /// Of the points of a workload every so many-th, each workload beginning with another.
    pub stride: u64,
    /// Orders of events, and so other images: seeds `1..=variants`.
    pub variants: u64,
    /// Which part of how many: several processes share the work.
    pub part: (u64, u64),
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub workloads: u64,
    /// Crashes at an await point.
    pub points: u64,
    /// Targets recovered from what a crash left of their journal, table and objects.
    pub images: u64,
    pub virtual_ns: u64,
    pub violations: Vec<String>,
}

/// Walks them all.
pub fn walk(plan: &Plan, mut progress: impl FnMut(&Sum)) -> Sum {
    let mut sum = Sum::default();
    for length in 1..=plan.length {
        for (i, ops) in workloads(length).into_iter().enumerate() {
            let lot = mix(i as u64 ^ (length as u64) << 32);
            if !lot.is_multiple_of(plan.one_in[length - 1]) || lot / 7919 % plan.part.1 != plan.part.0 {
                continue;
            }
            sum.workloads += 1;
            for ack_durable in [false, true] {
                // The durable mode has fewer states: it gets a sample.
                let stride = if ack_durable { plan.stride * 4 } else { plan.stride };
                for seed in 1..=plan.variants {
                    walk_one(Workload { ops: &ops, ack_durable, seed }, stride, lot ^ seed, &mut sum);
                }
            }
            progress(&sum);
        }
    }
    sum
}

/// Operations, and how they are run.
#[derive(Clone, Copy)]
struct Workload<'a> {
    ops: &'a [Op],
    ack_durable: bool,
    seed: u64,
}

fn walk_one(w: Workload, stride: u64, lot: u64, sum: &mut Sum) {
    let calm = w.run(None, sum);
    for victim in Victim::ALL {
        let last = match victim {
            Victim::Server(i) | Victim::Process(i) => calm[i],
            Victim::All => calm[0],
            Victim::Client => calm[2],
        };
        let mut at = 1 + lot % stride;
        while at <= last {
            sum.points += 1;
            sum.images += victim.images();
            w.run(Some((victim, at)), sum);
            at += stride;
        }
    }
}

impl Workload<'_> {
    /// One run; the polls of both servers and the client while the operations ran.
    fn run(self, crash: Option<(Victim, u64)>, sum: &mut Sum) -> [u64; 3] {
        let polls = Arc::new(Mutex::new([0; 3]));
        let run = || {
            let sim = Sim::new(self.seed);
            let cluster = Arc::new(Cluster::new(&sim, 1, 1, self.ack_durable));
            let (c, p, ops, rng) = (cluster.clone(), polls.clone(), self.ops.to_vec(), sim.fork_rng());
            let outcome = match cluster.format() {
                Ok(()) => match sim.run(RUN_LIMIT, async move { whole(c, ops, crash, rng, p).await }) {
                    Ok(r) => r,
                    Err(stuck) => Err(format!("the run does not end: {stuck}")),
                },
                Err(e) => Err(format!("formatting failed: {e:#}")),
            };
            (outcome.err().or_else(|| lock(&cluster.failures).first().cloned()), sim.now())
        };
        let (violation, ns) =
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| (Some("panic".into()), 0));
        sum.virtual_ns += ns;
        if let Some(v) = violation {
            let short: Vec<String> = self.ops.iter().map(crate::workload::short).collect();
            let Workload { ack_durable, seed, .. } = self;
            sum.violations.push(format!("{short:?} ack_durable={ack_durable} seed={seed} {crash:?}: {v}"));
        }
        *lock(&polls)
    }
}

async fn whole(
    c: Arc<Cluster>,
    ops: Vec<Op>,
    crash: Option<(Victim, u64)>,
    mut rng: Rng,
    polls: Arc<Mutex<[u64; 3]>>,
) -> Result<(), Violation> {
    c.boot_all();
    c.mount(0).await.map_err(|e| e.to_string())?;
    wait_for_osts(&c, 1).await?;
    let (fs, _) = c.mounts[0].get().ok_or("the mount is gone")?;
    let dir = fs
        .clone()
        .mkdir(call(), fs.root(), b"w".to_vec(), 0o755)
        .await
        .map_err(|e| format!("mkdir gave {e}"))?;
    drop(fs);
    let run = Arc::new(Run {
        cluster: c.clone(),
        mix: Mix::new(&mut rng, 1),
        ops: AtomicU64::new(0),
        shared_one_in: u64::MAX,
        home_percent: 100,
        lost: Mutex::default(),
        maintenance: crate::maintained::Told::default(),
    });
    let mut actor = Actor::new(0, run.clone(), None, dir.fid, b"w", rng.fork());
    set_up(&mut actor).await?;
    let nodes = || [c.servers[0].node().polls(), c.servers[1].node().polls(), c.mounts[0].node.polls()];
    let before = nodes();
    let script = async {
        for op in ops {
            actor.perform(op).await?;
        }
        c.sim.sleep(AFTERWARDS).await;
        Ok(())
    };
    match crash {
        None => script.await?,
        Some((victim, at)) => {
            let both: Vec<Work<'_>> = vec![Box::pin(script), Box::pin(strike(&c, victim, at))];
            until_first_error(both).await?;
        }
    }
    let after = nodes();
    *lock(&polls) = [0, 1, 2].map(|i| after[i] - before[i]);
    actor.finish().await?;
    actor.verify().await?;
    c.check_all_replays();
    settle(&c).await?;
    check::everything(&c, &lock(&run.lost))
}

/// The files that a workload finds, durable.
async fn set_up(actor: &mut Actor) -> Result<(), Violation> {
    let create = |name: &str, stripes| Op::Create {
        dir: ROOT,
        name: name.into(),
        mode: 0o644,
        stripes,
        exclusive: true,
    };
    let ops = [
        Op::Mkdir { dir: ROOT, name: b"dir".to_vec(), mode: 0o755 },
        create("small", 0),
        create("big", 1),
        Op::Write { node: SMALL, off: 0, data: vec![1; 120] },
        Op::Setxattr { node: SMALL, name: b"user.two".to_vec(), value: vec![2; 20], flags: 0 },
        Op::Write { node: BIG, off: 0, data: vec![3; 6000] },
        Op::Fsync { node: SMALL },
        Op::Fsync { node: BIG },
        Op::Fsync { node: ROOT },
    ];
    for op in ops {
        actor.perform(op).await?;
    }
    actor.finish().await
}

async fn strike(c: &Arc<Cluster>, victim: Victim, at: u64) -> Result<(), Violation> {
    let node = match victim {
        Victim::Server(i) | Victim::Process(i) => c.servers[i].node(),
        Victim::Client => &c.mounts[0].node,
        Victim::All => c.servers[0].node(),
    };
    if !node.stop_at(Stop::Polls(at), AFTERWARDS * 3).await {
        return Ok(());
    }
    let power = Some(CrashMode::Random);
    let pause = Duration::from_millis(20);
    match victim {
        Victim::Server(i) => c.crash(i, power),
        Victim::Process(i) => c.crash(i, None),
        Victim::Client => c.kill_client(0),
        Victim::All => {
            c.kill_client(0);
            (0..c.servers.len()).for_each(|i| c.crash(i, power));
        }
    }
    c.sim.sleep(pause).await;
    match victim {
        Victim::Server(i) | Victim::Process(i) => c.boot(i),
        Victim::Client => {}
        Victim::All => c.boot_all(),
    }
    if matches!(victim, Victim::Client | Victim::All) {
        c.mount(0).await.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Shown while it goes on.
pub fn line(s: &Sum) -> String {
    format!(
        "{} workloads, {} crash points, {} images of targets, {} violations",
        s.workloads,
        s.points,
        s.images,
        s.violations.len()
    )
}
