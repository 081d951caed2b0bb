//! Limits on space: an object target's share of one may be used up while others have more than they need.
//! Then the metadata target moves some, for whoever has the session with it.

use crate::R;
use model::nodemap::Owner;
use model::{Cred, Errno};
use std::sync::{OnceLock, Weak};
use wire::context::LimitsKnown;
use world::BoxFuture;

/// How often a request is made again whose share others have used up meanwhile.
const TRIES_MAX: u32 = 100;

/// Asks the metadata target.
pub(crate) trait ShareSource: Send + Sync {
    /// So many bytes more of what this owner may have, on this object target. `EDQUOT`: he has what he may
    /// have.
    fn acquire(&self, owner: Owner, ost: u16, bytes: u64) -> BoxFuture<R<()>>;
}

/// Who asks on a mount.
#[derive(Default)]
pub(crate) struct ShareSourceSlot(OnceLock<Weak<dyn ShareSource>>);

impl ShareSourceSlot {
    /// At most once, before the first call.
    pub(crate) fn set(&self, source: Weak<dyn ShareSource>) {
        assert!(self.0.set(source).is_ok(), "a mount has one way to the metadata target");
    }

    /// After so many tries of a request that came to `r`: whether it is to be made again.
    pub(crate) async fn acquired<T>(
        &self,
        r: &R<T>,
        (owner, ost, bytes): (Owner, u16, u64),
        tries: &mut u32,
    ) -> R<bool> {
        if !matches!(r, Err(Errno::ESHARE)) {
            return Ok(false);
        }
        *tries += 1;
        let source = self.0.get().and_then(Weak::upgrade).filter(|_| *tries <= TRIES_MAX);
        source.ok_or(Errno::EDQUOT)?.acquire(owner, ost, bytes).await?;
        Ok(true)
    }
}

/// What a request says of limits that is made for this user: they do not hold root.
pub(crate) fn limits_for(cred: &Cred) -> LimitsKnown {
    if cred.is_root() { LimitsKnown::Exempt } else { LimitsKnown::Acquires }
}
