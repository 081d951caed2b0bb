//! Names: which may be made and removed, and what that makes of the inodes on both of its ends.

use super::{FLAG_PROJINHERIT, RuledInode, touch_ctime, touch_mtime};
use crate::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_WRITE, Subject};
use crate::planted::{self, Bug};
use crate::{Cred, Errno, FileType, Timestamp, limits};

/// A name that may be created, removed or looked up. `.` and `..` are the callers' business.
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.len() > limits::NAME_MAX_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    if name.iter().any(|&b| b == b'/' || b == 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Names may be added to the directory, which has `nlink` links. `ENOENT` if it was removed.
pub fn may_add(cred: &Cred, dir: &Subject, nlink: u32) -> Result<(), Errno> {
    if nlink == 0 {
        return Err(Errno::ENOENT);
    }
    perm::may_create(cred, dir)
}

/// A file of this project may get a name in the directory. `EXDEV` if what lies there belongs to another one:
/// a copy does, so mv(1) makes one.
pub fn may_enter(dir: &Subject, dir_projid: u32, projid: u32) -> Result<(), Errno> {
    let other = dir.flags & FLAG_PROJINHERIT != 0 && dir_projid != projid;
    if other { Err(Errno::EXDEV) } else { Ok(()) }
}

/// How the names of a directory change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamesChange {
    /// How many more there are.
    pub names: i64,
    /// How many more of them are directories, whose `..` are links of this one.
    pub dirs: i32,
}

impl NamesChange {
    pub fn added(kind: FileType) -> NamesChange {
        NamesChange { names: 1, dirs: dirs(kind) }
    }

    pub fn removed(kind: FileType) -> NamesChange {
        NamesChange { names: -1, dirs: -dirs(kind) }
    }

    /// A name leads to another file than before.
    pub fn replaced(old: FileType, new: FileType) -> NamesChange {
        NamesChange { names: 0, dirs: dirs(new) - dirs(old) }
    }
}

fn dirs(kind: FileType) -> i32 {
    i32::from(kind == FileType::Directory)
}

/// The names of a directory changed at `now`; it has `entries` of them now, and `dirs` more that are
/// directories.
pub fn names_changed(dir: &mut impl RuledInode, entries: u64, dirs: i32, now: Timestamp) {
    let f = dir.fields();
    assert_eq!(f.kind, FileType::Directory, "only directories have names");
    *f.nlink = f.nlink.saturating_add_signed(dirs);
    dir.set_entries(entries);
    touch_mtime(dir, now);
}

/// One more name may lead to the file. `EPERM` for a directory and for what must not change, `EMLINK` if it
/// has too many.
pub fn may_link(s: &Subject, nlink: u32) -> Result<(), Errno> {
    if s.kind == FileType::Directory || s.flags & (FLAG_APPEND | FLAG_IMMUTABLE) != 0 {
        return Err(Errno::EPERM);
    }
    if nlink >= limits::LINK_MAX_LINKS { Err(Errno::EMLINK) } else { Ok(()) }
}

/// One more name leads to the file.
pub fn linked(i: &mut impl RuledInode, now: Timestamp) {
    let f = i.fields();
    assert_ne!(f.kind, FileType::Directory, "a directory has one name");
    assert!(*f.nlink < limits::LINK_MAX_LINKS, "whether it may be linked is looked at before");
    if !planted::on(Bug::LinkCountForgotten) {
        *f.nlink += 1;
    }
    touch_ctime(i, now);
}

/// One name less leads to the file; true if it was the last.
pub fn unlinked(i: &mut impl RuledInode, now: Timestamp) -> bool {
    touch_ctime(i, now);
    let f = i.fields();
    *f.nlink = if f.kind == FileType::Directory { 0 } else { f.nlink.saturating_sub(1) };
    *f.nlink == 0
}

/// A name of the file was moved.
pub fn moved(i: &mut impl RuledInode, now: Timestamp) {
    touch_ctime(i, now);
}

/// What a rename concerns.
#[derive(Clone, Copy, Debug)]
pub struct RenameCheck<'a> {
    pub old_dir: Subject<'a>,
    pub new_dir: Subject<'a>,
    /// Links of `new_dir`.
    pub new_dir_nlink: u32,
    pub src: Subject<'a>,
    /// What has the new name now, and whether it has names in it.
    pub dst: Option<(Subject<'a>, bool)>,
    /// Projects of `old_dir`, `new_dir`, `src` and `dst`.
    pub projects: [u32; 4],
    pub same_dir: bool,
    pub exchange: bool,
}

/// vfs_rename()'s checks, in its order.
pub fn may_rename(cred: &Cred, r: &RenameCheck) -> Result<(), Errno> {
    let is_dir = |s: &Subject| s.kind == FileType::Directory;
    perm::may_delete(cred, &r.old_dir, &r.src)?;
    match &r.dst {
        None => may_add(cred, &r.new_dir, r.new_dir_nlink)?,
        Some((dst, _)) => {
            perm::may_delete(cred, &r.new_dir, dst)?;
            match (is_dir(&r.src), is_dir(dst)) {
                (true, false) if !r.exchange => return Err(Errno::ENOTDIR),
                (false, true) if !r.exchange => return Err(Errno::EISDIR),
                _ => {}
            }
        }
    }
    if !r.same_dir {
        let [old_dir, new_dir, src, dst] = r.projects;
        may_enter(&r.new_dir, new_dir, src)?;
        if r.exchange {
            may_enter(&r.old_dir, old_dir, dst)?;
        }
        // A directory that gets another parent is written to: its `..` changes.
        if is_dir(&r.src) {
            perm::access(cred, &r.src, MAY_WRITE)?;
        }
        if let Some((dst, _)) = r.dst.filter(|(d, _)| r.exchange && is_dir(d)) {
            perm::access(cred, &dst, MAY_WRITE)?;
        }
    }
    match r.dst {
        Some((dst, full)) if full && is_dir(&dst) && !r.exchange => Err(Errno::ENOTEMPTY),
        _ => Ok(()),
    }
}
