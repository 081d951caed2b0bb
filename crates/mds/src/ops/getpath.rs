//! getpath: the names of a file, from its back-pointers (`lfs fid2path`).

use crate::MdsError;
use crate::names::OpContext;
use crate::schema::{key, value};
use crate::tx::Tx;
use model::perm::{self, MAY_EXEC, MAY_READ};
use model::{Errno, Fid, limits};
use wire::msg::getpath::{Getpath, GetpathReply};

/// Where a mount shows [`Fid::LOST_FOUND`].
const LOST_FOUND: &[u8] = b".lustre/lost+found/MDT0000";
/// Paths in one reply.
const PATHS_MAX: usize = 1000;
/// Longest path that is built; kernels know none above 4 KiB, relative ones may be longer.
const PATH_MAX_BYTES: usize = 64 << 10;
/// Paths of one reply together.
const REPLY_MAX_BYTES: usize = 1 << 20;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Getpath) -> Result<GetpathReply, Errno> {
    tx.inode(m.fid)?;
    let mut reply = GetpathReply { paths: Vec::new(), links: Vec::new() };
    if m.fid == m.root {
        reply.paths.push(b"/".to_vec());
        return Ok(reply);
    }
    let max = (m.max_paths as usize).clamp(1, PATHS_MAX);
    let prefix = key::backptr_prefix(m.fid);
    let mut refused = None;
    let mut bytes = 0;
    // More links than are shown: some may lie outside the root.
    for (k, v) in tx.scan(&prefix, &key::behind(&prefix), limits::LINK_MAX_LINKS as usize)? {
        let name = value::decode_name(&k, &v)?;
        let (_, parent, _) = key::parse_backptr(&k).ok_or_else(|| damaged(m.fid, "its key is short"))?;
        match path_to(tx, ctx, m.root, parent, &name) {
            Ok(Some(path)) => {
                bytes = path.len().saturating_add(name.len()).saturating_add(bytes);
                reply.paths.push(path);
                reply.links.push((parent, name));
            }
            Ok(None) => {}
            Err(e @ (Errno::EACCES | Errno::ENAMETOOLONG)) => refused = Some(e),
            Err(e) => return Err(e),
        }
        if reply.paths.len() >= max || bytes > REPLY_MAX_BYTES {
            break;
        }
    }
    match (reply.paths.is_empty(), refused) {
        (true, e) => Err(e.unwrap_or(Errno::ENOENT)),
        (false, _) => Ok(reply),
    }
}

fn damaged(fid: Fid, why: &str) -> Errno {
    MdsError::Damaged { what: "back-pointer", key: fid.to_string(), why: why.into() }.into()
}

/// The path of `name` in `parent` below `root`; `None` if it is not below it. `EACCES` if the caller could
/// not find it by looking: who may not search a directory on the way comes no further, and who may not read
/// it does not see its names.
fn path_to(
    tx: &mut Tx,
    ctx: &OpContext,
    root: Fid,
    parent: Fid,
    name: &[u8],
) -> Result<Option<Vec<u8>>, Errno> {
    let mut parts = vec![name.to_vec()];
    let (mut at, mut len) = (parent, name.len());
    while at != root {
        if at == Fid::ROOT {
            return Ok(None);
        }
        let i = tx.promised(at)?;
        perm::access(&ctx.cred, &i.subject(), MAY_EXEC | MAY_READ)?;
        if at == Fid::LOST_FOUND && root == Fid::ROOT {
            // It has no name in the root; a mount shows it there.
            len = LOST_FOUND.len().saturating_add(1).saturating_add(len);
            parts.push(LOST_FOUND.to_vec());
            at = Fid::ROOT;
            continue;
        }
        let prefix = key::backptr_prefix(at);
        // A directory has one name; one that was removed has none.
        let Some((k, v)) = tx.scan(&prefix, &key::behind(&prefix), 1)?.pop() else { return Ok(None) };
        let n = value::decode_name(&k, &v)?;
        len = n.len().saturating_add(1).saturating_add(len);
        if len > PATH_MAX_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        parts.push(n);
        at = i.parent;
    }
    let i = tx.promised(root)?;
    perm::access(&ctx.cred, &i.subject(), MAY_EXEC | MAY_READ)?;
    parts.reverse();
    let path = parts.join(&b'/');
    assert_eq!(path.len(), len, "a path is as long as was counted");
    Ok(Some(path))
}
