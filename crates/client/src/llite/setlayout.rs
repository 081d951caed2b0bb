//! setlayout: stripes of a file without objects, defaults of directories; and asking for them.

use super::Admin;
use super::Data;
use crate::base::Detached;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Errno, Fid, FileType, Layout, LayoutSpec};
use std::sync::Arc;
use wire::msg::getxattr::{DEFAULT_LAYOUT, Getxattr};
use wire::msg::lookup::Entry;
use wire::msg::param::GetParam;
use wire::msg::setlayout::Setlayout;
use wire::{Message, RequestContext};
use world::BoxFuture;

impl Admin<'_> {
    /// `spec` `None` removes a directory's default. `EEXIST` for a file that has objects.
    pub fn setlayout(self, call: Call, fid: Fid, spec: Option<LayoutSpec>) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            if let Some(s) = &spec {
                s.check()?;
            }
            let work = async {
                fs.cx.writable()?;
                fs.data.setlayout_entry(fs.cx.of(&call), Setlayout { fid, spec }).await?;
                Ok(())
            };
            fs.run(Verb::Layout, work).await
        })
    }

    /// Of a regular file, once it has objects.
    pub fn getlayout(self, call: Call, fid: Fid) -> BoxFuture<R<Option<Layout>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.lmv.getattr_entry(fs.cx.of(&call), fid).await?;
                Ok(e.layout.clone().filter(|_| e.attr.kind == FileType::Regular))
            };
            fs.run(Verb::Layout, work).await
        })
    }

    /// So many bytes of a new file lie with its inode, unless it or its directory asks for something; `None`
    /// if the metadata server does not say.
    pub fn default_mdt_bytes(self, dir: Fid) -> BoxFuture<Option<u64>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let msg = GetParam { pattern: "mdt.*.dom_stripesize".to_string() };
                let r = fs.lmv.mdc_of(dir).await?.target.call(fs.cx.own(), msg).await?;
                Ok(r.values.first().and_then(|(_, v)| v.parse().ok()))
            };
            fs.run(Verb::Layout, work).await.unwrap_or(None)
        })
    }

    /// A directory's own default, if it has one; of the root: the file system's.
    pub fn getdefault(self, call: Call, fid: Fid) -> BoxFuture<R<Option<LayoutSpec>>> {
        self.spec_of(call, fid, FileType::Directory)
    }

    /// What a regular file is to get that outgrows its inode; `None` if it has objects, or the metadata
    /// server does not say.
    pub fn grows_into(self, call: Call, fid: Fid) -> BoxFuture<R<Option<LayoutSpec>>> {
        self.spec_of(call, fid, FileType::Regular)
    }

    fn spec_of(self, call: Call, fid: Fid, kind: FileType) -> BoxFuture<R<Option<LayoutSpec>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.lmv.getattr_entry(fs.cx.of(&call), fid).await?;
                if e.attr.kind != kind {
                    return Err(if kind == FileType::Directory { Errno::ENOTDIR } else { Errno::EINVAL });
                }
                let msg = Getxattr { fid, name: DEFAULT_LAYOUT.to_vec() };
                match fs.lmv.mdc_of(fid).await?.target.call(fs.cx.of(&call), msg).await {
                    Ok(r) => wire::message::decode_message(&r.value).map(Some).map_err(|e| {
                        tracing::error!("default layout of {fid}: {e}");
                        Errno::EPROTO
                    }),
                    Err(Errno::ENODATA) => Ok(None),
                    Err(e) => Err(e),
                }
            };
            fs.run(Verb::Layout, work).await
        })
    }
}

/// Has the metadata server change a file's layout while it is in use; the layout afterwards. Goes on to its
/// end if the caller stops waiting.
pub(crate) async fn change_layout<M>(fs: Arc<Fs>, call: &Call, fid: Fid, msg: M) -> R<Layout>
where
    M: Message<Reply = Entry> + Send + 'static,
{
    let (here, ctx) = (fs.clone(), fs.cx.of(call));
    let work = async move {
        let mdc = here.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        let r = mdc.target.call(ctx, msg).await;
        change.done_with(&r);
        here.meta.opens.learn_layout(fid, r)
    };
    // What has not begun is not done if the caller goes.
    let begun = async {
        fs.cx.writable()?;
        Detached::plain(&fs.cx.world, "client-layout", work).await
    };
    fs.run(Verb::Layout, begun).await
}

impl Data {
    pub(crate) async fn setlayout_entry(self: &Arc<Self>, ctx: RequestContext, msg: Setlayout) -> R<Entry> {
        let fid = msg.fid;
        let mdc = self.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        let r = mdc.target.call(ctx, msg).await;
        // Also if it is not known what came of it.
        mdc.meta.with_cache(|c, _| c.forget_new_files(fid));
        change.done_with(&r);
        let e = r?;
        self.meta.opens.learn(&e);
        Ok(e)
    }
}
