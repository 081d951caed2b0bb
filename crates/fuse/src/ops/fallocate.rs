//! FALLOCATE: reserves, zeroes or punches.

use super::Cx;
use crate::abi::FallocateIn;
use crate::reply::{Answer, Reply};
use model::SetAttr;

pub async fn run(cx: Cx, a: FallocateIn) -> Answer {
    let fid = cx.fid()?;
    cx.bridge.writeback.settle(fid).await;
    cx.fs().fallocate(cx.call(), fid, a.mode, a.offset, a.length).await?;
    if cx.uid != 0 {
        // The kernel leaves set-id bits to us (HANDLE_KILLPRIV_V2) and has no flag for them here.
        let set = SetAttr { kill_suid_sgid: true, by_handle: true, ..SetAttr::default() };
        cx.fs().setattr(cx.call(), fid, set).await?;
    }
    Ok(Reply::empty())
}
