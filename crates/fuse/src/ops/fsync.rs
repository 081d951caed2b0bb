//! FSYNC and FSYNCDIR.

use super::Cx;
use crate::abi::FsyncIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, _a: FsyncIn) -> Answer {
    let fid = cx.fid()?;
    cx.bridge.writeback.settle(fid).await;
    let pages = cx.bridge.writeback.take_error(fid);
    cx.fs().fsync(cx.call_by_handle(), fid).await?;
    pages?;
    Ok(Reply::empty())
}

pub async fn run_dir(cx: Cx) -> Answer {
    let fid = cx.fid()?;
    cx.fs().fsync(cx.call_by_handle(), fid).await?;
    Ok(Reply::empty())
}
