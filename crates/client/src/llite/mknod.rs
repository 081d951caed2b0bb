//! mknod: a device node, FIFO, socket, or an unopened regular file.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Errno, Fid, FileType};
use std::sync::Arc;
use wire::msg::mknod::Mknod;
use world::BoxFuture;

impl Fs {
    /// `mode` with the S_IFMT bits.
    pub fn mknod(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        mode: u32,
        rdev: u64,
    ) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let kind = FileType::from_mode(mode).ok_or(Errno::EINVAL)?;
            if matches!(kind, FileType::Directory | FileType::Symlink) {
                return Err(Errno::EPERM);
            }
            let work = async {
                let fid = self.lmv.mdc_of(parent).await?.fids.next().await?;
                let msg = Mknod { parent, name, fid, kind, mode: mode & 0o7777, umask: call.umask, rdev };
                self.names.make_name(&call, parent, &msg.name.clone(), msg).await
            };
            self.run(Verb::Mknod, work).await
        })
    }
}
