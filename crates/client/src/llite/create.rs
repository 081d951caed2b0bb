//! create: a regular file, opened at once; also without a name (O_TMPFILE).

use super::Names;
use crate::base::Detached;
use crate::mdc::{Mdc, is_read_write};
use crate::stats::Verb;
use crate::{Call, Fs, OpenHandle, R};
use model::{Attr, Errno, Fid, LayoutSpec, SetAttr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::msg::create::{Create, CreateReply, OpenSpec};
use wire::msg::lookup::Entry;
use wire::msg::open::Open;
use world::BoxFuture;

pub const O_WRONLY: u32 = 0o1;
pub const O_ACCMODE: u32 = 0o3;
pub const O_CREAT: u32 = 0o100;
pub const O_EXCL: u32 = 0o200;
pub const O_TRUNC: u32 = 0o1000;
pub const O_NOATIME: u32 = 0o100_0000;
/// Lustre's O_LOV_DELAY_CREATE: the file gets its objects with a later setlayout or with its first write.
const O_LOV_DELAY_CREATE: u32 = 0o1_0000_0000;

/// How often a create is tried again when the file it opened vanished in a server's restart.
const ATTEMPTS: usize = 3;

impl Fs {
    /// `created` false: an existing file was opened (no `exclusive`). O_TRUNC in `flags` cuts it.
    #[allow(clippy::too_many_arguments)]
    pub fn create(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        mode: u32,
        flags: u32,
        layout: Option<LayoutSpec>,
    ) -> BoxFuture<R<(Attr, OpenHandle)>> {
        Box::pin(async move {
            self.run(Verb::Create, self.names.create_named(call, parent, name, mode, flags, layout)).await
        })
    }

    /// A file without a name: gone with its last close unless it is linked before.
    pub fn tmpfile(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        mode: u32,
        flags: u32,
    ) -> BoxFuture<R<(Attr, OpenHandle)>> {
        Box::pin(async move {
            self.run(Verb::Create, self.names.create_named(call, parent, Vec::new(), mode, flags, None)).await
        })
    }
}

impl Names {
    async fn create_named(
        self: &Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        mode: u32,
        flags: u32,
        layout: Option<LayoutSpec>,
    ) -> R<(Attr, OpenHandle)> {
        let mut msg = Create {
            parent,
            exclusive: flags & O_EXCL != 0,
            name,
            fid: Fid::NONE,
            mode: mode & 0o7777,
            umask: call.umask,
            open: Some(OpenSpec { handle: 0, flags, lease: true }),
            layout,
            no_objects: flags & O_LOV_DELAY_CREATE != 0,
        };
        let plain = !msg.name.is_empty() && msg.layout.is_none() && !msg.no_objects;
        let mdc = self.lmv.mdc_of(parent).await?;
        if plain && let Some((e, handle)) = mdc.create_here(&call, &msg, flags).await? {
            return Ok((e.attr.clone(), self.open_file(handle, flags, &e)));
        }
        msg.fid = mdc.fids.next().await?;
        let (fs, late) = (self.clone(), self.clone());
        let work = async move { fs.create_open(&call, &mdc, msg, flags).await };
        Detached::new(&self.cx.world, "client-create", work, move |r: R<(Attr, OpenHandle)>| {
            Box::pin(async move {
                if let Ok((_, f)) = r {
                    late.close_handle(f.fid, f.handle, None).await;
                }
            })
        })
        .await
    }

    async fn create_open(
        self: &Arc<Self>,
        call: &Call,
        mdc: &Arc<Mdc>,
        mut msg: Create,
        flags: u32,
    ) -> R<(Attr, OpenHandle)> {
        let mut attempt = 1;
        let (reply, handle) = loop {
            let handle = self.meta.opens.reserve(msg.fid, flags, &call.cred, self.cx.job_of(call))?;
            msg.open = Some(OpenSpec { handle, flags, lease: true });
            match self.create_once(call, mdc, &msg, handle).await {
                Ok(r) => break (r, handle),
                Err(Errno::ESTALE) if attempt < ATTEMPTS => attempt += 1,
                Err(e) => return Err(e),
            }
        };
        let e = &reply.entry;
        if !reply.created && is_read_write(flags) {
            self.data.no_pages_to_store_into(e.attr.fid).await;
        }
        let attr = if reply.created {
            Ok(e.attr.clone())
        } else if flags & O_TRUNC != 0 {
            self.cut_opened(call, e).await
        } else {
            self.data.full_attr(e).await
        };
        match attr {
            Ok(a) => Ok((a, self.open_file(handle, flags, e))),
            Err(err) => {
                self.close_handle(e.attr.fid, handle, None).await;
                Err(err)
            }
        }
    }

    async fn create_once(
        self: &Arc<Self>,
        call: &Call,
        mdc: &Arc<Mdc>,
        msg: &Create,
        handle: u64,
    ) -> R<CreateReply> {
        let recoveries = mdc.target.recoveries.load(Ordering::SeqCst);
        let change = mdc.making(msg.parent, &msg.name);
        let reply = mdc.target.call(self.cx.of(call), msg.clone()).await;
        change.done_named(msg.parent, &msg.name, &reply.as_ref().map(|r| r.entry.clone()).map_err(|e| *e));
        let reply = match reply {
            Ok(r) => r,
            Err(e) => {
                self.close_handle(msg.fid, handle, None).await;
                return Err(e);
            }
        };
        let e = &reply.entry;
        let leased = reply.created && e.grant.is_some() && e.attr.nlink > 0;
        self.meta.opens.opened(handle, &reply.entry, leased);
        let fid = reply.entry.attr.fid;
        if fid != msg.fid && mdc.target.recoveries.load(Ordering::SeqCst) != recoveries {
            // The server restarted between the open and its reply. What this client reclaimed then did not
            // name the file that was there already, so that it may not know the handle: say it again.
            let open = OpenSpec { handle, lease: false, ..msg.open.clone().expect("creates open") };
            if let Err(e) = mdc.target.call(self.cx.own(), Open { fid, open, data: 0 }).await {
                self.meta.opens.forget(handle);
                return Err(if e == Errno::ENOENT { Errno::ESTALE } else { e });
            }
        }
        Ok(reply)
    }

    /// O_TRUNC of a file that was opened: whether the caller may is decided by the open.
    pub(crate) async fn cut_opened(self: &Arc<Self>, call: &Call, e: &Entry) -> R<Attr> {
        let set = SetAttr { size: Some(0), by_handle: true, ..SetAttr::default() };
        let e = self.data.setattr_entry(self.cx.of(call), e.attr.fid, set).await?;
        self.data.cut(call, &e, 0).await
    }
}
