//! fetch: files with their data, as far as that lies with their inodes.

use super::small::SmallFiles;
use crate::R;
use crate::mdc::{CONTENT_MAX_BYTES, Came};
use bytes::Bytes;
use model::limits::FETCH_MAX_BYTES;
use model::{Errno, Fid};
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::fetch::Fetch;
use wire::msg::lookup::Entry;

/// A file that is there, and its data if it came along.
pub(crate) type Fetched = Option<(Entry, Option<Bytes>)>;

impl SmallFiles {
    /// Files of one metadata target; what may be kept is. Answers for the first of them: as many as there was
    /// room for.
    pub(crate) async fn fetch_files(
        self: &Arc<Self>,
        ctx: RequestContext,
        fids: &[Fid],
        came: Came,
    ) -> R<Vec<Fetched>> {
        let t = self.meta.token();
        let (data, max_bytes) = (CONTENT_MAX_BYTES as u32, FETCH_MAX_BYTES as u32);
        let msg = Fetch { fids: fids.to_vec(), data, max_bytes };
        let r = self.target.call_bulk(ctx, msg, Bytes::new()).await?;
        let files = split(fids, r.reply.entries, &r.bulk).inspect_err(|_| {
            tracing::error!("{}: the answer to a fetch of {} files is not sound", self.target.id, fids.len());
        })?;
        for (e, data) in files.iter().flatten() {
            self.meta.keep_file(t, e, data.clone().map(|d| (d, came)));
            self.shared.opens.learn(e);
        }
        Ok(files)
    }
}

/// Gives each file its part of the bulk.
fn split(fids: &[Fid], entries: Vec<Option<Entry>>, bulk: &Bytes) -> R<Vec<Fetched>> {
    if entries.is_empty() || entries.len() > fids.len() {
        return Err(Errno::EPROTO);
    }
    let alone = entries.len() == 1;
    let mut at = 0;
    let mut out = Vec::with_capacity(entries.len());
    for (e, fid) in entries.into_iter().zip(fids) {
        let Some(e) = e else {
            out.push(None);
            continue;
        };
        if e.attr.fid != *fid {
            return Err(Errno::EPROTO);
        }
        let data = match e.content {
            Some(n) => {
                let end = at + n as usize;
                let part = bulk.get(at..end).ok_or(Errno::EPROTO)?;
                // A part would keep all of the answer in memory.
                let part = if alone { bulk.slice(at..end) } else { Bytes::copy_from_slice(part) };
                at = end;
                Some(part)
            }
            None => None,
        };
        out.push(Some((e, data)));
    }
    if at == bulk.len() { Ok(out) } else { Err(Errno::EPROTO) }
}
