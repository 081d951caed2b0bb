//! One metadata target: what it consists of, and its locks. What it does is in the files above it:
//! `transact`, `callbacks`, `recovery`, `peers`, `dispatch`, `service`.

use crate::core::Core;
use crate::locks::Locks;
use crate::peers::session::Sessions;
use crate::shared::Shared;
use crate::stats::Stats;
use model::mutex::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rpc::Peers;
use rpc::server::recovery::Recovery;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use store::Db;
use world::sync::watch;
use world::{Either, World, select};

#[derive(Clone, Debug)]
pub struct MdtConfig {
    pub fsname: String,
    pub index: u16,
    /// The target's folder: statfs asks its file system for space.
    pub dir: String,
    /// Port of the object servers.
    pub port: u16,
    /// Source address of connections to them.
    pub bind: Option<IpAddr>,
}

/// One metadata target that serves.
pub struct Mdt {
    pub(crate) world: World,
    pub(crate) db: Arc<Db>,
    pub(crate) peers: Peers,
    pub(crate) cfg: MdtConfig,
    pub(crate) shared: Shared,
    pub(crate) core: RwLock<Core>,
    pub(crate) locks: Locks,
    pub(crate) recovery: Arc<Recovery>,
    /// True from `stop` on.
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) stats: Stats,
    /// With other targets.
    pub(crate) sessions: Sessions,
    /// Of the configuration that is in use; held while one is taken over.
    pub(crate) config_version: Mutex<u64>,
}

impl Mdt {
    pub(crate) fn core_read(&self) -> RwLockReadGuard<'_, Core> {
        self.core.read()
    }

    pub(crate) fn core_write(&self) -> RwLockWriteGuard<'_, Core> {
        self.core.write()
    }

    /// The newest transaction that is durable.
    pub(crate) fn committed(&self) -> u64 {
        self.db.transno(self.db.last_committed())
    }

    /// Waits for `d`. True if the target stopped meanwhile.
    pub(crate) async fn pause(&self, d: Duration) -> bool {
        let mut stopping = self.stopping.subscribe();
        let stopped = async move { stopping.wait_for(|s| *s).await.is_ok() };
        matches!(select(stopped, self.world.sleep(d)).await, Either::Left(_))
    }
}
