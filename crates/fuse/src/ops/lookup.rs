//! LOOKUP: a name in a directory.

use super::Cx;
use crate::reply::Answer;

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let attr = cx.fs().lookup(cx.call(), parent, name).await?;
    Ok(cx.entry(&attr))
}
