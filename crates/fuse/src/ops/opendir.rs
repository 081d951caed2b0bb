//! OPENDIR: the kernel has checked the permission; the servers keep no state for it.

use super::Cx;
use crate::abi::OpenOut;
use crate::handles::{DirHandle, Handle};
use crate::reply::{Answer, Reply};
use std::sync::Arc;

pub async fn run(cx: Cx) -> Answer {
    let fid = cx.fid()?;
    let fh = cx.bridge.handles.insert(Handle::Dir(Arc::new(DirHandle { fid })));
    Ok(Reply::of(&OpenOut { fh, open_flags: 0, backing_id: 0 }))
}
