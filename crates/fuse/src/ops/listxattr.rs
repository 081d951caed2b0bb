//! LISTXATTR: the names of all stored extended attributes and of the layout, each with a zero behind it.

use super::Cx;
use super::getxattr::sized;
use crate::abi::GetxattrIn;
use crate::lov_md;
use crate::reply::Answer;
use model::{Errno, Fid};

pub async fn run(cx: Cx, a: GetxattrIn) -> Answer {
    let fid = cx.fid()?;
    let mut all = Vec::new();
    let mut names = match cx.fs().listxattr(cx.call(), fid).await {
        Err(e) if cx.is_removed_dir(fid, e) => Vec::new(),
        r => r?,
    };
    if cx.fs().lists_layouts() && has_layout(&cx, fid).await? {
        names.push(lov_md::NAME.to_vec());
    }
    for n in names {
        all.extend_from_slice(&n);
        all.push(0);
    }
    sized(a.size, all)
}

/// A file has objects, or a directory a default: there is something to bring along.
async fn has_layout(cx: &Cx, fid: Fid) -> Result<bool, Errno> {
    let admin = || client::Admin(&cx.bridge.fs);
    let found = async {
        match admin().getlayout(cx.call(), fid).await? {
            Some(l) => Ok(l.has_objects()),
            None => Ok(admin().getdefault(cx.call(), fid).await?.is_some()),
        }
    };
    match found.await {
        Err(Errno::ENOTDIR) => Ok(false),
        Err(e) if cx.is_removed_dir(fid, e) => Ok(false),
        r => r,
    }
}
