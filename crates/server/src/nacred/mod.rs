//! `nacred`: one server node. Starting a target is: read its label, take its lock, raise its epoch, recover
//! its database, listen, make it known to the MGS.

mod args;
mod assign;
mod barrier;
mod check;
mod control;
mod echo;
pub mod ended;
mod folders;
mod history;
mod marks;
mod metrics;
mod nids;
mod osd;
mod registration;
pub(crate) mod registry;
pub mod snapshot;
mod standby;
mod target;
mod times;
mod views;

use crate::outcome::Outcome;
use admin::command::mkfs::MGT_SUBDIR;
use ended::{StartError, Why};
use model::limits;
use model::mutex::Mutex;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use target::{Held, Target};
use world::sys::notify::Supervisor;
use world::sys::process::{self, SIGINT, SIGTERM};
use world::{BoxFuture, Either, Listener, World, select};

pub use args::Options;
pub use marks::canonical;
pub use nids::choose as choose_nids;

/// Buffers for bulk data that wait to be used again, of each of the usual sizes.
const BUFFERS_KEPT: usize = 32;

/// How often the main thread looks whether a target stopped by itself.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// An orderly stop takes no longer.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A running node.
pub struct Node {
    pub world: World,
    pub options: Options,
    /// One on each network, the first its own address.
    pub nids: Vec<model::Nid>,
    targets: Mutex<Vec<Arc<Target>>>,
    pub server: Arc<rpc::Server>,
    marks: Mutex<marks::Marks>,
    /// With `--mgs-store`.
    standby: Option<Arc<standby::Standby>>,
    /// Random: of this process.
    number: u64,
    /// What is done about snapshots of the targets.
    jobs: snapshot::Jobs,
    /// `history_interval`: seconds between two records of each target; 0: none are made.
    history_interval_s: AtomicU64,
    /// Sessions in which an administrator of this host asks other servers.
    relay: snapshot::relay::Relay,
}

/// Memory of requests: a part of what this process may have.
fn inbound_bytes() -> usize {
    let all = world::host::memory_bytes().map_or(0, |b| usize::try_from(b).unwrap_or(usize::MAX));
    (all / limits::INBOUND_PART_OF_MEMORY).clamp(limits::INBOUND_MIN_BYTES, limits::INBOUND_MAX_BYTES)
}

/// Source address of the connections of who is at `nids`.
fn bind(nids: &[model::Nid]) -> Option<std::net::IpAddr> {
    match nids {
        [one] => Some(one.addr),
        _ => None,
    }
}

/// The networks of who is at `nids`.
fn networks(nids: &[model::Nid]) -> rpc::Networks {
    rpc::Networks::preferring(nids.iter().map(|n| n.net))
}

/// At each of the addresses.
async fn listen(world: &World, nids: &[model::Nid], port: u16) -> Result<Vec<Arc<dyn Listener>>, StartError> {
    let mut out = Vec::new();
    for nid in nids {
        let at = SocketAddr::new(nid.addr, port);
        let listener = world.net.listen(at).await.map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "another server listens there: stop it, or give another --nid"
                }
                std::io::ErrorKind::AddrNotAvailable => "this host has no such address: give --nid",
                std::io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need root: run as root, or give --port"
                }
                _ => "give another --nid",
            };
            let text = format!("cannot listen on {at}: {e}: {hint}");
            StartError { has_neighbour: e.kind() == std::io::ErrorKind::AddrInUse, ..StartError::new(text) }
        })?;
        assert_eq!(listener.local_addr().ip(), nid.addr, "a node listens where it says that it is");
        out.push(listener);
    }
    Ok(out)
}

async fn start(world: World, options: Options) -> Result<Arc<Node>, StartError> {
    let mut marks = options.marks();
    // Whoever was unmounted while this process started again stays away.
    marks.retain(|m| ended::starts_again() == 0 || m.is_there());
    let folders: Vec<String> =
        options.dirs.iter().cloned().chain(marks.iter().map(|m| m.folder.clone())).collect();
    folders::wait(&world, &folders, options.folder_patience()).await?;
    let labels = target::read_labels(&world, &folders, &[], options.patience()).await?;
    if options.mgs_store.is_some()
        && let Some(e) = standby::clash(&labels)
    {
        return Err(e);
    }
    let told: Vec<_> = labels.iter().map(|l| &l.superblock).collect();
    let networks = options.networks.clone().map_or(Vec::new(), |n| n.0);
    let nids = nids::choose(&world, &options.nid, &networks, &told).await?;
    let Some(nid) = nids.first().copied() else { return Err(StartError::new("this host has no address")) };
    // The addresses before the epochs: a second daemon started by mistake must leave no trace.
    let listeners = listen(&world, &nids, options.port).await?;
    let server =
        rpc::Server::new(world.clone(), format!("nacred {} on {}", admin::VERSION, world::sys::hostname()));
    server.set_ping_interval(options.ping_interval);
    server.set_secure(options.accept == args::Accept::Secure);
    server.inbound().set_max_bytes(inbound_bytes());
    let held = target::hold(&world, labels, options.mmp_times(), options.patience()).await?;
    let standby = options.mgs_store.as_ref().map(|url| {
        let who = format!("on {} at {nid}", world::sys::hostname());
        let term = Duration::from_secs(options.mgs_term.into());
        standby::Standby::new(&world, &server, url, who, term)
    });
    let (targets, abort) = (Mutex::default(), options.abort_recov);
    let node = Arc::new(Node {
        world: world.clone(),
        nids,
        targets,
        server,
        options,
        marks: Mutex::default(),
        standby,
        number: world.random_u64(),
        jobs: snapshot::Jobs::default(),
        history_interval_s: AtomicU64::new(model::history::INTERVAL_DEFAULT_S),
        relay: snapshot::relay::Relay::default(),
    });
    snapshot::relay::serve(&node);
    let (known, new): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|h| h.label().target.is_assigned());
    let known = node.open(known, abort).await?;
    for (i, l) in listeners.into_iter().enumerate() {
        let accept = if i == 0 { node.server.run(l) } else { node.server.run_also(l) };
        world.spawn("accept", accept);
    }
    registration::start(&node, &known);
    node.open_new(new, abort).await?;
    node.place_marks(marks)?;
    node.standby.iter().for_each(standby::Standby::start);
    let recorded = Arc::downgrade(&node);
    history::start(move || recorded.upgrade().map(|n| n.recorded()));
    model::event!(
        INFO,
        TargetServed,
        node.names(),
        "serving {} at {}, port {}",
        node.names(),
        node.places(),
        node.options.port
    );
    Ok(node)
}

impl Node {
    /// In the order in which they came.
    pub fn targets(&self) -> Vec<Arc<Target>> {
        self.targets.lock().clone()
    }

    /// Serves these.
    async fn open(&self, held: Vec<Held>, abort_recov: bool) -> Result<Vec<Arc<Target>>, StartError> {
        let mut all = Vec::new();
        for h in held {
            for t in target::open(h, &self.nids, self.options.port).await? {
                if let Some(r) = t.recovery().filter(|_| abort_recov) {
                    r.abort();
                }
                self.server.add(t.service.as_service(), t.peers.clone());
                self.targets.lock().push(t.clone());
                all.push(t);
            }
        }
        Ok(all)
    }

    /// The same of targets that have no index yet.
    async fn open_new(self: &Arc<Self>, held: Vec<Held>, abort_recov: bool) -> Result<(), StartError> {
        for mut h in held {
            let target = assign::index(self, h.dir(), h.label()).await?;
            h.assign(target)?;
            registration::start(self, &self.open(vec![h], abort_recov).await?);
        }
        Ok(())
    }

    /// Its addresses, in words.
    fn places(&self) -> String {
        self.nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// From where it goes to others. Over several networks the host's routes say it.
    fn bind(&self) -> Option<std::net::IpAddr> {
        bind(&self.nids)
    }

    /// For whoever supervises it, in a line: what is not up is said.
    fn doing(&self) -> String {
        let one = |t: &Arc<Target>| match t.state() {
            "up" => t.label(),
            state => format!("{} ({state})", t.label()),
        };
        let mut all: Vec<String> = self.served().iter().map(one).collect();
        all.extend(self.standby.as_ref().map(|s| format!("MGS ({})", s.status().dir)));
        format!("{} at {}, port {}", all.join(", "), self.places(), self.options.port)
    }

    fn names(&self) -> String {
        let mut all: Vec<String> = self.targets().iter().map(|t| t.label()).collect();
        all.extend(self.standby.as_ref().map(|s| format!("MGS ({})", s.status().dir)));
        all.join(", ")
    }

    /// The first target that stopped by itself, in words, and what that means for the node. One that was
    /// taken out of the file system means nothing while there are others.
    fn failed(&self) -> Option<(String, Why)> {
        let targets = self.targets();
        let empty = self.standby.is_none() && targets.iter().all(|t| t.is_removed());
        let counted = || targets.iter().filter(|t| empty || !t.is_removed());
        let first = counted().find_map(|t| Some(format!("{} ({}): {}", t.label(), t.dir, t.failure()?)))?;
        let why = counted().filter(|t| t.failure().is_some()).map(|t| t.why_failed());
        let why = why.max_by_key(Why::status).unwrap_or(Why::Disk);
        let disk = self.read_only().is_some() && matches!(why, Why::OutOfTime);
        Some((first, if disk { Why::Disk } else { why }))
    }

    /// Targets that were taken out of the file system are served no more; the others go on.
    async fn take_out_removed(&self) {
        for t in self.targets().iter().filter(|t| t.is_removed() && !t.taken_out.swap(true, Relaxed)) {
            model::event!(
                ERROR,
                TargetStopped,
                t.label(),
                "NOT SERVED ANY MORE: {} ({}): {}",
                t.label(),
                t.dir,
                t.failure().unwrap_or_default()
            );
            self.end(t).await;
            t.leave().await;
        }
    }

    /// Its clients are told; what is under way is finished.
    async fn end(&self, t: &Target) {
        self.server.remove(t.service.as_service().target());
        t.stop().await;
    }

    /// Those that were not taken out.
    fn served(&self) -> Vec<Arc<Target>> {
        self.targets().into_iter().filter(|t| !t.taken_out.load(Relaxed)).collect()
    }

    /// For their history: without those of snapshots, which have none.
    fn recorded(&self) -> (Vec<Arc<dyn history::HasHistory>>, u64) {
        let is_live = |t: &Arc<Target>| !t.dir.contains(&format!("/{}/", store::snapshot::FOLDER));
        let all = self.served().into_iter().filter(is_live).map(|t| t as Arc<dyn history::HasHistory>);
        (all.collect(), self.history_interval_s.load(Relaxed))
    }

    /// The targets that take no more changes, and why.
    fn read_only(&self) -> Option<String> {
        let one =
            |t: &Arc<Target>| Some(format!("{} ({}) is read-only: {}", t.label(), t.dir, t.read_only()?));
        let all: Vec<String> = self.targets().iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// Whether nobody took any of the targets since their leases ended.
    async fn is_still_own(&self) -> bool {
        let ask = |t: &Arc<Target>| -> BoxFuture<bool> {
            let t = t.clone();
            Box::pin(async move {
                t.is_still_own().await.unwrap_or_else(|e| {
                    tracing::error!("{}: cannot look whose it is: {e}", t.label());
                    false
                })
            })
        };
        ended::is_all_own(self.served().iter().map(ask).collect()).await
    }

    /// Tells the clients, finishes what is under way, empties the journals.
    async fn stop(&self) {
        self.begin_to_end();
        if let Some(s) = &self.standby {
            s.end().await;
        }
        self.server.stop().await;
        for t in self.served() {
            self.end(&t).await;
        }
        for t in self.served() {
            t.leave().await;
        }
        self.targets().iter().for_each(|t| t.let_go());
    }
}

/// For the mount helper that waits for it.
fn say(wanted: bool, outcome: &Outcome) {
    if wanted {
        outcome.say();
    }
}

/// Ends the process with a word.
fn fail(text: &str, status: i32) -> i32 {
    assert_ne!(status, 0, "who fails does not end well");
    eprintln!("nacred: {text}");
    ended::leave(status);
    status
}

/// Until somebody tells this process to end; whoever supervises it hears that it lives.
async fn told_to_end(world: World, supervisor: Arc<Mutex<Supervisor>>) {
    while process::wait_signal(&[SIGTERM, SIGINT], Duration::ZERO).is_none() {
        supervisor.lock().beat();
        world.sleep(WATCH_INTERVAL).await;
    }
}

/// What of the options decides, and the words of the first line of the log.
fn serve(options: Options, args: &[OsString]) -> i32 {
    process::block_signals(&[SIGTERM, SIGINT]);
    process::set_name("nacred");
    process::raise_open_files();
    crate::log::start();
    if let Err(e) = process::spare_when_memory_is_short() {
        tracing::debug!("cannot ask to be spared when memory is short: {e}");
    }
    // As many as two clients or three have requests under way; a mount has its caches besides.
    world::buffer::keep(BUFFERS_KEPT);
    let (world, runtime) = match world::real::start(2) {
        Ok(r) => r,
        Err(e) => return fail(&format!("cannot start threads: {e}"), 1),
    };
    runtime.end_on_panic(&[]);
    let supervisor = Arc::new(Mutex::new(Supervisor::of_environment()));
    let (asked, report) = (told_to_end(world.clone(), supervisor.clone()), options.report);
    let node = match runtime.block_on(select(start(world.clone(), options), asked)) {
        Either::Left(Ok(n)) => n,
        Either::Left(Err(e)) => {
            say(report, &Outcome::Failed { message: e.text.clone(), has_neighbour: e.has_neighbour });
            return fail(&e.text, e.status);
        }
        Either::Right(()) => {
            let status = fail("ended by a signal before it served", 1);
            ended::leave(0);
            return status;
        }
    };
    // Not before the folder is this server's.
    if let Some(first) = node.options.dirs.first() {
        crate::log::keep_in(Path::new(first).join(admin::command::mkfs::EVENTS_FILE));
    }
    let socket = control::serve(&node);
    if let Some(at) = node.options.metrics {
        let served = node.clone();
        crate::metrics::start(&node.world, at, Arc::new(served));
    }
    say(report, &Outcome::Mounted);
    if let Err(e) = &socket {
        tracing::warn!("no control socket, lctl cannot ask this daemon: {e}");
    }
    supervisor.lock().ready(&node.doing());
    loop {
        if let Some((what, why)) = node.failed() {
            model::event!(ERROR, ServerStopping, node.names(), "STOPPING: {what}");
            drop(socket);
            let asked = told_to_end(node.world.clone(), supervisor);
            return stopped(&node, (&runtime, asked), args, &what, &why);
        }
        supervisor.lock().beat();
        supervisor.lock().status(|| node.doing());
        runtime.block_on(node.take_out_removed());
        runtime.block_on(node.take_out_unmounted());
        if node.ends_by_umount() {
            break;
        }
        if process::wait_signal(&[SIGTERM, SIGINT], WATCH_INTERVAL).is_some() {
            break;
        }
    }
    model::event!(INFO, ServerStopping, node.names(), "stopping {}", node.names());
    supervisor.lock().stopping("told to end");
    let stopping = node.clone();
    let done = runtime.block_on(async move { world.timeout(STOP_PATIENCE, stopping.stop()).await });
    node.marks().iter().for_each(marks::Mark::take_away);
    drop(socket);
    ended::leave(0);
    match done {
        Some(()) => {
            tracing::info!("stopped");
            crate::log::flush();
            0
        }
        None => {
            eprintln!("nacred: targets did not finish within {STOP_PATIENCE:?}; the journal has everything");
            1
        }
    }
}

/// A target stopped by itself: the process ends, or starts again if all that it lacked was time.
fn stopped(
    node: &Node,
    (runtime, asked): (&world::real::Runtime, impl Future<Output = ()> + Send),
    args: &[OsString],
    what: &str,
    why: &Why,
) -> i32 {
    let text = format!("stopped: {what}");
    match why {
        Why::OutOfTime => {}
        Why::Refused => return fail(&text, why.status()),
        Why::Removed => {
            runtime.block_on(node.world.timeout(STOP_PATIENCE, Box::pin(node.stop())));
            return fail(&text, why.status());
        }
        Why::Disk => {
            tracing::error!(
                "nothing that was acknowledged is lost; mend the disk, run nacre fsck, start nacred again"
            );
            return fail(&text, why.status());
        }
    }
    match runtime.block_on(select(node.is_still_own(), asked)) {
        Either::Left(true) => {
            model::event!(
                WARN,
                ServerStartedAgain,
                node.names(),
                "STARTING AGAIN: nobody took {} meanwhile",
                node.names()
            );
            let e = ended::start_again(&Options::again(args, &node.marks()));
            fail(&format!("{text}; and cannot start again: {e}"), why.status())
        }
        Either::Left(false) => {
            tracing::error!("nothing that was acknowledged is lost; another server has the target, or will");
            fail(&text, why.status())
        }
        Either::Right(()) => {
            ended::leave(0);
            0
        }
    }
}

pub fn main(args: &[OsString]) -> i32 {
    match Options::parse(args) {
        Ok(o) => serve(o, args),
        Err(code) => code,
    }
}
