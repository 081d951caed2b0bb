//! What an operation that is executed here makes of inodes: exactly what the metadata server will make of them
//! (`mds/src/names.rs` and `mds/src/ops/`), since its answer to a batch does not say.
//!
//! Only for plain inodes, without access lists and extended attributes. What is not permitted, and everything out of
//! the ordinary, is the server's: `None` sends the caller there, who gets the answer that it gives.

use model::limits::{FILE_SIZE_MAX_BYTES, NAME_MAX_BYTES};
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_EXEC, MAY_WRITE, Subject};
use model::{Attr, Cred, Fid, FileType, Layout, SetAttr, SetTime, Timestamp};
use wire::msg::lookup::Entry;

/// New files and directories below carry on the project.
const FLAG_PROJINHERIT: u32 = 0x2000_0000;
/// Entries for which a directory has a block of 4 KiB.
const ENTRIES_PER_BLOCK: u64 = 64;
const BLOCK_BYTES: u64 = 4096;

/// Which blocks of a file's data there are: of 4 KiB, as bits, the first lowest.
pub(crate) type Blocks = u64;
/// Files with more room than this are not written here.
pub(crate) const ROOM_MAX_BYTES: u64 = 64 * BLOCK_BYTES;

/// As the permission rules see a plain inode.
fn subject(a: &Attr) -> Subject<'_> {
    Subject { kind: a.kind, mode: a.mode, uid: a.uid, gid: a.gid, flags: a.flags, acl: None }
}

/// A name that may be made or removed here.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let dots = name == b"." || name == b"..";
    !name.is_empty() && name.len() <= NAME_MAX_BYTES && !dots && !name.iter().any(|&b| b == b'/' || b == 0)
}

/// Whether names may be added to the directory.
pub(crate) fn may_add(cred: &Cred, dir: &Entry) -> bool {
    let s = subject(&dir.attr);
    dir.plain
        && dir.attr.nlink > 0
        && perm::access(cred, &s, MAY_EXEC).is_ok()
        && perm::may_create(cred, &s).is_ok()
        // Which new files have is the server's rule.
        && perm::inherit_flags(dir.attr.flags, FileType::Directory) == 0
}

/// Whether the name of `victim` may be taken out of the directory.
pub(crate) fn may_remove(cred: &Cred, dir: &Entry, victim: &Entry) -> bool {
    let s = subject(&dir.attr);
    dir.plain
        && perm::access(cred, &s, MAY_EXEC).is_ok()
        && perm::may_delete(cred, &s, &subject(&victim.attr)).is_ok()
}

/// What is asked for of a new file.
pub(crate) struct New<'a> {
    pub fid: Fid,
    pub kind: FileType,
    pub mode: u32,
    pub umask: u32,
    pub cred: &'a Cred,
    pub now: Timestamp,
    pub symlink: Vec<u8>,
    pub layout: Option<Layout>,
}

/// The inode of a new file in a plain directory.
pub(crate) fn new_entry(dir: &Entry, n: New<'_>) -> Entry {
    let (d, is_dir) = (&dir.attr, n.kind == FileType::Directory);
    let allowed = if is_dir { 0o1777 } else { 0o7777 };
    let (gid, mut mode) = perm::inherit_group(n.cred, &subject(d), n.kind, n.mode & allowed);
    if n.kind != FileType::Symlink {
        mode &= !(n.umask & 0o777);
    }
    let inherits = d.flags & FLAG_PROJINHERIT != 0;
    let size = if is_dir { BLOCK_BYTES } else { n.symlink.len() as u64 };
    let attr = Attr {
        fid: n.fid,
        kind: n.kind,
        mode: mode & 0o7777,
        nlink: if is_dir { 2 } else { 1 },
        uid: n.cred.uid,
        gid,
        projid: if inherits { d.projid } else { 0 },
        rdev: 0,
        size,
        blocks: if is_dir { size / 512 } else { 0 },
        atime: n.now,
        mtime: n.now,
        ctime: n.now,
        btime: n.now,
        mtime_stamp: n.now,
        flags: if inherits && is_dir { FLAG_PROJINHERIT } else { 0 },
        version: 1,
    };
    Entry {
        attr,
        layout: n.layout,
        grant: None,
        dir_grant: None,
        parent: if is_dir { d.fid } else { Fid::NONE },
        symlink: n.symlink,
        plain: true,
        content: None,
    }
}

fn touch_ctime(a: &mut Attr, now: Timestamp) {
    a.ctime = a.ctime.max(now);
}

fn touch_mtime(a: &mut Attr, now: Timestamp) {
    touch_ctime(a, now);
    a.mtime = now;
    a.mtime_stamp = a.ctime;
}

/// The names of a directory changed: it has `entries` now, `dirs` more of them directories.
pub(crate) fn touch_dir(a: &mut Attr, entries: u64, dirs: i32, now: Timestamp) {
    a.nlink = a.nlink.saturating_add_signed(dirs);
    a.size = BLOCK_BYTES.saturating_mul(1 + entries / ENTRIES_PER_BLOCK);
    a.blocks = a.size / 512;
    touch_mtime(a, now);
    a.version += 1;
}

/// A name less; true if it was the last.
pub(crate) fn drop_link(a: &mut Attr, now: Timestamp) -> bool {
    touch_ctime(a, now);
    a.nlink = a.nlink.saturating_sub(1);
    a.version += 1;
    a.nlink == 0
}

/// A name was moved.
pub(crate) fn moved(a: &mut Attr, now: Timestamp) {
    touch_ctime(a, now);
    a.version += 1;
}

/// Bytes that may lie with the inode.
pub(crate) fn room(e: &Entry) -> Option<u64> {
    let c = e.layout.as_ref()?.mdt_component()?;
    Some(u64::from(c.stripe_size)).filter(|r| *r <= ROOM_MAX_BYTES)
}

fn bits_upto(end: u64) -> Blocks {
    match end.div_ceil(BLOCK_BYTES) {
        n @ 0..64 => (1 << n) - 1,
        _ => Blocks::MAX,
    }
}

fn bytes_of(blocks: Blocks) -> u64 {
    u64::from(blocks.count_ones()) * (BLOCK_BYTES / 512)
}

/// Writes `len` bytes at `off` that have room.
pub(crate) fn wrote(a: &mut Attr, blocks: &mut Blocks, off: u64, len: u64, now: Timestamp) {
    let end = off + len;
    *blocks |= bits_upto(end) & !bits_upto(off / BLOCK_BYTES * BLOCK_BYTES);
    a.size = a.size.max(end);
    a.blocks = bytes_of(*blocks);
    let later = now.max(a.ctime.plus_nanos(1));
    touch_mtime(a, later);
    a.version += 1;
}

fn cut(a: &mut Attr, blocks: &mut Blocks, size: u64) {
    if size <= a.size {
        *blocks &= bits_upto(size);
    }
    a.size = size;
    a.blocks = bytes_of(*blocks);
}

/// A change of attributes, if it is permitted and simple. `blocks` are known of a file whose size is to change.
pub(crate) fn set(
    e: &Entry,
    s: &SetAttr,
    blocks: Option<&mut Blocks>,
    cred: &Cred,
    now: Timestamp,
) -> Option<Attr> {
    let a = &e.attr;
    if !e.plain || s.projid.is_some() || s.flags.is_some() || !may_set(a, s, cred) {
        return None;
    }
    let mut a = a.clone();
    apply_mode(&mut a, s, cred);
    if let Some(size) = s.size {
        if a.kind != FileType::Regular || size > FILE_SIZE_MAX_BYTES || size > room(e)? {
            return None;
        }
        cut(&mut a, blocks?, size);
        touch_mtime(&mut a, now);
    }
    touch_ctime(&mut a, now);
    let at = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::At(t) => t,
    };
    if let Some(t) = s.atime {
        a.atime = at(t);
    }
    if let Some(t) = s.mtime {
        a.mtime = at(t);
        a.mtime_stamp = a.ctime;
    }
    a.version += 1;
    Some(a)
}

fn may_set(a: &Attr, s: &SetAttr, cred: &Cred) -> bool {
    let owner = perm::owns(cred, a.uid);
    let odd = |t: Option<SetTime>| matches!(t, Some(SetTime::At(Timestamp { nsec: 1_000_000_000.., .. })));
    if a.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 || odd(s.atime) || odd(s.mtime) {
        return false;
    }
    if s.size.is_some() && !s.by_handle && perm::access(cred, &subject(a), MAY_WRITE).is_err() {
        return false;
    }
    let chown = s.uid.is_some() || s.gid.is_some();
    if chown && perm::may_chown(cred, &subject(a), s.uid, s.gid).is_err() {
        return false;
    }
    // A stranger may set some times: the server knows which. So it does what a call comes to that asks for nothing.
    let plain_times = s.atime.is_none() && s.mtime.is_none();
    let writes = s.size.is_some() || s.kill_suid_sgid;
    owner || (s.mode.is_none() && plain_times && writes)
}

fn apply_mode(a: &mut Attr, s: &SetAttr, cred: &Cred) {
    let mut mode = a.mode;
    let chown = s.uid.is_some() || s.gid.is_some();
    if chown || s.kill_suid_sgid || (s.size.is_some() && !cred.is_root()) {
        mode = perm::kill_suid_sgid(a.kind, mode);
    }
    if let Some(u) = s.uid {
        a.uid = u;
    }
    if let Some(g) = s.gid {
        a.gid = g;
    }
    if let Some(m) = s.mode {
        mode = perm::chmod_mode(cred, a.gid, m);
    }
    a.mode = mode & 0o7777;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn blocks_are_counted_as_the_server_counts_them() {
        let cred = Cred::root();
        let now = Timestamp { sec: 9, nsec: 0 };
        let new = |fid, kind| New {
            fid,
            kind,
            mode: 0o644,
            umask: 0o22,
            cred: &cred,
            now,
            symlink: Vec::new(),
            layout: Some(Layout::on_mdt(65536)),
        };
        let root = Entry {
            attr: Attr { flags: 0, ..sample() },
            layout: None,
            grant: None,
            dir_grant: None,
            parent: Fid::ROOT,
            symlink: Vec::new(),
            plain: true,
            content: None,
        };
        let mut f = new_entry(&root, new(Fid::new(7, 1, 0), FileType::Regular));
        let mut b = 0;
        wrote(&mut f.attr, &mut b, 4095, 2, now);
        assert_eq!((b, f.attr.size, f.attr.blocks, f.attr.version), (0b11, 4097, 16, 2));
        assert!(f.attr.mtime > now && f.attr.mtime == f.attr.ctime, "later than the inode");
        wrote(&mut f.attr, &mut b, 40_960, 4096, now);
        assert_eq!((b, f.attr.size, f.attr.blocks), (0b100_0000_0011, 45_056, 24));
        let cut_to = |f: &Entry, b: &mut Blocks, n| {
            set(f, &SetAttr { size: Some(n), ..SetAttr::default() }, Some(b), &cred, now)
        };
        f.attr = cut_to(&f, &mut b, 4096).unwrap();
        assert_eq!((b, f.attr.size, f.attr.blocks), (1, 4096, 8));
        f.attr = cut_to(&f, &mut b, 60_000).unwrap();
        assert_eq!((b, f.attr.size, f.attr.blocks), (1, 60_000, 8), "a hole");
        assert!(cut_to(&f, &mut b, 65_537).is_none(), "it must grow");
        wrote(&mut f.attr, &mut b, 65_535, 1, now);
        assert_eq!((b, f.attr.blocks), (0x8001, 16));
        assert_eq!(bits_upto(ROOM_MAX_BYTES), Blocks::MAX);
    }

    fn sample() -> Attr {
        let attr = testing::attr(Fid::ROOT, FileType::Directory);
        Attr { mode: 0o755, nlink: 2, size: 4096, blocks: 8, version: 1, ..attr }
    }

    #[test]
    fn what_only_the_server_decides_is_left_to_it() {
        let attr = Attr { kind: FileType::Regular, uid: 5, gid: 5, mode: 0o4755, ..sample() };
        let e = testing::entry(attr);
        let now = Timestamp { sec: 3, nsec: 0 };
        let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let touch = SetAttr { mtime: Some(SetTime::Now), atime: Some(SetTime::Now), ..SetAttr::default() };
        let chown = SetAttr { uid: Some(9), ..SetAttr::default() };
        let (owner, other) = (Cred::new(5, 5), Cred::new(6, 6));
        assert!(set(&e, &chmod, None, &other, now).is_none() && set(&e, &touch, None, &other, now).is_none());
        assert!(set(&e, &chown, None, &owner, now).is_none());
        assert!(set(&Entry { plain: false, ..e.clone() }, &chmod, None, &owner, now).is_none());
        assert_eq!(set(&e, &chmod, None, &owner, now).unwrap().mode, 0o600);
        let a = set(&e, &chown, None, &Cred::root(), now).unwrap();
        assert_eq!((a.uid, a.mode, a.ctime, a.version), (9, 0o755, now, 2));
        assert!(
            is_name(b"a") && !is_name(b"..") && !is_name(b"") && !is_name(&[b'x'; 256]) && !is_name(b"a/b")
        );
    }
}
