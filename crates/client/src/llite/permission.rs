//! What a user may do with what this mount answers by itself, as a kernel would say. Servers check what
//! reaches them, and what is executed here passes the same rules (`mdc/rules.rs`); what is left is finding
//! names, listing, reading attributes that are kept, and the flags of open(2) that no server asks for.
//!
//! The rules are [`model::perm`]'s. This is for users of the library: in front of `fuse` the kernel has
//! checked.

use super::{Fs, O_NOATIME};
use crate::{Call, R};
use model::acl::{Acl, XATTR_ACCESS};
use model::perm::{self, MAY_EXEC, MAY_READ, Subject};
use model::{Errno, FileType};
use std::sync::Arc;
use wire::msg::lookup::Entry;

/// `EACCES` unless the user has all of `want` on the inode (`MAY_READ` …).
pub(crate) async fn access(fs: &Arc<Fs>, call: &Call, e: &Entry, want: u8) -> R<()> {
    if call.cred.is_root() && want == MAY_EXEC && e.attr.kind == FileType::Directory {
        return Ok(());
    }
    let acl = acl_of(fs, call, e).await?;
    perm::access(&call.cred, &subject(e, acl.as_ref()), want)
}

/// Before an open, what the server does not ask: access times are left alone for the owner only. Who may not
/// open the file at all is told that.
pub(crate) async fn open(fs: &Arc<Fs>, call: &Call, e: &Entry, flags: u32) -> R<()> {
    if flags & O_NOATIME == 0 || perm::owns(&call.cred, e.attr.uid) {
        return Ok(());
    }
    let acl = acl_of(fs, call, e).await?;
    perm::may_open(&call.cred, &subject(e, acl.as_ref()), flags)?;
    Err(Errno::EPERM)
}

/// Before an extended attribute is shown: those of users are part of what the file says.
pub(crate) async fn getxattr(fs: &Arc<Fs>, call: &Call, e: &Entry, name: &[u8]) -> R<()> {
    if !name.starts_with(b"user.") || !matches!(e.attr.kind, FileType::Regular | FileType::Directory) {
        return Ok(());
    }
    access(fs, call, e, MAY_READ).await
}

fn subject<'a>(e: &Entry, acl: Option<&'a Acl>) -> Subject<'a> {
    let a = &e.attr;
    Subject { kind: a.kind, mode: a.mode, uid: a.uid, gid: a.gid, flags: a.flags, acl }
}

/// The access list, from what is kept if it is known. A plain inode has none.
async fn acl_of(fs: &Arc<Fs>, call: &Call, e: &Entry) -> R<Option<Acl>> {
    if e.plain || e.attr.kind == FileType::Symlink {
        return Ok(None);
    }
    match fs.data.xattr(call, e.attr.fid, XATTR_ACCESS.to_vec()).await {
        Ok(v) => Acl::from_xattr(&v),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}
