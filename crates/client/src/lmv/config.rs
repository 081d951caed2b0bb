//! config: the target map from the MGS.

use super::Lmv;
use crate::R;
use model::Errno;
use wire::msg::config::Config;

impl Lmv {
    /// Asks the MGS for the target map and takes it over.
    pub(crate) async fn fetch_config(&self) -> R<()> {
        let mgs = self.mgs()?;
        let standing = self.cx.hold.standing();
        let ctx = self.cx.own().standing(standing.as_ref());
        let r = mgs.call(ctx, Config { fsname: self.cx.opt.fsname.clone() }).await?;
        self.cx.hold.said(standing.unwrap_or_default());
        if r.fsname != self.cx.opt.fsname {
            tracing::error!("the MGS answered for file system '{}', not '{}'", r.fsname, self.cx.opt.fsname);
            return Err(Errno::EPROTO);
        }
        self.apply_config(r);
        Ok(())
    }
}
