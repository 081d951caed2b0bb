//! STATFS: the space of the whole file system.

use super::Cx;
use crate::abi::StatfsOut;
use crate::reply::{Answer, Reply};
use model::limits::NAME_MAX_BYTES;

const BLOCK: u64 = 4096;

pub async fn run(cx: Cx) -> Answer {
    let s = cx.fs().statfs().await?;
    Ok(Reply::of(&StatfsOut {
        blocks: s.total / BLOCK,
        bfree: s.free / BLOCK,
        bavail: s.available / BLOCK,
        files: s.files,
        ffree: s.files_free,
        bsize: BLOCK as u32,
        namelen: NAME_MAX_BYTES as u32,
        frsize: BLOCK as u32,
        padding: 0,
        spare: [0; 6],
    }))
}
