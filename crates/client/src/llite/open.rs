//! open: keeps a file alive until its close.

use super::Names;
use super::{O_ACCMODE, O_CREAT, O_EXCL, O_TRUNC, O_WRONLY};
use crate::base::Detached;
use crate::mdc::{CONTENT_MAX_BYTES, Came, brought};
use crate::stats::Verb;
use crate::{Call, Fs, OpenHandle, R};
use bytes::Bytes;
use model::{Fid, FileType};
use std::sync::Arc;
use wire::msg::create::OpenSpec;
use wire::msg::lookup::Entry;
use wire::msg::open::Open;
use world::BoxFuture;

impl Fs {
    /// O_TRUNC in `flags` cuts the file.
    pub fn open(self: Arc<Self>, call: Call, fid: Fid, flags: u32) -> BoxFuture<R<OpenHandle>> {
        Box::pin(async move {
            let changes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
            if changes {
                self.cx.writable()?;
            }
            let flags = flags & !(O_CREAT | O_EXCL);
            // What has not begun is not done if the caller goes.
            let open = async {
                if changes {
                    self.cx.writable()?;
                }
                let (fs, late) = (self.clone(), self.clone());
                let work = async move { fs.names.open_handle(&call, fid, flags).await };
                Detached::new(&self.cx.world, "client-open", work, move |r: R<OpenHandle>| {
                    Box::pin(async move {
                        if let Ok(f) = r {
                            late.names.close_handle(f.fid, f.handle, None).await;
                        }
                    })
                })
                .await
            };
            self.run(Verb::Open, open).await
        })
    }
}

impl Names {
    async fn open_handle(self: &Arc<Self>, call: &Call, fid: Fid, flags: u32) -> R<OpenHandle> {
        let handle = self.meta.opens.reserve(fid, flags, &call.cred, self.cx.job_of(call))?;
        if let Some(known) = self.opened_under_lease(call, fid, flags) {
            return self.opened(call, handle, flags, known.map(|e| ((*e).clone(), true)), fid).await;
        }
        let sent = async {
            let reads = flags & O_ACCMODE != O_WRONLY && flags & O_TRUNC == 0;
            let data = if reads { CONTENT_MAX_BYTES as u32 } else { 0 };
            let msg = Open { fid, open: OpenSpec { handle, flags, lease: true }, data };
            let mdc = self.lmv.mdc_of(fid).await?;
            let t = mdc.meta.token();
            let r = mdc.target.call_bulk(self.cx.of(call), msg, Bytes::new()).await?;
            let e = r.reply;
            mdc.meta.keep_file(t, &e, brought(Some(&e), &r.bulk, Came::Asked));
            let leased = e.grant.is_some() && e.attr.nlink > 0;
            Ok((e, leased))
        };
        let r = sent.await;
        self.opened(call, handle, flags, r, fid).await
    }

    /// What an open came to, and whether it is under a lease.
    async fn opened(
        self: &Arc<Self>,
        call: &Call,
        handle: u64,
        flags: u32,
        r: R<(Entry, bool)>,
        fid: Fid,
    ) -> R<OpenHandle> {
        let (e, leased) = match r {
            Ok(r) => r,
            Err(e) => {
                self.close_handle(fid, handle, None).await;
                return Err(e);
            }
        };
        self.meta.opens.opened(handle, &e, leased);
        if crate::mdc::is_read_write(flags) && e.attr.kind == FileType::Regular {
            self.data.no_pages_to_store_into(e.attr.fid).await;
        }
        if flags & O_TRUNC != 0
            && e.attr.kind == FileType::Regular
            && let Err(err) = self.cut_opened(call, &e).await
        {
            self.close_handle(fid, handle, None).await;
            return Err(err);
        }
        Ok(self.open_file(handle, flags, &e))
    }
}
