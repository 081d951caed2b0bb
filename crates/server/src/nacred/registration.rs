//! Making targets known to the MGS, and following its configuration. In the background and for ever: a node
//! serves with what its labels hold while the MGS is away.

use super::Node;
use super::target::{Given, Refusal, Role, Target};
use bytes::Bytes;
use model::{Errno, HostNid, Nid, TargetId};
use rpc::{Import, ImportConfig, ImportHooks, ImportState, look_up};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::format::Superblock;
use wire::RequestContext;
use wire::msg::config::{Config, ConfigReply, EXTRA_SERVER_KEY};
use wire::msg::connect::extra_key;
use wire::msg::notify::Notify;
use wire::msg::register::{EXTRA_DOMAIN, EXTRA_TARGET_KEY, Register, RegisterReply};
use wire::proof::{Claimant, Key};
use world::{World, select, sync};

const RETRY: Duration = Duration::from_secs(5);

/// What the session with the MGS says.
struct Hooks {
    /// The session is new: targets have to be registered (again).
    reconnected: AtomicBool,
    wake: Arc<sync::Notify>,
    targets: Vec<Arc<Target>>,
}

impl ImportHooks for Hooks {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        let labels = self.targets.iter().map(|t| t.label_on_disk());
        labels.filter_map(|s| Some((Claimant::Target(s.target_uuid), s.key?))).collect()
    }

    fn notify(&self, n: Notify) {
        if let Notify::ConfigChanged { .. } = n {
            self.wake.notify_one();
        }
    }

    fn state(&self, s: ImportState) {
        if s == ImportState::Full {
            self.reconnected.store(true, Relaxed);
            self.wake.notify_one();
        }
    }
}

/// A node's session with the MGS of its targets.
struct Link {
    world: World,
    import: Arc<Import>,
    hooks: Arc<Hooks>,
    targets: Vec<Arc<Target>>,
    nids: Vec<Nid>,
}

/// Where the MGS of a target is sought.
fn mgs_of(node: &Node, label: &Superblock) -> Vec<HostNid> {
    let own_mgs = node.targets().iter().any(|t| matches!(t.service, Role::Mgs(_)));
    if own_mgs { node.nids.iter().map(|n| (*n).into()).collect() } else { label.mgs_nids.clone() }
}

/// Starts a session and its task for these targets, if any of them wants it.
pub fn start(node: &Arc<Node>, targets: &[Arc<Target>]) {
    let targets: Vec<Arc<Target>> =
        targets.iter().filter(|t| !matches!(t.service, Role::Mgs(_))).cloned().collect();
    let Some(first) = targets.first() else { return };
    let label = first.label_on_disk();
    let hooks = Arc::new(Hooks {
        reconnected: AtomicBool::new(false),
        wake: Arc::default(),
        targets: targets.clone(),
    });
    let import = session(node, &label, &first.label(), hooks.clone());
    for t in &targets {
        let first = t.follower.set(hooks.wake.clone());
        assert!(first.is_ok(), "a target is registered by one session");
    }
    let link = Link { world: node.world.clone(), import, hooks, targets, nids: node.nids.clone() };
    node.world.spawn("registration", link.run());
}

/// Targets were taken out: a session that has none any more ends.
pub fn look_again(targets: &[Arc<Target>]) {
    targets.iter().filter_map(|t| t.follower.get()).for_each(|f| f.notify_one());
}

/// What the label of a target says to the MGS, which is to find it at these addresses; and where it stands.
pub(super) fn message(s: &Superblock, nids: Vec<Nid>) -> (Register, (u16, Vec<u8>)) {
    let msg = Register {
        fsname: s.fsname.clone(),
        target: s.target,
        fs_uuid: s.fs_uuid,
        target_uuid: s.target_uuid,
        nids,
        epoch: s.epoch,
        first_time: s.first_time,
        replace: s.replace,
        params: s.params.clone(),
    };
    (msg, (EXTRA_DOMAIN, model::domain::text(&s.domain).into_bytes()))
}

/// A session with the MGS for who speaks as `name`; it begins to look for it.
pub(super) fn session(node: &Node, s: &Superblock, name: &str, hooks: Arc<dyn ImportHooks>) -> Arc<Import> {
    let cfg = ImportConfig {
        target: TargetId::MGT,
        fsname: s.fsname.clone(),
        nids: Vec::new(),
        port: node.options.port,
        bind: node.bind(),
        networks: super::networks(&node.nids),
        client_uuid: node.world.random_uuid(),
        client_name: format!("nacred {} with {name}", admin::VERSION),
        slots: 4,
        hooks,
        adaptive: Arc::default(),
    };
    let import = Import::new(node.world.clone(), cfg);
    import.seek(mgs_of(node, s));
    import
}

/// Where a target may be found: here, then on the other nodes that its label names, whose addresses are
/// these. With `--failnode` those do not include the one that it was made for, which registered before.
fn homes(here: &[Nid], others: &[Nid], s: &Superblock) -> Vec<Nid> {
    let mut all = here.to_vec();
    all.extend(others);
    if !s.fail_nids.is_empty()
        && let Ok(c) = postcard::from_bytes::<ConfigReply>(&s.config)
    {
        all.extend(c.targets.iter().filter(|t| t.target == s.target).flat_map(|t| &t.nids));
    }
    let mut seen = BTreeSet::new();
    all.retain(|n| seen.insert(*n));
    assert_eq!(all.first(), here.first(), "a target is sought first where it lives");
    all
}

impl Link {
    async fn run(self) {
        // Starts the session; what the hooks hear of this first connection is answered below.
        select(self.import.connected(), self.hooks.wake.notified()).await;
        self.hooks.reconnected.store(false, Relaxed);
        let mut register = true;
        while !self.targets.iter().all(|t| t.taken_out.load(Relaxed)) {
            register |= self.hooks.reconnected.swap(false, Relaxed);
            let ok = if register { self.register_all().await } else { self.refresh().await };
            if ok {
                register = false;
                self.hooks.wake.notified().await;
            } else {
                self.world.sleep(RETRY).await;
            }
        }
    }

    /// Those that were not taken out of the file system.
    fn served(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter().filter(|t| !t.is_removed() && !t.taken_out.load(Relaxed))
    }

    async fn register_all(&self) -> bool {
        let mut all = true;
        for t in self.served() {
            all &= self.register(t).await;
        }
        // Earlier ones learn of later ones by the notify that follows.
        all
    }

    /// The configuration has addresses: those that the names of its other nodes have now.
    async fn others(&self, s: &Superblock) -> Vec<Nid> {
        let hosts: Vec<HostNid> = s.service_nids.iter().chain(&s.fail_nids).cloned().collect();
        let found = look_up(&self.world, &hosts).await;
        for (host, why) in &found.unknown {
            tracing::warn!(
                "clients will not look for {} at {host} until it registers again: {why}",
                s.target.label(&s.fsname)
            );
        }
        found.nids
    }

    async fn register(&self, t: &Arc<Target>) -> bool {
        let s = t.label_on_disk();
        let (msg, placed) = message(&s, homes(&self.nids, &self.others(&s).await, &s));
        let ctx = RequestContext { extra: vec![placed.clone()], ..RequestContext::default() };
        let mut done = self.import.call(ctx, msg.clone(), Bytes::new()).await.map(|r| r.reply);
        if let (Err(Errno::ENOKEY), Some(key)) = (&done, s.key) {
            // It has never been shown this key: the first time it is told.
            let extra = vec![placed, (EXTRA_TARGET_KEY, key.to_vec())];
            let ctx = RequestContext { extra, ..RequestContext::default() };
            done = self.import.call(ctx, msg, Bytes::new()).await.map(|r| r.reply);
        }
        match done {
            Ok(r) => self.registered(t, r).await,
            Err(
                e @ (Errno::EADDRINUSE
                | Errno::EINVAL
                | Errno::ESTALE
                | Errno::ERANGE
                | Errno::EKEYREJECTED
                | Errno::ENODEV),
            ) => {
                // It never gets better by itself, and two servers of one index must not be.
                let (label, fsname) = (t.label(), &s.fsname);
                let why = match e {
                    Errno::EADDRINUSE => format!(
                        "the MGS has another target as {label} ({e}): format with another --index, or, if that one is lost, with --replace, and allow it on the MGS (lctl registration {label} replace)"
                    ),
                    Errno::ESTALE => format!(
                        "the MGS knows a later start of {label} ({e}): this folder is an old copy of it, serve the newer one; if there is none, somebody registered it wrongly: lctl registration {label} epoch {} on the MGS",
                        s.epoch - 1
                    ),
                    Errno::ENODEV => format!(
                        "{label} was removed from the file system for good ({e}), and is not served any more: remove this folder, or format it with an --index that was never used; mkfs.nacre --replace --index={} gives its index to a new, empty target",
                        s.target.index
                    ),
                    Errno::EKEYREJECTED => format!(
                        "the MGS knows {label} by another key ({e}): this folder is no copy of it, or an older one; if it is the right one, lctl registration {label} new-key on the MGS"
                    ),
                    Errno::ERANGE => format!(
                        "the MGS does not believe that {label} was started {} times ({e}): if it was, lctl registration {label} epoch {} on the MGS",
                        s.epoch,
                        s.epoch - 1
                    ),
                    _ => format!(
                        "the MGS at {} manages another file system of the name '{fsname}' ({e}): give its own with tunefs.nacre --mgsnode",
                        self.import.current_nid()
                    ),
                };
                *t.refused.lock() = Some(Refusal { text: why, removed: e == Errno::ENODEV });
                false
            }
            Err(e @ Errno::EACCES) => {
                tracing::error!(
                    "{0} is to replace a lost target, and the MGS was not told so ({e}): lctl registration {0} replace, on the MGS; trying again every {RETRY:?}",
                    t.label()
                );
                false
            }
            Err(e) => {
                model::event!(
                    ERROR,
                    RegistrationRefused,
                    t.label(),
                    "{}: the MGS refuses to register it: {e}; trying again every {RETRY:?}",
                    t.label()
                );
                false
            }
        }
    }

    async fn registered(&self, t: &Arc<Target>, mut r: RegisterReply) -> bool {
        let known = t.label_on_disk().fs_uuid;
        if known != [0; 16] && known != r.fs_uuid {
            let text =
                "it belongs to another file system of the same name: this MGS is not its own".to_string();
            *t.refused.lock() = Some(Refusal { text, removed: false });
            return false;
        }
        // Not part of what is kept as the configuration, which is no secret.
        let server_key = extra_key(&r.config.extra, EXTRA_SERVER_KEY);
        r.config.extra.retain(|(tag, _)| *tag != EXTRA_SERVER_KEY);
        if !self.keep(t, Some(Given { fs_uuid: r.fs_uuid, server_key }), &r.config).await {
            return false;
        }
        if !t.registered.swap(true, Relaxed) {
            model::event!(INFO, TargetRegistered, t.label(), "{} is registered with the MGS", t.label());
        }
        true
    }

    async fn refresh(&self) -> bool {
        assert!(!self.targets.is_empty(), "a session with the MGS is some target's");
        let fsname = self.targets[0].label_on_disk().fsname;
        match self.import.call(RequestContext::default(), Config { fsname }, Bytes::new()).await {
            Ok(r) => {
                for t in self.served() {
                    self.keep(t, None, &r.reply).await;
                    let has = |t: &Arc<Target>| {
                        r.reply.targets.iter().any(|e| e.target == t.service.as_service().target())
                    };
                    if t.registered.load(Relaxed) && !has(t) {
                        // It was taken out: the MGS says so when it is asked.
                        self.register(t).await;
                    }
                }
                true
            }
            Err(e) => {
                tracing::warn!("cannot get the configuration from the MGS: {e}");
                false
            }
        }
    }

    async fn keep(&self, t: &Arc<Target>, given: Option<Given>, c: &ConfigReply) -> bool {
        t.apply(c);
        let (world, target, config) = (self.world.clone(), t.clone(), c.clone());
        let kept = self.world.blocking(move || target.remember(&world, given, &config)).await;
        if let Err(e) = &kept {
            tracing::error!("{}: cannot write its label: {e}", t.label());
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::msg::config::TargetEntry;

    #[test]
    fn a_target_is_sought_where_it_lives_and_then_where_it_may_go() {
        let nid = |n: u8| Nid { addr: [10, 0, 0, n].into(), net: 0 };
        let mut s = Superblock::fresh(TargetId::ost(1), "demo".into(), [3; 16]);
        assert_eq!(homes(&[nid(1)], &[], &s), [nid(1)]);
        let both = [nid(1), nid(2)];
        assert_eq!(homes(&[nid(1)], &both, &s), [nid(1), nid(2)]);
        assert_eq!(homes(&[nid(2)], &both, &s), [nid(2), nid(1)]);
        // The form that names only the others.
        let others = [nid(2), nid(3)];
        s.fail_nids = others.map(HostNid::from).to_vec();
        assert_eq!(homes(&[nid(1)], &others, &s), [nid(1), nid(2), nid(3)]);
        let entry = TargetEntry {
            target: s.target,
            target_uuid: [1; 16],
            nids: vec![nid(1), nid(2), nid(3)],
            epoch: 1,
            active: true,
            domains: Vec::new(),
        };
        let config = ConfigReply {
            version: 1,
            fsname: "demo".into(),
            fs_uuid: [2; 16],
            targets: vec![entry],
            params: Vec::new(),
            extra: Vec::new(),
        };
        s.config = postcard::to_stdvec(&config).unwrap();
        assert_eq!(homes(&[nid(2)], &others, &s), [nid(2), nid(3), nid(1)]);
    }
}
