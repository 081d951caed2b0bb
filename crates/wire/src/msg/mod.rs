//! One file for each message: `VERB.rs` holds the request, its reply and the opcode they belong to.

macro_rules! message {
    ($req:ident, $op:ident, $reply:ty) => {
        impl crate::Message for $req {
            const OP: crate::Op = crate::Op::$op;
            type Reply = $reply;
        }
    };
}

pub mod acquire;
pub mod allocseq;
pub mod barrier;
pub mod batch;
pub mod cancel;
pub mod changelog;
pub mod changelogclear;
pub mod close;
pub mod components;
pub mod config;
pub mod configview;
pub mod connect;
pub mod create;
pub mod destroy;
pub mod disconnect;
pub mod enqueue;
pub mod extent;
pub mod fallocate;
pub mod fence;
pub mod fetch;
pub mod getattr;
pub mod getlock;
pub mod getpath;
pub mod getxattr;
pub mod glimpse;
pub mod glimpselist;
pub mod grant;
pub mod grow;
pub mod instantiate;
pub mod layout;
pub mod link;
pub mod listxattr;
pub mod lookup;
pub mod makeroom;
pub mod migrate;
pub mod mkdir;
pub mod mknod;
pub mod notify;
pub mod objectlist;
pub mod open;
pub mod ostfiles;
pub mod own;
pub mod param;
pub mod ping;
pub mod purge;
pub mod quotactl;
pub mod quotadir;
pub mod quotashare;
pub mod read;
pub mod readdir;
pub mod readlink;
pub mod reclaim;
pub mod recreate;
pub mod register;
pub mod removexattr;
pub mod rename;
pub mod rmdir;
pub mod scan;
pub mod seek;
pub mod setattr;
pub mod setlayout;
pub mod setowner;
pub mod setquota;
pub mod setxattr;
pub mod snapshot;
pub mod statfs;
pub mod swap;
pub mod symlink;
pub mod sync;
pub mod trashdir;
pub mod trashlist;
pub mod trashtake;
pub mod truncate;
pub mod unlink;
pub mod withdraw;
pub mod write;
pub mod writelist;
