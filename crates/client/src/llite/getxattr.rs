//! getxattr: one extended attribute, ACLs included.

use super::{Data, run_unless_root};
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::XATTR_NAME_MAX_BYTES;
use model::{Errno, Fid, acl};
use std::sync::Arc;
use wire::msg::getxattr::Getxattr;
use world::BoxFuture;

impl Fs {
    pub fn getxattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> BoxFuture<R<Vec<u8>>> {
        Box::pin(async move {
            run_unless_root(&self, fid, Verb::Getxattr, self.data.xattr(&call, fid, name)).await
        })
    }
}

impl Data {
    /// From what is kept if it is known.
    pub(crate) async fn xattr(self: &Arc<Self>, call: &Call, fid: Fid, name: Vec<u8>) -> R<Vec<u8>> {
        let kept = is_known_kind(&name);
        if kept && self.lmv.known_entry(fid).is_some_and(|e| e.plain) {
            return Err(Errno::ENODATA);
        }
        let root = call.cred.is_root();
        let mdc = self.lmv.mdc_of(fid).await?;
        if kept && let Some(v) = mdc.small.known_xattr(fid, root, &name) {
            return v.ok_or(Errno::ENODATA);
        }
        let t = mdc.meta.token();
        let r = mdc.target.call(self.cx.of(call), Getxattr { fid, name: name.clone() }).await;
        match &r {
            Ok(v) if kept => mdc.small.keep_xattr(t, fid, root, &name, Some(v.value.clone())),
            Err(Errno::ENODATA) if kept => mdc.small.keep_xattr(t, fid, root, &name, None),
            _ => {}
        }
        Ok(r?.value)
    }
}

/// Names that are never stored: they describe where a file lies. `fuse` answers them, and takes those that
/// are a layout.
pub fn is_virtual_xattr(name: &[u8]) -> bool {
    name.starts_with(b"nacre.") || name == b"lustre.lov" || name == b"trusted.lov"
}

/// Names that may exist on some file: of these the server says ENODATA where there is none.
fn is_known_kind(name: &[u8]) -> bool {
    let known = |p: &[u8]| name.len() > p.len() && name.starts_with(p);
    let acl = name == acl::XATTR_ACCESS || name == acl::XATTR_DEFAULT;
    let plain = name.len() <= XATTR_NAME_MAX_BYTES && !name.contains(&0);
    plain && (acl || [&b"user."[..], b"trusted.", b"security."].iter().any(|p| known(p)))
}
