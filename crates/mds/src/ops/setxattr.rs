//! setxattr: sets one extended attribute; setting an access ACL also sets the mode.

use super::getxattr::{Space, space, stored};
use super::listxattr;
use crate::changelog::Change;
use crate::names::OpContext;
use crate::schema::inode::{XATTR_INLINE_MAX_BYTES, XATTR_INLINE_TOTAL_BYTES};
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::acl::Acl;
use model::attr::{S_ISGID, S_ISVTX, XATTR_CAPABILITY};
use model::changelog::RecordKind;
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_WRITE};
use model::{Errno, Fid, FileType, limits};
use wire::msg::setxattr::{Setxattr, XATTR_CREATE, XATTR_REPLACE};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Setxattr) -> Result<(), Errno> {
    if m.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    if m.value.len() > limits::XATTR_VALUE_MAX_BYTES {
        return Err(Errno::E2BIG);
    }
    tx.check_space()?;
    let s = space(&m.name)?;
    let mut i = tx.inode(m.fid)?;
    may_change(ctx, &i, s)?;
    match s {
        Space::AccessAcl | Space::DefaultAcl => set_acl(ctx, &mut i, s, &m)?,
        _ => set_plain(tx, &mut i, &m)?,
    }
    i.touch_ctime(ctx.now);
    tx.put_inode(m.fid, &mut i);
    tx.notes.add(ctx.now, Change::of(RecordKind::Setxattr, m.fid).xattr(&m.name));
    Ok(())
}

/// Who may set or remove an attribute.
pub fn may_change(ctx: &OpContext, i: &Inode, s: Space) -> Result<(), Errno> {
    if i.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    match s {
        Space::Trusted | Space::Security if !ctx.cred.is_root() => Err(Errno::EPERM),
        Space::Trusted | Space::Security => Ok(()),
        Space::AccessAcl | Space::DefaultAcl if i.kind == FileType::Symlink => Err(Errno::EOPNOTSUPP),
        Space::AccessAcl | Space::DefaultAcl if !perm::owns(&ctx.cred, i.uid) => Err(Errno::EPERM),
        Space::AccessAcl | Space::DefaultAcl => Ok(()),
        Space::User => {
            let sticky = i.is_dir() && i.mode & S_ISVTX != 0 && !perm::owns(&ctx.cred, i.uid);
            if !matches!(i.kind, FileType::Regular | FileType::Directory) || sticky {
                return Err(Errno::EPERM);
            }
            perm::access(&ctx.cred, &i.subject(), MAY_WRITE)
        }
    }
}

fn set_acl(ctx: &OpContext, i: &mut Inode, s: Space, m: &Setxattr) -> Result<(), Errno> {
    let acl = Acl::from_xattr(&m.value)?;
    let exists = if s == Space::AccessAcl { i.acl.is_some() } else { i.default_acl.is_some() };
    check_flags(m.flags, exists)?;
    if s == Space::DefaultAcl {
        return match acl {
            Some(_) if !i.is_dir() => Err(Errno::EACCES),
            acl => {
                i.default_acl = acl;
                Ok(())
            }
        };
    }
    if let Some(a) = &acl {
        i.mode = (i.mode & !0o777) | a.mode_bits();
    }
    // The list says it all in three entries: the bits do too.
    i.acl = acl.filter(|a| !a.is_minimal());
    let outsider = !ctx.cred.is_root() && !ctx.cred.in_group(i.gid);
    if m.kill_sgid || outsider {
        i.mode &= !S_ISGID;
    }
    Ok(())
}

fn check_flags(flags: u32, exists: bool) -> Result<(), Errno> {
    if flags & XATTR_CREATE != 0 && exists {
        return Err(Errno::EEXIST);
    }
    if flags & XATTR_REPLACE != 0 && !exists {
        return Err(Errno::ENODATA);
    }
    Ok(())
}

fn set_plain(tx: &mut Tx, i: &mut Inode, m: &Setxattr) -> Result<(), Errno> {
    let exists = stored(tx, m.fid, i, &m.name)?.is_some();
    check_flags(m.flags, exists)?;
    if exists {
        remove(tx, m.fid, i, &m.name);
    } else {
        let names = listxattr::all_names(tx, m.fid, i)?;
        let each = names.iter().map(Vec::len).chain([m.name.len()]).map(|n| n.saturating_add(1));
        if each.fold(0, usize::saturating_add) > limits::XATTR_LIST_MAX_BYTES {
            return Err(Errno::ENOSPC);
        }
    }
    let size_of = |name: &[u8], value: &[u8]| name.len().saturating_add(value.len());
    let size = size_of(&m.name, &m.value);
    let all = i.xattrs.iter().map(|(n, v)| size_of(n, v)).fold(size, usize::saturating_add);
    if size <= XATTR_INLINE_MAX_BYTES && all <= XATTR_INLINE_TOTAL_BYTES {
        i.xattrs.push((m.name.clone(), m.value.clone()));
    } else {
        let mut v = Vec::with_capacity(m.value.len().saturating_add(1));
        v.push(value::VERSION);
        v.extend_from_slice(&m.value);
        tx.put(key::xattr(m.fid, &m.name), v);
        i.large_xattrs = i.large_xattrs.saturating_add(1);
    }
    Ok(())
}

/// Takes a program's file capabilities away.
pub fn drop_capability(tx: &mut Tx, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
    if stored(tx, fid, i, XATTR_CAPABILITY)?.is_some() {
        remove(tx, fid, i, XATTR_CAPABILITY);
    }
    Ok(())
}

/// Takes an attribute that exists out of the inode or from under its key.
pub fn remove(tx: &mut Tx, fid: Fid, i: &mut Inode, name: &[u8]) {
    let before = i.xattrs.len();
    i.xattrs.retain(|(n, _)| n != name);
    if i.xattrs.len() == before {
        tx.delete(key::xattr(fid, name));
        i.large_xattrs = i.large_xattrs.saturating_sub(1);
    }
}
