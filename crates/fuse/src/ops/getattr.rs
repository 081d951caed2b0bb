//! GETATTR: of a node, or of an open file (which may have no name any more).

use super::Cx;
use crate::abi::GetattrIn;
use crate::reply::{Answer, Reply};
use model::{Attr, Errno, Fid};

pub async fn run(cx: Cx, _arg: GetattrIn) -> Answer {
    let fid = cx.fid()?;
    let attr = of(&cx, fid).await?;
    Ok(Reply::attr(&attr, cx.attr_valid(&attr)))
}

/// What stat(2) shows.
pub async fn of(cx: &Cx, fid: Fid) -> Result<Attr, Errno> {
    cx.bridge.writeback.settle(fid).await;
    let call = cx.call_by_handle();
    if fid == cx.bridge.fs.root() {
        cx.fs().getattr_root(call).await
    } else {
        cx.fs().getattr(call, fid).await
    }
}
