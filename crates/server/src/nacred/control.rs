//! What `lctl` and `nacre status` ask a daemon, on its control socket.

use super::Node;
use super::target::Role;
use super::times::{CALLBACK_DEFAULT_S, PING_DEFAULT_S, PING_MAX_S};
use admin::local::{DAEMON_SOCKET, DaemonReply, DaemonRequest, DaemonStatus, DaemonTarget, KnownPools};
use client::control::Packed;
use mgs::history::{Change, Subject};
use mgs::pools::PoolOrder;
use mgs::restore::{ConfigAnswer, ConfigOrder};
use model::Errno;
use model::barrier::BarrierOrder;
use model::events::EVENTS;
use model::history::INTERVAL_DEFAULT_S;
use model::limits::INBOUND_MIN_BYTES;
use model::param::{Decl, Field, Item, Param, ParamInfo, Preset, Registry, Scope, Table, Tree, Value};
use rpc::server::recovery::Recovery;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::msg::barrier::Barrier;
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
        Param::settable(
            Decl::number(
                "timeout",
                (4, 4 * PING_MAX_S),
                "s",
                4 * PING_DEFAULT_S,
                "Four times ping_interval, as Lustre has it. Until the next start; for good: nacred --ping-interval.",
            )
            .until_restart(),
            |n, ()| (4 * n.ping_interval_s()).into(),
            |n, (), v| n.change_ping_interval(v.number * 250),
        ),
        Param::settable(
            Decl::number(
                "ping_interval",
                (1, PING_MAX_S),
                "s",
                PING_DEFAULT_S,
                "How often clients without other requests say that they live; one silent for six times as long is evicted. Who is told of a shorter one keeps the longer patience until its session ends. Until the next start; for good: nacred --ping-interval.",
            )
            .until_restart(),
            |n, ()| n.ping_interval_s().into(),
            |n, (), v| n.change_ping_interval(v.number * 1000),
        ),
        Param::settable(
            Decl::number(
                "ldlm_timeout",
                (1, 3600),
                "s",
                CALLBACK_DEFAULT_S,
                "Sets lock_callback_timeout of all targets of this daemon, and shows the longest. For good: set_param -P mdt.*.lock_callback_timeout, obdfilter.*.lock_callback_timeout.",
            )
            .until_restart(),
            |n, ()| n.callback_timeout_s().into(),
            |n, (), v| n.set_callback_timeout(v.text),
        ),
        Param::atomic(
            Decl::number(
                "history_interval",
                (0, 86_400),
                "s",
                INTERVAL_DEFAULT_S,
                "How often each target records its files, space and response time (nacre history); 0: never. 8,784 records are kept. Until the next start.",
            )
            .until_restart(),
            0,
            |n, ()| &n.history_interval_s,
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

/// Why a parameter cannot be set so for good.
fn not_lasting(c: &Change) -> Option<(Errno, String)> {
    let (Subject::Param(name), Some(value)) = (&c.subject, &c.after) else { return None };
    super::registry::all().check_lasting(name, value).err().map(|refused| (refused.errno, refused.why))
}

fn error(e: Errno, what: &str) -> DaemonReply {
    DaemonReply::Error { errno: e.0, message: what.to_string() }
}

fn barrier(t: &super::Target, order: BarrierOrder) -> Result<DaemonReply, (Errno, String)> {
    world::block_on(super::barrier::run(t, Barrier { order })).map(DaemonReply::Barrier)
}

impl Node {
    fn answer(self: &Arc<Self>, r: DaemonRequest) -> DaemonReply {
        match r {
            DaemonRequest::Status => DaemonReply::Status(self.status()),
            DaemonRequest::Debug(order) => DaemonReply::Debug(crate::log::answer(order)),
            DaemonRequest::Events { after } => DaemonReply::Events(EVENTS.read(after)),
            DaemonRequest::History { target, since } => {
                self.on_target(&target, |t| Ok(DaemonReply::History(t.history.records(since))))
            }
            DaemonRequest::GetParam { pattern } => {
                let mut all: Vec<(String, String)> =
                    self.targets().iter().flat_map(|t| t.get_params(&pattern)).collect();
                all.extend(self.standby().iter().flat_map(|m| m.get_params(&pattern)));
                all.extend(self.own_params(&pattern).texts());
                DaemonReply::Params(once_each(all, |(name, _)| name))
            }
            DaemonRequest::HelpParam { pattern } => {
                let mut all: Vec<ParamInfo> =
                    self.targets().iter().flat_map(|t| t.help_params(&pattern)).collect();
                all.extend(self.standby().iter().flat_map(|m| m.help_params(&pattern)));
                all.extend(self.own_params(&pattern).infos());
                DaemonReply::ParamInfos(once_each(all, |i| &i.name))
            }
            DaemonRequest::SetParam { name, value } => self.set(&name, &value),
            DaemonRequest::Config(order) => self.configure(&order),
            DaemonRequest::AbortRecovery { target } => self.on_target(&target, |t| {
                let r = t.recovery().ok_or_else(|| (Errno::EINVAL, format!("{target} waits for nobody")))?;
                r.abort();
                Ok(DaemonReply::Done)
            }),
            DaemonRequest::Check { target, order } => self.on_target(&target, |t| {
                t.check(&self.world, order).map(DaemonReply::Check).map_err(|e| (Errno::ENOENT, e))
            }),
            DaemonRequest::Echo { target, order } => {
                self.on_target(&target, |t| t.echo(&order).map(DaemonReply::Echo))
            }
            DaemonRequest::Registration { target, order } => self.registration(&target, &order),
            DaemonRequest::Changelog { target, order } => {
                self.on_target(&target, |t| t.changelog(&self.world, &order).map(DaemonReply::Text))
            }
            DaemonRequest::Barrier { target, order } => self.on_target(&target, |t| barrier(t, order)),
            DaemonRequest::Table { target, order } => {
                self.on_target(&target, |t| t.table(&self.world, &order).map(DaemonReply::Table))
            }
            DaemonRequest::Ask { fsname, orders } => self.ask(&fsname, orders),
            DaemonRequest::Pool(order) => self.change_pool(&order),
            DaemonRequest::Pools { fsname } => DaemonReply::Pools(self.known_pools(&fsname)),
            DaemonRequest::MountTarget { folder, mount_point, abort_recov } => {
                match super::marks::canonical(&folder) {
                    Ok(folder) => self.join(&folder, mount_point, abort_recov),
                    Err(e) => error(Errno::EINVAL, &e),
                }
            }
            DaemonRequest::MountedTarget { folder } => self.joined(&folder),
            DaemonRequest::Metrics => DaemonReply::Metrics(Packed::of(&self.metrics())),
            DaemonRequest::SetPermanent { name, value, delete } => self.set_permanent(&name, &value, delete),
        }
    }

    /// The MGS over etcd, if it is active here.
    pub(super) fn standby(&self) -> Option<Arc<mgs::Mgs>> {
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
            nids: self.nids.iter().map(ToString::to_string).collect(),
            port: self.options.port,
            leaving: self.leaving(),
            targets: self
                .targets()
                .iter()
                .map(one)
                .chain(self.standby.as_ref().map(|s| s.status()))
                .collect(),
        }
    }

    /// What the target of this name says; `ENODEV`: there is none here.
    fn on_target(
        &self,
        label: &str,
        ask: impl FnOnce(&Arc<super::Target>) -> Result<DaemonReply, (Errno, String)>,
    ) -> DaemonReply {
        let found = self.targets().into_iter().find(|t| t.label() == label);
        let unknown = || (Errno::ENODEV, format!("this daemon does not serve {label}"));
        let said = found.as_ref().ok_or_else(unknown).and_then(ask);
        said.unwrap_or_else(|(e, why)| error(e, &why))
    }

    fn registration(&self, label: &str, order: &mgs::registration::Order) -> DaemonReply {
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        match world::block_on(mgs.administer(label, order)) {
            Ok(text) => DaemonReply::Text(text),
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

    fn configure(&self, order: &ConfigOrder) -> DaemonReply {
        let Some(mgs) = self.mgs() else { return error(Errno::ENODEV, "this daemon has no active MGS") };
        // A document's values are new ones, as those of set_param -P; a rollback's were in force.
        if let ConfigOrder::Import(document, _) = order {
            let dry = ConfigOrder::Import(document.clone(), true);
            match world::block_on(mgs.configure(&dry)) {
                Ok(ConfigAnswer::Changes(c)) => {
                    if let Some((e, why)) = c.changes.iter().find_map(not_lasting) {
                        return error(e, &why);
                    }
                }
                Ok(_) => return error(Errno::EPROTO, "its answer is none"),
                Err((e, why)) => return error(e, &why),
            }
        }
        match world::block_on(mgs.configure(order)) {
            Ok(answer) => DaemonReply::Config(answer),
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
        mgs.map(|p| known("MGS".into(), p)).into_iter().chain(self.targets().iter().filter_map(mdt)).collect()
    }

    /// What keeps a target from serving, in words; nothing: all do.
    pub(super) fn trouble(&self) -> Option<String> {
        self.failed().map(|(what, _)| what).or_else(|| self.read_only())
    }

    fn health(&self) -> String {
        match self.trouble() {
            Some(why) => format!("NOT HEALTHY\n{why}"),
            None => "healthy".into(),
        }
    }

    /// Of the whole daemon.
    pub(super) fn own_params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let mut tree = Tree::matching(pattern);
        tree.add("", &OWN, self);
        tree.add("", &model::debug::TABLE, &model::debug::DEBUG);
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
            Err(e) => return error(e, &format!("{name}: {}", why(name, e))),
        };
        let mut not_here = None;
        for t in &self.targets() {
            match world::block_on(t.set_params(name, value)) {
                Ok(p) => found.extend(p),
                Err(Errno::ENOENT) => {}
                // What it is about may be with another target.
                Err(Errno::ENXIO) => not_here = Some(t.label()),
                Err(e) => return error(e, &format!("{}: {}", t.label(), why(name, e))),
            }
        }
        if let Some(label) = not_here.filter(|_| found.is_empty()) {
            error(Errno::ENXIO, &format!("{label}: {}", why(name, Errno::ENXIO)))
        } else if found.is_empty() {
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
