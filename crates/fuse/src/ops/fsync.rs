//! FSYNC and FSYNCDIR.

use super::Cx;
use crate::abi::FsyncIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: FsyncIn) -> Answer {
    let open = cx.bridge.handles.file(a.fh)?;
    cx.bridge.writeback.settle(open.file.fid).await;
    cx.fs().fsync_open(cx.call_by_handle(), &open.file.errors).await?;
    Ok(Reply::empty())
}

pub async fn run_dir(cx: Cx, a: FsyncIn) -> Answer {
    let open = cx.bridge.handles.dir(a.fh)?;
    cx.fs().fsync_open(cx.call_by_handle(), &open.errors).await?;
    Ok(Reply::empty())
}
