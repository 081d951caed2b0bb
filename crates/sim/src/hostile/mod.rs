//! Peers that lie: after a true hello they send every kind of message with every kind of flag, extreme
//! numbers first, over several sessions with each target, while an honest client works beside them and
//! compares everything with its model.
//!
//! Nothing they send ends a server, is left without an answer on a living connection, changes what the honest
//! client sees, or leaves a table that does not check or start. What everybody may do to everybody's files
//! (who may speak is another question) they do to files of their own only.

mod arbitrary;
mod message;
mod peer;

use crate::cluster::Cluster;
use crate::exec::call;
use crate::executor::lock;
use crate::generate::Mix;
use crate::run::{Run, Violation, Work, until_first_error};
use crate::scenario::wait_for_osts;
use crate::workload::Actor;
use crate::{Sim, cluster};
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use arbitrary::{Arbitrary, Pool};
use bytes::Bytes;
use model::mutex::Mutex;
use model::{Cred, Fid, TargetId};
use peer::Peer;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::frame::{FLAG_COMMIT, FLAG_DURABLE, FLAG_REPLAY, FLAG_RESENT, FLAG_UNDER_WAY};
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::Notice;
use wire::{FrameKind, Message, Op, RequestContext, encode_message};

const OSTS: u16 = 2;
/// Virtual time of a whole run.
const RUN_LIMIT: Duration = Duration::from_secs(40_000);
/// Virtual time in which each request is answered, evictions of clients that do not give leases back
/// included.
const ANSWER_PATIENCE: Duration = Duration::from_secs(400);
/// Frames that are told of when something was found.
const TOLD: usize = 12;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// Frames of hostile peers.
    pub frames: u64,
    /// Frames that are sent; the dice are thrown as for `frames`.
    pub stop: Option<u64>,
    /// Whether what servers and clients log is kept.
    pub log: bool,
}

/// What was found.
pub struct Found {
    pub what: Violation,
    /// The last frames, the newest last.
    pub frames: Vec<String>,
    /// What was logged at last.
    pub log: Vec<String>,
}

/// What a run came to that found nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    /// Requests of hostile peers that were done, …
    pub done: u64,
    /// … and that were answered with an error.
    pub refused: u64,
    /// Operations of the honest client.
    pub honest: u64,
}

type Trail = Arc<Mutex<VecDeque<String>>>;

/// Runs one seed; a panic is found like anything else.
pub fn run(o: &Options) -> Result<Sum, Found> {
    let trail = Trail::default();
    let sim = Sim::new(o.seed);
    let _said = o.log.then(|| {
        sim.keep_log();
        crate::said::keep(&sim)
    });
    let outcome = catch_unwind(AssertUnwindSafe(|| run_once(&sim, o, trail.clone())));
    let what = match outcome {
        Ok(Ok(sum)) => return Ok(sum),
        Ok(Err(v)) => v,
        Err(p) => {
            let text = p.downcast_ref::<String>().cloned();
            let text = text.or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    let frames = lock(&trail).iter().cloned().collect();
    Err(Found { what, frames, log: sim.take_log() })
}

/// The fewest frames that still find something.
pub fn minimise(o: &Options, found: Found) -> (Options, Found) {
    let (mut best, mut found) = (*o, found);
    let (mut low, mut high) = (0, o.stop.unwrap_or(o.frames));
    while low < high {
        let middle = low.midpoint(high);
        let shorter = Options { stop: Some(middle), ..*o };
        match run(&shorter) {
            Err(f) => (high, best, found) = (middle, shorter, f),
            Ok(_) => low = middle + 1,
        }
    }
    (best, found)
}

/// The command that runs it again.
pub fn command(o: &Options) -> String {
    let stop = o.stop.map_or(String::new(), |n| format!(" --stop {n}"));
    format!("nacre-sim --hostile --seeds 1 --first {} --ops {}{stop}", o.seed, o.frames)
}

fn run_once(sim: &Sim, o: &Options, trail: Trail) -> Result<Sum, Violation> {
    let mut rng = sim.fork_rng();
    let cluster = Arc::new(Cluster::new(sim, OSTS, 1, rng.coin()));
    cluster.format().map_err(|e| format!("formatting failed: {e:#}"))?;
    let node = sim.add_node("hostile", &[[10, 0, 3, 1].into()]);
    node.boot();
    let hostile = Hostile {
        peers: Vec::new(),
        pool: Pool::default(),
        looks: Pool::default(),
        rng: rng.fork(),
        trail,
        left: 0,
    };
    let (c, o) = (cluster.clone(), *o);
    let all = sim.run(RUN_LIMIT, async move { whole(c, node.world(), hostile, o, rng).await });
    let sum = all.map_err(|stuck| format!("the run does not end: {stuck}"))??;
    let failure = lock(&cluster.failures).first().cloned();
    failure.map_or(Ok(sum), Err)
}

async fn whole(
    c: Arc<Cluster>,
    world: ::world::World,
    mut hostile: Hostile,
    o: Options,
    mut rng: Rng,
) -> Result<Sum, Violation> {
    c.boot_all();
    c.mount(0).await.map_err(|e| e.to_string())?;
    wait_for_osts(&c, OSTS).await?;
    let (fs, _) = c.mounts[0].get().ok_or("the mount is gone")?;
    let gave = |e| format!("mkdir at the start gave {e}");
    let dir = fs.clone().mkdir(call(), fs.root(), b"a0".to_vec(), 0o755).await.map_err(gave)?;
    fs.clone().fsync(call(), fs.root()).await.map_err(gave)?;
    drop(fs);
    let run = Arc::new(Run {
        cluster: c.clone(),
        mix: Mix::new(&mut rng, u32::from(OSTS)),
        ops: AtomicU64::new(0),
        shared_one_in: u64::MAX,
        home_percent: 100,
        lost: Mutex::default(),
        maintenance: crate::maintained::Told::default(),
    });
    let mut honest = Actor::new(0, run.clone(), None, dir.fid, b"a0", rng.fork());
    hostile.left = o.stop.unwrap_or(o.frames);
    hostile.set_up(&c, &world).await;
    let (first, second) = (o.frames * 2 / 3, o.frames - o.frames * 2 / 3);
    beside(&mut honest, &mut hostile, first / 6 + 10, first).await?;
    // The second part meets servers that come back and wait for their clients.
    crash(&c).await;
    beside(&mut honest, &mut hostile, o.frames / 6 + 20, second).await?;
    hostile.answered(&c).await?;
    hostile.peers.iter_mut().for_each(Peer::hang_up);
    honest.finish().await?;
    crash(&c).await;
    honest.verify().await?;
    c.check_all_replays();
    up(&c).await?;
    if let Some(why) = c.stopped() {
        return Err(why);
    }
    let db = c.mdt_db().ok_or("the metadata target is down")?;
    let s = mds::check::check(&db).map_err(|e| format!("the metadata target cannot be checked: {e}"))?;
    match s.findings.first() {
        None => {
            let all = hostile.peers.iter().map(Peer::answers);
            let (done, refused) = all.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            Ok(Sum { done, refused, honest: run.ops.load(Relaxed) })
        }
        Some(f) => {
            Err(format!("check of the metadata target: {} findings, {:?} {f}", s.findings.len(), f.rule))
        }
    }
}

/// The power of all servers fails.
async fn crash(c: &Arc<Cluster>) {
    for i in 0..c.servers.len() {
        c.crash(i, Some(CrashMode::LoseAll));
    }
    c.sim.sleep(Duration::from_millis(200)).await;
    c.boot_all();
}

/// Waits until every server serves: what the honest client knows it need not ask for.
async fn up(c: &Arc<Cluster>) -> Result<(), Violation> {
    for _ in 0..600 {
        if (0..c.servers.len()).all(|i| c.is_up(i)) {
            return Ok(());
        }
        c.sim.sleep(Duration::from_millis(500)).await;
    }
    Err("a server does not come back".into())
}

/// The honest client's work while the others send.
async fn beside(honest: &mut Actor, hostile: &mut Hostile, ops: u64, frames: u64) -> Result<(), Violation> {
    let send = async {
        for _ in 0..frames {
            hostile.step().await;
        }
        Ok(())
    };
    let both: Vec<Work<'_>> = vec![Box::pin(honest.work(ops)), Box::pin(send)];
    until_first_error(both).await
}

struct Hostile {
    peers: Vec<Peer>,
    /// What it makes and changes, …
    pool: Pool,
    /// … and what it looks at besides.
    looks: Pool,
    rng: Rng,
    trail: Trail,
    /// Frames still to be sent.
    left: u64,
}

impl Hostile {
    /// Its sessions, and a directory of its own.
    async fn set_up(&mut self, c: &Cluster, world: &::world::World) {
        let at = |i: usize| cluster::address(c, i);
        let peer = |target, i| Peer::new(world.clone(), target, at(i));
        self.peers = vec![
            peer(TargetId::mdt(0), 0),
            peer(TargetId::mdt(0), 0),
            peer(TargetId::mdt(0), 0),
            peer(TargetId::MGT, 0),
            peer(TargetId::ost(0), 1),
            peer(TargetId::ost(0), 1),
            peer(TargetId::ost(1), 2),
        ];
        for p in &mut self.peers {
            p.connect().await;
        }
        // The sequence that the first one is given: nobody else has files there.
        let seq = self.sequence().await;
        let evil = Fid::new(seq, 1, 0);
        let fids = (1..14).map(|oid| Fid::new(seq, oid, 0));
        self.pool.fids = fids.chain([evil; 4]).collect();
        self.looks.fids = self.pool.fids.iter().copied().chain([Fid::ROOT]).collect();
        let m = Mkdir { parent: Fid::ROOT, name: b"evil".to_vec(), fid: evil, mode: 0o777, umask: 0 };
        let made =
            message::Made { op: Mkdir::OP, body: encode_message(&m), bulk: Bytes::new(), reply: Vec::new() };
        self.peers[0].request(1, made, &RequestContext::default()).await;
    }

    async fn sequence(&mut self) -> u64 {
        let m = wire::msg::allocseq::Allocseq { kind: 0 };
        let made = message::Made {
            op: Op::Allocseq,
            body: encode_message(&m),
            bulk: Bytes::new(),
            reply: Vec::new(),
        };
        self.peers[0].sequence(made).await
    }

    /// One frame of one of the sessions.
    async fn step(&mut self) {
        let mut rng = self.rng.fork();
        let pause = match rng.below(400) {
            0 => Duration::from_secs(rng.below(40)),
            1..40 => Duration::from_millis(rng.below(50)),
            _ => Duration::from_micros(rng.below(300)),
        };
        let i = rng.index(self.peers.len());
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let world = self.peers[i].world().clone();
        world.sleep(pause).await;
        if !self.peers[i].is_up() {
            if rng.below(4) == 0 {
                self.peers[i].forget();
            }
            if !self.peers[i].connect().await {
                return world.sleep(Duration::from_millis(500)).await;
            }
        }
        let (told, trail) = (self.frame(i, &mut rng).await, self.trail.clone());
        let mut t = lock(&trail);
        t.push_back(told);
        if t.len() > TOLD {
            t.pop_front();
        }
    }

    async fn frame(&mut self, i: usize, rng: &mut Rng) -> String {
        if rng.below(12) == 0 {
            return self.notice(i, rng).await;
        }
        let target = self.peers[i].target;
        let op = if rng.below(12) == 0 { *rng.pick(Op::ALL) } else { *rng.pick(likely(target)) };
        let looks =
            matches!(op, Op::Lookup | Op::Getattr | Op::Readdir | Op::Getxattr | Op::Getpath | Op::Statfs);
        let made = message::make(op, if looks { &self.looks } else { &self.pool }, rng);
        let mut ctx = RequestContext::default();
        if rng.below(4) == 0 {
            ctx = message::value(&mut Arbitrary::new(rng, &self.pool, 10));
        }
        if rng.coin() {
            ctx.cred = Cred::root();
        }
        let mut body = postcard::to_stdvec(&ctx).expect("plain data encodes");
        body.extend_from_slice(&made.body);
        let p = &mut self.peers[i];
        let mut h = p.header(FrameKind::Request);
        (h.opcode, h.slot, h.xid) = (op as u16, rng.below(64) as u16, p.next_xid);
        p.next_xid += 1;
        for flag in [FLAG_RESENT, FLAG_DURABLE, FLAG_COMMIT, FLAG_UNDER_WAY] {
            if rng.below(12) == 0 {
                h.flags |= flag;
            }
        }
        if rng.below(4) == 0 {
            h.flags |= FLAG_REPLAY;
            h.transno = *rng.pick(&[0, 1, u64::from(h.epoch) << 32, u64::MAX]);
            let wall = message::value(&mut Arbitrary::new(rng, &self.pool, 4));
            let tail = wire::replay::Tail { wall, reply: made.reply };
            body = wire::replay::append(&body, &tail);
        }
        // A lock may be waited for as long as another session holds it; a ping's answer is told of otherwise.
        let waits = matches!(op, Op::Enqueue | Op::Batch | Op::Ping | Op::Disconnect);
        let mut expected = (!waits).then(|| format!("{op:?}"));
        match rng.below(60) {
            0 => (h.xid, expected) = (*rng.pick(&[0, 1, h.xid - 1, u64::MAX]), None),
            1 => (h.slot, expected) = (*rng.pick(&[64, 65, u16::MAX]), None),
            2 => (h.epoch, expected) = (*rng.pick(&[0, h.epoch + 1, u32::MAX]), None),
            3 => (h.session, expected) = (*rng.pick(&[0, h.session + 1, u64::MAX]), None),
            4 => (h.opcode, expected) = (*rng.pick(&[0, 7, 1000, u16::MAX]), None),
            5 => (h.kind, expected) = (*rng.pick(&[FrameKind::Connect, FrameKind::Reply]), None),
            6 => {
                let at = rng.index(body.len());
                body.truncate(at);
            }
            _ => {}
        }
        let told = format!(
            "{target:?} {op:?} flags {:#x} slot {} xid {} uid {}: {}",
            h.flags,
            h.slot,
            h.xid,
            ctx.cred.uid,
            hex(&made.body)
        );
        p.send(h, body, made.bulk, expected).await;
        if op == Op::Disconnect {
            p.left();
        }
        told
    }

    async fn notice(&mut self, i: usize, rng: &mut Rng) -> String {
        let n: Notice = message::value(&mut Arbitrary::new(rng, &self.pool, 8));
        let p = &mut self.peers[i];
        let h = p.header(FrameKind::Notify);
        let told = format!("{:?} {n:?}", p.target);
        p.send(h, encode_message(&n), Bytes::new(), None).await;
        told.chars().take(300).collect()
    }

    /// Every request was answered, or its connection ended.
    async fn answered(&self, c: &Cluster) -> Result<(), Violation> {
        let step = Duration::from_secs(5);
        let mut left = ANSWER_PATIENCE;
        loop {
            let Some(what) = self.peers.iter().find_map(Peer::unanswered) else { return Ok(()) };
            left = match left.checked_sub(step) {
                Some(l) => l,
                None => return Err(format!("no answer within {ANSWER_PATIENCE:?}: {what}")),
            };
            c.sim.sleep(step).await;
        }
    }
}

/// Messages for the MGS.
const MGT: &[Op] = &[Op::Register, Op::Config, Op::Configview, Op::GetParam, Op::SetParam, Op::Ping];

/// Messages of which a target knows at least the name.
fn likely(target: TargetId) -> &'static [Op] {
    const MDT: &[Op] = &[
        Op::Lookup,
        Op::Getattr,
        Op::Setattr,
        Op::Create,
        Op::Create,
        Op::Mkdir,
        Op::Mknod,
        Op::Symlink,
        Op::Readlink,
        Op::Link,
        Op::Unlink,
        Op::Purge,
        Op::Rmdir,
        Op::Rename,
        Op::Open,
        Op::Close,
        Op::Readdir,
        Op::Getxattr,
        Op::Setxattr,
        Op::Listxattr,
        Op::Removexattr,
        Op::Setlayout,
        Op::Getpath,
        Op::Allocseq,
        Op::Grow,
        Op::Layout,
        Op::Migrate,
        Op::Instantiate,
        Op::Components,
        Op::Recreate,
        Op::Swap,
        Op::Withdraw,
        Op::Own,
        Op::Fetch,
        Op::Ostfiles,
        Op::Scan,
        Op::Changelog,
        Op::Changelogclear,
        Op::Setquota,
        Op::Quotadir,
        Op::Trashdir,
        Op::Trashlist,
        Op::Trashtake,
        Op::Acquire,
        Op::Makeroom,
        Op::Enqueue,
        Op::Cancel,
        Op::Getlock,
        Op::Reclaim,
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Seek,
        Op::Fallocate,
        Op::Batch,
        Op::Statfs,
        Op::Quotactl,
        Op::GetParam,
        Op::SetParam,
        Op::Sync,
        Op::Barrier,
        Op::Snapshot,
        Op::Ping,
    ];
    const OST: &[Op] = &[
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Writelist,
        Op::Writelist,
        Op::Truncate,
        Op::Fallocate,
        Op::Seek,
        Op::Glimpse,
        Op::Glimpselist,
        Op::Destroy,
        Op::Fence,
        Op::Setowner,
        Op::Quotashare,
        Op::Objectlist,
        Op::Snapshot,
        Op::Sync,
        Op::Extent,
        Op::Grant,
        Op::Reclaim,
        Op::Batch,
        Op::Statfs,
        Op::Quotactl,
        Op::GetParam,
        Op::SetParam,
        Op::Ping,
    ];
    match target.kind {
        model::TargetKind::Mdt => MDT,
        model::TargetKind::Ost => OST,
        model::TargetKind::Mgt => MGT,
    }
}

fn hex(bytes: &[u8]) -> String {
    let short: String = bytes.iter().take(120).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > 120 { format!("{short}… ({} bytes)", bytes.len()) } else { short }
}
