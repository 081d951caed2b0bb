//! One metadata target: what it consists of, and its locks. What it does is in the files above it:
//! `transact`, `callbacks`, `recovery`, `peers`, `dispatch`, `service`.

use crate::core::Core;
use crate::locks::Locks;
use crate::peers::session::Sessions;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::stop::Stop;
use crate::transact::Transactions;
use model::mutex::{Mutex, RwLock};
use rpc::Peers;
use rpc::server::probes::Probes;
use rpc::server::recovery::Recovery;
use std::net::IpAddr;
use std::sync::Arc;
use store::Db;
use world::World;

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
    /// Which of their addresses are asked first.
    pub networks: rpc::Networks,
}

/// One metadata target that serves.
pub struct Mdt {
    pub(crate) world: World,
    pub(crate) db: Arc<Db>,
    pub(crate) peers: Peers,
    pub(crate) cfg: MdtConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) core: Arc<RwLock<Core>>,
    pub(crate) transactions: Transactions,
    pub(crate) locks: Locks,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) stop: Stop,
    pub(crate) stats: Stats,
    pub(crate) probes: Arc<Probes>,
    /// With other targets.
    pub(crate) sessions: Sessions,
    /// Of the configuration that is in use; held while one is taken over.
    pub(crate) config_version: Mutex<u64>,
}
