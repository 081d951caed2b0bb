//! rename: moves a name; NOREPLACE and EXCHANGE in `flags` as renameat2(2) has them.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, Rename};

impl Fs {
    /// Other flags (whiteouts), and both together, give `EINVAL`.
    #[allow(clippy::too_many_arguments)]
    pub async fn rename(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        new_parent: Fid,
        new_name: Vec<u8>,
        flags: u32,
    ) -> R<()> {
        self.writable()?;
        if !matches!(flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE) {
            return Err(Errno::EINVAL);
        }
        let work = async {
            let msg = Rename { parent, name, new_parent, new_name, flags };
            self.mdt_of(parent).await?.call(self.ctx(&call), msg).await
        };
        self.run(Verb::Rename, work).await
    }
}
