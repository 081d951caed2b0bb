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
                if self.known_entry(fid).is_some_and(|e| e.plain) {
                    return Ok(Vec::new());
                }
                let root = call.cred.is_root();
                if let Some(names) = self.known_xattr_names(fid, root) {
                    return Ok(names);
                }
                let mdt = self.mdt_of(fid).await?;
                let t = self.meta.token();
                let names = mdt.call(self.cx.of(&call), Listxattr { fid }).await?.names;
                self.keep_xattr_names(t, fid, root, &names);
                Ok(names)
            };
            self.run(Verb::Listxattr, work).await
        })
    }
}
