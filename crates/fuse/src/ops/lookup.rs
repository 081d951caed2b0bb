//! LOOKUP: a name in a directory. That it is not there may be kept too.
//!
//! No program's path makes the kernel ask for `.` or `..`. It does when somebody opens a file handle
//! (open_by_handle_at(2), an NFS server) whose inode it has forgotten: `.` is that file, `..` the directory
//! that a directory is in.

use super::{Cx, gone, kernel_root};
use crate::abi::EntryOut;
use crate::reply::{Answer, Reply, entry_out, valid};
use client::Call;
use model::{Attr, Errno, Fid};
use std::time::Duration;

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    match name.as_slice() {
        b"." => return of_handle(&cx).await,
        b".." => return above(&cx).await,
        _ => {}
    }
    let parent = cx.fid()?;
    match cx.fs().lookup(cx.call_to_search(), parent, name.clone()).await {
        Ok(attr) => Ok(cx.found(parent, &name, &attr)),
        Err(Errno::ENOENT) => match cx.name_valid(parent, &name, None) {
            Duration::ZERO => Err(Errno::ENOENT),
            life => Ok(Reply::of(&valid(EntryOut::default(), life, Duration::ZERO))),
        },
        Err(e) => Err(e),
    }
}

async fn of_handle(cx: &Cx) -> Answer {
    let fid = cx.bridge.nodes.fid_of_handle(cx.node)?;
    let attr = cx.fs().getattr_for_open(Call::default(), fid).await.map_err(gone)?;
    Ok(without_name(cx, &attr))
}

/// Whoever may open handles need not be allowed to search directories: the kernel asks for itself.
async fn above(cx: &Cx) -> Answer {
    let fid = cx.fid()?;
    if fid == cx.bridge.fs.root() {
        return Ok(Reply::of(&kernel_root::itself()));
    }
    // What lies above a mount of a subdirectory ends there.
    if fid == Fid::ROOT {
        return Err(Errno::ESTALE);
    }
    let attr = cx.fs().lookup(Call::default(), fid, b"..".to_vec()).await.map_err(gone)?;
    Ok(without_name(cx, &attr))
}

fn without_name(cx: &Cx, attr: &Attr) -> Reply {
    Reply::of(&valid(entry_out(cx.node(attr), attr), Duration::ZERO, cx.attr_valid(attr)))
}
