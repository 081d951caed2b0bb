//! SETXATTR: sets an extended attribute; an access ACL as well, and a layout.

use super::{Cx, getxattr};
use crate::abi::{SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::lov_md;
use crate::reply::{Answer, Reply};
use model::{Errno, Fid, FileType, acl};

pub async fn run(cx: Cx, a: SetxattrIn, name: Vec<u8>, value: Vec<u8>) -> Answer {
    let fid = cx.fid()?;
    if lov_md::is_name(&name) {
        return set_layout(&cx, fid, &value).await;
    }
    if getxattr::is_virtual(&name) {
        return Err(Errno::EPERM);
    }
    let kill_sgid = a.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
    let is_list = name == acl::XATTR_ACCESS;
    cx.fs().setxattr(cx.call(), fid, name, value, a.flags, kill_sgid).await?;
    if is_list {
        // The mode changed with it.
        cx.bridge.kernel.forgotten(fid).await;
    }
    Ok(Reply::empty())
}

/// As `lfs setstripe`: what new files of a directory get, none if there is no value; the layout of a file
/// that has no data. One that has keeps its own, without an error: programs that copy attributes set them
/// behind the data as well as before.
pub async fn set_layout(cx: &Cx, fid: Fid, value: &[u8]) -> Answer {
    let spec = if value.is_empty() { None } else { Some(lov_md::decode(value)?) };
    if let Some(l) = client::Admin(&cx.bridge.fs).getlayout(cx.call(), fid).await?
        && (spec.is_none() || l.has_objects())
    {
        return Ok(Reply::empty());
    }
    let attr = cx.fs().getattr(cx.call(), fid).await?;
    match attr.kind {
        FileType::Regular if spec.is_none() || attr.size > 0 => return Ok(Reply::empty()),
        FileType::Regular | FileType::Directory => {}
        _ => return Err(Errno::EOPNOTSUPP),
    }
    match client::Admin(&cx.bridge.fs).setlayout(cx.call(), fid, spec).await {
        Ok(()) | Err(Errno::EEXIST) => Ok(Reply::empty()),
        Err(e) => Err(e),
    }
}
