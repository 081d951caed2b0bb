//! rmdir: removes an empty directory.

use crate::meta::{Outcome, Part};
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::rmdir::Rmdir;
use world::BoxFuture;

impl Fs {
    pub fn rmdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> BoxFuture<R<()>> {
        Box::pin(async move {
            self.writable()?;
            let work = async {
                if self.rmdir_here(&call, &Rmdir { parent, name: name.clone() }).await {
                    return Ok(());
                }
                let mdt = self.mdt_of(parent).await?;
                let parts = vec![(parent, Part::Attr), (parent, Part::List)];
                let change = self.changing(&mdt, parts, &[(parent, &name)]);
                let r = match change.register_opens().await {
                    Ok(()) => mdt.call(self.ctx(&call), Rmdir { parent, name: name.clone() }).await,
                    Err(e) => Err(e),
                };
                let removed = r.is_ok().then_some(name);
                change.done_names(&r, Outcome { removed, ..Outcome::default() });
                r.map(drop)
            };
            self.run(Verb::Rmdir, work).await
        })
    }
}
