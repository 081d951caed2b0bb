//! config: the target map from the MGS.

use super::Lmv;
use crate::R;
use model::Errno;
use wire::msg::config::Config;

impl Lmv {
    /// Asks the MGS for the target map and takes it over.
    pub(crate) async fn fetch_config(&self) -> R<()> {
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
