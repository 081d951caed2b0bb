//! How much space each OST has, asked for every `qos_maxage` seconds: new files' objects go by it.

use crate::mdt::Mdt;
use rpc::Import;
use std::sync::Arc;
use std::time::Duration;
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
                let now = self.world.now();
                self.shared.osts.update(index, |o| (o.space, o.heard) = (Some(r.reply), Some(now)));
            }
            let age = Duration::from_secs(self.shared.params.number("qos_maxage"));
            if self.pause(age).await {
                return;
            }
        }
    }
}
