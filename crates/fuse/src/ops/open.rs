//! OPEN: a file that exists.

use super::Cx;
use crate::abi::{FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES, OPEN_KILL_SUIDGID, OpenIn, OpenOut};
use crate::handles::{FileHandle, Handle};
use crate::reply::{Answer, Reply};
use client::OpenFile;
use model::SetAttr;
use std::sync::Arc;

/// The kernel caches nothing of an open file: reads and writes go to the servers, side by side.
const FLAGS: u32 = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;

pub async fn run(cx: Cx, a: OpenIn) -> Answer {
    let fid = cx.fid()?;
    let call = cx.call();
    if a.flags & libc::O_TRUNC as u32 != 0 {
        cx.bridge.writeback.settle(fid).await;
    }
    let file = cx.fs().open(call.clone(), fid, a.flags).await?;
    if a.open_flags & OPEN_KILL_SUIDGID != 0 && a.flags & libc::O_TRUNC as u32 != 0 {
        let set = SetAttr { kill_suid_sgid: true, by_handle: true, ..SetAttr::default() };
        let killed = cx.fs().setattr(call, fid, set).await;
        if let Err(e) = killed {
            let _ = cx.fs().close(Arc::new(file)).await;
            return Err(e);
        }
    }
    Ok(Reply::of(&opened(&cx, file)))
}

/// Keeps the file under a handle number.
pub fn opened(cx: &Cx, file: OpenFile) -> OpenOut {
    let fh = cx.bridge.handles.insert(Handle::File(Arc::new(FileHandle::new(file))));
    OpenOut { fh, open_flags: FLAGS, backing_id: 0 }
}
