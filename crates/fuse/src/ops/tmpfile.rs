//! TMPFILE: an unnamed file in a directory (O_TMPFILE).

use super::open::{close_later, opened};
use super::{Cx, Finish};
use crate::abi::CreateIn;
use crate::reply::{Answer, Reply, entry_out};

pub async fn run(cx: Cx, a: CreateIn) -> Answer {
    let parent = cx.fid()?;
    let call = cx.call_with_umask(a.umask);
    let fs = cx.fs();
    let creating = fs.clone().tmpfile(call, parent, a.mode & 0o7777, a.flags);
    let (attr, file) = Finish::new(&cx.bridge.world, creating, move |(_, f)| close_later(fs, f)).await?;
    let node = cx.bridge.nodes.remember(attr.fid);
    Ok(Reply::pair(&entry_out(node, &attr), &opened(&cx, file)))
}
