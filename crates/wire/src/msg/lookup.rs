//! lookup: a name in a directory; and leases, which its answer and others' bring along.

use model::{Attr, Fid, Layout};
use serde::{Deserialize, Serialize};

/// Parts of a file that a lease covers, as bits.
pub mod bits {
    /// A directory's entries: which names there are, which are not, and what they name.
    pub const LOOKUP: u8 = 1;
    /// The inode: attributes, access lists, extended attributes, layout, a symbolic link's target.
    pub const UPDATE: u8 = 2;
    /// The layout alone: where a file's data lies. Who changes it asks for this and for [`UPDATE`]; who
    /// changes something else of the inode leaves it, so that open files keep their layouts.
    pub const LAYOUT: u8 = 4;
    /// All that an inode is known by.
    pub const INODE: u8 = UPDATE | LAYOUT;
    /// All that a directory is known by.
    pub const DIRECTORY: u8 = LOOKUP | UPDATE;
    /// Every bit that there is.
    pub const ALL: u8 = LOOKUP | INODE;
}

/// What a reply shows may be kept until the server asks for it back ([`super::notify::Notify::Revoke`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// [`bits`]; never none.
    pub bits: u8,
    /// Of the target's counter: the epoch in the upper 24 bits, grows with each grant.
    pub seq: u64,
    /// All of `bits` are exclusive: no other client may look at what they cover, so that its holder may
    /// change it first and tell the server later ([`super::own`]). Otherwise they are shared.
    pub exclusive: bool,
}

/// A file as the metadata server knows it: what lookup, getattr, create and their kin return.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub attr: Attr,
    /// Of regular files with objects.
    pub layout: Option<Layout>,
    /// A lease on this file.
    pub grant: Option<Grant>,
    /// A lease on the entries of the directory in which the file was given a name.
    pub dir_grant: Option<Grant>,
    /// Of a directory: where `..` leads. Otherwise [`Fid::NONE`].
    pub parent: Fid,
    /// Of a symbolic link: where it leads.
    pub symlink: Vec<u8>,
    /// It has no extended attributes and no access lists beyond the mode.
    pub plain: bool,
    /// So many bytes of the reply's bulk, behind those of entries before it, are the whole data of this file,
    /// which lies with its inode. `None`: it was not asked for, is too much, or lies on objects.
    pub content: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lookup {
    pub parent: Fid,
    /// `..` names the parent of a directory; an empty name the directory itself.
    pub name: Vec<u8>,
    /// A file's data is to come along if it lies with its inode and is no more than so many bytes.
    pub data: u32,
}

/// A name that is not there is an answer, not an error: it may be kept like one that is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LookupReply {
    pub entry: Option<Entry>,
    /// A lease on the directory's entries.
    pub dir_grant: Option<Grant>,
}
message!(Lookup, Lookup, LookupReply);
