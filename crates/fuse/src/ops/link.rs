//! LINK: another name for a file.

use super::Cx;
use crate::abi::LinkIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: LinkIn, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let fid = cx.bridge.nodes.fid(a.oldnodeid)?;
    let attr = cx.fs().link(cx.call(), fid, parent, name.clone()).await?;
    Ok(Reply::of(&cx.made(parent, &name, &attr)))
}
