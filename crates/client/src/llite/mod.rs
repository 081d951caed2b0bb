//! POSIX: one file for each operation, under the verb of its message. It decides whether the data of a file
//! lies with its inode or on objects before it goes down.
//!
//! `fs` is what all of them share, `opens` the open files, `data` finds what is kept of a file, `privileges`
//! is what writing takes from a program, `permission` what a user may where no kernel asks, `locks` asks for
//! file locks and keeps other mounts off a range, `beside` keeps writes apart from a kernel's pages, `commit`
//! has servers commit, `recent_space` is what they said of their space last.

pub(crate) mod beside;
mod cancel;
mod changelog;
mod changelogclear;
mod close;
mod commit;
mod components;
mod copy;
mod create;
mod data;
mod data_version;
mod enqueue;
mod fallocate;
mod fs;
mod getattr;
mod getlock;
mod getpath;
mod getxattr;
mod glimpse;
mod group;
mod grow;
mod instantiate;
mod link;
mod listxattr;
mod lock_ahead;
mod locks;
mod lookup;
mod maintenance;
mod migrate;
mod mkdir;
mod mknod;
mod mount;
mod names;
mod open;
pub(crate) mod opens;
mod ostfiles;
pub(crate) mod params;
pub(crate) mod permission;
mod privileges;
mod probe;
mod purge;
mod quotactl;
mod quotadir;
mod read;
mod readdir;
mod readlink;
mod recent_space;
mod recreate;
mod removexattr;
mod rename;
mod rmdir;
mod scan;
mod seek;
mod setattr;
mod setlayout;
mod setquota;
mod setxattr;
mod statfs;
mod swap;
mod symlink;
mod sync;
mod target_params;
mod trashdir;
mod trashlist;
mod trashtake;
mod truncate;
mod unlink;
mod write;

#[cfg(test)]
mod tests;

pub use create::{O_ACCMODE, O_CREAT, O_EXCL, O_NOATIME, O_TRUNC, O_WRONLY};
pub(crate) use data::Data;
pub use fs::Fs;
pub(crate) use fs::{run_now, run_unless_root};
pub(crate) use getattr::data_layout;
pub use getxattr::is_virtual_xattr;
pub(crate) use names::Names;
pub use purge::Victim;
pub(crate) use read::part;
pub(crate) use recent_space::RecentSpace;
pub(crate) use write::{Small, write_meta};

use crate::lov::map::{Home, Place};
use crate::mdc::{Changing, Outcome, Part};
use crate::session::Target;
use crate::{Call, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::Message;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;

/// File locks of processes: flock(2) and ranges of POSIX.
#[derive(Clone, Copy)]
pub struct Locks<'a>(pub &'a Arc<Fs>);

/// What administrators and their tools ask of a mount and its files.
#[derive(Clone, Copy)]
pub struct Admin<'a>(pub &'a Arc<Fs>);

impl Names {
    /// A name is made by this message: what is known of its directory is changed with it.
    async fn make_name<M: Message<Reply = Entry>>(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        name: &[u8],
        msg: M,
    ) -> R<Attr> {
        let mdc = self.lmv.mdc_of(parent).await?;
        let change = mdc.making(parent, name);
        let r = mdc.target.call(self.cx.of(call), msg).await;
        change.done_named(parent, name, &r);
        Ok(r?.attr)
    }

    /// A name is removed by this message. The server is told first what is open of its file.
    async fn remove_name<M: Message<Reply = Changed>>(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        name: Vec<u8>,
        msg: M,
    ) -> R<()> {
        let mdc = self.lmv.mdc_of(parent).await?;
        let parts = vec![(parent, Part::Attr), (parent, Part::List)];
        let change = mdc.changing(parts, &[(parent, &name)]);
        let r = match change.register_opens().await {
            Ok(()) => mdc.target.call(self.cx.of(call), msg).await,
            Err(e) => Err(e),
        };
        let removed = r.is_ok().then_some(name);
        change.done_names(&r, Outcome { removed, ..Outcome::default() });
        r.map(drop)
    }
}

impl Data {
    /// The target that serves an object.
    async fn home_of(self: &Arc<Self>, p: &Place) -> R<Arc<Target>> {
        match p.home {
            Home::Ost(index) => Ok(self.lmv.osc(index).await?.target.clone()),
            Home::Mdt => Ok(self.lmv.mdc_of(p.id.origin).await?.target.clone()),
        }
    }

    /// Before a request goes out that changes an object: data with the inode is covered by the leases on it.
    async fn changing_data(self: &Arc<Self>, p: &Place) -> R<Option<Changing>> {
        match p.home {
            Home::Ost(_) => Ok(None),
            Home::Mdt => Ok(Some(self.lmv.mdc_of(p.id.origin).await?.changing_inode(p.id.origin))),
        }
    }
}
