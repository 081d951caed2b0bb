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

use crate::meta::{Outcome, Part};
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::Message;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;

impl Fs {
    /// A name is made by this message: what is known of its directory is changed with it.
    async fn make_name<M: Message<Reply = Entry>>(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        name: &[u8],
        msg: M,
    ) -> R<Attr> {
        let mdt = self.mdt_of(parent).await?;
        let change = self.making(&mdt, parent, name);
        let r = mdt.call(self.ctx(call), msg).await;
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
        let mdt = self.mdt_of(parent).await?;
        let parts = vec![(parent, Part::Attr), (parent, Part::List)];
        let change = self.changing(&mdt, parts, &[(parent, &name)]);
        let r = match change.register_opens().await {
            Ok(()) => mdt.call(self.ctx(call), msg).await,
            Err(e) => Err(e),
        };
        let removed = r.is_ok().then_some(name);
        change.done_names(&r, Outcome { removed, ..Outcome::default() });
        r.map(drop)
    }
}
