//! Leases that go: asked for back, given up unasked, grown old.

use super::Mdc;
use super::mapped;
use super::opens::Opens;
use crate::base::cache_holder::{CancelOnDrop, Revoked};
use crate::session::Target;
use model::Fid;
use model::limits::LEASES_PER_CLIENT_MAX_FILES;
use model::planted::{self, Bug};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::msg::lookup::bits;
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notice};

impl Mdc {
    /// The server needs these leases for another client.
    pub(crate) fn leases_revoked(self: &Arc<Self>, items: &[LeaseItem]) {
        self.shared.revoked.fetch_add(items.len() as u64, Relaxed);
        if planted::on(Bug::CancelBeforeInvalidate) {
            self.cancel_leases(items);
            let (me, items) = (self.clone(), items.to_vec());
            self.cx.world.spawn("client-late", async move {
                me.cx.world.sleep(Duration::from_millis(3)).await;
                for i in &items {
                    let _ = me.meta.lock().revoke(i, false);
                }
            });
            return;
        }
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        let end = {
            let (now, mut c) = (self.cx.world.now(), self.meta.lock());
            let early = planted::on(Bug::LeaseBeforePending);
            for i in items {
                if c.is_exclusive(i) {
                    c.leave(i, now);
                    if c.log.is_empty() || early { &mut at_once } else { &mut later }.push(*i);
                } else {
                    at_once.push(*i);
                }
            }
            c.log.end()
        };
        self.let_go_of(&at_once);
        if !later.is_empty() {
            let me = self.clone();
            self.cx.world.spawn("client-tell-and-leave", async move {
                me.pending_over(end).await;
                me.let_go_of(&later);
            });
        }
    }

    /// What the server asked for, everything that was executed under it being told: goes, or becomes shared.
    fn let_go_of(&self, items: &[LeaseItem]) {
        let (mut down, mut gone) = (Vec::new(), Vec::new());
        {
            let mut c = self.meta.lock();
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

    fn cancel_leases(&self, items: &[LeaseItem]) {
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
        let sweeps = self.sweep_leases(inodes);
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

    /// Gives every lease back, those under which something was executed that is not sent as soon as it is.
    pub(crate) fn drop_leases(&self) {
        let now = self.cx.world.now();
        let back = {
            let mut c = self.meta.lock();
            // In one step: what is told in between would keep its lease for good.
            self.untold.drop_once_told(&c.log);
            c.expire(now, Duration::ZERO)
        };
        self.give_back(back);
    }

    /// Gives leases back that were not used for `lru_max_age`.
    pub(crate) fn give_back_aged(&self) {
        let age = Duration::from_millis(self.shared.max_age.load(Relaxed));
        let back = self.meta.lock().expire(self.cx.world.now(), age);
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
