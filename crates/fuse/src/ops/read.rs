//! READ: bytes of an open file, for read(2) or for the page cache of a mapping.

use super::Cx;
use crate::abi::{READ_LOCKOWNER, ReadIn};
use crate::reply::{Answer, Reply};
use client::Pages;

pub async fn run(cx: Cx, a: ReadIn) -> Answer {
    let h = cx.bridge.handles.file(a.fh)?;
    cx.bridge.writeback.settle(h.file.fid).await;
    let (call, file) = (cx.call_by_handle(), h.file.clone());
    let data = if a.read_flags & READ_LOCKOWNER != 0 {
        cx.fs().read(call, file, a.offset, a.size).await?
    } else {
        Pages(&cx.bridge.fs).fill(call, file, a.offset, a.size).await?
    };
    assert!(data.len() <= a.size as usize, "no more than was asked for");
    Ok(Reply::data(data))
}
