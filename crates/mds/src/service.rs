//! The metadata target as the session layer sees it: clients come and go, requests are served; and as its
//! server starts it, configures it and stops it.

use crate::MdsError;
use crate::barrier::Barrier;
use crate::callbacks::Callbacks;
use crate::changelog::{self, Changelog};
use crate::core::{ClientState, Core};
use crate::freeze;
use crate::growing::Growing;
use crate::labels;
use crate::leases::LeaseState;
use crate::lfsck::{self, Lfsck};
use crate::locks::Locks;
use crate::maintenance;
use crate::mdt::{Mdt, MdtConfig};
use crate::ops::param;
use crate::osts::Osts;
use crate::peers::session::{Identity, Sessions};
use crate::peers::{OwnersTold, keep_shares};
use crate::pools::OstPool;
use crate::probes;
use crate::quotas::{Directories, Quotas, ShareBook};
use crate::rebalance::Rebalance;
use crate::relayout::{self, Movements};
use crate::schema::value::{self, ClientRecord};
use crate::schema::{Inode, Lease, key};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::stop::Stop;
use crate::transact::Transactions;
use crate::trash;
use crate::tx::Tx;
use crate::walk::walk;
use crate::ways::Moves;
use model::debug::CONFIG;
use model::fid::SEQ_NORMAL;
use model::mutex::{Mutex, RwLock};
use model::nodemap::Nodemap;
use model::{Errno, Fid, FileType, Pool, TargetId, limits};
use rpc::server::probes::Probes;
use rpc::server::recovery::Recovery;
use rpc::{
    ClientId, ConnectOutcome, Departure, Greeting, Incoming, Outgoing, Peers, Principal, Service, StoredReply,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use store::usage::{Counted, Totals, UsageLedger};
use store::{Db, Read, StoreError, Txn};
use wire::Sender;
use wire::msg::config::ConfigReply;
use wire::msg::notify::Notice;
use wire::proof::Key;
use world::{BoxFuture, World};

/// Open files that a departing client's transaction closes at a time.
const CLOSE_AT_ONCE: usize = 200;
/// Sequences a second that a target which is lost may have leased since 1970.
const SEQUENCES_A_SECOND_BITS: u32 = 12;
/// Of a FID's sequence, in inode numbers.
const SEQUENCE_BITS: u32 = 47;

/// Makes what an empty table needs of a metadata target that takes the place of a lost one, unless it has it:
/// none of the FIDs that it hands out is one that its predecessor gave, as objects of that one may be there.
pub fn format_successor(world: &World, db: &Arc<Db>) -> Result<(), MdsError> {
    if db.get(key::STATE_HASH_KEY)?.is_some() {
        return Ok(());
    }
    // By the clock: nobody leases so many sequences a second for years.
    let seconds = u64::try_from(world.wall().sec).unwrap_or(0).min(u64::from(u32::MAX));
    format_from(world, db, SEQ_NORMAL + (seconds << SEQUENCES_A_SECOND_BITS))
}

fn format_from(world: &World, db: &Arc<Db>, first: u64) -> Result<(), MdsError> {
    assert!((SEQ_NORMAL..1 << SEQUENCE_BITS).contains(&first), "inode numbers have room for sequences");
    let mut root = Inode::new(FileType::Directory, 0o755, 0, 0, world.wall());
    root.parent = Fid::ROOT;
    root.version = 1;
    let mut txn = Txn::new();
    txn.put(key::inode(Fid::ROOT), root.encode());
    txn.put(key::STATE_HASH_KEY, value::encode_hash_key([world.random_u64(), world.random_u64()]));
    txn.put(key::STATE_NEXT_SEQ, value::encode_u64(first));
    if first > SEQ_NORMAL {
        txn.put(key::STATE_FIRST_SEQ, value::encode_u64(first));
    }
    txn.put(key::STATE_INODES, value::encode_u64(1));
    txn.put(key::STATE_OWNERS, value::encode_owners_told(None));
    db.submit(txn)?;
    Ok(())
}

impl Mdt {
    /// Makes the root directory and the file system's keys in an empty table. Durable before the first
    /// request is answered; [`Mdt::open`] calls it when it finds the table empty.
    pub fn format(world: &World, db: &Arc<Db>) -> Result<(), MdsError> {
        format_from(world, db, SEQ_NORMAL)
    }

    /// Reads what the table knows and begins to serve, or to recover if clients were known.
    pub fn open(world: World, db: Arc<Db>, peers: Peers, cfg: MdtConfig) -> Result<Arc<Mdt>, MdsError> {
        if db.get(key::STATE_HASH_KEY)?.is_none() {
            if db.get(&key::inode(Fid::ROOT))?.is_some() {
                return Err(MdsError::Missing { what: "directory hash key", fid: Fid::ROOT });
            }
            Mdt::format(&world, &db)?;
        }
        let shared = Arc::new(load_shared(&world, &db)?);
        let core = load_core(&db)?;
        let label = TargetId::mdt(cfg.index).label(&cfg.fsname);
        let tries = Probes::new(&world, label.clone(), &peers);
        let recovery = Recovery::new(&world, label, core.clients.keys().copied());
        let core = Arc::new(RwLock::new(core));
        let stop = Stop::new(&world);
        let callbacks = Callbacks::new(&world, &peers, &shared, &stop);
        peers.set_holders(callbacks.awaited());
        let transactions = Transactions {
            db: db.clone(),
            shared: shared.clone(),
            core: core.clone(),
            callbacks,
            recovery: recovery.clone(),
        };
        let identity = Identity {
            fsname: cfg.fsname.clone(),
            me: TargetId::mdt(cfg.index),
            port: cfg.port,
            bind: cfg.bind,
            networks: cfg.networks.clone(),
        };
        let mdt = Arc::new(Mdt {
            sessions: Sessions::new(&world, &peers, identity),
            locks: Locks::new(peers.clone()),
            db,
            peers,
            cfg,
            shared,
            core,
            transactions,
            recovery,
            stop,
            stats: Stats::new(world.wall()),
            probes: tries,
            config_version: Mutex::new(0),
            world,
        });
        mdt.world.spawn("mdt recovery", Recovery::run(mdt.clone()));
        mdt.world.spawn("mdt owners", OwnersTold(mdt.clone()).tell_all());
        mdt.world.spawn("mdt rebalance", relayout::keep_even(mdt.clone()));
        mdt.world.spawn("mdt changelog", changelog::keep(mdt.clone()));
        mdt.world.spawn("mdt shares", keep_shares(mdt.clone()));
        mdt.world.spawn("mdt trash", trash::keep(mdt.clone()));
        mdt.probes.keep("mdt probes", &mdt, probes::begin);
        mdt.world.spawn("mdt directories", labels::keep(mdt.clone()));
        freeze::go_on(&mdt);
        mdt.world.spawn("mdt lfsck", lfsck::keep(mdt.clone()));
        Ok(mdt)
    }

    /// The file system's configuration: a session with each OST, permanent parameters. Older versions than
    /// the one in use are ignored.
    pub fn set_config(self: &Arc<Self>, config: ConfigReply) {
        tracing::debug!(target: CONFIG, "configuration {} of {}: {} targets", config.version, config.fsname, config.targets.len());
        // One at a time: each target gets one session.
        let mut version = self.config_version.lock();
        if *version > config.version {
            return;
        }
        *version = config.version;
        self.configure_osts(&config);
        self.shared.osts.pools.configure(&config.pools());
        let maintenance = maintenance::configured(self, &config);
        let mut about = param::About { maintenance, ..param::About::default() };
        for (name, value) in &config.params {
            param::apply_permanent(self, name, value, &mut about);
        }
        if about != param::About::default() {
            let mdt = self.clone();
            self.world.spawn("mdt-defaults", async move {
                param::settings_changed(&mdt, about).await.unwrap_or(())
            });
        }
    }

    /// The OST pools that it goes by, and the version of the configuration that it has.
    pub fn pools(&self) -> (u64, Vec<Pool>) {
        let version = self.config_version.lock();
        let one = |p: Arc<OstPool>| Pool { name: p.name.clone(), osts: p.osts().into_iter().collect() };
        (*version, self.shared.osts.pools.list().into_iter().map(one).collect())
    }

    /// The key by which servers of the file system know each other.
    pub fn set_server_key(&self, key: Key) {
        self.sessions.set_server_key(key);
    }

    /// Ends the background work and the sessions with OSTs; requests that wait get ESHUTDOWN. The table stays
    /// open: its owner closes it.
    pub fn stop(self: &Arc<Self>) -> BoxFuture<()> {
        let mdt = self.clone();
        Box::pin(async move {
            mdt.stop.begin();
            mdt.probes.stop();
            mdt.recovery.stop();
            mdt.shared.osts.wake_all();
            mdt.sessions.disconnect().await;
        })
    }

    /// How clients come back after a restart.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Clients of before the restart are still awaited.
    pub fn recovering(&self) -> bool {
        self.recovery.recovering()
    }

    async fn arrived(self: Arc<Self>, hello: Greeting) -> Result<ConnectOutcome, (Errno, String)> {
        let client = ClientId(hello.connect.client_uuid);
        assert_eq!(hello.from.client, client, "a hello is of the client that it names");
        let label = TargetId::mdt(self.cfg.index).label(&self.cfg.fsname);
        let failed = |e: store::StoreError| (e.errno(), format!("{label}: {e}"));
        let (outcome, wait) = {
            let mut core = self.core.write();
            if let Some(known) = core.clients.get_mut(&client) {
                let bound = hello.check(&mut known.identity)?;
                let lsn = if bound {
                    self.record(client, known).map_err(failed)?
                } else {
                    self.db.last_submitted()
                };
                let outcome = if hello.is_unaware(&known.identity) {
                    self.recovery.departed(client);
                    ConnectOutcome { new_client: true, recovering: false }
                } else {
                    ConnectOutcome { new_client: false, recovering: self.recovery.connected(client) }
                };
                (outcome, lsn)
            } else {
                if core.clients.len() >= limits::CLIENTS_MAX {
                    let why = format!(
                        "{label} has {} clients, as many as it can: unmount some",
                        limits::CLIENTS_MAX
                    );
                    return Err((Errno::EAGAIN, why));
                }
                let name: String = hello.connect.client_name.chars().take(256).collect();
                let identity = hello.identity(self.db.epoch());
                let state = ClientState { name, address: hello.from.address.to_string(), identity };
                let lsn = self.record(client, &state).map_err(failed)?;
                core.clients.insert(client, state);
                assert!(
                    core.clients.len() <= limits::CLIENTS_MAX,
                    "a target knows a bounded number of clients"
                );
                (ConnectOutcome { new_client: true, recovering: false }, lsn)
            }
        };
        self.db.durable(wait).await.map_err(failed)?;
        Ok(outcome)
    }

    /// Writes a client's record; the transaction to wait for.
    fn record(&self, client: ClientId, c: &ClientState) -> Result<store::Lsn, store::StoreError> {
        let record =
            ClientRecord { name: c.name.clone(), address: c.address.clone(), identity: c.identity.clone() };
        let mut txn = Txn::new();
        txn.put(key::client(&client.0), record.encode());
        self.db.submit(txn)
    }

    async fn gone(self: Arc<Self>, client: ClientId, how: Departure) {
        self.shared.movements.client_gone(client);
        self.shared.leases.client_gone(client, true);
        loop {
            let opens = self.core.read().opens.of_client(client);
            if opens.is_empty() {
                break;
            }
            let part = &opens[..opens.len().min(CLOSE_AT_ONCE)];
            let work = |tx: &mut Tx| {
                part.iter().try_for_each(|(h, _)| tx.remove_open(client, *h)).map(|()| Vec::new())
            };
            let done = self.transactions.transact(None, work).await;
            if let Err(e) = done.result {
                tracing::error!("closing the files of client {client} failed: {e}");
                break;
            }
        }
        self.locks.client_gone(client);
        if let Err(e) = self.forget_client(client, how).await {
            tracing::error!("removing the record of client {client} failed: {e}");
        }
        // Its last requests may have been granted something after the first time.
        self.shared.leases.client_gone(client, false);
        self.recovery.departed(client);
    }

    /// Takes the client's record, reply slots and, if it said good-bye, its sequences out of the table. An
    /// evicted client may come back and go on with its sequences.
    async fn forget_client(self: &Arc<Self>, client: ClientId, how: Departure) -> Result<(), MdsError> {
        let leases = if how == Departure::Disconnected { leases_of(&self.db, client)? } else { Vec::new() };
        let lsn = {
            let mut core = self.core.write();
            let mut txn = Txn::new();
            txn.delete(key::client(&client.0));
            for seq in leases {
                txn.delete(key::lease(seq));
            }
            self.db.delete_replies(&client.0, &mut txn)?;
            core.clients.remove(&client);
            self.stats.exports.keep(&core.clients.values().map(|c| c.address.clone()).collect());
            self.db.submit(txn)?
        };
        Ok(self.db.durable(lsn).await?)
    }
}

impl Service for Mdt {
    fn target(&self) -> TargetId {
        TargetId::mdt(self.cfg.index)
    }

    fn fsname(&self) -> String {
        self.cfg.fsname.clone()
    }

    fn epoch(&self) -> u32 {
        self.shared.epoch
    }

    fn folder(&self) -> Option<String> {
        Some(self.cfg.dir.clone())
    }

    fn knows(&self, client: ClientId) -> bool {
        self.core.read().clients.contains_key(&client)
    }

    fn speaks(&self) -> bool {
        // Nor after an error of its disk: the server ends, and what it had executed is done again by the next
        // one. An error would be the end of operations that applications were told of.
        self.db.is_held() && self.db.stopped().is_none()
    }

    fn last_committed(&self) -> u64 {
        self.db.transno(self.db.last_committed())
    }

    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(self.arrived(hello))
    }

    fn sender(&self, from: &Principal) -> Sender {
        from.role(self.sessions.server_key().as_ref())
    }

    fn nodemap(&self, from: &Principal) -> Nodemap {
        self.shared.settings.nodemap(from)
    }

    fn replays(&self, client: ClientId) -> bool {
        self.recovery.owes(client)
    }

    fn recovering(&self) -> bool {
        self.recovery.recovering()
    }

    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        match self.db.reply(&client.0, slot) {
            Ok(r) => {
                r.map(|r| StoredReply { xid: r.xid, transno: r.transno, status: r.status, body: r.body })
            }
            Err(e) => {
                tracing::error!("reply slot {slot} of client {client}: {e}");
                // Without its slot a resent request would run twice: unless the target stopped anyway and
                // runs nothing, it must not go on guessing.
                assert!(
                    self.db.stopped().is_some(),
                    "reply slot {slot} of client {client} cannot be read: {e}"
                );
                None
            }
        }
    }

    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(self.serve(req))
    }

    fn notice(&self, client: ClientId, n: Notice) {
        match n {
            Notice::Cancelled { items } => self.shared.leases.cancel(client, &items),
            Notice::Opened { opens } => self.core.write().opened(&self.db, client, opens),
            // For an OST.
            Notice::Released { .. } | Notice::Kept { .. } => {}
            // The session layer's own.
            Notice::Proof { .. } | Notice::ClientEvicted { .. } => {}
        }
    }

    fn evicted(&self, client: ClientId) {
        self.sessions.tell_evicted(client);
    }

    fn leaving(&self, client: ClientId) {
        self.recovery.leaving(client);
        self.shared.leases.client_gone(client, true);
    }

    fn commit(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            // Should it fail the target stops, and requests say so.
            let _ = self.db.durable(self.db.last_submitted()).await;
        })
    }

    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()> {
        Box::pin(self.gone(client, how))
    }
}

fn leases_of(db: &Db, client: ClientId) -> Result<Vec<u64>, MdsError> {
    let mut out = Vec::new();
    walk(db, &[key::LEASE], &[key::LEASE + 1], |k, v| {
        if Lease::decode(k, v)?.client == client.0 {
            out.extend(key::parse_lease(k));
        }
        Ok(())
    })?;
    Ok(out)
}

/// What owners use by all inodes.
pub fn count_usage(db: &dyn Read) -> Result<Totals, StoreError> {
    let mut counted = Counted::default();
    let done = walk(db, &[key::INODE], &[key::INODE + 1], |k, v| {
        // Of what is damaged others complain.
        if let Some(i) = key::parse_fid(k).and_then(|fid| Inode::decode_shown(fid, v).ok()) {
            let (owner, usage) = i.usage();
            counted.add(owner, usage);
        }
        Ok(())
    });
    done.map_err(|e| match e {
        MdsError::Store(e) => e,
        other => StoreError::Refused(other.to_string()),
    })?;
    Ok(counted.into_totals())
}

/// What the table says of the file system as a whole.
fn load_shared(world: &World, db: &Db) -> Result<Shared, MdsError> {
    let missing = |what| MdsError::Missing { what, fid: Fid::ROOT };
    let state = |k: &[u8], what| db.get(k)?.ok_or_else(|| missing(what));
    let hash_key =
        value::decode_hash_key(key::STATE_HASH_KEY, &state(key::STATE_HASH_KEY, "directory hash key")?)?;
    let inodes = value::decode_u64(key::STATE_INODES, &state(key::STATE_INODES, "inode count")?)?;
    let root = Inode::decode(Fid::ROOT, &state(&key::inode(Fid::ROOT), "inode")?)?;
    let (usage, _) = UsageLedger::open(db, || count_usage(db))?;
    let directories = Directories::load(db, &usage)?;
    Ok(Shared {
        epoch: db.epoch(),
        hash_key,
        settings: Settings::default(),
        osts: Osts::new(world.random_u64()),
        root_default: Mutex::new(root.default_layout),
        inodes: AtomicU64::new(inodes),
        usage,
        quotas: Quotas::load(db)?,
        directories,
        shares: ShareBook::default(),
        outbox_seq: AtomicU64::new(1),
        leases: LeaseState::new(db.epoch()),
        space_low: AtomicBool::new(false),
        growing: Growing::default(),
        movements: Movements::default(),
        rebalance: Rebalance::default(),
        moves: Moves::default(),
        changelog: Changelog::load(db)?,
        barrier: Barrier::load(world, db)?,
        lfsck: load_lfsck(db)?,
        world: world.clone(),
    })
}

/// How a check of the whole file system stands. One that nobody can read begins anew when it is ordered.
fn load_lfsck(db: &Db) -> Result<Lfsck, MdsError> {
    let k = key::STATE_LFSCK;
    let state = db.get(k)?.and_then(|v| lfsck::State::decode(k, &v).map_err(|e| tracing::warn!("{e}")).ok());
    Ok(Lfsck::new(state.unwrap_or_default()))
}

/// The clients that were known.
fn load_core(db: &Db) -> Result<Core, MdsError> {
    let mut core = Core::default();
    walk(db, &[key::CLIENT], &[key::CLIENT + 1], |k, v| {
        let uuid = key::parse_client(k).ok_or_else(|| MdsError::Damaged {
            what: "client record",
            key: value::hex(k),
            why: "its key is of no known form".into(),
        })?;
        let r = ClientRecord::decode(k, v)?;
        core.clients
            .insert(ClientId(uuid), ClientState { name: r.name, address: r.address, identity: r.identity });
        Ok(())
    })?;
    Ok(core)
}
