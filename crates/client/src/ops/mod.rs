//! One file for each operation, under the verb of its message.

mod cancel;
mod close;
mod config;
mod copy;
mod create;
mod enqueue;
mod fallocate;
mod getattr;
mod getlock;
mod getpath;
mod getxattr;
mod glimpse;
mod group;
mod grow;
mod link;
mod listxattr;
mod lookup;
mod migrate;
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

pub(crate) use create::{O_ACCMODE, O_CREAT, O_EXCL, O_NOATIME, O_TRUNC};
pub(crate) use getattr::data_layout;
pub(crate) use read::part;
pub(crate) use statfs::RecentSpace;
pub(crate) use write::{Small, write_meta};

use crate::lov::map::{Home, Place};
use crate::mdc::{Changing, Outcome, Part};
use crate::session::Target;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::Message;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;

impl Fs {
    /// The target that serves an object.
    async fn home_of(self: &Arc<Self>, p: &Place) -> R<Arc<Target>> {
        match p.home {
            Home::Ost(index) => Ok(self.osc(index).await?.target.clone()),
            Home::Mdt => Ok(self.mdc_of(p.id.origin).await?.target.clone()),
        }
    }

    /// Before a request goes out that changes an object: data with the inode is covered by the leases on it.
    async fn changing_data(self: &Arc<Self>, p: &Place) -> R<Option<Changing>> {
        match p.home {
            Home::Ost(_) => Ok(None),
            Home::Mdt => Ok(Some(self.mdc_of(p.id.origin).await?.changing_inode(p.id.origin))),
        }
    }

    /// A name is made by this message: what is known of its directory is changed with it.
    async fn make_name<M: Message<Reply = Entry>>(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        name: &[u8],
        msg: M,
    ) -> R<Attr> {
        let mdc = self.mdc_of(parent).await?;
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
        let mdc = self.mdc_of(parent).await?;
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
