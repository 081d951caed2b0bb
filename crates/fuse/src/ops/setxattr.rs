//! SETXATTR: sets an extended attribute; an access ACL as well.

use super::{Cx, getxattr};
use crate::abi::{SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::reply::{Answer, Reply};
use model::Errno;

pub async fn run(cx: Cx, a: SetxattrIn, name: Vec<u8>, value: Vec<u8>) -> Answer {
    let fid = cx.fid()?;
    if getxattr::is_virtual(&name) {
        return Err(Errno::EPERM);
    }
    let kill_sgid = a.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
    cx.fs().setxattr(cx.call(), fid, name, value, a.flags, kill_sgid).await?;
    Ok(Reply::empty())
}
