//! REMOVEXATTR: removes an extended attribute.

use super::{Cx, getxattr};
use crate::reply::{Answer, Reply};
use model::Errno;

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let fid = cx.fid()?;
    if getxattr::is_virtual(&name) {
        return Err(Errno::EPERM);
    }
    cx.fs().removexattr(cx.call(), fid, name).await?;
    Ok(Reply::empty())
}
