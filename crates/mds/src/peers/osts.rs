//! The OSTs as the configuration says: a session with each, which follows what it and the administrator say.

use crate::mdt::Mdt;
use crate::osts::{CREATE_COUNT_DEFAULT, Ost};
use crate::passed_over::Pace;
use model::{TargetId, TargetKind, TargetMark, domain};
use rpc::Import;
use std::sync::Arc;
use wire::msg::config::{ConfigReply, TargetEntry};
use world::sync::Notify;

/// Where the configuration says that a target was placed. What is no domain is nowhere.
fn placed(t: &TargetEntry) -> Vec<String> {
    if domain::is_valid(&t.domains) { t.domains.clone() } else { Vec::new() }
}

impl Mdt {
    /// These are the file system's targets now. OSTs that are not among them get no new objects.
    /// Those that were taken out for good are forgotten; what was to be destroyed there stays written down.
    pub(crate) fn configure_osts(self: &Arc<Self>, config: &ConfigReply) {
        let osts = config.targets.iter().filter(|t| t.target.kind == TargetKind::Ost);
        for t in osts.clone() {
            self.configure_ost(t);
        }
        for (index, _) in self.shared.osts.list() {
            if config.is_retired(TargetId::ost(index)) {
                self.forget_ost(index);
            } else if !osts.clone().any(|t| t.target.index == index) {
                self.shared.osts.update(index, |o| o.configured = false);
                self.activate_session(index);
            }
        }
        self.review_osts();
    }

    fn configure_ost(self: &Arc<Self>, t: &TargetEntry) {
        let index = t.target.index;
        let known = self.shared.osts.update(index, |o| {
            o.configured = t.active;
            o.nids.clone_from(&t.nids);
            o.domain = placed(t);
            o.mark = TargetMark::of(&t.target_uuid);
            if let Some(i) = &o.import {
                i.set_home(t.nids.clone(), t.epoch, t.target_uuid);
            }
        });
        if known {
            self.activate_session(index);
            return;
        }
        if t.nids.is_empty() {
            return;
        }
        let import = self.sessions.open(t);
        import.set_home(t.nids.clone(), t.epoch, t.target_uuid);
        let ost = Ost {
            import: Some(import.clone()),
            nids: t.nids.clone(),
            domain: placed(t),
            mark: TargetMark::of(&t.target_uuid),
            configured: t.active,
            enabled: true,
            max_create_count: CREATE_COUNT_DEFAULT,
            space: None,
            heard: None,
            pace: Pace::default(),
            passed_over: 0,
            wake: Arc::new(Notify::new()),
        };
        self.shared.osts.insert(index, ost);
        self.activate_session(index);
        let (sender, asker) = (self.clone(), self.clone());
        let session = import.clone();
        self.world.spawn("mdt outbox", async move { sender.send_outbox(index, session).await });
        self.world.spawn("mdt ost space", async move { asker.poll_space(index, import).await });
    }

    /// Its session ends, and with it what goes on in the background.
    fn forget_ost(&self, index: u16) {
        self.shared.osts.remove(index);
        if let Some(import) = self.sessions.forget(TargetId::ost(index)) {
            tracing::warn!("{} was removed for good", TargetId::ost(index).label(&self.cfg.fsname));
            import.set_active(false);
            self.world.spawn("mdt forget", async move { import.disconnect().await });
        }
    }

    /// Whether a session is the one with an OST in the table: that one may be gone, or another by now.
    pub(crate) fn is_session_of(&self, index: u16, session: &Arc<Import>) -> bool {
        let known = self.shared.osts.get(index).and_then(|o| o.import);
        known.is_some_and(|i| Arc::ptr_eq(&i, session))
    }

    /// The session follows what configuration and administrator say.
    fn activate_session(&self, index: u16) {
        if let Some(o) = self.shared.osts.get(index) {
            if let Some(i) = &o.import {
                i.set_active(o.configured && o.enabled);
            }
            o.wake.notify_one();
        }
    }

    /// `lctl set_param osp.*.active`: until the next start.
    pub(crate) fn set_ost_enabled(&self, index: u16, on: bool) {
        self.shared.osts.update(index, |o| o.enabled = on);
        self.activate_session(index);
        self.review_osts();
    }
}
