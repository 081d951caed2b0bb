//! RENAME and RENAME2: with NOREPLACE or EXCHANGE in `flags`.

use super::Cx;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, newdir: u64, flags: u32, name: Vec<u8>, new_name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let new_parent = cx.bridge.nodes.fid(newdir)?;
    cx.fs().rename(cx.call(), parent, name, new_parent, new_name, flags).await?;
    if parent != new_parent {
        // The kernel takes the name along with its time, which was good for the directory it came from.
        cx.bridge.kernel.forget_names([parent, new_parent].into_iter());
    }
    Ok(Reply::empty())
}
