//! close: the end of an open. Unknown handles are no error.

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::perm::FLAG_NOATIME;
use model::{Errno, Timestamp, limits};
use wire::msg::close::{Close, CloseReply};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Close) -> Result<CloseReply, Errno> {
    let mut stored = false;
    let open = tx.open_of(ctx.client, m.handle);
    match open {
        Some(open) if open.fid == m.fid => {}
        Some(_) => return Err(Errno::EBADF),
        // It was open under a lease; or the close is done again after a restart, before which the client did
        // not say that it has it open.
        None => {}
    }
    if let (Some(t), Some(mut i)) = (m.atime, tx.try_inode(m.fid)?)
        && i.flags & FLAG_NOATIME == 0
    {
        let t = tx.shared.clamp_time(t, ctx.wall);
        // Such a close may be told after later changes: who set the time of access by hand meanwhile keeps
        // that. A time before the inode's last change would not tell relatime anything.
        let overtaken = i.ctime > ctx.now;
        if !overtaken && t > i.atime && t.nsec < 1_000_000_000 && (i.data_room().is_none() || is_due(&i, t)) {
            // Reading is no change of the inode: ctime stays.
            i.atime = t;
            tx.put_inode(m.fid, &mut i);
            stored = true;
            tx.notes.add(ctx.now, Change::of(RecordKind::Atime, m.fid));
        }
    }
    if let Some(open) = open {
        tx.notes.add_close(ctx.now, m.fid, open.flags);
    }
    tx.remove_open(ctx.client, m.handle)?;
    assert!(tx.open_of(ctx.client, m.handle).is_none(), "a closed handle stands for nothing");
    let i = if stored { tx.try_inode(m.fid)? } else { None };
    Ok(CloseReply { entry: i.map(|i| Box::new(names::entry(tx, m.fid, &i))) })
}

/// relatime. Of data with the inode this server knows best when it was written; with objects the client asked
/// them before it sent the time.
fn is_due(i: &Inode, t: Timestamp) -> bool {
    i.atime <= i.mtime || i.atime <= i.ctime || t.sec.saturating_sub(i.atime.sec) >= limits::RELATIME_SECS
}
