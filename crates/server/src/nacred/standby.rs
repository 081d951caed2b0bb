//! An MGS whose data is in etcd: this node is one of several that may be it, and serves as soon as no other
//! one does.

use super::Node;
use admin::local::DaemonTarget;
use etcd::{Etcd, Url};
use mgs::Mgs;
use mgs::etcd::{EtcdBook, TakeError, vacancy};
use model::TargetId;
use model::mutex::Mutex;
use rpc::{Peers, Server};
use std::sync::Arc;
use std::time::Duration;
use world::World;

/// Between tries while something is wrong.
const RETRY: Duration = Duration::from_secs(2);

/// What serves here, if this node is the active one.
struct Active {
    mgs: Arc<Mgs>,
    peers: Peers,
    book: Arc<EtcdBook>,
}

/// This node's part in the MGS.
pub struct Standby {
    world: World,
    etcd: Arc<Etcd>,
    server: Arc<Server>,
    /// What others are told when they find this one active.
    who: String,
    term: Duration,
    active: Mutex<Option<Active>>,
    ending: Mutex<bool>,
}

impl Standby {
    pub fn new(world: &World, server: &Arc<Server>, url: &Url, who: String, term: Duration) -> Arc<Standby> {
        Arc::new(Standby {
            world: world.clone(),
            etcd: Etcd::new(world, url),
            server: server.clone(),
            who,
            term,
            active: Mutex::new(None),
            ending: Mutex::new(false),
        })
    }

    /// Takes part, until [`Standby::end`].
    pub fn start(self: &Arc<Self>) {
        let me = self.clone();
        self.world.spawn("mgs-standby", async move { me.run().await });
    }

    pub fn mgs(&self) -> Option<Arc<Mgs>> {
        self.active.lock().as_ref().map(|a| a.mgs.clone())
    }

    fn ending(&self) -> bool {
        *self.ending.lock()
    }

    /// For `nacre status`.
    pub fn status(&self) -> DaemonTarget {
        let g = self.active.lock();
        DaemonTarget {
            label: "MGS".into(),
            dir: self.etcd.url().to_string(),
            state: if g.is_some() { "up" } else { "standby" }.into(),
            uuid: String::new(),
            epoch: g.as_ref().map_or(0, |a| a.book.epoch_number()),
            registered: true,
            clients: g.as_ref().map_or(0, |a| a.peers.list().len()),
            recovery: None,
        }
    }

    async fn run(self: Arc<Self>) {
        let mut said = String::new();
        while !self.ending() {
            let (word, busy) = match EtcdBook::take(&self.etcd, &self.who, self.term, 0).await {
                Ok(book) => {
                    said.clear();
                    self.serve(book).await;
                    self.world.sleep(RETRY).await;
                    continue;
                }
                Err(TakeError::Busy(other)) => (format!("MGS: standing by, the one {other} is active"), true),
                Err(e) => (format!("MGS: standing by: {e}"), false),
            };
            if word != said {
                tracing::info!("{word}");
                said = word;
            }
            if !busy || vacancy(&self.etcd).await.is_err() {
                self.world.sleep(RETRY).await;
            }
        }
    }

    async fn serve(&self, book: Arc<EtcdBook>) {
        let peers = Peers::new();
        let mgs = match Mgs::open(&self.world, book.clone(), peers.clone()) {
            Ok(m) => m,
            Err(e) => {
                tracing::error!("MGS: cannot use what is in {}: {e}", self.etcd.url());
                return book.end().await;
            }
        };
        let epoch = book.epoch_number();
        {
            let mut g = self.active.lock();
            let other = g.replace(Active { mgs: mgs.clone(), peers: peers.clone(), book: book.clone() });
            assert!(other.is_none(), "a node is the active MGS once");
        }
        if self.ending() {
            return book.end().await;
        }
        self.server.add(mgs, peers);
        tracing::info!("MGS: active, epoch {epoch}, with what is in {}", self.etcd.url());
        let why = book.lost().await;
        self.server.remove(TargetId::MGT);
        *self.active.lock() = None;
        if !self.ending() {
            tracing::warn!("MGS: not active any more: {why}; clients go on and look for the next one");
        }
    }

    /// Orderly: another node is active at once.
    pub async fn end(&self) {
        *self.ending.lock() = true;
        let book = self.active.lock().as_ref().map(|a| a.book.clone());
        if let Some(b) = book {
            b.end().await;
        }
    }
}

/// `--mgs-store` and folders with an MGT at the same time are two places for the same data.
pub fn clash(labels: &[super::target::Label]) -> Option<super::ended::StartError> {
    let l = labels.iter().find(|l| l.has_mgt())?;
    Some(super::ended::StartError::new(format!(
        "'{}' holds an MGT, and --mgs-store names another place for its data: move it there with 'nacre mgt import', then start this node again{}",
        l.dir,
        if l.is_mgt_only() { " without that folder" } else { "" }
    )))
}

impl Node {
    /// The MGS, if it is active here.
    pub fn mgs(&self) -> Option<Arc<Mgs>> {
        let own = self.targets().iter().find_map(|t| match &t.service {
            super::target::Role::Mgs(m) => Some(m.clone()),
            _ => None,
        });
        own.or_else(|| self.standby.as_ref()?.mgs())
    }
}
