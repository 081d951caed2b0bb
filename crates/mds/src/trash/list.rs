//! What lies in the trash, for who may see it, with the way to where it was.

use crate::MdsError;
use crate::names::OpContext;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::perm::{self, MAY_EXEC, MAY_READ};
use model::{Errno, Fid, FileType, limits};
use std::collections::BTreeMap;
use wire::msg::trashlist::{Trashed, Trashlist, TrashlistReply};

/// Records that are looked at for one answer.
const LOOK_MAX: usize = 1000;
/// About the bytes of an answer; one file more at most.
const ANSWER_BYTES: usize = 256 << 10;
/// About what a file takes beside its names, and each object of its layout.
const FILE_BYTES: usize = 220;
const OBJECT_BYTES: usize = 24;
/// Directories above each other that are climbed.
const LEVELS_MAX: usize = 1000;

/// How a directory is reached.
#[derive(Clone)]
struct Way {
    /// Below the directory that was asked for; `None`: the caller may not know, or it is gone.
    path: Option<Vec<u8>>,
    /// Those on it that lie in the trash, the outermost first.
    removed: Vec<Fid>,
}

pub fn page(tx: &mut Tx, ctx: &OpContext, m: &Trashlist) -> Result<TrashlistReply, Errno> {
    tx.dir(m.under)?;
    let from = match m.after {
        Some((when, fid)) => key::behind(&key::trash(when, fid)),
        None => vec![key::TRASH],
    };
    let mut ways: BTreeMap<Fid, Option<Way>> = BTreeMap::new();
    let mut reply = TrashlistReply::default();
    let mut bytes = 0usize;
    let page = tx.scan(&from, &[key::TRASH + 1], LOOK_MAX)?;
    let (looked, is_last) = (page.len(), page.len() < LOOK_MAX);
    for (n, (k, _)) in page.into_iter().enumerate() {
        let (when, fid) = key::parse_trash(&k).ok_or_else(|| damaged(&k))?;
        if let Some(i) = tx.try_inode(fid)?
            && (ctx.cred.is_root() || ctx.cred.uid == i.uid)
            && let Some(r) = i.removed.clone()
        {
            let way = match ways.get(&r.parent) {
                Some(known) => known.clone(),
                None => {
                    let way = way_to(tx, ctx, m.under, r.parent)?;
                    ways.insert(r.parent, way.clone());
                    way
                }
            };
            if let Some(w) = way {
                let layout = i.layout.clone().filter(|_| i.kind == FileType::Regular);
                let objects = layout.as_ref().map_or(0, |l| l.objects().count());
                let path = w.path.as_ref().map_or(0, Vec::len);
                let size = [FILE_BYTES, r.name.len(), path, objects.saturating_mul(OBJECT_BYTES)];
                bytes = size.into_iter().fold(bytes, usize::saturating_add);
                let (attr, by) = (i.attr(fid), r.by);
                let (way, removed) = (w.path, w.removed);
                reply.files.push(Trashed {
                    attr,
                    layout,
                    when,
                    by,
                    parent: r.parent,
                    name: r.name,
                    way,
                    removed,
                });
            }
        }
        let last_of_all = is_last && n + 1 == looked;
        if !last_of_all && (bytes >= ANSWER_BYTES || n + 1 == looked) {
            reply.next = Some((when, fid));
            break;
        }
    }
    Ok(reply)
}

fn damaged(k: &[u8]) -> MdsError {
    MdsError::Damaged { what: "record of the trash", key: value::hex(k), why: "its key is short".into() }
}

/// The way from `under` to a directory, through the trash as well; `None`: it does not lie below it.
fn way_to(tx: &mut Tx, ctx: &OpContext, under: Fid, dir: Fid) -> Result<Option<Way>, Errno> {
    let (mut parts, mut removed, mut at) = (Vec::new(), Vec::new(), dir);
    let mut seen = true;
    for _ in 0..LEVELS_MAX {
        let inode = tx.try_inode(at)?;
        // What is gone for good lay somewhere in the file system.
        let Some(i) = inode else {
            return Ok((under == Fid::ROOT).then_some(Way { path: None, removed }));
        };
        seen &= perm::access(&ctx.cred, &i.subject(), MAY_EXEC | MAY_READ).is_ok();
        if at == under {
            parts.reverse();
            removed.reverse();
            let path = parts.join(&b'/');
            let path = Some(path).filter(|p| seen && p.len() <= limits::PATH_MAX_BYTES);
            return Ok(Some(Way { path, removed }));
        }
        if at == Fid::ROOT {
            return Ok(None);
        }
        let (name, parent) = match step(tx, at, i)? {
            Some(step) => step,
            None => return Ok((under == Fid::ROOT).then_some(Way { path: None, removed })),
        };
        if parent.1 {
            removed.push(at);
        }
        parts.push(name);
        at = parent.0;
    }
    Ok(None)
}

/// The name of a directory, and where it has or had it: in the trash if the second says so. `None`: it was
/// removed for good.
#[allow(clippy::type_complexity)]
fn step(tx: &mut Tx, fid: Fid, i: Inode) -> Result<Option<(Vec<u8>, (Fid, bool))>, Errno> {
    if let Some(r) = i.removed {
        return Ok(Some((r.name, (r.parent, true))));
    }
    let prefix = key::backptr_prefix(fid);
    match tx.scan(&prefix, &key::behind(&prefix), 1)?.pop() {
        Some((k, v)) => Ok(Some((value::decode_name(&k, &v)?, (i.parent, false)))),
        None => Ok(None),
    }
}
