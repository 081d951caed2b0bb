//! LSEEK: the next data or hole.

use super::Cx;
use crate::abi::{LseekIn, LseekOut};
use crate::reply::{Answer, Reply};
use model::Errno;

pub async fn run(cx: Cx, a: LseekIn) -> Answer {
    let fid = cx.fid()?;
    let hole = match a.whence as i32 {
        libc::SEEK_DATA => false,
        libc::SEEK_HOLE => true,
        _ => return Err(Errno::EINVAL),
    };
    cx.bridge.writeback.settle(fid).await;
    let offset = cx.fs().seek(cx.call_by_handle(), fid, a.offset, hole).await?;
    Ok(Reply::of(&LseekOut { offset }))
}
