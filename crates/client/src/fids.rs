//! FIDs for new files, from sequences that metadata targets lease to this client.

use crate::{Fs, R};
use model::Fid;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use world::sync;

#[derive(Clone, Copy)]
struct Lease {
    seq: u64,
    next: u32,
    width: u32,
}

#[derive(Default)]
struct Leases {
    current: Option<Lease>,
    spare: Option<Lease>,
    fetching: bool,
    /// Grows when the server forgot this client: a lease asked for before is of no use.
    generation: u64,
}

impl Leases {
    fn take(&mut self) -> Option<(Fid, bool)> {
        if self.current.is_none_or(|l| l.next > l.width) {
            self.current = self.spare.take();
        }
        let l = self.current.as_mut()?;
        let fid = Fid::new(l.seq, l.next, 0);
        l.next += 1;
        let low = self.spare.is_none() && !self.fetching && l.width - (l.next - 1) < l.width / 4 + 1;
        Some((fid, low))
    }
}

#[derive(Default)]
struct OfMdt {
    leases: Mutex<Leases>,
    /// One at a time asks for the next sequence.
    ask: sync::Mutex<()>,
}

/// The leases, by MDT.
pub(crate) struct Fids {
    mdts: Mutex<BTreeMap<u16, Arc<OfMdt>>>,
}

impl Fids {
    pub(crate) fn new() -> Fids {
        Fids { mdts: Mutex::new(BTreeMap::new()) }
    }

    fn of(&self, mdt: u16) -> Arc<OfMdt> {
        self.mdts.lock().expect("no panic while locked").entry(mdt).or_default().clone()
    }

    /// The server evicted this client and took its sequences back.
    pub(crate) fn forget(&self, mdt: u16) {
        let of = self.of(mdt);
        let mut l = of.leases.lock().expect("no panic while locked");
        *l = Leases { generation: l.generation + 1, fetching: l.fetching, ..Leases::default() };
    }
}

impl Fs {
    /// A FID never used before, on the MDT of the directory that the new file will be in.
    pub(crate) async fn new_fid(self: &Arc<Self>, parent: Fid) -> R<Fid> {
        loop {
            match self.fid_at_hand(parent) {
                Some(fid) => return Ok(fid),
                None => self.more_fids(parent).await?,
            }
        }
    }

    /// As [`Fs::new_fid`], if there is one without asking.
    pub(crate) fn fid_at_hand(self: &Arc<Self>, parent: Fid) -> Option<Fid> {
        let mdt = self.locate.mdt_of(parent);
        let of = self.fids.of(mdt);
        let taken = of.leases.lock().expect("no panic while locked").take();
        let (fid, low) = taken?;
        if low {
            self.prefetch_lease(mdt, &of);
        }
        Some(fid)
    }

    /// Asks for a sequence.
    pub(crate) async fn more_fids(self: &Arc<Self>, parent: Fid) -> R<()> {
        let mdt = self.locate.mdt_of(parent);
        self.fetch_lease(mdt, &self.fids.of(mdt)).await
    }

    /// The first lease, so that the first create finds one.
    pub(crate) async fn lease_for_root(self: &Arc<Self>) -> R<()> {
        let mdt = self.locate.mdt_of(Fid::ROOT);
        self.fetch_lease(mdt, &self.fids.of(mdt)).await
    }

    fn prefetch_lease(self: &Arc<Self>, mdt: u16, of: &Arc<OfMdt>) {
        {
            let mut l = of.leases.lock().expect("no panic while locked");
            if l.fetching {
                return;
            }
            l.fetching = true;
        }
        let (fs, of) = (self.clone(), of.clone());
        self.cx.world.spawn("client-fid-lease", async move {
            if let Err(e) = fs.fetch_lease(mdt, &of).await {
                tracing::warn!("no new FID sequence from MDT{mdt:04x}: {e}");
            }
            of.leases.lock().expect("no panic while locked").fetching = false;
        });
    }

    /// Gets one more sequence, unless another caller just did.
    async fn fetch_lease(self: &Arc<Self>, mdt: u16, of: &OfMdt) -> R<()> {
        let _one = of.ask.lock().await;
        let generation = {
            let l = of.leases.lock().expect("no panic while locked");
            if l.spare.is_some() {
                return Ok(());
            }
            l.generation
        };
        let r = self.allocseq(mdt).await?;
        self.locate.learn(r.seq, r.seq, mdt);
        let mut l = of.leases.lock().expect("no panic while locked");
        if l.generation == generation {
            l.spare = Some(Lease { seq: r.seq, next: 1, width: r.width });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_lease_follows_the_first() {
        let mut l = Leases { current: Some(Lease { seq: 7, next: 1, width: 8 }), ..Leases::default() };
        let mut asked = None;
        for i in 1..=8 {
            let (fid, low) = l.take().unwrap();
            assert_eq!(fid, Fid::new(7, i, 0));
            if low && asked.is_none() {
                asked = Some(i);
            }
        }
        assert_eq!(asked, Some(6), "asked for the next before the last quarter is used up");
        assert!(l.take().is_none());
        l.spare = Some(Lease { seq: 9, next: 1, width: 8 });
        assert_eq!(l.take().unwrap().0, Fid::new(9, 1, 0));
    }
}
