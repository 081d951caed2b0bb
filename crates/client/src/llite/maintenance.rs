//! Maintenance of the file system as this mount takes part in it (decision 0079).

use crate::base::Context;
use crate::base::errseq::ErrorMark;
use crate::lmv::Lmv;
use crate::lov::Lov;
use crate::{Admin, CancelOnDrop, Fs};
use model::maintenance::{Maintenance, Mode};
use model::planted::{self, Bug};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use world::future::join_all;
use world::sync::oneshot;

/// Writing back that failed is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes over what is ordered. What was kept here when changes end goes to the servers.
pub(super) fn maintained(fs: &Fs, m: Maintenance) {
    let before = fs.cx.told.mark();
    take_order(fs, before, fs.cx.hold.set(m));
}

/// `before`: what was lost earlier was lost without it.
fn take_order(fs: &Fs, before: ErrorMark, order: Option<u64>) {
    if fs.cx.hold.is_unsaid() {
        // The MGS is told with the next question for the configuration.
        fs.lmv.config_changed();
    }
    let Some(order) = order else { return };
    let (m, held) = (fs.cx.hold.maintenance(), fs.cx.hold.held());
    if held == Mode::Off {
        tracing::warn!("{}: its maintenance is over for this mount", fs.cx.opt.fsname);
        return;
    }
    tracing::warn!("{} is {}; {}", fs.cx.opt.fsname, m.sentence(), m.consequence());
    let leave = Leave { cx: fs.cx.clone(), lov: fs.lov.clone(), lmv: fs.lmv.clone(), order, before };
    fs.cx.world.spawn("client-maintenance", async move { leave.run().await });
}

/// A mount on its way to where it changes nothing any more.
struct Leave {
    cx: Arc<Context>,
    lov: Arc<Lov>,
    lmv: Arc<Lmv>,
    order: u64,
    before: ErrorMark,
}

impl Leave {
    async fn run(self) {
        let mut swept = Vec::new();
        let small: Vec<_> = self.lmv.mdcs().iter().flat_map(|m| m.meta.mapped.idle()).collect();
        for fid in self.lov.fids().into_iter().chain(small) {
            let (word, over) = oneshot::channel();
            let all = vec![(0, u64::MAX)];
            self.cx.cache_holder.forget_pages(fid, all, CancelOnDrop::new(move || drop(word)));
            swept.push(over);
        }
        for over in swept {
            let _: std::result::Result<(), _> = over.await;
        }
        // Tried again below, however it ends.
        let mut known = self.write_back(0).await.unwrap_or_default();
        self.cx.hold.settle(self.order);
        // What was begun before may go on for as long as a server is away, and keep something here at last.
        if !planted::on(Bug::MaintenanceQuietEarly) {
            if !self.cx.hold.changes_over(self.order).await {
                return;
            }
            join_all(self.lmv.all_targets().iter().map(|t| t.import.changes_drained()).collect()).await;
        }
        while let Err(lost) = self.write_back(known).await {
            known = lost;
            self.cx.world.sleep(AGAIN).await;
            if self.cx.is_closed() || !self.cx.hold.is_last(self.order) {
                return;
            }
        }
        self.cx.hold.be_quiet(self.order);
        self.lmv.config_changed();
    }

    /// What this mount keeps goes to the servers. How much is lost by now: an error if that is not as much as
    /// was known to be, or if something may be left.
    async fn write_back(&self, known: u64) -> std::result::Result<u64, u64> {
        let flushed = self.lov.cache.flush_now().await;
        self.lmv.tell_pending_durably().await;
        let lost = self.cx.told.count_since(self.before);
        let why = match flushed {
            Ok(()) if lost == known => return Ok(lost),
            Ok(()) => {
                format!("what was kept could not all be written back (errors: {lost}); it is tried again")
            }
            Err(e) => format!("what was kept could not be written back ({e}); it is tried again"),
        };
        tracing::warn!("{}: before its maintenance {why}", self.cx.opt.fsname);
        self.cx.hold.fails(self.order, why, lost);
        self.lmv.config_changed();
        Err(lost)
    }
}

impl Admin<'_> {
    /// The addresses of this host, by which a maintenance may leave it alone.
    pub fn set_own_addresses(self, own: Vec<IpAddr>) {
        let before = self.0.cx.told.mark();
        take_order(self.0, before, self.0.cx.hold.set_own(own));
    }
}
