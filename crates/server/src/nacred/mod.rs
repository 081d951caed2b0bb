//! `nacred`: one server node. Starting a target is: read its label, take its lock, raise its epoch, recover
//! its database, listen, make it known to the MGS.

mod args;
mod check;
mod control;
mod osd;
mod registration;
mod standby;
mod target;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use target::Target;
use world::sys::process::{self, SIGINT, SIGTERM};
use world::{Either, World, select};

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

/// Why a node does not start, in words for its administrator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

async fn start(world: World, options: Options) -> Result<Arc<Node>, StartError> {
    let labels = target::read_labels(&world, &options.dirs, options.patience()).await?;
    if options.mgs_store.is_some()
        && let Some(e) = standby::clash(&labels)
    {
        return Err(e);
    }
    let nid = args::choose_nid(&options, &labels)?;
    let at = SocketAddr::new(nid.addr, options.port);
    // The address before the epochs: a second daemon started by mistake must leave no trace.
    let listener = world.net.listen(at).await.map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::AddrInUse => "another server listens there: stop it, or give another --nid",
            std::io::ErrorKind::AddrNotAvailable => "this host has no such address: give --nid",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need root: run as root, or give --port",
            _ => "give another --nid",
        };
        StartError(format!("cannot listen on {at}: {e}: {hint}"))
    })?;
    let server =
        rpc::Server::new(world.clone(), format!("nacred {} on {}", admin::VERSION, world::sys::hostname()));
    server.set_ping_interval(options.ping_interval);
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

    /// The first target that stopped by itself, and why.
    fn failed(&self) -> Option<String> {
        self.targets.iter().find_map(|t| Some(format!("{} ({}): {}", t.label(), t.dir, t.failure()?)))
    }

    /// The targets that take no more changes, and why.
    fn read_only(&self) -> Option<String> {
        let one =
            |t: &Arc<Target>| Some(format!("{} ({}) is read-only: {}", t.label(), t.dir, t.read_only()?));
        let all: Vec<String> = self.targets.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// Tells the clients, finishes what is under way, empties the journals.
    async fn stop(&self) {
        if let Some(s) = &self.standby {
            s.end().await;
        }
        self.server.stop().await;
        for t in &self.targets {
            self.server.remove(t.service.as_service().target());
            t.stop().await;
        }
        for t in &self.targets {
            t.leave().await;
        }
    }
}

/// What of the options decides, and the words of the first line of the log.
fn serve(options: Options) -> i32 {
    process::block_signals(&[SIGTERM, SIGINT]);
    process::set_name("nacred");
    process::raise_open_files();
    crate::log::start();
    let fail = |e: String| {
        eprintln!("nacred: {e}");
        1
    };
    // As many as two clients or three have requests under way; a mount has its caches besides.
    world::buffer::keep(BUFFERS_KEPT);
    let (world, runtime) = match world::real::start(2) {
        Ok(r) => r,
        Err(e) => return fail(format!("cannot start threads: {e}")),
    };
    let asked = {
        let world = world.clone();
        async move {
            while process::wait_signal(&[SIGTERM, SIGINT], Duration::ZERO).is_none() {
                world.sleep(WATCH_INTERVAL).await;
            }
        }
    };
    let node = match runtime.block_on(select(start(world.clone(), options), asked)) {
        Either::Left(Ok(n)) => n,
        Either::Left(Err(StartError(e))) => return fail(e),
        Either::Right(()) => return fail("ended by a signal before it served".into()),
    };
    let socket = control::serve(&node);
    if let Err(e) = &socket {
        tracing::warn!("no control socket, lctl cannot ask this daemon: {e}");
    }
    loop {
        if let Some(why) = node.failed() {
            tracing::error!("STOPPING: {why}");
            tracing::error!(
                "nothing that was acknowledged is lost; mend the disk, run nacre fsck, start nacred again"
            );
            drop(socket);
            return fail(format!("stopped: {why}"));
        }
        if process::wait_signal(&[SIGTERM, SIGINT], WATCH_INTERVAL).is_some() {
            break;
        }
    }
    tracing::info!("stopping {}", node.names());
    let stopping = node.clone();
    let done = runtime.block_on(async move { world.timeout(STOP_PATIENCE, stopping.stop()).await });
    drop(socket);
    match done {
        Some(()) => {
            tracing::info!("stopped");
            0
        }
        None => fail(format!("targets did not finish within {STOP_PATIENCE:?}; the journal has everything")),
    }
}

pub fn main(args: &[OsString]) -> i32 {
    match Options::parse(args) {
        Ok(o) => serve(o),
        Err(code) => code,
    }
}
