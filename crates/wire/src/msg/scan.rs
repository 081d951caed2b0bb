//! scan: files below a directory that may fit some conditions, in the order of their FIDs, with the
//! directories that lead to them (`lfs find`, `nacre report`).

use model::{Attr, Fid, Layout};
use serde::{Deserialize, Serialize};

/// Conditions of one request.
pub const TESTS_MAX: usize = 64;
/// OSTs that one condition may name.
pub const OSTS_MAX: usize = 1 << 16;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scan {
    /// The directory below which files are looked for; it is none of them.
    pub root: Fid,
    /// `None`: from the first one.
    pub after: Option<Cursor>,
    /// All of them must hold, as far as the metadata server knows it.
    pub tests: Vec<Test>,
}

/// How far a scan came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cursor {
    /// The file that was looked at last.
    pub file: Fid,
    /// It has more names, behind this one: parent and cookie.
    pub name: Option<(Fid, u64)>,
}

/// A condition on a file. What only object servers know of it counts as fitting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Test {
    pub negated: bool,
    pub condition: Condition,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Condition {
    /// One of these types: bit `1 << d_type` each.
    Types(u16),
    /// A number from the first to the last, both included.
    Within(Number, i64, i64),
    /// Flags (FS_*_FL) that are all set, and flags that are not.
    Flags { with: u32, without: u32 },
    /// The permission bits under the mask are these.
    Mode { mask: u32, bits: u32 },
    /// Some object lies on one of these OSTs.
    Osts(Vec<u16>),
    /// The first object of the component that tells lies on one of these OSTs.
    FirstOst(Vec<u16>),
    /// The component that tells, or a directory's default, is of this pool.
    Pool(Vec<u8>),
}

/// What is compared. Of several components the last one that has objects tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Number {
    Uid,
    Gid,
    Project,
    Links,
    /// Bytes.
    Size,
    /// Bytes of space that it takes.
    Space,
    /// Seconds since 1970, as the other times.
    Atime,
    Mtime,
    Ctime,
    Btime,
    StripeCount,
    /// Bytes.
    StripeSize,
}

/// The directory that [`Scan::root`] is, as [`Directory::parent`] and [`Name::parent`] have it.
pub const ROOT_PLACE: u32 = u32::MAX;

/// Some of the files.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ScanReply {
    pub files: Vec<Found>,
    /// Those that lead to what is found; each behind its parent.
    pub dirs: Vec<Directory>,
    /// Directories that the caller reaches, but may not both read and search: what is below them is not here.
    pub closed: Vec<Name>,
    /// Files whose records cannot be read.
    pub damaged: Vec<Fid>,
    /// Names that are left out: the way to them is longer than any path.
    pub too_long: u32,
    /// Files that were looked at.
    pub looked: u32,
    /// Ask again with this; `None`: that was all.
    pub next: Option<Cursor>,
}

impl ScanReply {
    /// Whether there is nothing in it but how far it came.
    pub fn holds_nothing(&self) -> bool {
        self.files.is_empty() && self.closed.is_empty() && self.damaged.is_empty() && self.too_long == 0
    }
}

/// A file that may fit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// As the metadata server knows them.
    pub attr: Attr,
    /// Of a regular file.
    pub layout: Option<Layout>,
    /// All of its names below the root that the caller may see, or, of very many, some.
    pub names: Vec<Name>,
}

/// A directory on the way to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Directory {
    pub fid: Fid,
    /// Its parent's place in [`ScanReply::dirs`], or [`ROOT_PLACE`].
    pub parent: u32,
    pub name: Vec<u8>,
}

/// A name in one of the directories.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Name {
    /// The directory's place in [`ScanReply::dirs`], or [`ROOT_PLACE`].
    pub parent: u32,
    pub name: Vec<u8>,
}
message!(Scan, Scan, ScanReply);
