//! READ: bytes of an open file, for read(2) or for the page cache of a mapping.

use super::Cx;
use crate::abi::ReadIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: ReadIn) -> Answer {
    let h = cx.bridge.handles.file(a.fh)?;
    cx.bridge.writeback.settle(h.file.fid).await;
    let data = cx.fs().read(cx.call_by_handle(), h.file.clone(), a.offset, a.size).await?;
    assert!(data.len() <= a.size as usize, "no more than was asked for");
    Ok(Reply::data(data))
}
