//! LISTXATTR: the names of all stored extended attributes, each with a zero behind it.

use super::Cx;
use super::getxattr::sized;
use crate::abi::GetxattrIn;
use crate::reply::Answer;

pub async fn run(cx: Cx, a: GetxattrIn) -> Answer {
    let fid = cx.fid()?;
    let mut all = Vec::new();
    for n in cx.fs().listxattr(cx.call(), fid).await? {
        all.extend_from_slice(&n);
        all.push(0);
    }
    sized(a.size, all)
}
