//! Files with objects, for the operations: opened in `lov` with the OSCs that their layout names.

use super::beside::Writing;
use super::instantiate::Layouts;
use super::locks::FileLocks;
use crate::base::Context;
use crate::lmv::Lmv;
use crate::lov::{File, Lov, cacheable, content_share};
use crate::mdc;
use crate::{Call, R};
use model::{Fid, Layout, ObjectAttr, ObjectId, Set};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::RequestContext;

/// What operations on the contents of files share: where they lie, what is kept of them, who is kept off.
pub(crate) struct Data {
    pub cx: Arc<Context>,
    pub lmv: Arc<Lmv>,
    pub meta: Arc<mdc::Shared>,
    pub lov: Arc<Lov>,
    pub locks: Arc<FileLocks>,
    /// Writes beside which pages may be filled.
    pub writing: Writing,
    pub layouts: Arc<Layouts>,
}

impl Data {
    pub(crate) fn new(
        lov: &Arc<Lov>,
        locks: &Arc<FileLocks>,
        fs: (&Arc<Context>, &Arc<Lmv>, &Arc<mdc::Shared>),
    ) -> Arc<Data> {
        let (cx, lmv, meta) = (fs.0.clone(), fs.1.clone(), fs.2.clone());
        let layouts = Layouts::new(&lmv, &meta, &cx);
        let (lov, locks) = (lov.clone(), locks.clone());
        Arc::new(Data { cx, lmv, meta, lov, locks, writing: Writing::default(), layouts })
    }
}

impl Data {
    /// What this mount keeps of the file, by this layout or a newer one; `None` if nothing may be kept of it.
    pub(crate) async fn data_file(self: &Arc<Self>, fid: Fid, layout: &Arc<Layout>) -> R<Option<Arc<File>>> {
        if !cacheable(layout) {
            return Ok(None);
        }
        if let Some(f) = self.lov.known(fid).filter(|f| f.layout.generation >= layout.generation) {
            self.lov.touch(&f);
            return Ok(Some(f));
        }
        let mut oscs = Vec::with_capacity(layout.object_count());
        for o in layout.objects() {
            oscs.push(self.lmv.osc(o.ost).await?);
        }
        let (file, count) = self.lov.open(fid, layout, oscs, self.layouts.clone());
        self.lov.touch(&file);
        self.lov.shrink_files(count);
        Ok(Some(file))
    }

    /// What a data request of a file with this layout says of its caller.
    pub(crate) fn data_ctx(&self, call: &Call, layout: &Layout) -> RequestContext {
        RequestContext { layout_generation: layout.generation, ..self.cx.of(call) }
    }

    /// Attributes of objects as far as they are known here without asking: with everything written here.
    pub(crate) fn attr_if_locked(&self, id: ObjectId) -> Option<ObjectAttr> {
        self.lov.cache.get(id)?.attr_if_locked()
    }

    /// Writes what this mount keeps of a file; tells which OSTs have made it durable
    /// ([`File::flush_durably`]). What fails is told by [`crate::base::errseq`].
    pub(crate) async fn flush_data_durably(self: &Arc<Self>, fid: Fid) -> R<Set<u16>> {
        let files = self.lov.by_all_layouts(fid);
        let Some((newest, before)) = files.split_last() else { return Ok(Set::default()) };
        for f in before {
            f.flush().await?;
        }
        newest.flush_durably().await
    }

    /// The bound of what is kept changed.
    pub(crate) fn data_resized(&self) {
        let cache = &self.lov.cache;
        self.lmv.content_resized(content_share(cache.max_cached.load(Ordering::Relaxed)));
        cache.evict_clean();
        cache.drained.notify_waiters();
    }
}
