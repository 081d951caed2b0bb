//! setxattr: sets one extended attribute.

use crate::mdc::Outcome;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::setxattr::Setxattr;
use world::BoxFuture;

impl Fs {
    /// `flags`: XATTR_CREATE, XATTR_REPLACE. `kill_sgid`: an ACL is set by a caller outside the file's group.
    #[allow(clippy::too_many_arguments)]
    pub fn setxattr(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
        kill_sgid: bool,
    ) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let msg = Setxattr { fid, name, value, flags, kill_sgid };
                let mdc = self.lmv.mdc_of(fid).await?;
                let change = mdc.changing_inode(fid);
                let r = mdc.target.call(self.cx.of(&call), msg).await;
                change.done(Outcome::default(), r.err());
                r
            };
            self.run(Verb::Setxattr, work).await
        })
    }
}
