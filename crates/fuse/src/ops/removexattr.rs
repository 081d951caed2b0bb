//! REMOVEXATTR: removes an extended attribute.

use super::{Cx, getxattr, setxattr};
use crate::lov_md;
use crate::reply::{Answer, Reply};
use client::Call;
use model::attr::XATTR_CAPABILITY;
use model::{Errno, acl};

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let fid = cx.fid()?;
    if lov_md::is_name(&name) {
        return setxattr::set_layout(&cx, fid, &[]).await;
    }
    if getxattr::is_virtual(&name) {
        return Err(Errno::EPERM);
    }
    // Of this one the kernel sees to it who may remove it (CAP_SETFCAP), and removes it itself in the name of
    // whoever changes the file's data (fallocate, copy_file_range).
    let call = if name == XATTR_CAPABILITY { Call::default() } else { cx.call() };
    let is_list = name == acl::XATTR_ACCESS;
    cx.fs().removexattr(call, fid, name).await?;
    if is_list {
        cx.bridge.kernel.forgotten(fid).await;
    }
    Ok(Reply::empty())
}
