//! getxattr: one extended attribute, ACLs included.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::XATTR_NAME_MAX_BYTES;
use model::{Errno, Fid, acl};
use std::sync::Arc;
use wire::msg::getxattr::Getxattr;

impl Fs {
    pub async fn getxattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> R<Vec<u8>> {
        let work = async {
            if is_known_kind(&name) && self.known_entry(fid).is_some_and(|e| e.plain) {
                return Err(Errno::ENODATA);
            }
            Ok(self.mdt_of(fid).await?.call(self.ctx(&call), Getxattr { fid, name }).await?.value)
        };
        self.run(Verb::Getxattr, work).await
    }
}

/// Names that may exist on some file: of these the server says ENODATA where there is none.
fn is_known_kind(name: &[u8]) -> bool {
    let known = |p: &[u8]| name.len() > p.len() && name.starts_with(p);
    let acl = name == acl::XATTR_ACCESS || name == acl::XATTR_DEFAULT;
    let plain = name.len() <= XATTR_NAME_MAX_BYTES && !name.contains(&0);
    plain && (acl || [&b"user."[..], b"trusted.", b"security."].iter().any(|p| known(p)))
}
