//! The MGS of another host, which is asked over the network (decision 0097).

use crate::failure::Failure;
use crate::local::{Daemon, FSTYPE};
use client::Source;
use mgs::restore::{ConfigAnswer, ConfigOrder};
use model::{Cred, Errno, HostNid, TargetId, limits};
use rpc::{Import, ImportConfig, ImportHooks};
use std::sync::Arc;
use std::time::Duration;
use store::format::Superblock;
use wire::msg::configview::{Configview, View};
use wire::{Bulk, RequestContext};
use world::World;
use world::sys;

/// An MGS that says nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a whole answer: more than an MGS makes.
const ANSWER_MAX_BYTES: u64 = 256 << 20;
/// How often it is begun anew because the configuration changed meanwhile.
const TRIES: u32 = 10;

struct Hooks;

impl ImportHooks for Hooks {
    fn keeps_state(&self) -> bool {
        false
    }
}

/// `NID:NID`, for messages.
pub fn names(hosts: &[HostNid]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}

/// Where mounts and targets of this host have their MGS, each once, and its port.
pub fn known() -> Result<Vec<(Vec<HostNid>, u16)>, Failure> {
    let mut all: Vec<(Vec<HostNid>, u16)> = Vec::new();
    let mounts = sys::mounts::list().map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    for m in mounts.iter().filter(|m| m.fstype == FSTYPE) {
        if let Ok(source) = Source::parse(&m.source) {
            all.push((source.mgs_nids, limits::PORT));
        }
    }
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    for s in Daemon::statuses() {
        for t in s.targets.iter().filter(|t| t.label != "MGS" && !t.is_of_snapshot()) {
            if let Ok(sb) = Superblock::read(&world, &t.dir)
                && !sb.mgs_nids.is_empty()
            {
                all.push((sb.mgs_nids, s.port));
            }
        }
    }
    // One that has some of the same addresses is the same one.
    let mut different: Vec<(Vec<HostNid>, u16)> = Vec::new();
    for (hosts, port) in all {
        if !different.iter().any(|(d, p)| *p == port && d.iter().any(|h| hosts.contains(h))) {
            different.push((hosts, port));
        }
    }
    Ok(different)
}

fn view(order: &ConfigOrder) -> Option<View> {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Some(match order {
        ConfigOrder::Show => View::Show,
        ConfigOrder::History(n) => View::History { before: 0, count: count(*n) },
        ConfigOrder::Older(before, n) => View::History { before: *before, count: count(*n) },
        ConfigOrder::Diff(from, to) => View::Diff { from: *from, to: *to },
        ConfigOrder::Export => View::Export,
        ConfigOrder::Rollback(..) | ConfigOrder::Import(..) | ConfigOrder::Mounts(_) => return None,
    })
}

/// A session with an MGS.
pub struct MgsSession {
    world: World,
    runtime: world::real::Runtime,
    import: Arc<Import>,
    at: String,
}

impl MgsSession {
    pub fn new(hosts: Vec<HostNid>, port: u16) -> Result<MgsSession, Failure> {
        let (world, runtime) =
            world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
        let cfg = ImportConfig {
            target: TargetId::MGT,
            fsname: String::new(),
            nids: Vec::new(),
            port,
            bind: None,
            networks: rpc::Networks::default(),
            client_uuid: world.random_uuid(),
            client_name: format!("nacre config {}", crate::VERSION),
            slots: 2,
            hooks: Arc::new(Hooks),
            adaptive: Arc::default(),
        };
        let import = Import::new(world.clone(), cfg);
        let port_shown = if port == limits::PORT { String::new() } else { format!(" (port {port})") };
        let at = format!("{}{port_shown}", names(&hosts));
        import.seek(hosts);
        Ok(MgsSession { world, runtime, import, at })
    }

    /// What is seen of it; `what` wants to know.
    pub fn ask(&self, what: &str, order: &ConfigOrder) -> Result<ConfigAnswer, Failure> {
        let failed = |e: Errno, why: &str| Failure::explained("cannot do", what, e, why);
        let Some(view) = view(order) else {
            return Err(failed(Errno::EOPNOTSUPP, "changes are made on the node that has the MGS"));
        };
        let read = read(self.world.clone(), self.import.clone(), view);
        let text = self.runtime.block_on(read).map_err(|(e, why)| failed(e, &self.words(e, why)))?;
        serde_json::from_slice(&text).map_err(|e| {
            let why = format!("the answer of the MGS at {} is not understood: {e}", self.at);
            failed(Errno::EPROTO, &why)
        })
    }

    /// Why it failed, for people; `why`: the MGS's own words.
    pub(super) fn words(&self, e: Errno, why: Option<String>) -> String {
        let at = &self.at;
        match (e, why) {
            (_, Some(why)) => why,
            (Errno::EOPNOTSUPP | Errno::ENOSYS, _) => format!(
                "the MGS at {at} ({}) is of an older version, which shows this on its own host only: run it \
                 there, or upgrade it",
                self.import.server_name()
            ),
            (Errno::EPERM, _) if self.import.refusal().is_none() => {
                format!(
                    "the MGS at {at} shows it to root alone, and this host's root is none there (nodemap)"
                )
            }
            (e, _) => {
                let said = self.import.refusal().map(|(_, words)| words);
                let why = said.or_else(|| self.import.unknown_hosts());
                match (e, why) {
                    (_, Some(why)) => format!("the MGS at {at}: {why}"),
                    (Errno::ETIMEDOUT, None) => format!(
                        "no MGS answers at {at} within {} s: start it, or name another with --mgs",
                        PATIENCE.as_secs()
                    ),
                    (e, None) => format!("the MGS at {at}: {}", e.text()),
                }
            }
        }
    }
}

impl Drop for MgsSession {
    /// Says good-bye, so that the MGS forgets this client at once.
    fn drop(&mut self) {
        self.runtime.block_on(self.import.disconnect());
    }
}

/// The whole answer, of one version of the configuration. An error may have the MGS's words.
async fn read(world: World, import: Arc<Import>, view: View) -> Result<Vec<u8>, (Errno, Option<String>)> {
    let bad = |why: &str| (Errno::EPROTO, Some(format!("what the MGS answered is no piece: {why}")));
    'again: for _ in 0..TRIES {
        let (mut text, mut version) = (Vec::new(), 0);
        loop {
            let ctx = RequestContext { cred: Cred::root(), ..RequestContext::default() };
            let had = text.len() as u64;
            let m = Configview { view, from: had, version };
            let piece = match world.timeout(PATIENCE, import.call(ctx, m, Bulk::default())).await {
                None => return Err((Errno::ETIMEDOUT, None)),
                Some(Err(e)) => return Err((e, None)),
                Some(Ok(r)) => match r.reply.said {
                    Ok(piece) => piece,
                    Err((e, _)) if Errno(e) == Errno::ESTALE && version != 0 => continue 'again,
                    Err((e, why)) => return Err((Errno(e), Some(why))),
                },
            };
            text.extend(piece.text);
            version = piece.version;
            if piece.total > ANSWER_MAX_BYTES || text.len() as u64 > piece.total {
                return Err(bad("it is too long"));
            }
            if text.len() as u64 == piece.total {
                return Ok(text);
            }
            if text.len() as u64 == had {
                return Err(bad("it is empty"));
            }
        }
    }
    Err((
        Errno::EAGAIN,
        Some(format!("the configuration changed {TRIES} times while it was read: try again")),
    ))
}
