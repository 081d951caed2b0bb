//! Which operations are executed here, and what they make of the entries that are kept: by the rules that the
//! metadata server applies as well ([`inode_rules`], where it is said what differs), since its answer to a
//! batch does not say.
//!
//! Only for plain inodes, without access lists and extended attributes. What is not permitted, and everything
//! out of the ordinary, is the server's: `None` sends the caller there, who gets the answer that it gives.

use model::inode_rules::{self, DATA_BLOCK_BYTES, NewFile, Parent, RenameCheck, RuledInode, sectors};
use model::perm;
use model::{Attr, Cred, Fid, FileType, Layout, SetAttr, Timestamp};
use wire::msg::lookup::Entry;

/// Which blocks of a file's data there are, as bits, the first lowest.
pub(crate) type Blocks = u64;
/// Files with more room than this are not written here.
pub(crate) const ROOM_MAX_BYTES: u64 = 64 * DATA_BLOCK_BYTES;

/// A name that may be made or removed here.
pub(crate) fn is_name(name: &[u8]) -> bool {
    inode_rules::check_name(name).is_ok() && !inode_rules::is_dots(name)
}

/// Whether names may be added to the directory.
pub(crate) fn may_add(cred: &Cred, dir: &Entry) -> bool {
    dir.plain && inode_rules::may_add(cred, &dir.attr.subject(), dir.attr.nlink).is_ok()
}

/// Whether what `cred` makes in a directory is counted to nobody to whom the directory is not, or he is root,
/// whom no limit holds up.
pub(crate) fn is_counted_as(cred: &Cred, dir: &Entry) -> bool {
    let asked = NewFile { cred, kind: FileType::Regular, mode: 0, umask: 0, now: Timestamp::ZERO };
    let made = inode_rules::new_inode(&Parent::plain(&dir.attr), &asked).attr(Fid::NONE, &[]);
    let of_dir: Vec<_> = dir.attr.owner().quota_ids().collect();
    cred.is_root() || made.owner().quota_ids().all(|id| !id.is_limited() || of_dir.contains(&id))
}

/// Whether an inode may be given to another user or group without a look at his limits, which only root may
/// do; and a directory not at all: whose it is decides who makes files in it without asking.
pub(crate) fn may_give(cred: &Cred, e: &Entry, set: &SetAttr) -> bool {
    let given = set.uid.is_some_and(|u| u != e.attr.uid) || set.gid.is_some_and(|g| g != e.attr.gid);
    !given || cred.is_root() && e.attr.kind != FileType::Directory
}

/// Whether the name of `victim` may be taken out of the directory.
pub(crate) fn may_remove(cred: &Cred, dir: &Entry, victim: &Entry) -> bool {
    dir.plain && perm::may_delete(cred, &dir.attr.subject(), &victim.attr.subject()).is_ok()
}

/// Whether the name of `src`, which stays below its parent if it is a directory, may be moved, over the file
/// `dst` if there is one.
pub(crate) fn may_rename(cred: &Cred, dirs: [&Entry; 2], src: &Entry, dst: Option<&Entry>) -> bool {
    let [old, new] = dirs;
    if old.attr.directory() != new.attr.directory() {
        return false; // what it has is counted elsewhere then
    }
    let what = RenameCheck {
        old_dir: old.attr.subject(),
        new_dir: new.attr.subject(),
        new_dir_nlink: new.attr.nlink,
        src: src.attr.subject(),
        dst: dst.map(|d| (d.attr.subject(), false)),
        projects: [old.attr.projid, new.attr.projid, src.attr.projid, dst.map_or(0, |d| d.attr.projid)],
        same_dir: old.attr.fid == new.attr.fid,
        exchange: false,
    };
    old.plain && new.plain && inode_rules::may_rename(cred, &what).is_ok()
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
    assert!(dir.plain, "new files of a directory with access lists are the server's");
    let asked = NewFile { cred: n.cred, kind: n.kind, mode: n.mode, umask: n.umask, now: n.now };
    let mut attr = inode_rules::new_inode(&Parent::plain(&dir.attr), &asked).attr(n.fid, &n.symlink);
    inode_rules::written(&mut attr);
    Entry {
        attr,
        layout: n.layout,
        grant: None,
        dir_grant: None,
        parent: if n.kind == FileType::Directory { dir.attr.fid } else { Fid::NONE },
        symlink: n.symlink,
        plain: true,
        content: None,
    }
}

/// Bytes that may lie with the inode.
pub(crate) fn room(e: &Entry) -> Option<u64> {
    e.layout.as_ref()?.data_room().filter(|r| *r <= ROOM_MAX_BYTES)
}

/// The first `n` blocks.
fn first(n: u64) -> Blocks {
    match n {
        0..64 => (1 << n) - 1,
        _ => Blocks::MAX,
    }
}

fn set_blocks(a: &mut Attr, blocks: Blocks) {
    a.blocks = sectors(u64::from(blocks.count_ones()) * DATA_BLOCK_BYTES);
}

/// Writes `len` bytes at `off` that have room.
pub(crate) fn wrote(a: &mut Attr, blocks: &mut Blocks, off: u64, len: u64, now: Timestamp) {
    let end = off + len;
    let written = inode_rules::blocks_of(off, end);
    *blocks |= first(written.end) & !first(written.start);
    set_blocks(a, *blocks);
    inode_rules::wrote(a, off, end, now);
}

fn cut(a: &mut Attr, blocks: &mut Blocks, size: u64) {
    if let Some(kept) = inode_rules::cut(a, size) {
        *blocks &= first(kept);
    }
    set_blocks(a, *blocks);
}

/// A change of attributes, if it is permitted and simple. `blocks` are known of a file whose size is to
/// change.
pub(crate) fn set(
    e: &Entry,
    s: &SetAttr,
    blocks: Option<&mut Blocks>,
    cred: &Cred,
    now: Timestamp,
) -> Option<Attr> {
    let permitted = inode_rules::may_set(cred, &e.attr.subject(), e.attr.projid, s).is_ok();
    let nothing = inode_rules::is_nothing(cred, e.attr.uid, s);
    if !e.plain || !permitted || nothing || s.projid.is_some() || s.flags.is_some() {
        return None;
    }
    let mut a = e.attr.clone();
    if let Some(size) = s.size {
        if size > room(e)? {
            return None;
        }
        cut(&mut a, blocks?, size);
    }
    inode_rules::set(&mut a, s, cred, now);
    Some(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::SetTime;

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
        assert_eq!((b, f.attr.size, f.attr.blocks), (0b11, 4097, 16));
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
        assert_eq!(first(ROOM_MAX_BYTES / DATA_BLOCK_BYTES), Blocks::MAX);
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
        let (project, nothing) = (SetAttr { projid: Some(1), ..chmod.clone() }, SetAttr::default());
        assert!(
            set(&e, &project, None, &owner, now).is_none() && set(&e, &nothing, None, &other, now).is_none()
        );
        assert!(set(&e, &chown, None, &owner, now).is_none());
        assert!(set(&Entry { plain: false, ..e.clone() }, &chmod, None, &owner, now).is_none());
        assert_eq!(set(&e, &chmod, None, &owner, now).unwrap().mode, 0o600);
        let a = set(&e, &chown, None, &Cred::root(), now).unwrap();
        assert_eq!((a.uid, a.mode, a.ctime), (9, 0o755, now));
        assert!(
            is_name(b"a") && !is_name(b"..") && !is_name(b"") && !is_name(&[b'x'; 256]) && !is_name(b"a/b")
        );
    }
}
