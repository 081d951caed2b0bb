//! One file for each operation, under the verb of its message.

mod allocseq;
mod cancel;
mod close;
mod config;
mod copy;
mod create;
mod enqueue;
mod fallocate;
mod fetch;
mod getattr;
mod getlock;
mod getpath;
mod getxattr;
mod glimpse;
mod grow;
mod link;
mod listxattr;
mod lookup;
mod mkdir;
mod mknod;
mod open;
mod ostfiles;
mod read;
mod readdir;
mod readlink;
mod removexattr;
mod rename;
mod rmdir;
mod seek;
mod setattr;
mod setlayout;
mod setxattr;
mod statfs;
mod symlink;
mod sync;
mod truncate;
mod unlink;
mod write;

pub(crate) use glimpse::BoxFutureOf;

pub(crate) use create::{O_ACCMODE, O_CREAT, O_EXCL, O_NOATIME, O_TRUNC};
pub(crate) use getattr::data_layout;
pub(crate) use open::is_read_write;
pub(crate) use read::part;
pub(crate) use statfs::RecentSpace;
pub(crate) use write::Small;
