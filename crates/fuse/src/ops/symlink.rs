//! SYMLINK: makes a symbolic link.

use super::Cx;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, name: Vec<u8>, target: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let attr = cx.fs().symlink(cx.call(), parent, name.clone(), target).await?;
    Ok(Reply::of(&cx.made(parent, &name, &attr)))
}
