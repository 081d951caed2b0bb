//! Limits on space: an object target's share of one may be used up while others have more than they need.
//! Then the metadata target moves some, for whoever has the session with it.

use crate::R;
use model::Errno;
use model::mutex::Mutex;
use model::nodemap::Owner;
use std::collections::BTreeMap;
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use wire::context::LimitsKnown;
use world::{BoxFuture, Instant};

/// How often a request is made again whose share others have used up meanwhile.
const TRIES_MAX: u32 = 100;

/// Asks the metadata target.
pub(crate) trait ShareSource: Send + Sync {
    /// So many bytes more of what this owner may have, on this object target. `EDQUOT`: he has what he may
    /// have.
    fn acquire(&self, owner: Owner, ost: u16, bytes: u64) -> BoxFuture<R<()>>;
    /// Room for so many bytes on an object target that has none, where trash takes it. `ENOSPC`: there is
    /// none.
    fn make_room(&self, ost: u16, bytes: u64) -> BoxFuture<R<()>>;
}

/// So long it is believed that no trash gives way on an object target, unless this mount removes something:
/// what fills a target is many requests, and each would ask.
const NO_TRASH_FOR: Duration = Duration::from_secs(1);

/// Who asks on a mount.
#[derive(Default)]
pub(crate) struct ShareSourceSlot {
    source: OnceLock<Weak<dyn ShareSource>>,
    /// By object target: until when it is taken to have no trash.
    no_trash: Mutex<BTreeMap<u16, Instant>>,
}

impl ShareSourceSlot {
    /// At most once, before the first call.
    pub(crate) fn set(&self, source: Weak<dyn ShareSource>) {
        assert!(self.source.set(source).is_ok(), "a mount has one way to the metadata target");
    }

    /// Nothing there lies in the trash.
    pub(crate) fn no_trash_on(&self, ost: u16, now: Instant) {
        self.no_trash.lock().insert(ost, now.plus(NO_TRASH_FOR));
    }

    /// Whether that was said a moment ago.
    pub(crate) fn has_no_trash(&self, ost: u16, now: Instant) -> bool {
        self.no_trash.lock().get(&ost).is_some_and(|until| now < *until)
    }

    /// This mount removed something, perhaps into the trash.
    pub(crate) fn removed(&self) {
        self.no_trash.lock().clear();
    }

    /// As [`ShareSourceSlot::with_share`], and again with what trash gives up where a target is full.
    pub(crate) async fn with_room<T, F: Future<Output = R<T>>>(
        &self,
        wanted: (Owner, u16, u64),
        mut request: impl FnMut() -> F,
    ) -> R<T> {
        let (_, ost, bytes) = wanted;
        let mut r = self.with_share(wanted, &mut request).await;
        for _ in 0..TRIES_MAX {
            let (Err(Errno::ENOSPC), Some(source)) = (&r, self.source.get().and_then(Weak::upgrade)) else {
                break;
            };
            if let Err(e) = source.make_room(ost, bytes).await {
                tracing::debug!("OST{ost:04x} is full, and no trash gives way: {e}");
                break;
            }
            r = self.with_share(wanted, &mut request).await;
        }
        r
    }

    /// Makes a request, and again with more of what the owner may have where a share is used up.
    async fn with_share<T, F: Future<Output = R<T>>>(
        &self,
        (owner, ost, bytes): (Owner, u16, u64),
        mut request: impl FnMut() -> F,
    ) -> R<T> {
        for _ in 0..TRIES_MAX {
            match request().await {
                Err(Errno::ESHARE) => {}
                r => return r,
            }
            let source = self.source.get().and_then(Weak::upgrade).ok_or(Errno::EDQUOT)?;
            source.acquire(owner, ost, bytes).await?;
        }
        match request().await {
            Err(Errno::ESHARE) => Err(Errno::EDQUOT),
            r => r,
        }
    }
}

/// What a request says of limits: they do not hold root.
pub(crate) fn limits_for(root: bool) -> LimitsKnown {
    if root { LimitsKnown::Exempt } else { LimitsKnown::Acquires }
}
