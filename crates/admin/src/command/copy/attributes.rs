//! Owner, permissions, access lists, other extended attributes, times: in the order in which one does not
//! undo the other, the time of modification last, as it says that a file is complete.

use super::restore::MARK;
use model::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use world::sys::tree::{Kind, Node, Stat};

const ACL: &str = "system.posix_acl_access";
pub const DEFAULT_ACL: &str = "system.posix_acl_default";
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
/// What Lustre keeps of its own in attributes that only root sees.
const LUSTRE: [&str; 12] = [
    "trusted.lov",
    "trusted.lma",
    "trusted.lmv",
    "trusted.link",
    "trusted.fid",
    "trusted.version",
    "trusted.som",
    "trusted.hsm",
    "trusted.dmv",
    "trusted.dirty",
    "trusted.projid",
    "trusted.lod",
];

/// Whether an attribute is the file's, not the file system's own.
pub fn is_kept(name: &OsStr, root: bool) -> bool {
    let name = name.as_bytes();
    let is = |known: &str| name == known.as_bytes();
    (name.starts_with(b"user.") && !is(MARK))
        || is(ACL)
        || is(DEFAULT_ACL)
        || is("security.capability")
        || (root && name.starts_with(b"trusted.") && !LUSTRE.into_iter().any(is))
}

/// The extended attributes that are copied.
pub fn xattrs(node: Node<'_>, root: bool) -> io::Result<BTreeMap<OsString, Vec<u8>>> {
    let mut out = BTreeMap::new();
    for name in node.xattrs()? {
        if is_kept(&name, root)
            && let Some(value) = node.xattr(&name)?
        {
            out.insert(name, value);
        }
    }
    Ok(out)
}

/// What is known of the node whose attributes are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// This run made it, and it has no attributes yet.
    Made,
    /// This run made it in a directory that gives new files access lists.
    MadeWithAcl,
    There,
}

/// What became of it.
#[derive(Default)]
pub struct Outcome {
    pub changed: bool,
    /// What could not be set, and why.
    pub problems: Vec<(String, io::Error)>,
    pub owner_not_kept: bool,
}

impl Outcome {
    fn take(&mut self, what: impl Into<String>, done: io::Result<()>) -> bool {
        match done {
            Ok(()) => {
                self.changed = true;
                true
            }
            Err(e) => {
                self.problems.push((what.into(), e));
                false
            }
        }
    }
}

/// Gives `to`, which is as `now`, what `from`, which is as `wanted`, has. One failure leaves the others
/// alone.
pub fn set(from: Node<'_>, wanted: &Stat, to: Node<'_>, now: &Stat, was: Was, root: bool) -> Outcome {
    let mut out = Outcome::default();
    let permissions = owner(wanted, to, now, root, &mut out);
    if let Err(e) = extended(from, to, was, root, &mut out) {
        out.problems.push(("read extended attributes of".into(), e));
    }
    if wanted.kind() != Kind::Symlink && (now.permissions() != permissions || out.changed) {
        out.take("set permissions of", to.set_permissions(permissions));
    }
    if was != Was::There || now.mtime != wanted.mtime {
        out.take("set times of", to.set_times(wanted.atime, wanted.mtime));
    }
    out
}

/// The permissions that may be given: a program of another owner must not get his rights.
fn owner(wanted: &Stat, to: Node<'_>, now: &Stat, root: bool, out: &mut Outcome) -> u32 {
    let uid = (wanted.uid != now.uid).then_some(wanted.uid);
    let gid = (wanted.gid != now.gid).then_some(wanted.gid);
    let (mut uid_kept, mut gid_kept) = (uid.is_none(), gid.is_none());
    if root && (uid.is_some() || gid.is_some()) {
        let done = out.take("set owner of", to.set_owner(uid, gid));
        (uid_kept, gid_kept) = (uid_kept || done, gid_kept || done);
    } else if gid.is_some() {
        match to.set_owner(None, gid) {
            Err(e) if is_refused(&e) => {}
            done => gid_kept = out.take("set group of", done),
        }
    }
    out.owner_not_kept = !uid_kept || !gid_kept;
    let mut permissions = wanted.permissions();
    if wanted.kind() != Kind::Folder {
        permissions &= !if uid_kept { 0 } else { SET_UID };
        permissions &= !if gid_kept { 0 } else { SET_GID };
    }
    permissions
}

fn is_refused(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::EPERM.0)
}

fn extended(from: Node<'_>, to: Node<'_>, was: Was, root: bool, out: &mut Outcome) -> io::Result<()> {
    let wanted = xattrs(from, root)?;
    let there = match was {
        Was::Made => BTreeMap::new(),
        Was::There => xattrs(to, root)?,
        Was::MadeWithAcl => [ACL, DEFAULT_ACL].map(|n| (OsString::from(n), Vec::new())).into(),
    };
    for name in there.keys().filter(|n| !wanted.contains_key(*n)) {
        let what = format!("remove extended attribute {} of", name.to_string_lossy());
        out.take(what, to.remove_xattr(name));
    }
    for (name, value) in wanted.iter().filter(|(n, v)| there.get(*n) != Some(v)) {
        let what = format!("set extended attribute {} of", name.to_string_lossy());
        out.take(what, to.set_xattr(name, value));
    }
    Ok(())
}

/// What differs between two nodes besides contents; empty: nothing. `owners` are looked at if they could be
/// kept; times of symbolic links, as of all others, are.
pub fn compare(
    from: Node<'_>,
    wanted: &Stat,
    to: Node<'_>,
    now: &Stat,
    root: bool,
) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    if root && (wanted.uid, wanted.gid) != (now.uid, now.gid) {
        out.push(format!("owner is {}:{}, not {}:{}", now.uid, now.gid, wanted.uid, wanted.gid));
    }
    let owned = (wanted.uid, wanted.gid) == (now.uid, now.gid);
    let bits = if owned { 0o7777 } else { 0o1777 };
    let (a, b) = (wanted.permissions() & bits, now.permissions() & bits);
    if wanted.kind() != Kind::Symlink && a != b {
        out.push(format!("mode is {b:o}, not {a:o}"));
    }
    if wanted.mtime != now.mtime {
        let show = |t: (i64, u32)| format!("{}.{:09}", t.0, t.1);
        out.push(format!("mtime is {}, not {}", show(now.mtime), show(wanted.mtime)));
    }
    let (a, b) = (xattrs(from, root)?, xattrs(to, root)?);
    for name in a.keys().chain(b.keys().filter(|n| !a.contains_key(*n))) {
        if a.get(name) != b.get(name) {
            out.push(format!("extended attribute {} differs", name.to_string_lossy()));
        }
    }
    Ok(out)
}
