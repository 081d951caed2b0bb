//! Changes of attributes: chmod(2), chown(2), utimensat(2), truncate(2), and what data's changes take away.

use super::{FLAG_PROJINHERIT, FLAG_TRASH, RuledInode, touch_ctime, touch_mtime};
use crate::nodemap::Owner;
use crate::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_WRITE, Subject};
use crate::planted::{self, Bug};
use crate::{Cred, Errno, FileType, SetAttr, SetTime, Timestamp, limits};

/// Every rule that can refuse, before anything is changed. `projid` is the file's.
pub fn may_set(cred: &Cred, i: &Subject, projid: u32, s: &SetAttr) -> Result<(), Errno> {
    let owner = perm::owns(cred, i.uid);
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
        check_size(cred, i, s, size)?;
    }
    if s.uid.is_some() || s.gid.is_some() {
        perm::may_chown(cred, i, s.uid, s.gid)?;
    }
    needs_owner(s.mode.is_some())?;
    check_times(cred, i, s, owner)?;
    if let Some(f) = s.flags {
        needs_owner(true)?;
        let privileged = (f ^ i.flags) & (FLAG_IMMUTABLE | FLAG_APPEND) != 0;
        if privileged && !cred.is_root() {
            return Err(Errno::EPERM);
        }
    }
    needs_owner(s.projid.is_some_and(|p| p != projid))?;
    // Who may, beside the owner being it, is the metadata target's to say (`enable_chprojid_gid`).
    match s.flags {
        // Clients have such a directory given back first: `trashdir` does that.
        Some(f) if (f ^ i.flags) & FLAG_TRASH != 0 => Err(Errno::EOPNOTSUPP),
        Some(f) if f & FLAG_PROJINHERIT != 0 && i.kind != FileType::Directory => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

/// Whether it changes which project something belongs to, or what comes into being in it.
pub fn changes_project(i: &Subject, projid: u32, s: &SetAttr) -> bool {
    s.projid.is_some_and(|p| p != projid) || s.flags.is_some_and(|f| (f ^ i.flags) & FLAG_PROJINHERIT != 0)
}

fn check_size(cred: &Cred, i: &Subject, s: &SetAttr, size: u64) -> Result<(), Errno> {
    match i.kind {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    if size > limits::FILE_SIZE_MAX_BYTES {
        return Err(Errno::EFBIG);
    }
    if i.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    if s.by_handle { Ok(()) } else { perm::access(cred, i, MAY_WRITE) }
}

/// utimensat(2): explicit times, and one of the two left out, are the owner's; "now" for both is for
/// everybody who may write. With a new size "now" comes along.
fn check_times(cred: &Cred, i: &Subject, s: &SetAttr, owner: bool) -> Result<(), Errno> {
    let now = |t: Option<SetTime>| matches!(t, None | Some(SetTime::Now));
    match (s.atime, s.mtime) {
        _ if owner => Ok(()),
        (None, None) => Ok(()),
        (a, m) if s.size.is_some() && now(a) && now(m) => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) if s.by_handle => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => perm::access(cred, i, MAY_WRITE),
        _ => Err(Errno::EPERM),
    }
}

/// chown(path, -1, -1) by a stranger: allowed, and nothing to do.
pub fn is_nothing(cred: &Cred, uid: u32, s: &SetAttr) -> bool {
    *s == SetAttr::default() && !perm::owns(cred, uid)
}

/// File capabilities are those of the program as it was: what changes its data or owner takes them away.
pub fn drops_capability(s: &SetAttr) -> bool {
    s.uid.is_some() || s.gid.is_some() || s.size.is_some() || s.kill_suid_sgid
}

/// The change, which is permitted. The data of a new size is the caller's ([`super::cut`]).
pub fn set(i: &mut impl RuledInode, s: &SetAttr, cred: &Cred, now: Timestamp) {
    let (before, owner) = (*i.fields().ctime, owner_of(i));
    set_mode_and_owner(i, s, cred);
    *i.fields().projid = s.projid.unwrap_or(*i.fields().projid);
    if s.size.is_some() {
        touch_mtime(i, now);
    }
    // Whoever names the owner says as of which ctime: no two owners have the same.
    let changed = if owner_of(i) == owner { now } else { now.max(before.plus_nanos(1)) };
    touch_ctime(i, changed);
    let at = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::At(t) => t,
    };
    let f = i.fields();
    *f.flags = s.flags.unwrap_or(*f.flags);
    *f.atime = s.atime.map_or(*f.atime, at);
    if let Some(t) = s.mtime {
        *f.mtime = at(t);
        *f.mtime_stamp = *f.ctime;
    }
    assert!(*f.ctime >= before, "ctime never goes backward");
}

fn owner_of(i: &mut impl RuledInode) -> Owner {
    let f = i.fields();
    Owner::new(*f.uid, *f.gid, *f.projid)
}

/// A change of owner takes set-id bits away, whoever makes it; so does a truncate that is not the
/// superuser's.
fn set_mode_and_owner(i: &mut impl RuledInode, s: &SetAttr, cred: &Cred) {
    let f = i.fields();
    let mut mode = *f.mode;
    let chown = s.uid.is_some() || s.gid.is_some();
    if chown || s.kill_suid_sgid || (s.size.is_some() && !cred.is_root()) {
        mode = perm::kill_suid_sgid(f.kind, mode);
    }
    *f.uid = s.uid.unwrap_or(*f.uid);
    *f.gid = s.gid.unwrap_or(*f.gid);
    if let Some(m) = s.mode {
        mode = perm::chmod_mode(cred, *f.gid, m);
    }
    if (mode == *f.mode && s.mode.is_none()) || planted::on(Bug::LostMode) {
        return;
    }
    *f.mode = mode & 0o7777;
    if let Some(acl) = f.acl {
        acl.chmod(mode);
    }
}
