//! instantiate: a component of a file gets its objects, because somebody is about to write there first.

use crate::base::Context;
use crate::lmv::Lmv;
use crate::lov::LayoutHolder;
use crate::mdc::{self, FileState};
use crate::{BoxFutureOf, R};
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use wire::msg::getattr::Getattr;
use wire::msg::instantiate::Instantiate;

/// Layouts that change under files in use: whether a file still has the one by which it is used, and objects
/// for more of it.
pub(crate) struct Layouts {
    lmv: Arc<Lmv>,
    meta: Arc<mdc::Shared>,
    cx: Arc<Context>,
}

impl LayoutHolder for Layouts {
    fn confirm<'a>(&'a self, fid: Fid, layout: &'a Layout) -> BoxFutureOf<'a, R<()>> {
        Box::pin(async move {
            let mdc = self.lmv.mdc_of(fid).await?;
            let is_it = |l: &Layout| l.generation == layout.generation;
            // While the lease is good, a layout that was newer would be known.
            if mdc.meta.leases_good() && mdc.meta.layout_is_leased(fid, layout.generation) {
                return Ok(());
            }
            // Past what is kept: nothing may be kept of it at the moment.
            let e = mdc.target.call(self.cx.own(), Getattr { fid }).await?;
            self.meta.opens.learn(&e);
            if e.layout.as_ref().is_some_and(is_it) { Ok(()) } else { Err(Errno::ERELAYOUT) }
        })
    }
}

impl Layouts {
    pub(crate) fn new(lmv: &Arc<Lmv>, meta: &Arc<mdc::Shared>, cx: &Arc<Context>) -> Arc<Layouts> {
        Arc::new(Layouts { lmv: lmv.clone(), meta: meta.clone(), cx: cx.clone() })
    }

    /// All of `start..end` has objects afterwards. Whether the caller may write was decided when the file was
    /// opened, so this is asked in the client's own name. `ENODATA` behind the last component, `ENOSPC` if no
    /// OST takes objects.
    pub(crate) async fn instantiate(
        &self,
        fid: Fid,
        (start, end): (u64, u64),
    ) -> R<(FileState, Arc<Layout>)> {
        assert!(start < end, "objects are for bytes");
        let mdc = self.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        let r = mdc.target.call(self.cx.own(), Instantiate { fid, start, end }).await;
        change.done_with(&r);
        let e = r?;
        self.meta.opens.learn(&e);
        let state = FileState::of(&e);
        match state.layout.clone() {
            Some(l) if l.check_range(start, end).is_ok() => Ok((state, l)),
            _ => {
                tracing::error!("the metadata server gave {fid} no objects for {start}..{end}");
                Err(Errno::EPROTO)
            }
        }
    }

    /// A file's state and layout, by which `start..end` has objects.
    pub(crate) async fn with_objects(
        &self,
        fid: Fid,
        known: (FileState, Arc<Layout>),
        (start, end): (u64, u64),
    ) -> R<(FileState, Arc<Layout>)> {
        match known.1.check_range(start, end) {
            Err(Errno::EUNINIT) => self.instantiate(fid, (start, end)).await,
            r => r.map(|()| known),
        }
    }
}
