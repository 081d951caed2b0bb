//! COPY_FILE_RANGE: from one open file to another, without the data passing through the application.

use super::{Cx, write};
use crate::abi::{CopyFileRangeIn, CopyFileRangeOut, WriteOut};
use crate::reply::{Answer, Reply};

/// What one request copies at most, so that it can be interrupted and the narrow reply can say it.
const LEN_MAX_BYTES: u64 = 64 << 20;

pub async fn run(cx: Cx, a: CopyFileRangeIn, wide: bool) -> Answer {
    let source = cx.bridge.handles.file(a.fh_in)?;
    let from = source.file.fid;
    let target = cx.bridge.handles.file(a.fh_out)?;
    write::may_overwrite(&cx, &target.file).await?;
    let to = target.file.fid;
    cx.bridge.writeback.settle(from).await;
    cx.bridge.writeback.settle(to).await;
    let len = a.len.min(LEN_MAX_BYTES);
    let n = cx.fs().copy_file_range(cx.call_by_handle(), from, a.off_in, to, a.off_out, len).await?;
    assert!(n <= len, "no more is copied than was asked for");
    cx.fs().was_accessed(&source.file);
    if target.file.sync {
        cx.fs().fsync_open(cx.call_by_handle(), &target.file.errors).await?;
    }
    Ok(match wide {
        true => Reply::of(&CopyFileRangeOut { bytes_copied: n }),
        false => Reply::of(&WriteOut { size: n as u32, padding: 0 }),
    })
}
