//! How long a kernel may keep what it was told.

use super::Pages;
use crate::base::cache_holder::CacheHolder;
use crate::llite::data_layout;
use model::{Attr, Fid};
use std::sync::Arc;
use std::time::Duration;

impl Pages<'_> {
    /// At most one, before the first call.
    pub fn set_keeper(&self, k: Arc<dyn CacheHolder>) {
        self.0.cx.cache_holder.set(k);
    }

    /// How long attributes that a call gave may be kept unasked: `None` if they are not under a lease, or no
    /// more what it says. Sizes and times of files with objects never are.
    pub fn inode_kept(&self, a: &Attr) -> Option<Duration> {
        let left = self.lease_left(a.fid)?;
        let e = self.0.lmv.mdc_at(a.fid)?.meta.lock().entry(a.fid, self.0.cx.world.now())?;
        (e.attr.version == a.version && data_layout(&e).is_none()).then_some(left)
    }

    /// How long it may be kept that a name leads to this file, or (`None`) that it is not there.
    pub fn name_kept(&self, dir: Fid, name: &[u8], leads: Option<Fid>) -> Option<Duration> {
        if name.is_empty() || name == b"." || name == b".." {
            return None;
        }
        let left = self.lease_left(dir)?;
        (self.0.lmv.mdc_at(dir)?.meta.lock().name(dir, name, self.0.cx.world.now())? == leads).then_some(left)
    }

    fn lease_left(&self, fid: Fid) -> Option<Duration> {
        let left = self.0.lmv.mdc_at(fid)?.target.import.leases_until().since(self.0.cx.world.now());
        (!left.is_zero()).then_some(left)
    }

    /// A request of the kernel came. True: see to it that processors stay awake ([`Pages::stay_awake`]).
    pub fn request_came(&self) -> bool {
        self.0.pmqos.came(|| self.0.cx.world.now())
    }

    /// Until requests of the kernel come seldom.
    pub async fn stay_awake(&self) {
        self.0.pmqos.hold(&self.0.cx.world).await;
    }
}
