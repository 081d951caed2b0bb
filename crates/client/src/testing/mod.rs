//! What unit tests of several layers need: a mount's context and servers in virtual time, and inodes.
//!
//! `target` is a server that has no rules of its own: sessions, time and order are its, the answers a test's.
//! `ost`, `mdt` and `mgs` are the answers of targets that do as they are told, `cluster` are several of them.

mod cluster;
mod mdt;
mod mgs;
mod ost;
mod target;

pub(crate) use cluster::Cluster;
pub(crate) use mdt::FakeMdt;
pub(crate) use mgs::FakeMgs;
pub(crate) use ost::FakeOst;
pub(crate) use target::{Answers, Fake, Hold};

use crate::base::{Context, Settings};
use model::{Attr, Fid, FileType, Timestamp};
use rpc::{Incoming, Peers, Server, Service};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::lookup::Entry;
use world::World;

const PORT: u16 = 988;

pub(crate) fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

/// Of a mount of file system `fs`.
pub(crate) fn context(world: &World) -> Arc<Context> {
    let settings = Settings {
        fsname: "fs".into(),
        port: PORT,
        bind: None,
        networks: Default::default(),
        client_name: "client".into(),
        soft_timeout: None,
    };
    Arc::new(Context::new(world.clone(), settings, false, 100))
}

/// Serves a target at an address.
pub(crate) async fn serve(world: &World, at: IpAddr, service: Arc<dyn Service>) -> (Arc<Server>, Peers) {
    let (server, peers) = (Server::new(world.clone(), format!("server at {at}")), Peers::new());
    server.add(service, peers.clone());
    let listener = world.net.listen(SocketAddr::new(at, PORT)).await.unwrap();
    let serving = server.clone();
    world.spawn("server", async move { serving.run(listener).await });
    (server, peers)
}

/// Waits for a condition, at most 100 virtual seconds.
pub(crate) async fn until(world: &World, what: &str, f: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if f() {
            return;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
    panic!("still not so after 100 s: {what}");
}

/// Of an inode that has nothing yet: no mode, no owner, no times.
pub(crate) fn attr(fid: Fid, kind: FileType) -> Attr {
    let t = Timestamp::ZERO;
    Attr {
        fid,
        kind,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        projid: 0,
        special: 0,
        size: 0,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
        mtime_stamp: t,
        flags: 0,
        version: 0,
    }
}

/// As an answer shows an inode: plain, without a layout and without a lease.
pub(crate) fn entry(attr: Attr) -> Entry {
    Entry {
        attr,
        layout: None,
        grant: None,
        dir_grant: None,
        parent: Fid::NONE,
        symlink: Vec::new(),
        plain: true,
        content: None,
    }
}

/// A request's message.
fn message<M: serde::de::DeserializeOwned>(r: &Incoming) -> M {
    wire::decode_message(&r.body).expect("a client sends what its opcode says")
}
