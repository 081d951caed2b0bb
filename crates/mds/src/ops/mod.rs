//! One file for each message: `VERB.rs` holds what it does. Operations on names and files are plain
//! functions of a transaction; those on locks and on the server itself work on the target.

// Numbers from outside: nothing here may overflow or go past an end (decision 0039).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

pub mod allocseq;
pub mod batch;
pub mod cancel;
pub mod changelog;
pub mod changelogclear;
pub mod close;
pub mod components;
pub mod create;
pub mod disconnect;
pub mod enqueue;
pub mod fallocate;
pub mod fetch;
pub mod getattr;
pub mod getlock;
pub mod getpath;
pub mod getxattr;
pub mod grow;
pub mod instantiate;
pub mod layout;
pub mod link;
pub mod listxattr;
pub mod lookup;
pub mod migrate;
pub mod mkdir;
pub mod mknod;
pub mod open;
pub mod ostfiles;
pub mod own;
pub mod param;
pub mod ping;
pub mod quotactl;
pub mod read;
pub mod readdir;
pub mod readlink;
pub mod reclaim;
pub mod recreate;
pub mod removexattr;
pub mod rename;
pub mod rmdir;
pub mod scan;
pub mod seek;
pub mod setattr;
pub mod setlayout;
pub mod setquota;
pub mod setxattr;
pub mod statfs;
pub mod swap;
pub mod symlink;
pub mod sync;
pub mod unlink;
pub mod withdraw;
pub mod write;
