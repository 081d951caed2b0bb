//! listxattr: the names of a file's extended attributes.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::listxattr::Listxattr;
use world::BoxFuture;

impl Fs {
    pub fn listxattr(self: Arc<Self>, call: Call, fid: Fid) -> BoxFuture<R<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let work = async {
                if self.lmv.known_entry(fid).is_some_and(|e| e.plain) {
                    return Ok(Vec::new());
                }
                let root = call.cred.is_root();
                let mdc = self.lmv.mdc_of(fid).await?;
                if let Some(names) = mdc.small.known_xattr_names(fid, root) {
                    return Ok(names);
                }
                let t = mdc.meta.token();
                let names = mdc.target.call(self.cx.of(&call), Listxattr { fid }).await?.names;
                mdc.small.keep_xattr_names(t, fid, root, &names);
                Ok(names)
            };
            self.run(Verb::Listxattr, work).await
        })
    }
}
