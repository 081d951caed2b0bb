//! WRITE: by write(2), at an offset or at the end, or by the page cache for a shared mapping.

use super::Cx;
use crate::abi::{WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut};
use crate::reply::{Answer, Reply};
use bytes::Bytes;
use client::{Call, OpenHandle};
use model::Errno;
use model::perm::{FLAG_APPEND, O_APPEND};

pub async fn run(cx: Cx, a: WriteIn, data: Bytes) -> Answer {
    let fid = cx.fid()?;
    let written = Reply::of(&WriteOut { size: a.size, padding: 0 });
    if a.write_flags & WRITE_CACHE != 0 {
        let b = &cx.bridge;
        // Whatever comes of it: the kernel would tell errors on top of those that fsync is told here.
        b.writeback.clone().write(b.world.clone(), cx.fs(), fid, a.offset, data).await;
        return Ok(written);
    }
    cx.bridge.writeback.settle(fid).await;
    // The file's flags of the moment: fcntl(2) may have set O_APPEND after the open. The offset that the
    // kernel made up for an append is what this mount believes to be the end; the servers know.
    let append = a.flags & libc::O_APPEND as u32 != 0;
    let kill = a.write_flags & WRITE_KILL_SUIDGID != 0;
    let (fs, open) = (cx.fs(), cx.bridge.handles.file(a.fh)?);
    if !append {
        may_overwrite(&cx, &open.file).await?;
    }
    let direct = a.flags & libc::O_DIRECT as u32 != 0;
    let before = direct.then(|| fs.error_mark());
    let call = Call { direct, ..cx.call_by_handle() };
    fs.clone().write(call, fid, a.offset, append, kill, data).await?;
    if a.flags & libc::O_DSYNC as u32 != 0 || open.file.sync {
        fs.fsync_open(cx.call_by_handle(), &open.file.errors).await?;
    } else if let Some(before) = before {
        fs.flush(fid, before).await?;
    }
    Ok(written)
}

/// `EPERM` of an append-only file that was opened for appending. Linux refuses the fcntl(2) that takes
/// O_APPEND away, but does not know this of our files.
pub async fn may_overwrite(cx: &Cx, open: &OpenHandle) -> Result<(), Errno> {
    if open.flags & O_APPEND == 0 {
        return Ok(());
    }
    let attr = cx.fs().getattr(cx.call_by_handle(), open.fid).await?;
    if attr.flags & FLAG_APPEND == 0 { Ok(()) } else { Err(Errno::EPERM) }
}
