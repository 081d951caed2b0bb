//! ostfiles: the files that have objects on an OST, with their names (`lfs find --ost`).

use super::Admin;
use crate::control::{HeldFile, HeldPart};
use crate::stats::Verb;
use crate::{Call, R};
use model::{Errno, Fid, ObjectId, TargetId, TargetMark};
use std::sync::Arc;
use wire::msg::lookup::Entry;
use wire::msg::ostfiles::{Ostfiles, OstfilesReply};
use world::BoxFuture;
use world::future::join_all;

/// Inodes that are asked for at a time.
const INODES_AT_ONCE: usize = 32;

impl Admin<'_> {
    /// Some files with objects on an OST behind object `after`, paths below the mount's root. `EPERM` for
    /// anybody but root.
    pub fn ostfiles(self, call: Call, ost: u16, after: Option<ObjectId>) -> BoxFuture<R<OstfilesReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let msg = Ostfiles { ost, after, root: fs.root() };
                fs.lmv.mdc_of(Fid::ROOT).await?.target.call(fs.cx.of(&call), msg).await
            };
            fs.run(Verb::Ostfiles, work).await
        })
    }

    /// As [`Admin::ostfiles`], with what the files have there. Files that went meanwhile are left out.
    pub fn held_files(
        self,
        call: Call,
        ost: u16,
        after: Option<ObjectId>,
    ) -> BoxFuture<R<(Vec<HeldFile>, Option<ObjectId>)>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let page = Admin(&fs).ostfiles(call.clone(), ost, after).await?;
            let config = fs.config();
            let it = config.targets.iter().find(|t| t.target == TargetId::ost(ost));
            let mark = it.map_or(TargetMark::NONE, |t| TargetMark::of(&t.target_uuid));
            let mut out = Vec::new();
            for some in page.files.chunks(INODES_AT_ONCE) {
                let asked = some.iter().map(|(fid, _)| -> BoxFuture<R<Arc<Entry>>> {
                    let (here, ctx, fid) = (fs.clone(), fs.cx.of(&call), *fid);
                    Box::pin(async move { here.lmv.getattr_entry(ctx, fid).await })
                });
                for ((_, paths), entry) in some.iter().zip(join_all(asked.collect()).await) {
                    match entry {
                        Ok(e) => out.extend(held(&e, paths, ost, mark)),
                        Err(Errno::ENOENT | Errno::ESTALE) => {}
                        Err(e) => return Err(e),
                    }
                }
            }
            Ok((out, page.next))
        })
    }
}

/// What a file has on an OST, on which a target with this mark is now; `None`: nothing any more.
fn held(e: &Entry, paths: &[Vec<u8>], ost: u16, mark: TargetMark) -> Option<HeldFile> {
    let parts = e.layout.iter().flat_map(|l| l.components.iter()).flat_map(|c| {
        let here = c.objects.iter().enumerate().filter(move |(_, o)| o.ost == ost);
        here.map(move |(stripe, o)| HeldPart {
            start: c.start,
            end: c.end,
            stripe,
            stripes: c.objects.len(),
            stripe_size: c.stripe_size,
            of_another: ![o.id.mark(), mark].contains(&TargetMark::NONE) && o.id.mark() != mark,
        })
    });
    let parts: Vec<HeldPart> = parts.collect();
    let a = &e.attr;
    (!parts.is_empty()).then(|| HeldFile {
        fid: a.fid,
        paths: paths.iter().map(|p| p.clone().into()).collect(),
        uid: a.uid,
        gid: a.gid,
        born: a.btime,
        changed: a.mtime,
        parts,
    })
}
