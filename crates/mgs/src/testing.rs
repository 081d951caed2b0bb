//! What tests of the MGS have in common.

use crate::Mgs;
use bytes::Bytes;
use model::{Errno, TargetId};
use rpc::{
    ClientId, ConnectOutcome, Departure, Greeting, Import, ImportHooks, Incoming, Outgoing, Principal,
    Service, StoredReply,
};
use std::sync::Arc;
use wire::msg::config::TargetEntry;
use wire::msg::register::{EXTRA_TARGET_KEY, Register, RegisterReply};
use wire::proof::{Claimant, Key};
use wire::{RequestContext, Sender};
use world::BoxFuture;

/// The key of the target with this UUID.
pub fn key_of(uuid: [u8; 16]) -> Key {
    [uuid[0] ^ 0xff; 32]
}

/// Of a target that is served on this host.
pub fn entry(target: TargetId, uuid: u8, epoch: u32) -> TargetEntry {
    TargetEntry {
        target,
        target_uuid: [uuid; 16],
        nids: vec!["127.0.0.1@tcp".parse().unwrap()],
        epoch,
        active: true,
        domains: Vec::new(),
    }
}

/// The server of all targets of a test.
pub struct TheirServer;

impl ImportHooks for TheirServer {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        (20..40).map(|n| (Claimant::Target([n; 16]), key_of([n; 16]))).collect()
    }
}

/// Registers as a server does: the key is said if it is asked for.
pub async fn register(i: &Arc<Import>, m: Register) -> Result<RegisterReply, Errno> {
    let key = key_of(m.target_uuid);
    match i.call(RequestContext::default(), m.clone(), Bytes::new()).await {
        Err(Errno::ENOKEY) => {
            let extra = vec![(EXTRA_TARGET_KEY, key.to_vec())];
            let ctx = RequestContext { extra, ..RequestContext::default() };
            i.call(ctx, m, Bytes::new()).await.map(|r| r.reply)
        }
        done => done.map(|r| r.reply),
    }
}

/// An MGS whose administrator comes over the network, so that his changes go through sessions, cuts and
/// restarts.
pub struct Open(pub Arc<Mgs>);

impl Service for Open {
    fn sender(&self, _: &Principal) -> Sender {
        Sender::Administrator
    }
    fn target(&self) -> TargetId {
        self.0.target()
    }
    fn fsname(&self) -> String {
        self.0.fsname()
    }
    fn epoch(&self) -> u32 {
        self.0.epoch()
    }
    fn speaks(&self) -> bool {
        self.0.speaks()
    }
    fn last_committed(&self) -> u64 {
        self.0.last_committed()
    }
    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        self.0.clone().connect(hello)
    }
    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        self.0.stored_reply(client, slot)
    }
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        self.0.clone().handle(req)
    }
    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()> {
        self.0.clone().departed(client, how)
    }
}
