//! The target map of a mount: a session with each target in it, kept up to date with what the MGS says.

use super::Lmv;
use super::mgc::Mgc;
use crate::mdc::Mdc;
use crate::osc::Osc;
use crate::session::{Target, state_name};
use crate::{R, TargetState};
use model::debug::CONFIG;
use model::maintenance::Maintenance;
use model::mutex::Mutex;
use model::{Errno, HostNid, Nid, TargetId, TargetKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::config::{ConfigReply, TargetEntry};

/// How long an operation waits for a fresh target map when a layout names a target that is not in this one.
const REFETCH_PATIENCE: Duration = Duration::from_secs(5);

/// Who takes over what the MGS stored for every mount.
pub(crate) trait ConfigOwner: Send + Sync {
    /// A permanent parameter, for all it names or `only` for some targets.
    fn permanent_param(&self, name: &str, value: &str, only: Option<&Vec<TargetId>>);
}

/// The target map and the sessions made from it.
#[derive(Default)]
pub(super) struct Targets {
    config: Mutex<Option<ConfigReply>>,
    map: Mutex<BTreeMap<TargetId, Arc<Target>>>,
    /// Of each OST in the map, and perhaps of one that is about to be.
    oscs: Mutex<BTreeMap<u16, Arc<Osc>>>,
    /// The same, of each MDT.
    mdcs: Mutex<BTreeMap<u16, Arc<Mdc>>>,
}

impl Targets {
    pub(super) fn config(&self) -> Option<ConfigReply> {
        self.config.lock().clone()
    }

    pub(super) fn get(&self, id: TargetId) -> Option<Arc<Target>> {
        self.map.lock().get(&id).cloned()
    }

    /// In the order of kinds and indices.
    pub(super) fn all(&self) -> Vec<Arc<Target>> {
        self.map.lock().values().cloned().collect()
    }

    pub(super) fn osc(&self, index: u16) -> Option<Arc<Osc>> {
        self.oscs.lock().get(&index).cloned()
    }

    pub(super) fn mdc(&self, index: u16) -> Option<Arc<Mdc>> {
        self.mdcs.lock().get(&index).cloned()
    }

    pub(super) fn mdcs(&self) -> Vec<Arc<Mdc>> {
        self.mdcs.lock().values().cloned().collect()
    }

    pub(super) fn oscs(&self) -> Vec<Arc<Osc>> {
        self.oscs.lock().values().cloned().collect()
    }
}

impl Lmv {
    /// The session with the MGS, which every mount begins with.
    pub(crate) fn meet_mgs(&self, hosts: Vec<HostNid>) {
        let set = self.mgc.set(Mgc::new(&self.cx, self.config_changed.clone(), hosts));
        assert!(set.is_ok(), "a mount is brought up once");
    }

    /// The target map as last told by the MGS.
    pub(crate) fn config(&self) -> Option<ConfigReply> {
        self.targets.config()
    }

    /// A target, if it is in the target map.
    pub(crate) fn known_target(&self, id: TargetId) -> Option<Arc<Target>> {
        self.targets.get(id)
    }

    /// MDTs and OSTs, in the order of kinds and indices.
    pub(crate) fn all_targets(&self) -> Vec<Arc<Target>> {
        self.targets.all()
    }

    pub(crate) fn targets_of(&self, kind: TargetKind) -> Vec<Arc<Target>> {
        self.targets.all().into_iter().filter(|t| t.id.kind == kind).collect()
    }

    pub(crate) fn known_osc(&self, index: u16) -> Option<Arc<Osc>> {
        self.targets.osc(index)
    }

    pub(crate) fn oscs(&self) -> Vec<Arc<Osc>> {
        self.targets.oscs()
    }

    /// The configuration may have changed, or the mount is over: who watches it looks.
    pub(crate) fn config_changed(&self) {
        self.config_changed.notify_one();
    }

    /// A session with an MDT or OST; it connects at its first call.
    fn new_target(&self, id: TargetId, nids: Vec<Nid>) -> Arc<Target> {
        match id.kind {
            TargetKind::Ost => {
                let mut oscs = self.targets.oscs.lock();
                let osc = oscs.entry(id.index).or_insert_with(|| Osc::new(&self.objects, id, nids));
                osc.target.clone()
            }
            TargetKind::Mdt => {
                let mut mdcs = self.targets.mdcs.lock();
                let mdc = mdcs.entry(id.index).or_insert_with(|| self.new_mdt_session(id, nids));
                mdc.target.clone()
            }
            TargetKind::Mgt => unreachable!("the session with the MGS is the mount's first"),
        }
    }

    /// Takes a target map over: new targets get sessions, moved ones new addresses.
    pub(super) fn apply_config(&self, new: ConfigReply) {
        tracing::debug!(target: CONFIG, "configuration {} of {}: {} targets", new.version, new.fsname, new.targets.len());
        let old = {
            let mut config = self.targets.config.lock();
            if config.as_ref().is_some_and(|c| c.version > new.version) {
                return; // an older answer that was overtaken
            }
            config.replace(new.clone())
        };
        self.forget_retired(&new);
        // What did not change there is left as `lctl set_param` on this node may have set it.
        let mut added = Vec::new();
        for e in new.targets.iter().filter(|e| e.target.kind != TargetKind::Mgt) {
            let was = old.as_ref().and_then(|c| c.targets.iter().find(|o| o.target == e.target));
            if self.apply_target(e, was.map(|o| o.active)) {
                added.push(e.target);
            }
        }
        let Some(owner) = self.owner.upgrade() else { return };
        let ordered = |c: &ConfigReply| Maintenance::of(&c.params, &self.cx.opt.fsname);
        if old.as_ref().map(ordered).unwrap_or_default() != ordered(&new) {
            // Also where none is any more.
            let of_mount = format!("llite.{}-*.maintenance", self.cx.opt.fsname);
            owner.permanent_param(&of_mount, &ordered(&new).text(), None);
        }
        for (name, value) in &new.params {
            let same = old.as_ref().is_some_and(|c| c.params.iter().any(|p| p.0 == *name && p.1 == *value));
            owner.permanent_param(name, value, same.then_some(&added));
        }
        // Behind the parameters: what a request says of it is true.
        self.cx.hold.applied(new.version);
    }

    /// OSTs that were taken out for good: nobody connects to them any more, and what files had there is an
    /// error at once.
    fn forget_retired(&self, config: &ConfigReply) {
        for t in self.targets.all().into_iter().filter(|t| config.is_retired(t.id)) {
            tracing::warn!("{} was removed from the file system for good", t.id.label(&self.cx.opt.fsname));
            // Whoever has it open knows it still: its calls fail.
            t.set_active(false);
            self.targets.map.lock().remove(&t.id);
            self.targets.oscs.lock().remove(&t.id.index);
            let import = t.import.clone();
            self.cx.world.spawn("client-forget", async move { import.disconnect().await });
        }
    }

    /// Returns whether it is new.
    fn apply_target(&self, e: &TargetEntry, was_active: Option<bool>) -> bool {
        match self.targets.get(e.target) {
            Some(t) => {
                t.set_home(&e.nids, e.epoch, e.target_uuid);
                if was_active != Some(e.active) {
                    t.set_active(e.active);
                }
                false
            }
            None if e.nids.is_empty() => false, // known by name only: it never ran
            None => {
                let t = self.new_target(e.target, e.nids.clone());
                t.set_home(&e.nids, e.epoch, e.target_uuid);
                self.targets.map.lock().insert(e.target, t.clone());
                // Connected before the first call needs it, and so that `lfs check` tells something.
                let import = t.import.clone();
                self.cx.world.spawn("client-connect", async move {
                    let _ = import.connected().await;
                });
                t.set_active(e.active);
                true
            }
        }
    }

    /// `lctl recover`. `ENODEV`: the mount has no connection to it.
    pub(crate) fn reconnect(&self, target: TargetId) -> R<()> {
        let of_mgs = || self.mgs().ok().filter(|m| m.id == target);
        let t = self.targets.get(target).or_else(of_mgs).ok_or(Errno::ENODEV)?;
        tracing::info!("{target}: connecting anew, as an administrator wants it");
        t.import.reconnect();
        Ok(())
    }

    /// Follows the configuration until the mount ends: asks again whenever the MGS says that it changed, and
    /// when its session came back (a notice may have been lost).
    pub(crate) fn watch_config(self: &Arc<Self>) {
        let (weak, changed) = (Arc::downgrade(self), self.config_changed.clone());
        self.cx.world.spawn("client-config", async move {
            loop {
                changed.notified().await;
                let Some(lmv) = weak.upgrade() else { return };
                if lmv.cx.is_closed() {
                    return;
                }
                if let Err(e) = lmv.fetch_config().await {
                    if lmv.cx.is_closed() {
                        return;
                    }
                    tracing::warn!("configuration of {} cannot be fetched: {e}", lmv.cx.opt.fsname);
                } else if lmv.cx.hold.is_unsaid() {
                    // By what it brought this mount stands otherwise with a maintenance.
                    lmv.config_changed();
                }
            }
        });
    }

    pub(crate) fn mgs(&self) -> R<Arc<Target>> {
        self.mgc.get().map(|m| m.target.clone()).ok_or(Errno::ENOTCONN)
    }

    /// The MDC of a metadata target.
    pub(crate) async fn mdc(&self, index: u16) -> R<Arc<Mdc>> {
        self.target(TargetId::mdt(index)).await?;
        Ok(self.targets.mdc(index).expect("an MDT in the map has an MDC"))
    }

    /// The OSC of an object target.
    pub(crate) async fn osc(&self, index: u16) -> R<Arc<Osc>> {
        self.target(TargetId::ost(index)).await?;
        Ok(self.targets.osc(index).expect("an OST in the map has an OSC"))
    }

    /// A target by name; asks the MGS again if it is not in the target map.
    async fn target(&self, id: TargetId) -> R<Arc<Target>> {
        if let Some(t) = self.targets.get(id) {
            return Ok(t);
        }
        if self.config().is_some_and(|c| c.is_retired(id)) {
            return Err(Errno::EIO);
        }
        // Boxed: it is large, seldom needed, and part of every operation.
        let fetched = Box::pin(self.cx.world.timeout(REFETCH_PATIENCE, self.fetch_config())).await;
        if let Some(t) = self.targets.get(id) {
            return Ok(t);
        }
        tracing::error!("{} is not in the target map ({fetched:?})", id.label(&self.cx.opt.fsname));
        Err(Errno::EIO)
    }

    /// The MGS and every target, as `lfs check` and `lctl dl` show them.
    pub(crate) fn states(&self) -> Vec<TargetState> {
        let config = self.targets.config();
        let domain = |id: TargetId| {
            let entry = config.as_ref()?.targets.iter().find(|e| e.target == id)?;
            Some(entry.domains.clone()).filter(|d| model::domain::is_valid(d))
        };
        let (now, wall) = (self.cx.world.now(), self.cx.world.wall());
        let at =
            |i: world::Instant| wall.plus_nanos(-i64::try_from(now.since(i).as_nanos()).unwrap_or(i64::MAX));
        let refusal = |i: &rpc::Import| i.refusal().map(|(_, why)| why).or_else(|| i.unknown_hosts());
        let mgs = self.mgs().into_iter();
        mgs.chain(self.targets.all())
            .map(|t| TargetState {
                target: t.id,
                uuid: format!("{}_UUID", t.id.label(&self.cx.opt.fsname)),
                nid: t.import.current_nid(),
                state: state_name(t.import.state()).to_string(),
                active: t.is_active(),
                server: t.import.server_name(),
                heard: at(t.import.heard()),
                away: t.import.away_since().map(at),
                refusal: refusal(&t.import),
                domain: domain(t.id).unwrap_or_default(),
                disk: t.import.disk(),
            })
            .collect()
    }
}
