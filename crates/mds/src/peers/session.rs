//! Sessions with other targets, whatever their kind: who this target is there, what it can show, and what it
//! hears.

use model::TargetId;
use model::mutex::Mutex;
use rpc::{ClientId, Import, ImportConfig, ImportHooks, Peers};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use wire::msg::config::TargetEntry;
use wire::msg::notify::Notify;
use wire::proof::{Claimant, Key};
use world::{BoxFuture, World};

/// Slots of the session with each target.
const SLOTS: u16 = 8;

/// As whom this target goes to others, and from where.
pub struct Identity {
    pub fsname: String,
    pub me: TargetId,
    /// Of the other servers.
    pub port: u16,
    /// Source address of the connections.
    pub bind: Option<IpAddr>,
    /// Which of their addresses are asked first.
    pub networks: rpc::Networks,
}

/// One session with each target that was in the configuration since this one started.
pub struct Sessions {
    world: World,
    /// This target's own clients: of some of them the others say that they are gone.
    peers: Peers,
    identity: Identity,
    /// Under which the sessions run.
    client_uuid: [u8; 16],
    /// By which servers of the file system know each other; `None` until the MGS said it.
    server_key: Arc<Mutex<Option<Key>>>,
    imports: Mutex<BTreeMap<TargetId, Arc<Import>>>,
}

/// What is owed to another target stands in an outbox: so that one, restarted, need not wait for this one.
struct Hooks {
    world: World,
    server_key: Arc<Mutex<Option<Key>>>,
    peers: Peers,
}

impl ImportHooks for Hooks {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        self.server_key.lock().iter().map(|k| (Claimant::Server, *k)).collect()
    }

    fn keeps_state(&self) -> bool {
        false
    }

    fn notify(&self, n: Notify) {
        if let Notify::ClientEvicted { client } = n {
            self.peers.doubt(ClientId(client), self.world.now());
        }
    }
}

impl Sessions {
    pub fn new(world: &World, peers: &Peers, identity: Identity) -> Sessions {
        Sessions {
            client_uuid: world.random_uuid(),
            world: world.clone(),
            peers: peers.clone(),
            identity,
            server_key: Arc::default(),
            imports: Mutex::default(),
        }
    }

    /// A session with a target that has none; it connects when it is made active.
    pub fn open(&self, t: &TargetEntry) -> Arc<Import> {
        let me = self.identity.me.label(&self.identity.fsname);
        let hooks = Hooks {
            world: self.world.clone(),
            server_key: self.server_key.clone(),
            peers: self.peers.clone(),
        };
        let config = ImportConfig {
            target: t.target,
            fsname: self.identity.fsname.clone(),
            nids: t.nids.clone(),
            port: self.identity.port,
            bind: self.identity.bind,
            networks: self.identity.networks.clone(),
            client_uuid: self.client_uuid,
            client_name: format!("nacre-server {} as {me}", env!("CARGO_PKG_VERSION")),
            slots: SLOTS,
            hooks: Arc::new(hooks),
            adaptive: Arc::default(),
        };
        let import = Import::new(self.world.clone(), config);
        let other = self.imports.lock().insert(t.target, import.clone());
        assert!(other.is_none(), "there is one session with each target");
        import
    }

    /// The session with a target that is none of the file system's any more.
    pub fn forget(&self, target: TargetId) -> Option<Arc<Import>> {
        self.imports.lock().remove(&target)
    }

    fn list(&self) -> Vec<Arc<Import>> {
        self.imports.lock().values().cloned().collect()
    }

    /// The key by which servers of the file system know each other.
    pub fn server_key(&self) -> Option<Key> {
        *self.server_key.lock()
    }

    /// From now on the servers know each other by this key. Those that this one is connected with are shown
    /// it.
    pub fn set_server_key(&self, key: Key) {
        if self.server_key.lock().replace(key) == Some(key) {
            return;
        }
        self.list().iter().for_each(|i| i.prove());
    }

    /// Other targets hear that a client was evicted here.
    pub fn tell_evicted(&self, client: ClientId) {
        self.list().iter().for_each(|i| i.tell_evicted(client.0));
    }

    /// Ends all of them.
    pub async fn disconnect(&self) {
        let goodbyes = self.list().into_iter().map(|i| -> BoxFuture<()> { i.disconnect() }).collect();
        world::future::join_all(goodbyes).await;
    }
}
