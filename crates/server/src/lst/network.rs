//! `obdfilter-survey case=network`: from this host to nodes, without the console's file.

use super::console;
use super::node::{Counters, one};
use super::proto::{Answer, Ask, BRW_MAX_BYTES, Check, Kind, Session, call, dial};
use bench::survey::{Moved, NetworkLoad};
use bytes::Bytes;
use model::mutex::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use world::{Conn, Instant, World};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A survey that was killed leaves nothing behind.
const TIMEOUT_S: u64 = 30;

/// What is moved to or from one node.
struct Way {
    to: SocketAddr,
    moved: AtomicU64,
    nanos: AtomicU64,
    left: AtomicUsize,
    failed: Mutex<Option<String>>,
}

async fn told(world: &World, conn: &Arc<dyn Conn>, ask: &Ask) -> Result<(), String> {
    match call(world, conn, ask, Bytes::new()).await?.0 {
        Answer::Refused { why, .. } => Err(why),
        _ => Ok(()),
    }
}

/// One of the threads of a node: its requests one after the other.
async fn thread(
    world: &World,
    session: u64,
    way: &Way,
    load: (Kind, u64),
    begun: Instant,
    stop: &AtomicBool,
) {
    let (kind, count) = load;
    let (counters, mut conn) = (Counters::default(), None);
    for _ in 0..count {
        if stop.load(Relaxed) {
            break;
        }
        if let Err(why) = one(world, session, way.to, kind, &mut conn, &counters).await {
            way.failed.lock().get_or_insert(format!("{}: {why}", way.to));
            stop.store(true, Relaxed);
            break;
        }
        if let Kind::Brw { size, .. } = kind {
            way.moved.fetch_add(u64::from(size), Relaxed);
        }
    }
    way.nanos.fetch_max(u64::try_from(world.now().since(begun).as_nanos()).unwrap_or(u64::MAX), Relaxed);
    let before = way.left.fetch_sub(1, Relaxed);
    assert!(before > 0, "a thread that ends was counted");
}

async fn run(
    world: &World,
    load: &NetworkLoad,
    go_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Moved>, String> {
    if load.request > BRW_MAX_BYTES {
        return Err(format!("rsz: a request of the network has at most {} KiB", BRW_MAX_BYTES >> 10));
    }
    let port = console::port_here()?;
    let id = world.random_u64() >> 11;
    let session =
        Session { id, name: "obdfilter-survey".into(), console: world::sys::hostname(), timeout: TIMEOUT_S };
    let mut nodes = Vec::new();
    for host in &load.hosts {
        let nid = match console::resolve(world, &console::expand(host)?).await?.as_slice() {
            [one] => *one,
            _ => return Err(format!("targets: '{host}' is more than one host")),
        };
        let to = console::address(nid, port);
        let conn = dial(world, to).await.map_err(|why| format!("{host}: {why}"))?;
        let open = Ask::Open { session: session.clone(), force: false };
        told(world, &conn, &open).await.map_err(|why| format!("{host}: {why}"))?;
        nodes.push((conn, to));
    }
    let kind = Kind::Brw { write: load.write, size: load.request, check: Check::None };
    let count = load.bytes / u64::from(load.request) / u64::from(load.threads);
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), world.now());
    let mut ways = Vec::new();
    for (_, to) in &nodes {
        let way = Arc::new(Way {
            to: *to,
            moved: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            left: AtomicUsize::new(load.threads as usize),
            failed: Mutex::new(None),
        });
        for _ in 0..load.threads {
            let (world, way, stop) = (world.clone(), way.clone(), stop.clone());
            world.clone().spawn("lst-survey", async move {
                thread(&world, id, &way, (kind, count), begun, &stop).await;
            });
        }
        ways.push(way);
    }
    let mut asked = world.now();
    while ways.iter().any(|w| w.left.load(Relaxed) > 0) {
        if !go_on(ways.iter().map(|w| w.moved.load(Relaxed)).sum()) {
            stop.store(true, Relaxed);
        }
        if world.now().since(asked) > Duration::from_secs(TIMEOUT_S / 3) {
            asked = world.now();
            for (conn, _) in &nodes {
                told(world, conn, &Ask::Look { session: id }).await?;
            }
        }
        world.sleep(LOOK_EVERY).await;
    }
    for (conn, _) in &nodes {
        told(world, conn, &Ask::Close { session: id }).await?;
    }
    if let Some(why) = ways.iter().find_map(|w| w.failed.lock().clone()) {
        return Err(why);
    }
    Ok(ways.iter().map(|w| Moved { bytes: w.moved.load(Relaxed), nanos: w.nanos.load(Relaxed) }).collect())
}

/// What `bench::survey` calls.
pub fn network(load: &NetworkLoad, go_on: &(dyn Fn(u64) -> bool + Sync)) -> Result<Vec<Moved>, String> {
    crate::in_real_world(|world| async move { run(&world, load, go_on).await })
}
