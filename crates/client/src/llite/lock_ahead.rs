//! lock_ahead: the locks of a range before it is read or written, kept like those of an access.

use super::opens::following_layout;
use super::{Admin, permission};
use crate::lov;
use crate::stats::Verb;
use crate::{Call, R};
use model::perm::{MAY_READ, MAY_WRITE};
use model::{Errno, Fid, FileType};
use world::BoxFuture;

impl Admin<'_> {
    /// Takes them for `start..=end`; others that have some there let go of theirs first. Nothing to do for
    /// data with the inode. `EACCES` for who may not read or write the file, `EINVAL` for what is no regular
    /// file and for an end before the start.
    pub fn lock_ahead(self, call: Call, fid: Fid, write: bool, (start, end): (u64, u64)) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.lmv.getattr_entry(fs.cx.of(&call), fid).await?;
                permission::access(&fs, &call, &e, if write { MAY_WRITE } else { MAY_READ }).await?;
                if e.attr.kind != FileType::Regular || end < start {
                    return Err(Errno::EINVAL);
                }
                following_layout!(fs.data, fid, async {
                    let Some(layout) = fs.data.file_state(fid).await?.layout else { return Ok(()) };
                    if !layout.has_objects() {
                        return Ok(());
                    }
                    let file = fs.data.data_file(fid, &layout).await?.ok_or(Errno::EOPNOTSUPP)?;
                    // Where there are no objects yet there is nothing to lock, for writing either.
                    let mut wants = lov::wants(&file.layout, start, (end - start).saturating_add(1), false)?;
                    wants.iter_mut().for_each(|w| w.lock.write = write);
                    file.pin_all(&fs.cx.world, &wants).await.map(drop)
                })
            };
            fs.run(Verb::Flock, work).await
        })
    }
}
