//! UNLINK: removes a name of a file.

use super::Cx;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    cx.fs().unlink(cx.call(), parent, name).await?;
    Ok(Reply::empty())
}
