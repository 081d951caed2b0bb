//! config: the target map from the MGS.

use crate::{Fs, R};
use model::Errno;
use std::sync::Arc;
use wire::msg::config::Config;

impl Fs {
    /// Asks the MGS for the target map and takes it over.
    pub(crate) async fn fetch_config(self: &Arc<Self>) -> R<()> {
        let mgs = self.mgs()?;
        let r = mgs.call(self.cx.own(), Config { fsname: self.cx.opt.fsname.clone() }).await?;
        if r.fsname != self.cx.opt.fsname {
            tracing::error!("the MGS answered for file system '{}', not '{}'", r.fsname, self.cx.opt.fsname);
            return Err(Errno::EPROTO);
        }
        self.apply_config(r);
        Ok(())
    }
}
