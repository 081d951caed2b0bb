//! The MGS as the session layer sees it.
//!
//! It keeps nothing of its clients: registering twice is registering once, so there are no reply slots and no
//! client records, and a node that comes back after a restart has lost nothing.

use crate::ops;
use crate::state::{Change, State, read_configuration};
use model::{Errno, TargetId};
use rpc::{ClientId, ConnectOutcome, Departure, Incoming, Outgoing, Peers, Service, StoredReply};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use store::{Db, Lsn, StoreError};
use wire::msg::connect::Connect;
use wire::msg::notify::Notify;
use world::{BoxFuture, World};

/// A management target that serves.
pub struct Mgs {
    world: World,
    db: Arc<Db>,
    peers: Peers,
    state: Mutex<State>,
}

impl Mgs {
    /// Serves what `db` holds. The caller adds the result to an [`rpc::Server`].
    pub fn open(world: &World, db: Arc<Db>, peers: Peers) -> Result<Arc<Mgs>, StoreError> {
        let state = Mutex::new(read_configuration(&db)?);
        Ok(Arc::new(Mgs { world: world.clone(), db, peers, state }))
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn state<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.lock())
    }

    /// The transaction that the state in memory depends on.
    pub(crate) fn seen(&self) -> Lsn {
        self.db.last_submitted()
    }

    pub(crate) fn num_exports(&self) -> usize {
        self.peers.list().len()
    }

    /// Changes the configuration: in memory and, in the same order, in the journal. Nothing happened when it
    /// fails. Returns the transaction to wait for, 0 if nothing changed.
    pub(crate) fn change(
        &self,
        f: impl FnOnce(&mut State) -> Result<Option<Change>, Errno>,
    ) -> Result<Lsn, Errno> {
        let mut state = self.lock();
        let mut next = state.clone();
        let Some(change) = f(&mut next)? else { return Ok(0) };
        let lsn = self.db.submit(change.txn).map_err(|e| {
            tracing::error!("MGS: cannot store the configuration: {e}");
            e.errno()
        })?;
        *state = next;
        Ok(lsn)
    }

    /// The configuration of a file system, for targets in the same process and for tests.
    pub fn config(&self, fsname: &str) -> Result<wire::msg::config::ConfigReply, Errno> {
        self.state(|s| s.config(fsname))
    }

    async fn execute(self: Arc<Self>, req: Incoming) -> Outgoing {
        let before = self.state(|s| s.version);
        let done = match ops::run(&self, &req) {
            Ok(done) => done,
            Err(e) => return Outgoing::err(e),
        };
        if let Err(e) = self.db.durable(done.lsn).await {
            tracing::error!("MGS: {e}");
            return Outgoing::err(if done.changed { e.errno() } else { Errno::EIO });
        }
        let version = self.state(|s| s.version);
        if version != before {
            self.peers.notify_all(Notify::ConfigChanged { version });
        }
        let transno = if done.changed { self.db.transno(done.lsn) } else { 0 };
        Outgoing { status: Ok(()), body: done.body, bulk: bytes::Bytes::new(), transno }
    }
}

impl Service for Mgs {
    fn target(&self) -> TargetId {
        TargetId::MGT
    }

    fn fsname(&self) -> String {
        String::new()
    }

    fn epoch(&self) -> u32 {
        self.db.epoch()
    }

    fn last_committed(&self) -> u64 {
        self.db.transno(self.db.last_committed())
    }

    fn connect(self: Arc<Self>, _c: Connect, _peer: IpAddr) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(async { Ok(ConnectOutcome { new_client: false, recovering: false }) })
    }

    fn stored_reply(&self, _client: ClientId, _slot: u16) -> Option<StoredReply> {
        None
    }

    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(self.execute(req))
    }

    fn departed(self: Arc<Self>, _client: ClientId, _how: Departure) -> BoxFuture<()> {
        Box::pin(async {})
    }
}
