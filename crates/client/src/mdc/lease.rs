//! Leases that go: asked for back, given up unasked, grown old. What was executed under them is told first
//! (`untold`).

use super::mapped;
use super::meta_cache::MetaCache;
use super::opens::Opens;
use crate::base::cache_holder::{CancelOnDrop, Revoked};
use crate::session::Target;
use model::Fid;
use model::limits::LEASES_PER_CLIENT_MAX_FILES;
use model::planted::{self, Bug};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::msg::lookup::bits;
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notice};

impl MetaCache {
    /// What the server asked for, everything that was executed under it being told: goes, or becomes shared.
    pub(super) fn let_go_of(&self, items: &[LeaseItem]) {
        let (mut down, mut gone) = (Vec::new(), Vec::new());
        {
            let mut c = self.lock();
            for i in items {
                if i.look && c.give_down(i) {
                    down.push(*i);
                } else {
                    gone.push(c.revoke(i, self.shared.opens.is_open(i.fid)));
                }
            }
        }
        if !down.is_empty() {
            self.cancel_leases(&down);
        }
        if !gone.is_empty() {
            self.let_go(gone);
        }
    }

    pub(super) fn cancel_leases(&self, items: &[LeaseItem]) {
        cancel(&self.shared.opens, &self.target, items);
    }

    /// Tells the server that these are not used any more, when the cache holder does not use them either.
    fn let_go(&self, items: Vec<LeaseItem>) {
        let Some(k) = self.cx.cache_holder.get() else {
            return self.cancel_leases(&items);
        };
        let (opens, t) = (self.shared.opens.clone(), self.target.clone());
        let of = |i: &LeaseItem| Revoked {
            fid: i.fid,
            names: i.bits & bits::LOOKUP != 0,
            inode: i.bits & bits::UPDATE != 0,
        };
        let inodes = items.iter().filter(|i| i.bits & bits::UPDATE != 0).map(|i| i.fid);
        let sweeps = self.mapped.begin_sweeps(inodes);
        let lapsed = items.iter().map(of).collect();
        let leave = CancelOnDrop::new(move || cancel(&opens, &t, &items));
        if sweeps.is_empty() {
            return k.lapsed(lapsed, leave);
        }
        let k = k.clone();
        self.cx.world.spawn("client-leave", async move {
            mapped::swept(sweeps).await;
            k.lapsed(lapsed, leave);
        });
    }

    /// Leases that this mount does not use any more.
    pub(crate) fn give_back(&self, items: Vec<LeaseItem>) {
        if !items.is_empty() {
            self.let_go(items);
        }
    }

    /// `lru_size`: how many files are kept. 0: none but what is in use at the moment.
    pub(crate) fn set_lru_files(&self, files: usize) {
        self.with_cache(|c, _| c.max_files = files.min(LEASES_PER_CLIENT_MAX_FILES / 2));
    }

    /// Pages under leases that may be lost by now are given up.
    pub(crate) fn sweep_unsure(&self) {
        let unsure = self.mapped.idle().into_iter().filter(|_| !self.leases_good());
        drop(self.mapped.begin_sweeps(unsure));
    }

    /// Gives leases back that were not used for `lru_max_age`.
    pub(crate) fn give_back_aged(&self) {
        let age = Duration::from_millis(self.shared.max_age.load(Relaxed));
        let back = self.lock().expire(self.cx.world.now(), age);
        self.give_back(back);
    }
}

/// Gives leases back, and says before that what is open under them.
fn cancel(opens: &Opens, mdt: &Target, items: &[LeaseItem]) {
    for part in items.chunks(LEASE_ITEMS_MAX) {
        // A shared lease keeps an open file, too.
        let inodes = part.iter().filter(|i| i.bits & bits::UPDATE != 0 && !i.look).map(|i| i.fid);
        tell_opens(opens, mdt, inodes);
        mdt.import.notice(&Notice::Cancelled { items: part.to_vec() });
    }
}

/// Says what is open of files whose leases do not say so any more.
pub(crate) fn tell_opens(opens: &Opens, mdt: &Target, fids: impl Iterator<Item = Fid>) {
    opens.tell(fids, |all| {
        let all = if planted::on(Bug::OpenNotTold) { &[][..] } else { &all[..] };
        for some in all.chunks(LEASE_ITEMS_MAX) {
            mdt.import.notice(&Notice::Opened { opens: some.to_vec() });
        }
    });
}
