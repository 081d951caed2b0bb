//! Files by their FIDs: `.lustre/fid/FID`, and the same as `.nacre/fid/FID`, in the root of a mount of the
//! whole file system. No listing shows the two. A directory is shown as a symbolic link to its path: the
//! kernel knows a directory by one name only, and would move it here.

use super::readdir::Page;
use super::{Cx, gone, now};
use crate::abi::{AttrOut, EntryOut, FuseAttr, OpenOut, ReadIn, StatxOut};
use crate::nodes::{LINKS, is_made_up, link_to, linked};
use crate::reply::{Answer, Reply, entry_out, made_up, valid};
use crate::request::Op;
use client::{Admin, Call};
use model::{Attr, Errno, Fid, FileType};
use std::time::Duration;
use world::BoxFuture;

/// Names in the root, each with its node. The node behind it is its `fid`.
const NAMES: &[(&[u8], u64)] = &[(b".lustre", 2), (b".nacre", 4)];
const FID: &[u8] = b"fid";
/// In `.lustre` only: what a check of the file system could not put back, by metadata target. The kernel
/// knows a directory by one name.
const LOST_FOUND: (&[u8], u64) = (b"lost+found", 6);
const OF_MDT: &[u8] = b"MDT0000";

fn node_of(name: &[u8]) -> Option<u64> {
    NAMES.iter().find(|(n, _)| *n == name).map(|(_, node)| *node)
}

/// What a request gets that is about one of these; none that is about a file.
pub fn answer(cx: &Cx, op: &Op) -> Option<BoxFuture<Answer>> {
    if !is_made_up(cx.node) {
        return in_root(cx, op);
    }
    if let Some(fid) = linked(cx.node) {
        return Some(of_link(cx, fid, op));
    }
    if cx.node == LOST_FOUND.1 {
        return lost_found(cx, op);
    }
    let is_top = NAMES.iter().any(|(_, node)| *node == cx.node);
    if !is_top && !NAMES.iter().any(|(_, node)| node + 1 == cx.node) {
        return None;
    }
    Some(now(match op {
        Op::Lookup(name) if name == FID && is_top => Ok(Reply::of(&directory_entry(cx.node + 1))),
        Op::Lookup(name) if name == LOST_FOUND.0 && cx.node == NAMES[0].1 => {
            Ok(Reply::of(&directory_entry(LOST_FOUND.1)))
        }
        Op::Lookup(name) if !is_top => return Some(Box::pin(file(cx.clone(), name.clone()))),
        Op::Lookup(_) => Err(Errno::ENOENT),
        Op::Opendir(_) => opened(cx),
        Op::Readdir { arg, plus } => {
            let below: &[(&[u8], u64)] = if cx.node == NAMES[0].1 {
                &[(FID, NAMES[0].1 + 1), LOST_FOUND]
            } else if is_top {
                &[(FID, NAMES[1].1 + 1)]
            } else {
                &[]
            };
            Ok(Reply::data(listing(cx.node, below, arg, *plus)))
        }
        _ => return of_any(directory(cx.node), op).map(now),
    }))
}

/// The names in the root: looked up, and never made or removed.
fn in_root(cx: &Cx, op: &Op) -> Option<BoxFuture<Answer>> {
    let is_root = |node| cx.bridge.fs.root() == Fid::ROOT && cx.bridge.nodes.fid(node) == Ok(Fid::ROOT);
    match op {
        Op::Lookup(name) => {
            let node = node_of(name).filter(|_| is_root(cx.node))?;
            Some(now(Ok(Reply::of(&directory_entry(node)))))
        }
        Op::Rename { newdir, new_name, .. } if node_of(new_name).is_some() && is_root(*newdir) => {
            Some(now(Err(Errno::EPERM)))
        }
        Op::Rename { name, .. } | Op::Rmdir(name) if node_of(name).is_some() && is_root(cx.node) => {
            Some(now(Err(Errno::EPERM)))
        }
        _ => None,
    }
}

/// Of what is no file: attributes, and nothing to change. `None`: of the whole mount.
fn of_any(attr: FuseAttr, op: &Op) -> Option<Answer> {
    Some(match op {
        Op::Getattr(_) => Ok(Reply::of(&AttrOut { attr, ..AttrOut::default() })),
        Op::Statx(_) => {
            Ok(Reply::of(&StatxOut { stat: super::statx::of_fuse(&attr), ..StatxOut::default() }))
        }
        Op::Getxattr(..) => Err(Errno::ENODATA),
        Op::Listxattr(a) => super::getxattr::sized(a.size, Vec::new()),
        Op::Fsyncdir(_) => Ok(Reply::empty()),
        Op::Statfs | Op::Syncfs | Op::Destroy | Op::Access(_) => return None,
        _ => Err(Errno::EPERM),
    })
}

fn of_link(cx: &Cx, fid: Fid, op: &Op) -> BoxFuture<Answer> {
    match op {
        Op::Readlink => Box::pin(target(cx.clone(), fid)),
        _ => now(of_any(link(cx.node), op).unwrap_or(Err(Errno::ENOSYS))),
    }
}

/// The file, as it is anywhere else.
async fn file(cx: Cx, name: Vec<u8>) -> Answer {
    let fid = std::str::from_utf8(&name).ok().and_then(|n| n.parse::<Fid>().ok()).ok_or(Errno::ENOENT)?;
    let attr = attr_of(&cx, fid).await?;
    // Others than root are shown what they could find by its path.
    if cx.uid != 0 && !is_found(&cx, fid).await? {
        return Err(Errno::ENOENT);
    }
    if attr.kind != FileType::Directory {
        return entry(&cx, &attr);
    }
    let node = link_to(fid).ok_or(Errno::ENOENT)?;
    Ok(Reply::of(&EntryOut { nodeid: node, attr: link(node), ..EntryOut::default() }))
}

async fn attr_of(cx: &Cx, fid: Fid) -> Result<Attr, Errno> {
    let absent = |e| if gone(e) == Errno::ESTALE { Errno::ENOENT } else { e };
    cx.fs().getattr_for_open(Call::default(), fid).await.map_err(absent)
}

/// An entry whose name is asked for again each time.
fn entry(cx: &Cx, attr: &Attr) -> Answer {
    Ok(Reply::of(&valid(entry_out(cx.node(attr), attr), Duration::ZERO, cx.attr_valid(attr))))
}

async fn is_found(cx: &Cx, fid: Fid) -> Result<bool, Errno> {
    match Admin(&cx.bridge.fs).getpath(cx.call(), fid).await {
        Ok((paths, _)) => Ok(!paths.is_empty()),
        Err(Errno::ENOENT | Errno::EACCES | Errno::EPERM | Errno::ESTALE) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Where a directory is, from here.
async fn target(cx: Cx, fid: Fid) -> Answer {
    let (paths, _) = Admin(&cx.bridge.fs).getpath(cx.call(), fid).await.map_err(|e| match e {
        Errno::ESTALE => Errno::ENOENT,
        e => e,
    })?;
    let path = paths.first().ok_or(Errno::ENOENT)?;
    let below = path.strip_prefix(b"/").unwrap_or(path);
    Ok(Reply::data([b"../../", below].concat()))
}

fn opened(cx: &Cx) -> Answer {
    let root = cx.bridge.fs.root();
    let fh = cx.bridge.handles.insert_dir(root, cx.fs().watch_errors(root));
    Ok(Reply::of(&OpenOut { fh, open_flags: 0, backing_id: 0 }))
}

fn listing(node: u64, below: &[(&[u8], u64)], a: &ReadIn, plus: bool) -> Vec<u8> {
    assert!(is_made_up(node), "what is listed here is no directory of the file system's");
    let mut page = Page::new(a.size, plus);
    let own: [(&[u8], u64); 2] = [(b".", node), (b"..", node)];
    for (off, (name, ino)) in (1..).zip(own.iter().chain(below)).skip(a.offset.min(8) as usize) {
        if page.fits(name) {
            page.push(*ino, off, FileType::Directory, name);
        }
    }
    assert!(page.out.len() <= a.size as usize, "a page is as large as the kernel has room, or smaller");
    page.out
}

/// `.lustre/lost+found`: one directory for each metadata target, which is there when something was found.
fn lost_found(cx: &Cx, op: &Op) -> Option<BoxFuture<Answer>> {
    Some(match op {
        Op::Lookup(name) if name == OF_MDT => Box::pin(found_by_mdt(cx.clone())),
        Op::Lookup(_) => now(Err(Errno::ENOENT)),
        Op::Opendir(_) => now(opened(cx)),
        Op::Readdir { arg, plus } => {
            let (cx, arg, plus) = (cx.clone(), *arg, *plus);
            Box::pin(async move {
                let there = cx.fs().getattr_for_open(Call::default(), Fid::LOST_FOUND).await.is_ok();
                let below = [(OF_MDT, Fid::LOST_FOUND.ino())];
                let shown = if there { &below[..] } else { &[] };
                Ok(Reply::data(listing(cx.node, shown, &arg, plus)))
            })
        }
        _ => return of_any(made_up(cx.node, libc::S_IFDIR | 0o700), op).map(now),
    })
}

async fn found_by_mdt(cx: Cx) -> Answer {
    if cx.uid != 0 {
        return Err(Errno::EACCES);
    }
    entry(&cx, &attr_of(&cx, Fid::LOST_FOUND).await?)
}

fn directory_entry(node: u64) -> EntryOut {
    EntryOut { nodeid: node, attr: directory(node), ..EntryOut::default() }
}

fn directory(node: u64) -> FuseAttr {
    made_up(node, libc::S_IFDIR | 0o555)
}

fn link(node: u64) -> FuseAttr {
    assert!(node & LINKS != 0, "links have ids of their own");
    made_up(node, libc::S_IFLNK | 0o777)
}
