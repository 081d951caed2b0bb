//! The client's end of a session with one target ("import", Lustre's word).

use bytes::Bytes;
use model::{Errno, Nid, TargetId};
use std::sync::Arc;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::{Message, RequestContext};
use world::{BoxFuture, World};

/// Names as in Lustre's `state` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportState {
    New,
    Disconn,
    Connecting,
    /// Reclaiming opens and locks after a restart of the server.
    Recover,
    Full,
    Evicted,
    Closed,
}

pub struct ImportConfig {
    pub target: TargetId,
    pub fsname: String,
    /// Tried in order, round and round.
    pub nids: Vec<Nid>,
    pub port: u16,
    /// Source address of connections.
    pub bind: Option<std::net::IpAddr>,
    pub client_uuid: [u8; 16],
    pub client_name: String,
    pub slots: u16,
    pub hooks: Arc<dyn ImportHooks>,
}

/// What the owner of an import does when the session asks.
pub trait ImportHooks: Send + Sync {
    /// The server restarted or forgot this client: everything that is open or locked. Sent in pieces, the
    /// last one with `last: true` (the import adds an empty one if there is none).
    fn reclaim(&self) -> Vec<Reclaim> {
        Vec::new()
    }
    /// What could not be had back.
    fn reclaimed(&self, _lost: ReclaimReply) {}
    fn notify(&self, _n: Notify) {}
    /// The state changed, for logs and `lctl`.
    fn state(&self, _s: ImportState) {}
}

pub struct NoHooks;
impl ImportHooks for NoHooks {}

pub struct Response<R> {
    pub reply: R,
    pub bulk: Bytes,
    pub transno: u64,
}

pub struct Import {
    _todo: (),
}

impl Import {
    /// Starts connecting in the background at the first call.
    pub fn new(_world: World, _cfg: ImportConfig) -> Arc<Import> {
        unimplemented!()
    }

    /// Sends a request and waits for its reply, through any number of reconnects: resent requests keep slot
    /// and xid, so the server executes them once. Dropping the future gives up waiting, not the request: it
    /// goes on in the background until it is answered. Waits for a free slot first (bounded by `slots`).
    pub fn call<M: Message>(
        self: &Arc<Self>,
        _ctx: RequestContext,
        _msg: M,
        _bulk: Bytes,
    ) -> BoxFuture<Result<Response<M::Reply>, Errno>> {
        unimplemented!()
    }

    /// New addresses for the target (configuration change); a living connection stays.
    pub fn set_nids(&self, _nids: Vec<Nid>) {
        unimplemented!()
    }

    /// `lctl deactivate`: calls fail with EIO at once. `activate` takes it back.
    pub fn set_active(&self, _active: bool) {
        unimplemented!()
    }

    pub fn state(&self) -> ImportState {
        unimplemented!()
    }

    pub fn target(&self) -> TargetId {
        unimplemented!()
    }

    /// The NID in use, or the next to be tried.
    pub fn current_nid(&self) -> Nid {
        unimplemented!()
    }

    /// Waits until the session is up.
    pub fn connected(self: &Arc<Self>) -> BoxFuture<Result<(), Errno>> {
        unimplemented!()
    }

    /// Says good-bye (best effort, at most a second), then fails everything with ESHUTDOWN.
    pub fn disconnect(self: &Arc<Self>) -> BoxFuture<()> {
        unimplemented!()
    }
}
