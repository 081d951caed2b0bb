//! What operations make of inodes. The metadata server applies these rules to its records, and a client that
//! executes an operation under exclusive leases applies them to the attributes that it keeps: both come to
//! the same, so the server's answer to a batch need not say what became of the inodes.
//!
//! The rules change an inode where it is kept ([`RuledInode`]): nothing is converted for them. Every number
//! that grows with a change of the inode (`version`) is [`written`]'s.
//!
//! What remains different, and why:
//! - *What is refused.* The server says why; a client that finds the same rule against an operation asks the
//!   server, whose errno is the answer. So the client has no errors of its own.
//! - *What the client leaves to the server at once*: inodes with access lists or extended attributes (it does
//!   not keep them, so `acl` and `default_acl` are `None` there and no capability can go), projects and flags
//!   by `setattr` (ioctls, too rare to be worth it), directories that get another parent (only the server
//!   knows what is above them), hard links and exchanges of names (rare).
//! - *Where the number of a directory's entries comes from.* The server's record has it; a client counts the
//!   names that it keeps. Attributes on the wire have the size only.
//! - *Which blocks of a small file there are.* The server has a key for each; a client keeps a bit for each.
//!   Both ask here which ones a change touches.
//! - *The layout of a new file.* A choice of the server's (it depends on parameters and on the other
//!   targets); an owner is told with its directory what new files in it get.
//! - *The time.* The server bounds a client's clock before it applies a rule (`clamp_time`).

mod data;
mod names;
mod new;
mod set;

pub use data::{BlockRange, DATA_BLOCK_BYTES, blocks_of, blocks_within, cut, data_changed, grow_to, wrote};
pub use names::{
    NamesChange, RenameCheck, check_name, is_dots, linked, may_add, may_enter, may_link, may_rename, moved,
    names_changed, unlinked,
};
pub use new::{
    FLAG_PROJINHERIT, FLAG_TRASH, NewFile, NewInode, Parent, default_layout_of, first_links, new_inode,
};
pub use set::{changes_project, drops_capability, is_nothing, may_set, set};

use crate::acl::Acl;
use crate::perm::Subject;
use crate::{Attr, FileType, Timestamp};

/// `st_blocks` counts these.
const SECTOR_BYTES: u64 = 512;
/// A directory takes one block, and one more for each so many entries.
const ENTRIES_PER_BLOCK: u64 = 64;
const DIR_BLOCK_BYTES: u64 = 4096;

/// An inode as the rules change it, wherever it is kept.
pub trait RuledInode {
    /// As the permission rules see it.
    fn subject(&self) -> Subject<'_>;

    fn fields(&mut self) -> Fields<'_>;

    /// Of a directory, which has so many names now.
    fn set_entries(&mut self, n: u64);

    /// Bytes of data that lie with the inode.
    fn data_size(&self) -> u64;

    fn set_data_size(&mut self, n: u64);
}

/// Fields of an inode that rules change, borrowed from where they are kept.
pub struct Fields<'a> {
    pub kind: FileType,
    pub mode: &'a mut u32,
    pub nlink: &'a mut u32,
    pub uid: &'a mut u32,
    pub gid: &'a mut u32,
    pub projid: &'a mut u32,
    pub flags: &'a mut u32,
    pub atime: &'a mut Timestamp,
    pub mtime: &'a mut Timestamp,
    pub ctime: &'a mut Timestamp,
    pub mtime_stamp: &'a mut Timestamp,
    pub version: &'a mut u64,
    /// The access list where it says more than the mode.
    pub acl: Option<&'a mut Acl>,
}

impl RuledInode for Attr {
    fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            flags: self.flags,
            acl: None,
        }
    }

    fn fields(&mut self) -> Fields<'_> {
        Fields {
            kind: self.kind,
            mode: &mut self.mode,
            nlink: &mut self.nlink,
            uid: &mut self.uid,
            gid: &mut self.gid,
            projid: &mut self.projid,
            flags: &mut self.flags,
            atime: &mut self.atime,
            mtime: &mut self.mtime,
            ctime: &mut self.ctime,
            mtime_stamp: &mut self.mtime_stamp,
            version: &mut self.version,
            acl: None,
        }
    }

    fn set_entries(&mut self, n: u64) {
        self.size = dir_size(n);
        self.blocks = sectors(self.size);
    }

    fn data_size(&self) -> u64 {
        self.size
    }

    fn set_data_size(&mut self, n: u64) {
        self.size = n;
    }
}

/// Size of a directory with so many entries.
pub const fn dir_size(entries: u64) -> u64 {
    DIR_BLOCK_BYTES.saturating_mul(1 + entries / ENTRIES_PER_BLOCK)
}

/// `st_blocks` of so many allocated bytes.
pub const fn sectors(bytes: u64) -> u64 {
    bytes / SECTOR_BYTES
}

/// The inode was changed and is stored, or will be when the server hears of it.
pub fn written(i: &mut impl RuledInode) {
    *i.fields().version += 1;
}

/// The inode changed at `now`; ctime never goes backward.
pub fn touch_ctime(i: &mut impl RuledInode, now: Timestamp) {
    let f = i.fields();
    *f.ctime = (*f.ctime).max(now);
}

/// Its contents changed at `now`: a directory's names, a file's bytes.
pub fn touch_mtime(i: &mut impl RuledInode, now: Timestamp) {
    touch_ctime(i, now);
    let f = i.fields();
    *f.mtime = now;
    *f.mtime_stamp = *f.ctime;
}

#[cfg(test)]
mod tests;
