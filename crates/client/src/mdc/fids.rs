//! FIDs for new files, from sequences that metadata targets lease to this client.

use super::Locate;
use crate::R;
use crate::base::Context;
use crate::session::Target;
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::allocseq::{Allocseq, AllocseqReply};
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
        assert!((1..=l.width).contains(&l.next), "a FID is of the sequence that was leased");
        let fid = Fid::new(l.seq, l.next, 0);
        l.next += 1;
        let low = self.spare.is_none() && !self.fetching && l.width - (l.next - 1) < l.width / 4 + 1;
        Some((fid, low))
    }
}

/// Sequences that one metadata target leased to this client.
pub(crate) struct Fids {
    cx: Arc<Context>,
    target: Arc<Target>,
    locate: Arc<Locate>,
    leases: Mutex<Leases>,
    /// One at a time asks for the next sequence.
    ask: sync::Mutex<()>,
}

impl Fids {
    /// None yet: the first is asked for when a FID is needed.
    pub(super) fn new(cx: &Arc<Context>, target: &Arc<Target>, locate: &Arc<Locate>) -> Arc<Fids> {
        Arc::new(Fids {
            cx: cx.clone(),
            target: target.clone(),
            locate: locate.clone(),
            leases: Mutex::default(),
            ask: sync::Mutex::default(),
        })
    }

    /// The server evicted this client and took its sequences back.
    pub(super) fn forget(&self) {
        let mut l = self.leases.lock();
        *l = Leases { generation: l.generation + 1, fetching: l.fetching, ..Leases::default() };
    }

    /// A FID never used before.
    pub(crate) async fn next(self: &Arc<Self>) -> R<Fid> {
        loop {
            match self.at_hand() {
                Some(fid) => return Ok(fid),
                None => self.more().await?,
            }
        }
    }

    /// As [`Fids::next`], if there is one without asking.
    pub(super) fn at_hand(self: &Arc<Self>) -> Option<Fid> {
        let taken = self.leases.lock().take();
        let (fid, low) = taken?;
        if low {
            self.prefetch();
        }
        Some(fid)
    }

    fn prefetch(self: &Arc<Self>) {
        {
            let mut l = self.leases.lock();
            if l.fetching {
                return;
            }
            l.fetching = true;
        }
        let me = self.clone();
        self.cx.world.spawn("client-fid-lease", async move {
            if let Err(e) = me.more().await {
                tracing::warn!("no new FID sequence from {}: {e}", me.target.id);
            }
            me.leases.lock().fetching = false;
        });
    }

    /// Gets one more sequence, unless another caller just did.
    pub(crate) async fn more(&self) -> R<()> {
        let _one = self.ask.lock().await;
        let generation = {
            let l = self.leases.lock();
            if l.spare.is_some() {
                return Ok(());
            }
            l.generation
        };
        let r = self.allocseq().await?;
        self.locate.learn(r.seq, r.seq, self.target.id.index);
        let mut l = self.leases.lock();
        if l.generation == generation {
            assert!(l.spare.is_none(), "one asks for FIDs at a time");
            l.spare = Some(Lease { seq: r.seq, next: 1, width: r.width });
        }
        Ok(())
    }

    async fn allocseq(&self) -> R<AllocseqReply> {
        let r = self.target.call(self.cx.own(), Allocseq { kind: 0 }).await?;
        if r.width == 0 || r.seq < model::fid::SEQ_NORMAL || r.width > model::fid::SEQ_WIDTH {
            let (seq, width) = (r.seq, r.width);
            tracing::error!("{} leased an impossible FID sequence {seq:#x} of {width} ids", self.target.id);
            return Err(Errno::EPROTO);
        }
        Ok(r)
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
