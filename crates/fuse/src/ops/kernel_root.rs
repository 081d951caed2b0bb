//! The kernel's root, which no path leads to (`mount.rs`): a directory with one name in it, that of the root
//! that users see. It is answered without a server.

use super::Cx;
use crate::abi::{AttrOut, EntryOut, FuseAttr, ROOT_ID};
use crate::mount::VISIBLE_ROOT;
use crate::reply::{Answer, Reply, made_up};
use crate::request::Op;
use model::Errno;

/// What a request is answered that is about the kernel's root; none that is about it or about the whole.
pub fn answer(cx: &Cx, op: &Op) -> Option<Answer> {
    let whole = matches!(op, Op::Statfs | Op::Syncfs | Op::Destroy);
    if cx.node != ROOT_ID || whole {
        return None;
    }
    Some(match op {
        Op::Getattr(_) => Ok(Reply::of(&AttrOut { attr: directory(ROOT_ID), ..AttrOut::default() })),
        Op::Lookup(name) if name == VISIBLE_ROOT.as_bytes() => Ok(Reply::of(&visible(cx))),
        Op::Lookup(_) => Err(Errno::ENOENT),
        // Somebody has a handle of it (open_by_handle_at(2)), and nothing to do there.
        _ => Err(Errno::ESTALE),
    })
}

/// The kernel asks for the attributes when it needs them.
fn visible(cx: &Cx) -> EntryOut {
    let root = cx.bridge.fs.root();
    let node = cx.bridge.nodes.remember(root);
    assert!(node.id != ROOT_ID, "what is mounted is another inode than the kernel's root");
    EntryOut {
        nodeid: node.id,
        generation: node.generation,
        attr: directory(root.ino()),
        ..EntryOut::default()
    }
}

/// The kernel's root itself.
pub fn itself() -> EntryOut {
    EntryOut { nodeid: ROOT_ID, attr: directory(ROOT_ID), ..EntryOut::default() }
}

fn directory(ino: u64) -> FuseAttr {
    made_up(ino, libc::S_IFDIR | 0o755)
}
