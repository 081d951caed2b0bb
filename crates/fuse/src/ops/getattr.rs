//! GETATTR: of a node, or of an open file (which may have no name any more).

use super::Cx;
use crate::abi::GetattrIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, _arg: GetattrIn) -> Answer {
    let fid = cx.fid()?;
    cx.bridge.writeback.settle(fid).await;
    let attr = cx.fs().getattr(cx.call_by_handle(), fid).await?;
    Ok(Reply::attr(&attr, cx.attr_valid(&attr)))
}
