//! MKDIR: makes a directory.

use super::Cx;
use crate::abi::MkdirIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: MkdirIn, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let attr = cx.fs().mkdir(cx.call_with_umask(a.umask), parent, name.clone(), a.mode & 0o7777).await?;
    Ok(Reply::of(&cx.made(parent, &name, &attr)))
}
