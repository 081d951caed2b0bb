//! A new inode: owner, group, mode, access lists, project and flags, as POSIX and its directory say.

use super::{RuledInode, dir_size, sectors};
use crate::acl::Acl;
use crate::perm::{self, Subject};
use crate::{Attr, Cred, Fid, FileType, LayoutSpec, Timestamp};

/// FS_*_FL: new files in the directory get its project, new directories this flag as well.
pub const FLAG_PROJINHERIT: u32 = 0x2000_0000;
/// FS_UNRM_FL (`u` of lsattr): what loses its last name in the directory goes into the trash; new directories
/// in it get this flag as well.
pub const FLAG_TRASH: u32 = 0x2;

/// What new files inherit from their directory.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    pub subject: Subject<'a>,
    pub projid: u32,
    /// The directory with a quota that it is counted to.
    pub directory: u32,
    pub default_acl: Option<&'a Acl>,
}

impl<'a> Parent<'a> {
    /// A directory without access lists.
    pub fn plain(dir: &'a Attr) -> Parent<'a> {
        Parent { subject: dir.subject(), projid: dir.projid, directory: dir.directory(), default_acl: None }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    pub cred: &'a Cred,
    pub kind: FileType,
    /// As the caller gave it, the umask not yet applied.
    pub mode: u32,
    pub umask: u32,
    pub now: Timestamp,
}

/// What a new inode has. All its times are the operation's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewInode {
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    pub directory: u32,
    pub flags: u32,
    pub time: Timestamp,
    pub acl: Option<Acl>,
    pub default_acl: Option<Acl>,
}

impl NewInode {
    /// Attributes of the new file, whose symbolic link, if it is one, leads to `symlink`.
    pub fn attr(&self, fid: Fid, symlink: &[u8]) -> Attr {
        let is_dir = self.kind == FileType::Directory;
        let size = if is_dir { dir_size(0) } else { symlink.len() as u64 };
        Attr {
            fid,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            projid: self.projid,
            special: if self.kind.is_device() { 0 } else { u64::from(self.directory) },
            size,
            blocks: if is_dir { sectors(size) } else { 0 },
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            btime: self.time,
            mtime_stamp: self.time,
            flags: self.flags,
            version: 0,
        }
    }
}

/// Links of a new inode: a directory has its `.` besides its name.
pub fn first_links(kind: FileType) -> u32 {
    if kind == FileType::Directory { 2 } else { 1 }
}

pub fn new_inode(dir: &Parent, n: &NewFile) -> NewInode {
    let (is_dir, is_link) = (n.kind == FileType::Directory, n.kind == FileType::Symlink);
    assert_eq!(dir.subject.kind, FileType::Directory, "a new file lies in a directory");
    // mkdir(2) sets no set-id bits.
    let allowed = if is_dir { 0o1777 } else { 0o7777 };
    let (gid, mut mode) = perm::inherit_group(n.cred, &dir.subject, n.kind, n.mode & allowed);
    let (mut acl, mut default_acl) = (None, None);
    match dir.default_acl {
        _ if is_link => {}
        Some(default) => {
            (acl, mode) = default.inherit(mode);
            default_acl = is_dir.then(|| default.clone());
        }
        None => mode &= !(n.umask & 0o777),
    }
    let mut flags = perm::inherit_flags(dir.subject.flags, n.kind);
    let in_project = dir.subject.flags & FLAG_PROJINHERIT != 0;
    if in_project && is_dir {
        flags |= FLAG_PROJINHERIT;
    }
    if is_dir {
        flags |= dir.subject.flags & FLAG_TRASH;
    }
    assert_eq!(mode & !0o7777, 0, "a mode has permission, set-id and sticky bits only");
    let agrees = acl.as_ref().is_none_or(|a| a.mode_bits() == mode & 0o777);
    assert!(agrees, "a mode and the access list beside it say the same");
    NewInode {
        kind: n.kind,
        mode,
        nlink: first_links(n.kind),
        uid: n.cred.uid,
        gid,
        projid: if in_project { dir.projid } else { 0 },
        directory: dir.directory,
        flags,
        time: n.now,
        acl,
        default_acl,
    }
}

/// The default layout of a new directory: its parent's. The root's is the file system's: it is asked at the
/// end of every chain, and is not copied.
pub fn default_layout_of(parent: Fid, its_default: Option<&LayoutSpec>) -> Option<LayoutSpec> {
    its_default.filter(|_| parent != Fid::ROOT).cloned()
}
