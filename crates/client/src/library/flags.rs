//! Flags of [`crate::User::open`], as open(2) has them on Linux.

pub use crate::llite::{O_ACCMODE, O_CREAT, O_EXCL, O_NOATIME, O_TRUNC, O_WRONLY};
pub use model::perm::O_APPEND;

pub const O_RDONLY: u32 = 0;
pub const O_RDWR: u32 = 0o2;
/// `ENOTDIR` for anything but a directory.
pub const O_DIRECTORY: u32 = 0o20_0000;
/// `ELOOP` for a symbolic link.
pub const O_NOFOLLOW: u32 = 0o40_0000;
/// Each write is durable when it returns.
pub const O_DSYNC: u32 = 0o1_0000;
/// The same: names and attributes are made durable with the data.
pub const O_SYNC: u32 = 0o401_0000;

/// What [`crate::User::open`] knows.
pub(super) const KNOWN: u32 =
    O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_NOATIME | O_DIRECTORY | O_NOFOLLOW | O_SYNC;
