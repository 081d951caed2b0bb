//! RMDIR: removes an empty directory.

use super::Cx;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    cx.fs().rmdir(cx.call(), parent, name).await?;
    Ok(Reply::empty())
}
