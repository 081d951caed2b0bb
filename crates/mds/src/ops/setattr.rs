//! setattr: modes, owners, times, and the metadata side of a truncate: all of it where the data lies with the
//! inode.

use super::setxattr;
use crate::data;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::tx::Tx;
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_WRITE};
use model::planted::{self, Bug};
use model::{Errno, FileType, SetAttr, SetTime, Timestamp, limits};
use wire::msg::lookup::Entry;
use wire::msg::setattr::Setattr;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Setattr) -> Result<Entry, Errno> {
    let mut i = tx.inode(m.fid)?;
    let s = &m.set;
    check(ctx, &i, s)?;
    if *s == SetAttr::default() && !perm::owns(&ctx.cred, i.uid) {
        // chown(path, -1, -1) by a stranger: allowed, and nothing to do.
        return Ok(names::entry(tx, m.fid, &i));
    }
    let before = (i.kind, i.nlink, i.ctime);
    apply_mode(ctx, &mut i, s);
    if s.uid.is_some() || s.gid.is_some() || s.size.is_some() || s.kill_suid_sgid {
        setxattr::drop_capability(tx, m.fid, &mut i)?;
    }
    if let Some(p) = s.projid {
        i.projid = p;
    }
    if let Some(f) = s.flags {
        i.flags = f;
    }
    if let Some(size) = s.size {
        if size > 0 {
            names::instantiate(tx, m.fid, &mut i)?;
        }
        if i.data_room().is_some() {
            data::check_change(tx, m.fid, &i, size)?;
            data::cut(tx, m.fid, &mut i, size)?;
            i.data.version = i.data.version.saturating_add(1);
        }
        i.touch_mtime(ctx.now);
    }
    i.touch_ctime(ctx.now);
    let at = |t: SetTime| match t {
        SetTime::Now => ctx.now,
        SetTime::At(t) => t,
    };
    if let Some(t) = s.atime {
        i.atime = at(t);
    }
    if let Some(t) = s.mtime {
        i.mtime = at(t);
        i.mtime_stamp = i.ctime;
    }
    assert_eq!((i.kind, i.nlink), (before.0, before.1), "attributes say nothing of a file's names and type");
    assert!(i.ctime >= before.2, "ctime never goes backward");
    tx.put_inode(m.fid, &mut i);
    Ok(names::entry(tx, m.fid, &i))
}

/// Every rule that can refuse, before anything is changed.
fn check(ctx: &OpContext, i: &Inode, s: &SetAttr) -> Result<(), Errno> {
    let c = &ctx.cred;
    let owner = perm::owns(c, i.uid);
    let needs_owner = |yes: bool| if yes && !owner { Err(Errno::EPERM) } else { Ok(()) };
    let sets_time = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
    let frozen = i.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0;
    // Also "now", which whoever may write can set otherwise. A file that can be appended to gets new times.
    let touches = s.atime.is_some() || s.mtime.is_some();
    if touches && i.flags & FLAG_IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    let changes =
        s.mode.is_some() || s.uid.is_some() || s.gid.is_some() || sets_time(s.atime) || sets_time(s.mtime);
    // A change of owner to nobody new comes without anything to set.
    if i.flags & FLAG_IMMUTABLE != 0 && *s == SetAttr::default() {
        return Err(Errno::EPERM);
    }
    if frozen && changes {
        return Err(Errno::EPERM);
    }
    for t in [s.atime, s.mtime].into_iter().flatten() {
        if let SetTime::At(Timestamp { nsec: 1_000_000_000.., .. }) = t {
            return Err(Errno::EINVAL);
        }
    }
    if let Some(size) = s.size {
        match i.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if size > limits::FILE_SIZE_MAX_BYTES {
            return Err(Errno::EFBIG);
        }
        if frozen {
            return Err(Errno::EPERM);
        }
        if !s.by_handle {
            perm::access(c, &i.subject(), MAY_WRITE)?;
        }
    }
    if s.uid.is_some() || s.gid.is_some() {
        perm::may_chown(c, &i.subject(), s.uid, s.gid)?;
    }
    needs_owner(s.mode.is_some())?;
    check_times(ctx, i, s, owner)?;
    if let Some(f) = s.flags {
        needs_owner(true)?;
        let privileged = (f ^ i.flags) & (FLAG_IMMUTABLE | FLAG_APPEND) != 0;
        if privileged && !c.is_root() {
            return Err(Errno::EPERM);
        }
    }
    needs_owner(s.projid.is_some_and(|p| p != i.projid))
}

/// utimensat(2): explicit times, and one of the two left out, are the owner's; "now" for both is for
/// everybody who may write. With a new size "now" comes along.
fn check_times(ctx: &OpContext, i: &Inode, s: &SetAttr, owner: bool) -> Result<(), Errno> {
    let now = |t: Option<SetTime>| matches!(t, None | Some(SetTime::Now));
    match (s.atime, s.mtime) {
        _ if owner => Ok(()),
        (None, None) => Ok(()),
        (a, m) if s.size.is_some() && now(a) && now(m) => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) if s.by_handle => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => perm::access(&ctx.cred, &i.subject(), MAY_WRITE),
        _ => Err(Errno::EPERM),
    }
}

/// Mode and owners. A change of owner takes set-id bits away, whoever makes it; so does a truncate that is
/// not the superuser's.
fn apply_mode(ctx: &OpContext, i: &mut Inode, s: &SetAttr) {
    let mut mode = i.mode;
    let chown = s.uid.is_some() || s.gid.is_some();
    if chown || s.kill_suid_sgid || (s.size.is_some() && !ctx.cred.is_root()) {
        mode = perm::kill_suid_sgid(i.kind, mode);
    }
    if let Some(u) = s.uid {
        i.uid = u;
    }
    if let Some(g) = s.gid {
        i.gid = g;
    }
    if let Some(m) = s.mode {
        mode = perm::chmod_mode(&ctx.cred, i.gid, m);
    }
    if (mode != i.mode || s.mode.is_some()) && !planted::on(Bug::LostMode) {
        i.set_mode(mode);
    }
}
