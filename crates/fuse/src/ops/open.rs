//! OPEN: a file that exists.

use super::Cx;
use crate::abi::{FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES, OpenIn, OpenOut};
use crate::handles::{FileHandle, Handle};
use crate::reply::{Answer, Reply};
use client::OpenFile;
use std::sync::Arc;

/// The kernel caches nothing of an open file: reads and writes go to the servers, side by side.
const FLAGS: u32 = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;

pub async fn run(cx: Cx, a: OpenIn) -> Answer {
    let file = cx.fs().open(cx.call(), cx.fid()?, a.flags).await?;
    Ok(Reply::of(&opened(&cx, file)))
}

/// Keeps the file under a handle number.
pub fn opened(cx: &Cx, file: OpenFile) -> OpenOut {
    let fh = cx.bridge.handles.insert(Handle::File(Arc::new(FileHandle::new(file))));
    OpenOut { fh, open_flags: FLAGS, backing_id: 0 }
}
