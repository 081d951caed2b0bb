//! getattr: what is known of an inode, or its server says.

use super::Mdc;
use crate::R;
use model::Fid;
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::getattr::Getattr;
use wire::msg::layout::Layout;
use wire::msg::lookup::Entry;

impl Mdc {
    /// A file's layout, from the server: after an object server refused the one that is known here. Waits
    /// while the file's data is being moved.
    pub(crate) async fn ask_layout(self: &Arc<Self>, fid: Fid) -> R<Entry> {
        let t = self.meta.token();
        let mut e = self.target.call(self.cx.own(), Layout { fid }).await?;
        self.with_atime(&mut e.attr);
        self.meta.keep_entry(t, &e);
        self.shared.opens.learn(&e);
        Ok(e)
    }

    /// The metadata server's part, from the cache if it is known.
    pub(crate) async fn getattr_entry(self: &Arc<Self>, ctx: RequestContext, fid: Fid) -> R<Arc<Entry>> {
        if let Some(e) = self.meta.known_entry(fid) {
            return Ok(e);
        }
        let t = self.meta.token();
        let mut e = self.target.call(ctx, Getattr { fid }).await?;
        self.with_atime(&mut e.attr);
        self.meta.keep_entry(t, &e);
        self.shared.opens.learn(&e);
        Ok(Arc::new(e))
    }
}
