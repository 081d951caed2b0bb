//! Attributes of a file as POSIX shows them, and changes to them.

use crate::nodemap::Owner;
use crate::{Fid, Timestamp};
use serde::{Deserialize, Serialize};

pub const S_IFMT: u32 = 0o170000;
pub const S_ISUID: u32 = 0o4000;
pub const S_ISGID: u32 = 0o2000;
pub const S_ISVTX: u32 = 0o1000;
/// The extended attribute that holds a program's file capabilities.
pub const XATTR_CAPABILITY: &[u8] = b"security.capability";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, PartialOrd, Ord, Hash)]
pub enum FileType {
    Regular,
    Directory,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl FileType {
    pub fn is_device(self) -> bool {
        matches!(self, FileType::CharDevice | FileType::BlockDevice)
    }

    /// The `S_IFMT` bits.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Fifo => 0o010000,
            FileType::CharDevice => 0o020000,
            FileType::Directory => 0o040000,
            FileType::BlockDevice => 0o060000,
            FileType::Regular => 0o100000,
            FileType::Symlink => 0o120000,
            FileType::Socket => 0o140000,
        }
    }

    /// From a mode's `S_IFMT` bits; `None` if they name no type. Zero means regular, as in mknod(2).
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & S_IFMT {
            0o010000 => FileType::Fifo,
            0o020000 => FileType::CharDevice,
            0o040000 => FileType::Directory,
            0o060000 => FileType::BlockDevice,
            0 | 0o100000 => FileType::Regular,
            0o120000 => FileType::Symlink,
            0o140000 => FileType::Socket,
            _ => return None,
        })
    }

    /// `d_type` of readdir(3).
    pub fn d_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// Attributes of one file. `mode` holds permission and set-id bits only; the type is in `kind`.
/// For a regular file with objects `size`, `blocks` and the times are the metadata server's part until
/// the client merged the objects' ([`Attr::merge_object`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    pub fid: Fid,
    pub kind: FileType,
    /// Permission bits with set-uid, set-gid and sticky: `mode & 0o7777`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// [`Attr::device`] of a device node, [`Attr::directory`] of any other file: the messages of the first
    /// version have room for one of them.
    pub special: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated space in 512-byte blocks.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// The inode's ctime when the metadata server last set `mtime` (create, utimes, truncate, for a directory
    /// each change of its entries), and only then: a chmod, link or rename moves `ctime` and leaves this, so
    /// that a write's mtime, known to an object, outlives them.
    pub mtime_stamp: Timestamp,
    /// FS_*_FL flags (immutable, append …).
    pub flags: u32,
    /// Grows with each change of the inode on its metadata server.
    pub version: u64,
}

impl Attr {
    /// Device number of a device node, in Linux's `makedev` encoding; 0 of other files.
    pub fn device(&self) -> u64 {
        if self.kind.is_device() { self.special } else { 0 }
    }

    /// The innermost directory with a quota that the file is counted to; 0: none. Of device nodes only the
    /// metadata target knows it.
    pub fn directory(&self) -> u32 {
        if self.kind.is_device() { 0 } else { u32::try_from(self.special).unwrap_or(0) }
    }

    /// To whom it is counted.
    pub fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid, projid: self.projid, directory: self.directory() }
    }

    /// `st_mode`.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | (self.mode & 0o7777)
    }

    /// Takes a data object's newer times in: who set the mtime later, by ctime, knows it (on a tie the
    /// metadata server, since an explicit utimes(2) lands there); ctime only grows.
    pub fn merge_object(&mut self, o: &ObjectAttr) {
        if o.ctime > self.mtime_stamp {
            self.mtime = o.mtime;
            self.mtime_stamp = o.ctime;
        }
        self.ctime = self.ctime.max(o.ctime);
        self.blocks += o.blocks;
    }
}

/// What an OST knows of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectAttr {
    /// Object (not file) size in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Grows with each change of the object's data.
    pub data_version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The time of the request.
    Now,
    At(Timestamp),
}

/// A change of attributes; `None` leaves a field as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub projid: Option<u32>,
    /// On the metadata server: checks the right to write, clears set-id bits and stamps mtime and ctime;
    /// the objects are cut by the client (see `client/src/llite/setattr.rs`).
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The file's data changes by a caller without CAP_FSETID: set-id bits and file capabilities go.
    pub kill_suid_sgid: bool,
    pub flags: Option<u32>,
    /// The caller holds the file open for writing: permission was checked at open.
    pub by_handle: bool,
}
