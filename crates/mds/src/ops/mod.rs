//! One file for each message: `VERB.rs` holds what it does. Operations on names and files are plain
//! functions of a transaction; those on locks and on the server itself work on the target.

pub mod allocseq;
pub mod batch;
pub mod cancel;
pub mod close;
pub mod create;
pub mod disconnect;
pub mod enqueue;
pub mod getattr;
pub mod getlock;
pub mod getpath;
pub mod getxattr;
pub mod link;
pub mod listxattr;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod open;
pub mod param;
pub mod ping;
pub mod readdir;
pub mod readlink;
pub mod reclaim;
pub mod removexattr;
pub mod rename;
pub mod rmdir;
pub mod setattr;
pub mod setlayout;
pub mod setxattr;
pub mod statfs;
pub mod symlink;
pub mod sync;
pub mod unlink;
