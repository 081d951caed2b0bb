//! lookup: a name in a directory.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::msg::lookup::Lookup;

impl Fs {
    /// `..` of the mount's root is the root: a subdirectory mount shows nothing above it.
    pub async fn lookup(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<Attr> {
        if parent == self.root() && name == b".." {
            return self.getattr(call, parent).await;
        }
        let work = async {
            let msg = Lookup { parent, name };
            let e = self.mdt_of(parent).await?.call(self.ctx(&call), msg).await?;
            self.attr_for_name(&e).await
        };
        self.run(Verb::Lookup, work).await
    }
}
