//! MKNOD: a device node, FIFO, socket or (from mknod(2)) regular file.

use super::Cx;
use crate::abi::MknodIn;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx, a: MknodIn, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    let attr =
        cx.fs().mknod(cx.call_with_umask(a.umask), parent, name.clone(), a.mode, u64::from(a.rdev)).await?;
    Ok(Reply::of(&cx.made(parent, &name, &attr)))
}
