//! rename: moves a name; NOREPLACE and EXCHANGE in `flags` as renameat2(2) has them.

use crate::mdc::{Outcome, Part};
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, Rename};
use world::BoxFuture;

impl Fs {
    /// Other flags (whiteouts), and both together, give `EINVAL`.
    #[allow(clippy::too_many_arguments)]
    pub fn rename(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        new_parent: Fid,
        new_name: Vec<u8>,
        flags: u32,
    ) -> BoxFuture<R<()>> {
        Box::pin(async move {
            if !matches!(flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE) {
                return Err(Errno::EINVAL);
            }
            let work = async {
                let msg = Rename { parent, name, new_parent, new_name, flags };
                let mdc = self.lmv.mdc_of(parent).await?;
                if mdc.rename_here(&call, &msg).await {
                    return Ok(());
                }
                let mut parts = Vec::new();
                for dir in [parent, new_parent] {
                    parts.extend([(dir, Part::Attr), (dir, Part::List)]);
                }
                let change = mdc.changing(parts, &[(parent, &msg.name), (new_parent, &msg.new_name)]);
                let r = match change.register_opens().await {
                    Ok(()) => mdc.target.call(self.cx.of(&call), msg).await,
                    Err(e) => Err(e),
                };
                change.done_names(&r, Outcome::default());
                r.map(drop)
            };
            let r = self.run(Verb::Rename, work).await;
            self.cx.shares.removed();
            r
        })
    }
}
