//! getxattr: one extended attribute, ACLs included.

use crate::names::OpContext;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::perm::{self, MAY_READ};
use model::{Errno, Fid, FileType, acl, limits};
use wire::msg::getxattr::{DEFAULT_LAYOUT, Getxattr, GetxattrReply};

/// What an attribute's name says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    User,
    Trusted,
    Security,
    AccessAcl,
    DefaultAcl,
}

/// The name space of an attribute. `ERANGE` for impossible lengths, `EOPNOTSUPP` for names outside the known
/// spaces, `EINVAL` for a space without a name.
pub fn space(name: &[u8]) -> Result<Space, Errno> {
    if name.is_empty() || name.len() > limits::XATTR_NAME_MAX_BYTES {
        return Err(Errno::ERANGE);
    }
    if name.contains(&0) {
        return Err(Errno::EINVAL);
    }
    if name == acl::XATTR_ACCESS {
        return Ok(Space::AccessAcl);
    }
    if name == acl::XATTR_DEFAULT {
        return Ok(Space::DefaultAcl);
    }
    let spaces =
        [(&b"user."[..], Space::User), (b"trusted.", Space::Trusted), (b"security.", Space::Security)];
    for (prefix, space) in spaces {
        if let Some(rest) = name.strip_prefix(prefix) {
            return if rest.is_empty() { Err(Errno::EINVAL) } else { Ok(space) };
        }
    }
    Err(Errno::EOPNOTSUPP)
}

/// An attribute's value as it is stored, wherever.
pub fn stored(tx: &mut Tx, fid: Fid, i: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    if let Some((_, v)) = i.xattrs.iter().find(|(n, _)| n == name) {
        return Ok(Some(v.clone()));
    }
    if i.large_xattrs == 0 {
        return Ok(None);
    }
    let k = key::xattr(fid, name);
    Ok(tx.get(&k)?.map(|v| value::decode_xattr(&k, &v)).transpose()?)
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Getxattr) -> Result<GetxattrReply, Errno> {
    let i = tx.inode(m.fid)?;
    if m.name == DEFAULT_LAYOUT {
        let spec = i.default_layout.ok_or(Errno::ENODATA)?;
        return Ok(GetxattrReply { value: postcard::to_stdvec(&spec).expect("plain data encodes") });
    }
    let value = match space(&m.name)? {
        Space::AccessAcl => i.acl.as_ref().map(acl::Acl::to_xattr),
        Space::DefaultAcl => i.default_acl.as_ref().map(acl::Acl::to_xattr),
        Space::Trusted if !ctx.cred.is_root() => None,
        Space::User if !matches!(i.kind, FileType::Regular | FileType::Directory) => None,
        s => {
            if s == Space::User {
                perm::access(&ctx.cred, &i.subject(), MAY_READ)?;
            }
            stored(tx, m.fid, &i, &m.name)?
        }
    };
    Ok(GetxattrReply { value: value.ok_or(Errno::ENODATA)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_their_spaces() {
        assert_eq!(space(b"user.a"), Ok(Space::User));
        assert_eq!(space(b"trusted.a"), Ok(Space::Trusted));
        assert_eq!(space(b"security.capability"), Ok(Space::Security));
        assert_eq!(space(b"system.posix_acl_access"), Ok(Space::AccessAcl));
        assert_eq!(space(b"system.other"), Err(Errno::EOPNOTSUPP));
        assert_eq!(space(b"user."), Err(Errno::EINVAL));
        assert_eq!(space(b""), Err(Errno::ERANGE));
        assert_eq!(space(&[b'u'; 256]), Err(Errno::ERANGE));
    }
}
