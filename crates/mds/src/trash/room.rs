//! Room for whoever would be told `ENOSPC`: files in the trash that have objects on the target in question go
//! for good, the oldest first, as many as it takes. [`super::keep`] looks once a second and goes by what
//! targets said seconds ago; who writes a gigabyte a second is faster than that.

use super::keep::{oldest, remove};
use crate::mdt::Mdt;
use crate::relayout::copy::attrs_of_file;
use crate::schema::{Inode, key};
use model::{Errno, Fid};
use std::time::Duration;

/// At least so much is made, so that whoever writes on does not ask for each piece.
const MADE_MIN_BYTES: u64 = 32 << 20;
/// Files that are looked at for it, and that go, in one call.
const LOOKED_AT_MAX: usize = 10_000;
const GO_MAX: usize = 256;
const PAGE: usize = 256;
/// How long the target may take to destroy its objects.
const DESTROY_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Whether there is more room on an object target than there was: waits until what goes has gone there.
pub async fn make(mdt: &Mdt, ost: u16, bytes: u64) -> Result<bool, Errno> {
    let files = files_on(mdt, ost, bytes.max(MADE_MIN_BYTES)).await?;
    assert!(files.len() <= GO_MAX, "one call does not remove more than it may");
    let went = remove(mdt, &files).await?;
    if went > 0 {
        tracing::info!("{went} files in the trash were removed for good: OST{ost:04x} had no room");
    }
    // Others may have asked at the same time.
    let is_coming = mdt.has_outbox_pending(ost);
    let end = mdt.world.now().plus(DESTROY_PATIENCE);
    while mdt.has_outbox_pending(ost) && mdt.world.now() < end {
        if mdt.stop.pause(LOOK_AGAIN).await {
            return Err(Errno::ESHUTDOWN);
        }
    }
    Ok(went > 0 || is_coming)
}

/// The oldest files in the trash that together have so many bytes on an object target, or all that have some.
async fn files_on(mdt: &Mdt, ost: u16, bytes: u64) -> Result<Vec<Fid>, Errno> {
    let (mut found, mut sum) = (Vec::new(), 0u64);
    let (mut from, mut looked) = (vec![key::TRASH], 0);
    while sum < bytes && found.len() < GO_MAX && looked < LOOKED_AT_MAX {
        let page = oldest(mdt, &from, PAGE)?;
        let Some((when, last)) = page.last() else { break };
        from = key::behind(&key::trash(*when, *last));
        looked += page.len();
        for (_, fid) in &page {
            if sum >= bytes || found.len() >= GO_MAX {
                break;
            }
            if let Some(has) = bytes_on(mdt, *fid, ost).await? {
                found.push(*fid);
                sum = sum.saturating_add(has);
            }
        }
    }
    Ok(found)
}

/// What a file has on an object target; `None`: nothing, or that is not known.
async fn bytes_on(mdt: &Mdt, fid: Fid, ost: u16) -> Result<Option<u64>, Errno> {
    let stored = mdt.db.get(&key::inode(fid)).map_err(|e| e.errno())?;
    let layout = stored.and_then(|v| Inode::decode(fid, &v).ok()).and_then(|i| i.layout);
    let Some(layout) = layout.filter(|l| l.objects().any(|o| o.ost == ost)) else { return Ok(None) };
    let attrs = match attrs_of_file(mdt, &layout).await {
        Ok(attrs) => attrs,
        Err(e) => {
            tracing::debug!("what {fid} has is not known: {e}");
            return Ok(None);
        }
    };
    let there = layout.objects().zip(&attrs).filter(|(o, _)| o.ost == ost);
    let blocks = there.fold(0u64, |sum, (_, a)| sum.saturating_add(a.blocks));
    Ok((blocks > 0).then(|| blocks.saturating_mul(512)))
}
