//! data_version: a number that is another one after each change of a file's data.

use super::{Admin, Data, permission};
use crate::control::Flush;
use crate::llite::opens::following_layout;
use crate::lov::map;
use crate::lov::pin::ObjectRequest;
use crate::stats::Verb;
use crate::{Call, R};
use model::perm::MAY_READ;
use model::{Errno, Fid, FileType};
use std::sync::Arc;
use world::BoxFuture;

/// Bits that what the objects count has to itself.
const OBJECTS_BITS: u32 = 40;

impl Admin<'_> {
    /// The sum of what the file's objects count, which goes up with every change of its data, and of its
    /// layout. Of data with the inode changes of attributes are counted as well. `EACCES` for who may not
    /// read the file, `EINVAL` for what is no regular file.
    pub fn data_version(self, call: Call, fid: Fid, flush: Flush) -> BoxFuture<R<u64>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.lmv.getattr_entry(fs.cx.of(&call), fid).await?;
                permission::access(&fs, &call, &e, MAY_READ).await?;
                if e.attr.kind != FileType::Regular {
                    return Err(Errno::EINVAL);
                }
                if flush != Flush::Nothing {
                    let mark = fs.cx.told.mark();
                    fs.clone().flush(fid, mark).await?;
                }
                following_layout!(fs.data, fid, version_of(&fs.data, &call, fid, flush))
            };
            fs.run(Verb::Layout, work).await
        })
    }
}

async fn version_of(data: &Arc<Data>, call: &Call, fid: Fid, flush: Flush) -> R<u64> {
    let e = data.lmv.getattr_entry(data.cx.of(call), fid).await?;
    let Some(layout) = &e.layout else { return Ok(e.attr.version) };
    if !layout.has_objects() {
        return Ok(above(layout.generation).wrapping_add(e.attr.version));
    }
    let layout = Arc::new(layout.clone());
    let file = data.data_file(fid, &layout).await?.ok_or(Errno::EOPNOTSUPP)?;
    let write = flush == Flush::Everything;
    let wants: Vec<ObjectRequest> = match flush {
        Flush::Nothing => Vec::new(),
        _ => map::parts(&file.layout).map(|(n, ..)| ObjectRequest::new(n, write, 0, u64::MAX)).collect(),
    };
    // Whoever has to let go of a lock for this writes back first.
    let pins = file.pin_all(&data.cx.world, &wants).await?;
    let attrs = file.ask_attrs().await?;
    drop(pins);
    let generation = above(file.layout.generation);
    Ok(attrs.iter().fold(generation, |sum, a| sum.wrapping_add(a.data_version)))
}

/// New objects count from the beginning: those of a newer layout are above.
fn above(generation: u32) -> u64 {
    u64::from(generation) << OBJECTS_BITS
}
