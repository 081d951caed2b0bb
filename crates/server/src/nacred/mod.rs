//! `nacred`: one server node. Starting a target is: read its label, take its lock, raise its epoch, recover
//! its database, listen, make it known to the MGS.

mod args;
mod check;
mod control;
pub mod ended;
mod osd;
mod registration;
mod registry;
mod standby;
mod target;

use ended::{StartError, Why};
use model::limits;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use target::Target;
use world::sys::process::{self, SIGINT, SIGTERM};
use world::{BoxFuture, Either, World, select};

pub use args::Options;

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
    pub nid: model::Nid,
    pub targets: Vec<Arc<Target>>,
    pub server: Arc<rpc::Server>,
    /// With `--mgs-store`.
    standby: Option<Arc<standby::Standby>>,
}

/// Memory of requests: a part of what this process may have.
fn inbound_bytes() -> usize {
    let all = world::host::memory_bytes().map_or(0, |b| usize::try_from(b).unwrap_or(usize::MAX));
    (all / limits::INBOUND_PART_OF_MEMORY).clamp(limits::INBOUND_MIN_BYTES, limits::INBOUND_MAX_BYTES)
}

async fn start(world: World, options: Options) -> Result<Arc<Node>, StartError> {
    let labels = target::read_labels(&world, &options.dirs, options.patience()).await?;
    if options.mgs_store.is_some()
        && let Some(e) = standby::clash(&labels)
    {
        return Err(e);
    }
    let nid = args::choose_nid(&options, &labels.iter().map(|l| &l.superblock).collect::<Vec<_>>())?;
    let at = SocketAddr::new(nid.addr, options.port);
    // The address before the epochs: a second daemon started by mistake must leave no trace.
    let listener = world.net.listen(at).await.map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::AddrInUse => "another server listens there: stop it, or give another --nid",
            std::io::ErrorKind::AddrNotAvailable => "this host has no such address: give --nid",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need root: run as root, or give --port",
            _ => "give another --nid",
        };
        StartError::new(format!("cannot listen on {at}: {e}: {hint}"))
    })?;
    assert_eq!(listener.local_addr().ip(), nid.addr, "a node listens where it says that it is");
    let server =
        rpc::Server::new(world.clone(), format!("nacred {} on {}", admin::VERSION, world::sys::hostname()));
    server.set_ping_interval(options.ping_interval);
    server.set_secure(options.accept == args::Accept::Secure);
    server.inbound().set_max_bytes(inbound_bytes());
    let mut targets = Vec::new();
    for held in target::hold(&world, labels, options.mmp_times(), options.patience()).await? {
        for t in target::open(held, nid, options.port).await? {
            if let Some(r) = t.recovery().filter(|_| options.abort_recov) {
                r.abort();
            }
            server.add(t.service.as_service(), t.peers.clone());
            targets.push(t);
        }
    }
    let standby = options.mgs_store.as_ref().map(|url| {
        let who = format!("on {} at {nid}", world::sys::hostname());
        let term = Duration::from_secs(options.mgs_term.into());
        standby::Standby::new(&world, &server, url, who, term)
    });
    let node = Arc::new(Node { world: world.clone(), nid, targets, server, options, standby });
    let accept = node.server.run(listener);
    world.spawn("accept", accept);
    registration::start(&node);
    node.standby.iter().for_each(standby::Standby::start);
    tracing::info!("serving {} at {nid}, port {}", node.names(), node.options.port);
    Ok(node)
}

impl Node {
    fn names(&self) -> String {
        let mut all: Vec<String> = self.targets.iter().map(|t| t.label()).collect();
        all.extend(self.standby.as_ref().map(|s| format!("MGS ({})", s.status().dir)));
        all.join(", ")
    }

    /// The first target that stopped by itself, in words, and what that means for the node. One that was
    /// taken out of the file system means nothing while there are others.
    fn failed(&self) -> Option<(String, Why)> {
        let empty = self.standby.is_none() && self.targets.iter().all(|t| t.is_removed());
        let counted = || self.targets.iter().filter(|t| empty || !t.is_removed());
        let first = counted().find_map(|t| Some(format!("{} ({}): {}", t.label(), t.dir, t.failure()?)))?;
        let why = counted().filter(|t| t.failure().is_some()).map(|t| t.why_failed());
        let why = why.max_by_key(Why::status).unwrap_or(Why::Disk);
        let disk = self.read_only().is_some() && matches!(why, Why::OutOfTime);
        Some((first, if disk { Why::Disk } else { why }))
    }

    /// Targets that were taken out of the file system are served no more; the others go on.
    async fn take_out_removed(&self) {
        for t in self.targets.iter().filter(|t| t.is_removed() && !t.taken_out.swap(true, Relaxed)) {
            tracing::error!(
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
    fn served(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter().filter(|t| !t.taken_out.load(Relaxed))
    }

    /// The targets that take no more changes, and why.
    fn read_only(&self) -> Option<String> {
        let one =
            |t: &Arc<Target>| Some(format!("{} ({}) is read-only: {}", t.label(), t.dir, t.read_only()?));
        let all: Vec<String> = self.targets.iter().filter_map(one).collect();
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
        ended::is_all_own(self.served().map(ask).collect()).await
    }

    /// Tells the clients, finishes what is under way, empties the journals.
    async fn stop(&self) {
        if let Some(s) = &self.standby {
            s.end().await;
        }
        self.server.stop().await;
        for t in self.served() {
            self.end(t).await;
        }
        for t in self.served() {
            t.leave().await;
        }
    }
}

/// Ends the process with a word.
fn fail(text: &str, status: i32) -> i32 {
    assert_ne!(status, 0, "who fails does not end well");
    eprintln!("nacred: {text}");
    ended::leave(status);
    status
}

/// Until somebody tells this process to end.
async fn told_to_end(world: World) {
    while process::wait_signal(&[SIGTERM, SIGINT], Duration::ZERO).is_none() {
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
        tracing::info!("cannot ask to be spared when memory is short: {e}");
    }
    // As many as two clients or three have requests under way; a mount has its caches besides.
    world::buffer::keep(BUFFERS_KEPT);
    let (world, runtime) = match world::real::start(2) {
        Ok(r) => r,
        Err(e) => return fail(&format!("cannot start threads: {e}"), 1),
    };
    runtime.end_on_panic(&[]);
    let asked = told_to_end(world.clone());
    let node = match runtime.block_on(select(start(world.clone(), options), asked)) {
        Either::Left(Ok(n)) => n,
        Either::Left(Err(e)) => return fail(&e.text, e.status),
        Either::Right(()) => {
            let status = fail("ended by a signal before it served", 1);
            ended::leave(0);
            return status;
        }
    };
    let socket = control::serve(&node);
    if let Err(e) = &socket {
        tracing::warn!("no control socket, lctl cannot ask this daemon: {e}");
    }
    loop {
        if let Some((what, why)) = node.failed() {
            tracing::error!("STOPPING: {what}");
            drop(socket);
            return stopped(&node, &runtime, args, &what, &why);
        }
        runtime.block_on(node.take_out_removed());
        if process::wait_signal(&[SIGTERM, SIGINT], WATCH_INTERVAL).is_some() {
            break;
        }
    }
    tracing::info!("stopping {}", node.names());
    let stopping = node.clone();
    let done = runtime.block_on(async move { world.timeout(STOP_PATIENCE, stopping.stop()).await });
    drop(socket);
    ended::leave(0);
    match done {
        Some(()) => {
            tracing::info!("stopped");
            0
        }
        None => {
            eprintln!("nacred: targets did not finish within {STOP_PATIENCE:?}; the journal has everything");
            1
        }
    }
}

/// A target stopped by itself: the process ends, or starts again if all that it lacked was time.
fn stopped(node: &Node, runtime: &world::real::Runtime, args: &[OsString], what: &str, why: &Why) -> i32 {
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
    match runtime.block_on(select(node.is_still_own(), told_to_end(node.world.clone()))) {
        Either::Left(true) => {
            tracing::warn!("STARTING AGAIN: nobody took {} meanwhile", node.names());
            // Clients are there, and waited for; that they were not to be was said of another start.
            let args: Vec<OsString> = args.iter().filter(|a| *a != Options::ABORT_RECOV).cloned().collect();
            let e = ended::start_again(&args);
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
