//! TMPFILE: an unnamed file in a directory (O_TMPFILE).

use super::Cx;
use super::open::opened;
use crate::abi::CreateIn;
use crate::reply::{Answer, Reply, entry_out};

/// Bits that asked the kernel for an unnamed file; they name a directory too (O_DIRECTORY).
const ASKED: u32 = libc::O_TMPFILE as u32;

pub async fn run(cx: Cx, a: CreateIn) -> Answer {
    let parent = cx.fid()?;
    let call = cx.call_with_umask(a.umask);
    let (attr, file) = cx.fs().tmpfile(call, parent, a.mode & 0o7777, a.flags & !ASKED).await?;
    let node = cx.node(&attr);
    Ok(Reply::pair(&entry_out(node, &attr), &opened(&cx, file)))
}
