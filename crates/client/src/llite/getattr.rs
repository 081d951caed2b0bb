//! getattr: attributes of a file, its objects' part included.

use super::{Data, run_unless_root};
use crate::lov::{LayoutHolder, map};
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Errno, Fid, FileType, Layout, ObjectAttr, TargetId};
use std::sync::Arc;
use wire::msg::lookup::Entry;
use world::BoxFuture;

impl Fs {
    pub fn getattr(self: Arc<Self>, call: Call, fid: Fid) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let work = async {
                let e = self.lmv.getattr_entry(self.cx.of(&call), fid).await?;
                self.data.full_attr(&e).await
            };
            run_unless_root(&self, fid, Verb::Getattr, work).await
        })
    }

    /// As [`Fs::getattr`], to see who may open a file: also one whose size cannot be had because its objects
    /// are lost.
    pub fn getattr_for_open(self: Arc<Self>, call: Call, fid: Fid) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let work = async {
                let e = self.lmv.getattr_entry(self.cx.of(&call), fid).await?;
                self.data.attr_for_name(&e).await
            };
            self.run(Verb::Getattr, work).await
        })
    }

    /// The file's size, if locks of this mount keep others from changing it.
    pub fn size_if_locked(&self, fid: Fid) -> Option<u64> {
        let file = self.lov.known(fid)?;
        let objs = file.lock();
        if file.layout.covers_file() && file.objects.iter().all(|o| o.osc.is_usable()) {
            file.size_known(&objs)
        } else {
            None
        }
    }
}

impl Data {
    /// Attributes as the user sees them: of a regular file with objects these are asked for size and times.
    pub(crate) async fn full_attr(self: &Arc<Self>, e: &Entry) -> R<Attr> {
        let Some(l) = data_layout(e) else { return Ok(e.attr.clone()) };
        let seen = match self.glimpse_layout(l).await {
            Ok(attrs) if l.covers_file() => Ok(attrs),
            Ok(attrs) => self.layouts.confirm(e.attr.fid, l).await.map(|()| attrs),
            refused => refused,
        };
        match seen {
            Err(refusal @ (Errno::ERELAYOUT | Errno::ESTALE)) => {
                let mut e = self.follow_layout(e.attr.fid, refusal, &mut 0).await?;
                let attrs = self.object_attrs(&mut e).await?;
                merged(&e, &attrs)
            }
            attrs => merged(e, &attrs?),
        }
    }

    /// As [`Data::full_attr`], for callers that need the file more than its size: a file on a deactivated
    /// OST, or with lost objects, can be found, renamed and removed. Its size and times are the metadata
    /// server's then.
    pub(crate) async fn attr_for_name(self: &Arc<Self>, e: &Entry) -> R<Attr> {
        match self.full_attr(e).await {
            Err(Errno::EIO) if data_layout(e).is_some_and(|l| !self.all_active(l)) => Ok(e.attr.clone()),
            Err(Errno::ELOST) => Ok(e.attr.clone()),
            r => r,
        }
    }

    fn all_active(&self, l: &Layout) -> bool {
        l.objects().all(|o| self.lmv.known_target(TargetId::ost(o.ost)).is_some_and(|t| t.is_active()))
    }
}

/// The layout of a regular file that has objects.
pub(crate) fn data_layout(e: &Entry) -> Option<&Layout> {
    let l = e.layout.as_ref().filter(|_| e.attr.kind == FileType::Regular)?;
    l.has_objects().then_some(l)
}

/// The metadata server's part of a file's attributes and its objects' (all, by their numbers) together.
pub(crate) fn merged(e: &Entry, objects: &[ObjectAttr]) -> R<Attr> {
    let mut a = e.attr.clone();
    if let Some(l) = data_layout(e) {
        merge(&mut a, l, objects)?;
    }
    Ok(a)
}

/// Adds what its objects (all, by their numbers) know to attributes of a file with this layout.
pub(crate) fn merge(a: &mut Attr, l: &Layout, objects: &[ObjectAttr]) -> R<()> {
    a.size = map::file_size(l, objects)?;
    a.blocks = 0;
    objects.iter().for_each(|o| a.merge_object(o));
    Ok(())
}
