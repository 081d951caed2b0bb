//! CREATE: makes a regular file and opens it, or opens the one that is there.

use super::Cx;
use super::open::opened;
use crate::abi::CreateIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: CreateIn, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let call = cx.call_with_umask(a.umask);
    let (attr, file) = cx.fs().create(call, parent, name.clone(), a.mode & 0o7777, a.flags, None).await?;
    Ok(Reply::pair(&cx.made_open(parent, &name, &attr), &opened(&cx, file)))
}
