//! CREATE: makes a regular file and opens it, or opens the one that is there.

use super::Cx;
use super::open::opened;
use crate::abi::CreateIn;
use crate::reply::{Answer, Reply, entry_out};

pub async fn run(cx: Cx, a: CreateIn, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let call = cx.call_with_umask(a.umask);
    let (attr, file) = cx.fs().create(call, parent, name, a.mode & 0o7777, a.flags, None).await?;
    let node = cx.bridge.nodes.remember(attr.fid);
    Ok(Reply::pair(&entry_out(node, &attr), &opened(&cx, file)))
}
