//! READLINK: a symbolic link's target.

use super::Cx;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx) -> Answer {
    let fid = cx.fid()?;
    Ok(Reply::data(cx.fs().readlink(cx.call(), fid).await?))
}
