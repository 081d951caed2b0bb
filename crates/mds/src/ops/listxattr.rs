//! listxattr: the names of a file's extended attributes.

use crate::names::OpContext;
use crate::schema::{Inode, key};
use crate::tx::Tx;
use model::{Errno, Fid, acl, limits};
use wire::msg::listxattr::{Listxattr, ListxattrReply};

/// Names of stored attributes (no ACLs), those of every name space.
pub fn all_names(tx: &mut Tx, fid: Fid, i: &Inode) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names: Vec<Vec<u8>> = i.xattrs.iter().map(|(n, _)| n.clone()).collect();
    if i.large_xattrs > 0 {
        let prefix = key::xattr_prefix(fid);
        for (k, _) in tx.scan(&prefix, &key::behind(&prefix), limits::XATTR_LIST_MAX_BYTES)? {
            names.extend(key::parse_xattr(&k).map(|(_, n)| n.to_vec()));
        }
    }
    Ok(names)
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Listxattr) -> Result<ListxattrReply, Errno> {
    let i = tx.inode(m.fid)?;
    let mut names = all_names(tx, m.fid, &i)?;
    if !ctx.cred.is_root() {
        names.retain(|n| !n.starts_with(b"trusted."));
    }
    if i.acl.is_some() {
        names.push(acl::XATTR_ACCESS.to_vec());
    }
    if i.default_acl.is_some() {
        names.push(acl::XATTR_DEFAULT.to_vec());
    }
    names.sort_unstable();
    Ok(ListxattrReply { names })
}
