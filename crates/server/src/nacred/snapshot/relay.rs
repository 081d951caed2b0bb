//! Orders about targets from an administrator of the MGS's host to the programs that serve them, over the
//! network where that is not this one (decision 0088).

use super::super::Node;
use admin::local::{DaemonReply, Heard, HostAnswer, HostOrder};
use bytes::Bytes;
use model::mutex::Mutex;
use model::{Errno, TargetId};
use rpc::{Host, Import, ImportConfig, ImportHooks, Incoming, Outgoing};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::msg::barrier::{Barrier, BarrierReply};
use wire::msg::config::TargetEntry;
use wire::msg::snapshot::{Snapshot, SnapshotReply};
use wire::proof::{Claimant, Key};
use wire::{Op, RequestContext, decode_request};
use world::sys::Deadline;
use world::{BoxFuture, World};

/// A server that does not answer by then is not waited for: less than who asks this daemon waits for it.
const PATIENCE: Duration = Duration::from_secs(6);
/// A session that nobody needs any more ends after this.
const IDLE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Orders of one request.
const ORDERS_MAX: usize = 4096;
/// As many as are under way for one target at a time, and one more.
const SLOTS: u16 = 4;

struct Hooks(Key);

impl ImportHooks for Hooks {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        vec![(Claimant::Server, self.0)]
    }

    fn keeps_state(&self) -> bool {
        false
    }
}

struct Session {
    import: Arc<Import>,
    until: Deadline,
}

/// Sessions with servers of other hosts, while somebody has orders for them.
#[derive(Default)]
pub struct Relay(Mutex<BTreeMap<(String, TargetId), Session>>);

impl Relay {
    fn session(&self, node: &Node, fsname: &str, t: &TargetEntry, key: Key) -> Arc<Import> {
        let mut all = self.0.lock();
        let one = all.entry((fsname.to_string(), t.target)).or_insert_with(|| {
            let cfg = ImportConfig {
                target: t.target,
                fsname: fsname.to_string(),
                nids: t.nids.clone(),
                port: node.options.port,
                bind: node.bind(),
                networks: super::super::networks(&node.nids),
                client_uuid: node.world.random_uuid(),
                client_name: format!("nacred {} for the administrator of the MGS", admin::VERSION),
                slots: SLOTS,
                hooks: Arc::new(Hooks(key)),
                adaptive: Arc::default(),
            };
            Session { import: Import::new(node.world.clone(), cfg), until: Deadline::after(IDLE) }
        });
        one.until = Deadline::after(IDLE);
        one.import.set_home(t.nids.clone(), t.epoch, t.target_uuid);
        one.import.clone()
    }

    fn idle(&self) -> Vec<Arc<Import>> {
        let mut all = self.0.lock();
        let old: Vec<_> = all.iter().filter(|(_, s)| s.until.passed()).map(|(k, _)| k.clone()).collect();
        old.into_iter().filter_map(|k| all.remove(&k)).map(|s| s.import).collect()
    }
}

async fn end_idle(world: World, node: Weak<Node>) {
    while let Some(n) = node.upgrade() {
        let idle = n.relay.idle();
        drop(n);
        for import in idle {
            import.disconnect().await;
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// From now on the node does what it is asked about its targets.
pub fn serve(node: &Arc<Node>) {
    node.server.set_host(Arc::new(Asked(Arc::downgrade(node))));
    super::watch(node);
    node.world.spawn("relay's sessions", end_idle(node.world.clone(), Arc::downgrade(node)));
}

/// What comes over the network. Who may send it was looked at ([`wire::Sender::Server`]).
struct Asked(Weak<Node>);

impl Host for Asked {
    fn order(&self, target: TargetId, fsname: String, req: Incoming) -> BoxFuture<Outgoing> {
        let node = self.0.upgrade();
        Box::pin(async move {
            let Some(node) = node else { return Outgoing::err(Errno::ESHUTDOWN) };
            match node.serve_order(&target.label(&fsname), &req).await {
                Ok(out) => out,
                Err(e) => Outgoing::err(e),
            }
        })
    }
}

impl Node {
    async fn serve_order(self: &Arc<Self>, label: &str, req: &Incoming) -> Result<Outgoing, Errno> {
        if !req.bulk.is_empty() {
            return Err(Errno::EPROTO);
        }
        let order = match req.op {
            Op::Barrier => HostOrder::Barrier(decode_request::<Barrier>(&req.body)?.order),
            Op::Snapshot => HostOrder::Snapshot(decode_request::<Snapshot>(&req.body)?.order),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        tracing::debug!("{label}: {order:?} from {}", req.from.address);
        Ok(match self.do_order(label, order).await {
            HostAnswer::Barrier(standing) => Outgoing::ok(&BarrierReply { said: Ok(standing) }, 0),
            HostAnswer::Snapshot(answer) => Outgoing::ok(&SnapshotReply { answer }, 0),
            HostAnswer::Failed { errno, why } if req.op == Op::Barrier => {
                Outgoing::ok(&BarrierReply { said: Err((errno, why)) }, 0)
            }
            HostAnswer::Failed { errno, why } => {
                let answer = model::snapshot::SnapshotAnswer::Failed { errno, why };
                Outgoing::ok(&SnapshotReply { answer }, 0)
            }
        })
    }

    /// About a target of this node.
    async fn do_order(self: &Arc<Self>, label: &str, order: HostOrder) -> HostAnswer {
        let Some(t) = self.target_of(label) else {
            let why = format!("this daemon does not serve {label}");
            return HostAnswer::Failed { errno: Errno::ENODEV.0, why };
        };
        match order {
            HostOrder::Barrier(order) => match super::super::barrier::run(&t, Barrier { order }).await {
                Ok(standing) => HostAnswer::Barrier(standing),
                Err((e, why)) => HostAnswer::Failed { errno: e.0, why },
            },
            HostOrder::Snapshot(order) => {
                let node = self.clone();
                HostAnswer::Snapshot(self.world.blocking(move || node.snapshot(&t, order)).await)
            }
        }
    }

    /// What the administrator of this host asks about targets of a file system that the MGS here has.
    pub(in super::super) fn ask(
        self: &Arc<Self>,
        fsname: &str,
        orders: Vec<(String, HostOrder)>,
    ) -> DaemonReply {
        let error = |e: Errno, why: &str| DaemonReply::Error { errno: e.0, message: why.to_string() };
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        if orders.len() > ORDERS_MAX {
            return error(Errno::EMSGSIZE, "more orders than one request may have");
        }
        let Ok(config) = mgs.config(fsname) else {
            return error(Errno::ENOENT, "the MGS knows no such file system");
        };
        let key = mgs.server_key(fsname);
        let (begun, asked) = (self.world.now(), orders.len());
        let all = orders.into_iter().map(|(label, order)| -> BoxFuture<Heard> {
            let node = self.clone();
            let entry = config.targets.iter().find(|t| t.target.label(fsname) == label).cloned();
            let fsname = fsname.to_string();
            Box::pin(async move {
                let world = node.world.clone();
                let answer = node.order_of(&fsname, &label, entry, key, order).await;
                Heard { answer, after_us: super::micros(begun, world.now()) }
            })
        });
        let all = all.collect();
        let heard = world::block_on(world::future::join_all(all));
        assert_eq!(heard.len(), asked, "an answer to each order, in their order");
        DaemonReply::Asked(heard)
    }

    async fn order_of(
        self: Arc<Self>,
        fsname: &str,
        label: &str,
        entry: Option<TargetEntry>,
        key: Option<Key>,
        order: HostOrder,
    ) -> HostAnswer {
        if self.target_of(label).is_some() {
            return self.do_order(label, order).await;
        }
        let failed = |e: Errno, why: String| HostAnswer::Failed { errno: e.0, why };
        let Some(entry) = entry else {
            return failed(Errno::ENODEV, format!("{fsname} has no target {label}"));
        };
        let Some(key) = key else {
            let why = "the MGS has no key by which servers know each other: restart its server, which registers anew";
            return failed(Errno::ENOKEY, why.into());
        };
        let import = self.relay.session(&self, fsname, &entry, key);
        let at = entry.nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self.world.timeout(PATIENCE, send(&import, order)).await {
            None => failed(
                Errno::ETIMEDOUT,
                format!(
                    "its server at {at} did not answer within {} s: start it, or its host",
                    PATIENCE.as_secs()
                ),
            ),
            Some(Ok(answer)) => answer,
            Some(Err(Errno::EOPNOTSUPP | Errno::ENOSYS)) => failed(
                Errno::EOPNOTSUPP,
                format!("its server at {at} ({}) is older than this order: upgrade it", import.server_name()),
            ),
            Some(Err(Errno::EPERM)) => failed(
                Errno::EPERM,
                format!(
                    "its server at {at} does not know this MGS's key of {fsname}: it has to register here"
                ),
            ),
            Some(Err(e)) => {
                let why = import.refusal().map_or_else(|| e.text().to_string(), |(_, words)| words);
                failed(e, format!("its server at {at}: {why}"))
            }
        }
    }
}

async fn send(import: &Arc<Import>, order: HostOrder) -> Result<HostAnswer, Errno> {
    let ctx = RequestContext::default();
    Ok(match order {
        HostOrder::Barrier(order) => {
            let r = import.call(ctx, Barrier { order }, Bytes::new()).await?;
            match r.reply.said {
                Ok(standing) => HostAnswer::Barrier(standing),
                Err((errno, why)) => HostAnswer::Failed { errno, why },
            }
        }
        HostOrder::Snapshot(order) => {
            let r = import.call(ctx, Snapshot { order }, Bytes::new()).await?;
            HostAnswer::Snapshot(r.reply.answer)
        }
    })
}
