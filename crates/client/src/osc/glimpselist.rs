//! glimpselist: attributes of many objects of one OST, as far as no other client keeps changes of them.

use super::Osc;
use crate::R;
use model::{Errno, ObjectId};
use std::time::Duration;
use wire::msg::glimpselist::{GLIMPSES_MAX, Glimpsed, Glimpselist};

/// So long an OST that does not know the message is not sent it.
const ASK_AGAIN: Duration = Duration::from_secs(60);

impl Osc {
    /// What this OST says of each object, asked for by layouts of these generations, in the order given; of
    /// objects that it must be asked about properly, [`Glimpsed::Locked`]: all of them if the OST is of an
    /// earlier version. `space`: blocks must be as a glimpse has them.
    pub(crate) async fn glimpse_list(&self, objects: &[(ObjectId, u32)], space: bool) -> R<Vec<Glimpsed>> {
        assert!(objects.len() <= GLIMPSES_MAX, "one message holds them");
        let properly = vec![Glimpsed::Locked; objects.len()];
        let is_old =
            self.without_lists.lock().is_some_and(|since| self.cx.world.now().since(since) < ASK_AGAIN);
        if is_old {
            return Ok(properly);
        }
        let msg = Glimpselist { objects: objects.to_vec(), space };
        let r = match self.target.call(self.cx.own(), msg).await {
            Err(Errno::EOPNOTSUPP) => {
                *self.without_lists.lock() = Some(self.cx.world.now());
                return Ok(properly);
            }
            r => r?,
        };
        if r.objects.len() != objects.len() {
            tracing::error!(
                "{} answered for {} objects of {}",
                self.target.id,
                r.objects.len(),
                objects.len()
            );
            return Err(Errno::EPROTO);
        }
        Ok(r.objects)
    }
}
