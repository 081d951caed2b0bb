//! Fetching ahead: when the names of a directory are looked up one after the other, the whole directory is
//! fetched in pages, with attributes, behind the back of those lookups. In growing pieces, so that a few
//! lookups in a large directory do not fetch all of it.

use super::meta_cache::MetaCache;
use model::Fid;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::msg::readdir::Readdir;
use wire::trailing::Trailing;

/// Bytes of one page.
const PAGE_BYTES: u32 = 1 << 20;

impl MetaCache {
    /// A lookup in `dir` had to ask the server.
    pub(super) fn consider_fetching_ahead(self: &Arc<Self>, dir: Fid) {
        let max = self.shared.statahead_max.load(Relaxed) as usize;
        let Some((cookie, entries)) = self.lock().nodes.missed(dir, max) else { return };
        self.shared.ahead_runs.fetch_add(1, Relaxed);
        let me = self.clone();
        self.cx.world.spawn("client-statahead", async move {
            let (cookie, end) = me.fetch_ahead(dir, cookie, entries).await;
            me.lock().nodes.ahead_done(dir, cookie, end);
        });
    }

    /// Returns how far it came, and whether there is no use in going on.
    async fn fetch_ahead(self: &Arc<Self>, dir: Fid, mut cookie: u64, entries: usize) -> (u64, bool) {
        let mut fetched = 0;
        while fetched < entries {
            let t = self.token();
            let msg =
                Readdir { fid: dir, cookie, max_bytes: PAGE_BYTES, plus: true, grows_into: Trailing(None) };
            let Ok(r) = self.target.call(self.cx.own(), msg).await else { return (cookie, true) };
            self.keep_page(t, dir, cookie, &r);
            self.shared.fetched_ahead.fetch_add(r.entries.len() as u64, Relaxed);
            fetched += r.entries.len();
            if let Some(last) = r.entries.last() {
                cookie = last.cookie;
            }
            // Without a lease nothing was kept: others change the directory.
            if r.grant.is_none() {
                self.shared.ahead_in_vain.fetch_add(1, Relaxed);
            }
            if r.end || r.entries.is_empty() || r.grant.is_none() {
                return (cookie, true);
            }
        }
        (cookie, false)
    }
}
