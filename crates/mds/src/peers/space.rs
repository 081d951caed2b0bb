//! How much space each OST has, asked for every `qos_maxage` seconds: new files' objects go by it, and by how
//! long the OST takes to say it.

use crate::mdt::Mdt;
use crate::settings::seconds;
use model::TargetId;
use rpc::Import;
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::statfs::Statfs;
use world::{Either, select};

impl Mdt {
    /// Asks an OST for its space, until the target stops, or the OST is removed.
    pub(crate) async fn poll_space(self: Arc<Self>, index: u16, import: Arc<Import>) {
        let now = self.world.now();
        self.shared.osts.update(index, |o| o.heard = Some(now));
        while self.is_session_of(index, &import) {
            let now = self.world.now();
            self.shared.osts.update(index, |o| o.pace.asked(now));
            let asked = import.call(RequestContext::default(), Statfs { flags: 0 }, bytes::Bytes::new());
            let mut asked = Box::pin(asked);
            let answer = loop {
                match select(&mut asked, self.stop.pause(self.max_age())).await {
                    Either::Left(answer) => break answer,
                    Either::Right(true) => return,
                    // Who says nothing is passed over at some time.
                    Either::Right(false) => self.review_osts(),
                }
            };
            let now = self.world.now();
            self.shared.osts.update(index, |o| o.pace.answered(now, answer.is_ok()));
            if let Ok(r) = answer {
                self.shared.osts.heard(index, r.reply, now);
            }
            self.review_osts();
            if self.stop.pause(self.max_age()).await {
                return;
            }
        }
    }

    fn max_age(&self) -> std::time::Duration {
        seconds(&self.shared.settings.qos_maxage_s)
    }

    /// Says in the log which OSTs get new objects no more, and which do again.
    pub(crate) fn review_osts(&self) {
        let label = |index| TargetId::ost(index).label(&self.cfg.fsname);
        self.shared.osts.review(self.world.now(), self.max_age(), label);
    }
}
