//! How much space each OST has, asked for every `qos_maxage` seconds: new files' objects go by it.

use crate::mdt::Mdt;
use crate::settings::seconds;
use model::TargetId;
use rpc::Import;
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::statfs::Statfs;

impl Mdt {
    /// Asks an OST for its space, until the target stops.
    pub(crate) async fn poll_space(self: Arc<Self>, index: u16, import: Arc<Import>) {
        let now = self.world.now();
        self.shared.osts.update(index, |o| o.heard = Some(now));
        loop {
            let r = import.call(RequestContext::default(), Statfs { flags: 0 }, bytes::Bytes::new()).await;
            if let Ok(r) = r {
                let label = TargetId::ost(index).label(&self.cfg.fsname);
                self.shared.osts.heard(index, &label, r.reply, self.world.now());
            }
            let age = seconds(&self.shared.settings.qos_maxage_s);
            if self.stop.pause(age).await {
                return;
            }
        }
    }
}
