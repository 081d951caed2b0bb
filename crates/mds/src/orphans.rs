//! Files without names: they live while they are open. After a restart, once the clients have said what they
//! have open, the others go.

use crate::mdt::Mdt;
use crate::schema::key;
use crate::tx::Tx;
use crate::walk::PAGE;
use std::sync::Arc;

/// Files that one transaction removes.
const PURGE_AT_ONCE: usize = 100;

impl Mdt {
    /// Removes every orphan that nobody has open.
    pub(crate) async fn purge_orphans(self: Arc<Self>) {
        let mut from = vec![key::ORPHAN];
        let mut purged = 0;
        loop {
            let page = match self.db.scan(&from, &[key::ORPHAN + 1], PAGE) {
                Ok(page) => page,
                Err(e) => return tracing::error!("looking for orphans failed: {e}"),
            };
            for part in page.chunks(PURGE_AT_ONCE) {
                let mut some = 0;
                let work = |tx: &mut Tx| {
                    some = 0;
                    for (k, _) in part {
                        let Some(fid) = key::parse_fid(k) else { continue };
                        if tx.open_count(fid) == 0 && tx.orphan(fid)?.is_some() {
                            tx.purge(fid)?;
                            some += 1;
                        }
                    }
                    Ok(Vec::new())
                };
                let done = self.transactions.transact(None, work).await;
                purged += some;
                if let Err(e) = done.result {
                    return tracing::error!("removing orphans failed: {e}");
                }
                // Not more in memory than the journal has taken.
                if self.db.durable(done.wait).await.is_err() || self.stop.is_begun() {
                    return;
                }
            }
            match page.last() {
                Some((k, _)) if page.len() == PAGE => {
                    from.clone_from(k);
                    from.push(0);
                }
                _ => break,
            }
        }
        if purged > 0 {
            tracing::info!("removed {purged} files that had no name and were not open");
        }
    }
}
