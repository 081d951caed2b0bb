//! FALLOCATE: reserves, zeroes or punches.

use super::Cx;
use crate::abi::FallocateIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: FallocateIn) -> Answer {
    let fid = cx.fid()?;
    cx.bridge.writeback.settle(fid).await;
    // The kernel leaves set-id bits to us (HANDLE_KILLPRIV_V2) and has no flag for them here: who calls
    // decides.
    cx.fs().fallocate(cx.call_by_handle(), fid, a.mode, a.offset, a.length).await?;
    Ok(Reply::empty())
}
