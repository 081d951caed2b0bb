//! What `lctl` and `nacre status` ask a daemon, on its control socket.

use super::Node;
use super::target::Role;
use admin::local::{
    CheckOrder, DAEMON_SOCKET, DaemonReply, DaemonRequest, DaemonStatus, DaemonTarget, KnownPools,
};
use mgs::pools::PoolOrder;
use model::Errno;
use model::changelog::Order;
use model::limits::INBOUND_MIN_BYTES;
use model::param::{Decl, Field, Item, Param, ParamInfo, Preset, Registry, Scope, Table, Tree, Value};
use rpc::server::recovery::Recovery;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use world::sys::control::{self, ControlSocket};

/// Parameters of the whole daemon.
static OWN: Table<Node> = Table {
    scopes: &[Scope::Daemon],
    params: &[
        Param::shown(Decl::text("version", "Version of this program."), |_, ()| admin::VERSION.into()),
        Param::shown(Decl::text("health_check", "healthy, or NOT HEALTHY and why."), |n, ()| n.health().into()),
        Param::settable(
            Decl::order(
                "accept",
                |text| is_secure(text).map(drop),
                "Whom this daemon lets in: secure (ports below 1024) or all. Until its next start.",
            )
            .until_restart(),
            |n, ()| if n.server.is_secure() { "secure" } else { "all" }.into(),
            // Connections that are let in already stay.
            |n, (), v| {
                n.server.set_secure(is_secure(v.text)?);
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "req_memory_max_mb",
                (MEMORY_MIN_MB, 1 << 20),
                "MiB",
                MEMORY_MIN_MB,
                "Memory of the requests that were received and are not done; clients send again later what is more. Until its next start.",
            )
            .by_default(Preset::Host("an eighth of the memory"))
            .until_restart(),
            |n, ()| (n.server.inbound().max_bytes() >> 20).into(),
            |n, (), v| {
                let bytes = usize::try_from(v.number << 20).map_err(|_| Errno::ERANGE)?;
                n.server.inbound().set_max_bytes(bytes);
                Ok(())
            },
        ),
        Param::shown(
            Decl::fields(
                "req_memory",
                "used_bytes and max_bytes of it, and put_off: how many requests were to come again later.",
            ),
            |n, ()| {
                let memory = n.server.inbound();
                Value::Fields(vec![
                    Field::gauge("used_bytes", memory.used_bytes() as u64),
                    Field::gauge("max_bytes", memory.max_bytes() as u64),
                    Field::counter("put_off", memory.refused()),
                ])
            },
        ),
        Param::shown(
            Decl::gauge("ping_interval", "s", "How often clients without other requests say that they live."),
            |n, ()| n.options.ping_interval.div_ceil(1000).into(),
        ),
    ],
};

const MEMORY_MIN_MB: u64 = (INBOUND_MIN_BYTES >> 20) as u64;

fn is_secure(text: &str) -> Result<bool, Errno> {
    match text {
        "secure" => Ok(true),
        "all" => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// What `lctl` can ask of daemons.
pub(super) fn declare(to: &mut Registry) {
    to.add(&OWN);
}

pub fn serve(node: &Arc<Node>) -> io::Result<ControlSocket> {
    let node = node.clone();
    let answer = move |line: &str| {
        let reply = match serde_json::from_str::<DaemonRequest>(line) {
            Ok(r) => node.answer(r),
            Err(e) => {
                DaemonReply::Error { errno: Errno::EINVAL.0, message: format!("request not understood: {e}") }
            }
        };
        serde_json::to_string(&reply).expect("plain data encodes")
    };
    control::serve(&format!("{DAEMON_SOCKET}{}", std::process::id()), Arc::new(answer))
}

/// What targets share (`ost.OSS.ost_io`) is said by the first of them.
fn once_each<T>(all: Vec<T>, name: impl Fn(&T) -> &String) -> Vec<T> {
    let mut seen = BTreeSet::new();
    all.into_iter().filter(|i| seen.insert(name(i).clone())).collect()
}

/// Why a parameter does not take a value, and what its declaration says of that.
fn why(name: &str, e: Errno) -> String {
    let said = super::registry::all().known(name).first().map(|d| d.decl.why(e));
    let more = said.filter(|s| s != e.text()).map_or_else(String::new, |s| format!(": {s}"));
    format!("{}{more}", e.text())
}

fn error(e: Errno, what: &str) -> DaemonReply {
    DaemonReply::Error { errno: e.0, message: what.to_string() }
}

impl Node {
    fn answer(&self, r: DaemonRequest) -> DaemonReply {
        match r {
            DaemonRequest::Status => DaemonReply::Status(self.status()),
            DaemonRequest::GetParam { pattern } => {
                let mut all: Vec<(String, String)> =
                    self.targets.iter().flat_map(|t| t.get_params(&pattern)).collect();
                all.extend(self.standby().iter().flat_map(|m| m.get_params(&pattern)));
                all.extend(self.own_params(&pattern).texts());
                DaemonReply::Params(once_each(all, |(name, _)| name))
            }
            DaemonRequest::HelpParam { pattern } => {
                let mut all: Vec<ParamInfo> =
                    self.targets.iter().flat_map(|t| t.help_params(&pattern)).collect();
                all.extend(self.standby().iter().flat_map(|m| m.help_params(&pattern)));
                all.extend(self.own_params(&pattern).infos());
                DaemonReply::ParamInfos(once_each(all, |i| &i.name))
            }
            DaemonRequest::SetParam { name, value } => self.set(&name, &value),
            DaemonRequest::AbortRecovery { target } => self.abort_recovery(&target),
            DaemonRequest::Check { target, order } => self.check(&target, order),
            DaemonRequest::Registration { target, order } => self.registration(&target, &order),
            DaemonRequest::Changelog { target, order } => self.changelog(&target, &order),
            DaemonRequest::Pool(order) => self.change_pool(&order),
            DaemonRequest::Pools { fsname } => DaemonReply::Pools(self.known_pools(&fsname)),
            DaemonRequest::SetPermanent { name, value, delete } => self.set_permanent(&name, &value, delete),
        }
    }

    /// The MGS over etcd, if it is active here.
    fn standby(&self) -> Option<Arc<mgs::Mgs>> {
        self.standby.as_ref()?.mgs()
    }

    fn status(&self) -> DaemonStatus {
        let one = |t: &Arc<super::Target>| {
            let s = t.label_on_disk();
            DaemonTarget {
                label: t.label(),
                dir: t.dir.clone(),
                state: t.state().to_string(),
                uuid: s.target_uuid.iter().map(|b| format!("{b:02x}")).collect(),
                epoch: s.epoch,
                registered: t.registered.load(Relaxed),
                clients: t.peers.list().len(),
                recovery: t.recovery().and_then(Recovery::progress),
            }
        };
        DaemonStatus {
            pid: std::process::id(),
            started_again: super::ended::starts_again(),
            nids: vec![self.nid.to_string()],
            port: self.options.port,
            targets: self.targets.iter().map(one).chain(self.standby.as_ref().map(|s| s.status())).collect(),
        }
    }

    fn check(&self, label: &str, order: CheckOrder) -> DaemonReply {
        let Some(t) = self.targets.iter().find(|t| t.label() == label) else {
            return error(Errno::ENODEV, &format!("this daemon does not serve {label}"));
        };
        match t.check(&self.world, order) {
            Ok(state) => DaemonReply::Check(state),
            Err(e) => error(Errno::ENOENT, &e),
        }
    }

    fn registration(&self, label: &str, order: &mgs::registration::Order) -> DaemonReply {
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        match world::block_on(mgs.administer(label, order)) {
            Ok(text) => DaemonReply::Text(text),
            Err((e, why)) => error(e, &why),
        }
    }

    fn changelog(&self, label: &str, order: &Order) -> DaemonReply {
        let Some(t) = self.targets.iter().find(|t| t.label() == label) else {
            return error(Errno::ENODEV, &format!("this daemon does not serve {label}"));
        };
        match t.changelog(&self.world, order) {
            Ok(consumer) => DaemonReply::Text(consumer),
            Err((e, why)) => error(e, &why),
        }
    }

    fn change_pool(&self, order: &PoolOrder) -> DaemonReply {
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        match world::block_on(mgs.change_pool(order)) {
            Ok(change) => DaemonReply::Pool(change),
            Err((e, why)) => error(e, &why),
        }
    }

    /// As the active MGS and the MDTs here know them.
    fn known_pools(&self, fsname: &str) -> Vec<KnownPools> {
        let known = |target: String, (version, pools)| KnownPools { target, version, pools };
        let mgs = self.mgs().and_then(|m| m.pools(fsname));
        let mdt = |t: &Arc<super::Target>| match &t.service {
            Role::Mdt(m) if t.label_on_disk().fsname == fsname => Some(known(t.label(), m.pools())),
            _ => None,
        };
        mgs.map(|p| known("MGS".into(), p)).into_iter().chain(self.targets.iter().filter_map(mdt)).collect()
    }

    fn abort_recovery(&self, label: &str) -> DaemonReply {
        let Some(t) = self.targets.iter().find(|t| t.label() == label) else {
            return error(Errno::ENODEV, &format!("this daemon does not serve {label}"));
        };
        match t.recovery() {
            Some(r) => r.abort(),
            None => return error(Errno::EINVAL, &format!("{label} waits for nobody")),
        }
        DaemonReply::Done
    }

    fn health(&self) -> String {
        match self.failed().map(|(what, _)| what).or_else(|| self.read_only()) {
            Some(why) => format!("NOT HEALTHY\n{why}"),
            None => "healthy".into(),
        }
    }

    /// Of the whole daemon.
    fn own_params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let mut tree = Tree::matching(pattern);
        tree.add("", &OWN, self);
        tree
    }

    /// Of the whole daemon: those that the glob names, as they were set.
    fn set_own(&self, name: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        let hits = self.own_params(name);
        if hits.items.is_empty() {
            return Ok(Vec::new());
        }
        hits.set(value)?;
        let said = |i: &Item<'_>| {
            tracing::info!("{} is {} from now on", i.name, value.trim());
            (i.name.clone(), value.trim().to_string())
        };
        Ok(hits.items.iter().map(said).collect())
    }

    fn set(&self, name: &str, value: &str) -> DaemonReply {
        let mut found = match self.set_own(name, value) {
            Ok(own) => own,
            Err(e) => return error(e, &format!("{name}: {}", e.text())),
        };
        for t in &self.targets {
            match world::block_on(t.set_params(name, value)) {
                Ok(p) => found.extend(p),
                Err(Errno::ENOENT) => {}
                Err(e) => return error(e, &format!("{}: {}", t.label(), why(name, e))),
            }
        }
        if found.is_empty() {
            error(Errno::ENOENT, "no such parameter here")
        } else {
            DaemonReply::Params(once_each(found, |(name, _)| name))
        }
    }

    fn set_permanent(&self, name: &str, value: &str, delete: bool) -> DaemonReply {
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        // What is there already can be taken back, whatever it is.
        if !delete && let Err(refused) = super::registry::all().check_lasting(name, value) {
            return error(refused.errno, &refused.why);
        }
        match world::block_on(mgs.set_permanent(name, value, delete)) {
            Ok(()) => DaemonReply::Done,
            Err(e) => error(e, e.text()),
        }
    }
}
