//! The target's end of its sessions: accept, connect, dispatch, reply slots, eviction.

use bytes::Bytes;
use model::{Errno, TargetId};
use std::net::IpAddr;
use std::sync::Arc;
use wire::msg::connect::Connect;
use wire::msg::notify::Notify;
use wire::{Op, RequestContext};
use world::{BoxFuture, Listener, World};

/// The `client_uuid` of connect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub [u8; 16]);

/// One request, decoded up to its verb.
pub struct Incoming {
    pub client: ClientId,
    pub peer: IpAddr,
    pub op: Op,
    pub slot: u16,
    pub xid: u64,
    pub resent: bool,
    pub ctx: RequestContext,
    /// The message, without the context: `postcard` of the type that belongs to `op`.
    pub body: Bytes,
    pub bulk: Bytes,
}

/// What goes back.
pub struct Outgoing {
    pub status: Result<(), Errno>,
    /// The reply message without its context; empty with an error.
    pub body: Vec<u8>,
    pub bulk: Bytes,
    pub transno: u64,
}

impl Outgoing {
    pub fn ok<R: serde::Serialize>(_reply: &R, _transno: u64) -> Outgoing {
        unimplemented!()
    }

    pub fn err(_e: Errno) -> Outgoing {
        unimplemented!()
    }
}

/// The last answer of a modifying request in a slot, as stored in the same transaction as its effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReply {
    pub xid: u64,
    pub transno: u64,
    /// 0 or errno.
    pub status: u16,
    pub body: Vec<u8>,
}

pub struct ConnectOutcome {
    /// The service had no record of this client.
    pub new_client: bool,
    /// The service restarted and waits for this client's reclaim.
    pub recovering: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    Disconnected,
    /// Silent for too long, or asked for by an administrator.
    Evicted,
}

/// One target, as the session layer sees it.
pub trait Service: Send + Sync + 'static {
    fn target(&self) -> TargetId;
    fn fsname(&self) -> String;
    fn epoch(&self) -> u32;
    fn last_committed(&self) -> u64;
    /// A client says hello; the service makes its record durable before it answers.
    fn connect(self: Arc<Self>, c: Connect, peer: IpAddr) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>>;
    /// For a client that came back after a restart: what its slots hold.
    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply>;
    /// Executes one request. Called once for each (client, slot, xid), never twice at a time for one slot.
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing>;
    /// The client is gone for good: drop its opens, locks and record.
    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()>;
}

/// The living connections of one target, to send notifies on. Made before the service, shared with it.
#[derive(Clone)]
pub struct Peers {
    _todo: (),
}

impl Peers {
    pub fn new() -> Peers {
        unimplemented!()
    }

    /// Best effort: nothing happens if the client is not connected.
    pub fn notify(&self, _client: ClientId, _n: Notify) {
        unimplemented!()
    }

    pub fn notify_all(&self, _n: Notify) {
        unimplemented!()
    }

    /// (client, name it gave, address, connected) for `lctl` and exports.
    pub fn list(&self) -> Vec<(ClientId, String, IpAddr, bool)> {
        unimplemented!()
    }
}

/// A server node: one endpoint, any number of targets behind it.
pub struct Server {
    _todo: (),
}

impl Server {
    pub fn new(_world: World, _name: String) -> Arc<Server> {
        unimplemented!()
    }

    /// Idle time after which clients ping; a client silent for six times as long is evicted. Default 5 s.
    pub fn set_ping_interval(&self, _ms: u32) {
        unimplemented!()
    }

    pub fn add(&self, _service: Arc<dyn Service>, _peers: Peers) {
        unimplemented!()
    }

    pub fn remove(&self, _target: TargetId) {
        unimplemented!()
    }

    /// Accepts until `stop`.
    pub fn run(self: &Arc<Self>, _listener: Arc<dyn Listener>) -> BoxFuture<()> {
        unimplemented!()
    }

    /// Tells the clients, closes the connections.
    pub fn stop(&self) -> BoxFuture<()> {
        unimplemented!()
    }
}
