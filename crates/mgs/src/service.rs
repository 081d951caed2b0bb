//! The MGS as the session layer sees it.

use crate::book::Book;
use crate::clients::{self, Clients};
use crate::history::{self, Origin};
use crate::ops::{self, Done};
use crate::registration::{Order, Refused};
use crate::state::{MgsState, read_configuration};
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, TargetId};
use rpc::{ClientId, ConnectOutcome, Departure, Greeting, Incoming, Outgoing, Peers, Service, StoredReply};
use std::sync::Arc;
use store::{Lsn, ReplyRecord, StoreError, Txn};
use wire::msg::notify::Notify;
use world::{BoxFuture, World};

/// A management target that serves.
pub struct Mgs {
    world: World,
    db: Arc<dyn Book>,
    peers: Peers,
    state: Mutex<MgsState>,
    clients: Mutex<Clients>,
}

impl Mgs {
    /// Serves what `db` holds. The caller adds the result to an [`rpc::Server`].
    pub fn open(world: &World, db: Arc<dyn Book>, peers: Peers) -> Result<Arc<Mgs>, StoreError> {
        let state = Mutex::new(read_configuration(&*db)?);
        let known = clients::read(&*db)?;
        let stale = !known.is_empty();
        let mgs = Arc::new(Mgs { world: world.clone(), db, peers, state, clients: Mutex::new(known) });
        if stale {
            clients::expect_back(world, Arc::downgrade(&mgs));
        }
        Ok(mgs)
    }

    pub(crate) fn db(&self) -> &Arc<dyn Book> {
        &self.db
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    fn lock(&self) -> MutexGuard<'_, MgsState> {
        self.state.lock()
    }

    pub(crate) fn state<T>(&self, f: impl FnOnce(&MgsState) -> T) -> T {
        f(&self.lock())
    }

    /// The transaction that the state in memory depends on.
    pub(crate) fn seen(&self) -> Lsn {
        self.db.last_submitted()
    }

    pub(crate) fn num_exports(&self) -> usize {
        self.peers.count()
    }

    /// Changes the configuration: in memory and, in the same order, in the journal, together with the reply
    /// for the request's slot. Nothing happened when it fails.
    pub(crate) fn change<R: serde::Serialize>(
        &self,
        req: Option<&Incoming>,
        origin: Origin,
        change: impl FnOnce(&mut MgsState, &mut Txn) -> Result<(), Errno>,
        reply: impl FnOnce(&MgsState) -> Result<R, Errno>,
    ) -> Result<Done, Errno> {
        let mut state = self.lock();
        let mut next = state.clone();
        let mut txn = Txn::new();
        change(&mut next, &mut txn)?;
        if next != *state {
            next.next_version(&mut txn);
            history::record(&state, &mut next, &origin, self.world.wall().sec, &mut txn);
        }
        assert!(next == *state || next.version > state.version, "what is new has a version of its own");
        let body = wire::encode_message(&reply(&next)?);
        // The daemon's own control socket has no session.
        if let Some(req) = req.filter(|r| r.xid != 0) {
            let record = ReplyRecord { xid: req.xid, status: 0, body: body.clone() };
            txn.put_reply(&req.from.client.0, req.slot, &record);
        }
        let lsn = self.db.submit(txn).map_err(|e| {
            tracing::error!("MGS: cannot store the configuration: {e}");
            e.errno()
        })?;
        *state = next;
        Ok(Done { body, lsn, changed: true })
    }

    /// The configuration of a file system, for targets in the same process and for tests.
    pub fn config(&self, fsname: &str) -> Result<wire::msg::config::ConfigReply, Errno> {
        self.state(|s| s.config(fsname))
    }

    /// By which servers of a file system know each other. `None`: there is no such one, or none of its
    /// servers has registered since keys are known.
    pub fn server_key(&self, fsname: &str) -> Option<wire::proof::Key> {
        self.state(|s| s.file_systems.get(fsname).and_then(crate::FsRecord::server_key))
    }

    /// Waits until what was done is durable, and tells everybody if the configuration is newer than `before`.
    pub(crate) async fn announce(&self, done: &Done, before: u64) -> Result<(), Errno> {
        if let Err(e) = self.db.clone().durable(done.lsn).await {
            tracing::error!("MGS: {e}");
            return Err(if done.changed { e.errno() } else { Errno::EIO });
        }
        let version = self.state(|s| s.version);
        assert!(version >= before, "the configuration's version only grows");
        if version != before {
            self.peers.notify_all(Notify::ConfigChanged { version });
        }
        Ok(())
    }

    /// `lctl set_param -P` on the host of the MGS; with `delete` takes the setting back. Durable when it
    /// returns.
    ///
    /// # Errors
    /// As [`MgsState::set_param`].
    pub async fn set_permanent(&self, name: &str, value: &str, delete: bool) -> Result<(), Errno> {
        let before = self.state(|s| s.version);
        let origin = Origin::here(if delete { "set_param -P -d" } else { "set_param -P" });
        let done = self.change(None, origin, |s, txn| s.set_param(name, value, delete, txn), |_| Ok(()))?;
        self.announce(&done, before).await
    }

    /// What an administrator wants of a target's registration; how that stands afterwards.
    ///
    /// # Errors
    /// An errno, and words.
    pub async fn administer(&self, label: &str, order: &Order) -> Result<String, Refused> {
        if *order == Order::Show {
            return self.state(|s| s.registration(label));
        }
        let before = self.state(|s| s.version);
        let mut why = None;
        let change = |s: &mut MgsState, txn: &mut store::Txn| {
            s.administer(label, order, txn).map_err(|(e, words)| {
                why = Some(words);
                e
            })
        };
        let done = match self.change(None, Origin::here(order.command(label)), change, |_| Ok(())) {
            Ok(done) => done,
            Err(e) => return Err((e, why.unwrap_or_else(|| e.text().to_string()))),
        };
        self.announce(&done, before).await.map_err(|e| (e, e.text().to_string()))?;
        tracing::warn!("MGS: an administrator changed the registration of {label}: {order:?}");
        match order {
            Order::Remove => Ok(format!("{label} is not in the configuration any more\n")),
            Order::Retire => Ok(format!("{label} is removed from the file system for good\n")),
            _ => self.state(|s| s.registration(label)),
        }
    }

    async fn execute(self: Arc<Self>, req: Incoming) -> Outgoing {
        let before = self.state(|s| s.version);
        let map = self.nodemap(&req.from);
        let req = req.mapped(&map);
        let done = match ops::run(&self, &req) {
            Ok(done) => done,
            Err(e) => return Outgoing::err(e),
        };
        assert!(req.op.verb().modifies || !done.changed, "{:?} changed something", req.op);
        if let Err(e) = self.announce(&done, before).await {
            return Outgoing::err(e);
        }
        let transno = if done.changed { self.db.transno(done.lsn) } else { 0 };
        Outgoing { status: Ok(()), body: done.body, bulk: wire::Bulk::default(), transno, hold: None }
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

    fn folder(&self) -> Option<String> {
        self.db.folder()
    }

    fn knows(&self, client: ClientId) -> bool {
        self.clients().contains_key(&client)
    }

    fn speaks(&self) -> bool {
        self.db.is_held()
    }

    fn last_committed(&self) -> u64 {
        self.db.transno(self.db.last_committed())
    }

    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(self.welcome(hello))
    }

    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        match self.db.reply(&client.0, slot) {
            Ok(r) => {
                r.map(|r| StoredReply { xid: r.xid, transno: r.transno, status: r.status, body: r.body })
            }
            Err(e) => {
                tracing::error!("MGS: {e}");
                // Without its slot a resent change would be made twice: a target that runs must know it.
                assert!(
                    self.db.stopped().is_some(),
                    "reply slot {slot} of client {client} cannot be read: {e}"
                );
                None
            }
        }
    }

    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(self.execute(req))
    }

    fn departed(self: Arc<Self>, client: ClientId, _how: Departure) -> BoxFuture<()> {
        Box::pin(async move {
            let gone = match self.forget(client, false) {
                Ok(lsn) => self.db.clone().durable(lsn).await.map_err(|e| e.errno()),
                Err(e) => Err(e),
            };
            if let Err(e) = gone {
                tracing::error!("MGS: cannot forget client {client}: {e}");
            }
        })
    }
}
