//! LISTXATTR: the names of all stored extended attributes, each with a zero behind it.

use super::Cx;
use super::getxattr::sized;
use crate::abi::GetxattrIn;
use crate::reply::Answer;

pub async fn run(cx: Cx, a: GetxattrIn) -> Answer {
    let fid = cx.fid()?;
    let mut all = Vec::new();
    let names = match cx.fs().listxattr(cx.call(), fid).await {
        Err(e) if cx.is_removed_dir(fid, e) => Vec::new(),
        r => r?,
    };
    for n in names {
        all.extend_from_slice(&n);
        all.push(0);
    }
    sized(a.size, all)
}
