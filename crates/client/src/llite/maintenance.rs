//! Maintenance of the file system as this mount takes part in it (decision 0079).

use crate::base::Context;
use crate::lmv::Lmv;
use crate::lov::Lov;
use crate::{Admin, CancelOnDrop, Fs};
use model::maintenance::{Maintenance, Mode};
use model::planted::{self, Bug};
use std::net::IpAddr;
use world::future::join_all;
use world::sync::oneshot;

/// Takes over what is ordered. What was kept here when changes end goes to the servers.
pub(super) fn maintained(fs: &Fs, m: Maintenance) {
    take_order(fs, fs.cx.hold.set(m));
}

fn take_order(fs: &Fs, order: Option<u64>) {
    let Some(order) = order else { return };
    let (m, held) = (fs.cx.hold.maintenance(), fs.cx.hold.held());
    if held == Mode::Off {
        tracing::warn!("{}: its maintenance is over for this mount", fs.cx.opt.fsname);
        return;
    }
    tracing::warn!("{} is {}; {}", fs.cx.opt.fsname, m.sentence(), m.consequence());
    let (cx, lov, lmv) = (fs.cx.clone(), fs.lov.clone(), fs.lmv.clone());
    fs.cx.world.spawn("client-maintenance", async move {
        let mut swept = Vec::new();
        let small: Vec<_> = lmv.mdcs().iter().flat_map(|m| m.meta.mapped.idle()).collect();
        for fid in lov.fids().into_iter().chain(small) {
            let (word, over) = oneshot::channel();
            cx.cache_holder.forget_pages(fid, vec![(0, u64::MAX)], CancelOnDrop::new(move || drop(word)));
            swept.push(over);
        }
        for over in swept {
            let _: std::result::Result<(), _> = over.await;
        }
        write_back(&cx, &lov, &lmv).await;
        cx.hold.settle(order);
        // What was begun before may go on for as long as a server is away, and keep something here at last.
        if !planted::on(Bug::MaintenanceQuietEarly) {
            if !cx.hold.changes_over(order).await {
                return;
            }
            join_all(lmv.all_targets().iter().map(|t| t.import.changes_drained()).collect()).await;
        }
        write_back(&cx, &lov, &lmv).await;
        cx.hold.be_quiet(order);
    });
}

/// What this mount keeps goes to the servers.
async fn write_back(cx: &Context, lov: &Lov, lmv: &Lmv) {
    if let Err(e) = lov.cache.flush_now().await {
        tracing::warn!("{}: not everything could be written before its maintenance: {e}", cx.opt.fsname);
    }
    lmv.tell_pending_durably().await;
}

impl Admin<'_> {
    /// The addresses of this host, by which a maintenance may leave it alone.
    pub fn set_own_addresses(self, own: Vec<IpAddr>) {
        let order = self.0.cx.hold.set_own(own);
        take_order(self.0, order);
    }
}
