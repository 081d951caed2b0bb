use super::*;
use crate::acl::{Entry, Who};
use crate::perm::{FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NODUMP};
use crate::{Cred, Errno, Fid, LayoutSpec, SetAttr, SetTime, limits};
use proptest::prelude::*;

const USER: u32 = 7;

fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 0 }
}

/// An inode with an access list, as a server keeps it.
struct Listed(Attr, Option<Acl>);

impl RuledInode for Listed {
    fn subject(&self) -> Subject<'_> {
        Subject { acl: self.1.as_ref(), ..self.0.subject() }
    }

    fn fields(&mut self) -> Fields<'_> {
        Fields { acl: self.1.as_mut(), ..self.0.fields() }
    }

    fn set_entries(&mut self, n: u64) {
        self.0.set_entries(n);
    }

    fn data_size(&self) -> u64 {
        self.0.data_size()
    }

    fn set_data_size(&mut self, n: u64) {
        self.0.set_data_size(n);
    }
}

fn made(dir: &Attr, cred: &Cred, kind: FileType, mode: u32, umask: u32) -> Attr {
    let n = NewFile { cred, kind, mode, umask, now: at(100) };
    new_inode(&Parent::plain(dir), &n).attr(Fid::new(9, 1, 0), b"to")
}

fn dir(mode: u32) -> Attr {
    let none = made(&file_type(FileType::Directory), &Cred::new(1, 50), FileType::Directory, 0, 0);
    Attr { mode, projid: 4, ..none }
}

fn file() -> Attr {
    Attr { uid: USER, gid: USER, mode: 0o644, ..file_type(FileType::Regular) }
}

fn file_type(kind: FileType) -> Attr {
    let n = NewInode {
        kind,
        mode: 0o755,
        nlink: first_links(kind),
        uid: 0,
        gid: 0,
        projid: 0,
        directory: 0,
        flags: 0,
        time: at(100),
        acl: None,
        default_acl: None,
    };
    n.attr(Fid::new(8, 1, 0), b"")
}

fn entry(who: Who, perm: u8) -> Entry {
    Entry { who, perm }
}

fn list() -> Acl {
    let all = [(Who::UserObj, 7), (Who::User(3), 6), (Who::GroupObj, 5), (Who::Mask, 6), (Who::Other, 1)];
    Acl::new(all.map(|(w, p)| entry(w, p)).to_vec()).unwrap()
}

// new inodes

#[test]
fn a_new_file_has_its_makers_ids_and_the_mode_that_the_umask_leaves() {
    let user = Cred::new(USER, 8);
    let f = made(&dir(0o777), &user, FileType::Regular, 0o6777, 0o27);
    assert_eq!((f.mode, f.uid, f.gid, f.nlink, f.size, f.blocks), (0o6750, USER, 8, 1, 2, 0));
    assert_eq!((f.projid, f.flags, f.version), (0, 0, 0));
    for t in [f.atime, f.mtime, f.ctime, f.btime, f.mtime_stamp] {
        assert_eq!(t, at(100));
    }
    let d = made(&dir(0o777), &user, FileType::Directory, 0o7777, 0o22);
    assert_eq!((d.mode, d.nlink, d.size, d.blocks), (0o1755, 2, 4096, 8), "mkdir sets no set-id bits");
    let l = made(&dir(0o777), &user, FileType::Symlink, 0o777, 0o77);
    assert_eq!((l.mode, l.size, l.blocks), (0o777, 2, 0), "a symbolic link has no mode to mask");
}

#[test]
fn a_set_gid_directory_hands_on_its_group() {
    let (d, user) = (Attr { gid: 50, ..dir(0o2777) }, Cred::new(USER, 8));
    let f = made(&d, &user, FileType::Regular, 0o2775, 0);
    assert_eq!((f.gid, f.mode), (50, 0o775), "not a member, so no set-gid program of that group");
    let sub = made(&d, &user, FileType::Directory, 0o755, 0o22);
    assert_eq!((sub.gid, sub.mode), (50, 0o2755));
}

#[test]
fn projects_and_flags_are_inherited() {
    let d = Attr { flags: FLAG_PROJINHERIT | FLAG_NODUMP | FLAG_IMMUTABLE, ..dir(0o777) };
    let f = made(&d, &Cred::root(), FileType::Regular, 0o644, 0);
    assert_eq!((f.projid, f.flags), (4, FLAG_NODUMP));
    let sub = made(&d, &Cred::root(), FileType::Directory, 0o755, 0);
    assert_eq!((sub.projid, sub.flags), (4, FLAG_NODUMP | FLAG_PROJINHERIT));
    let alone = made(&Attr { flags: 0, ..d }, &Cred::root(), FileType::Directory, 0o755, 0);
    assert_eq!((alone.projid, alone.flags), (0, 0));
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let (d, acl, root) = (dir(0o777), list(), Cred::root());
    let parent = Parent { default_acl: Some(&acl), ..Parent::plain(&d) };
    let of = |kind| new_inode(&parent, &NewFile { cred: &root, kind, mode: 0o664, umask: 0o77, now: at(1) });
    let f = of(FileType::Regular);
    assert_eq!((f.mode, f.default_acl.as_ref()), (0o660, None));
    assert_eq!(f.acl.unwrap().mode_bits(), 0o660);
    let sub = of(FileType::Directory);
    assert_eq!((sub.mode, sub.default_acl), (0o660, Some(list())));
    let link = of(FileType::Symlink);
    assert_eq!((link.mode, link.acl, link.default_acl), (0o664, None, None));
}

#[test]
fn new_directories_copy_the_default_layout_but_for_the_roots() {
    let spec = LayoutSpec { stripe_count: 3, ..LayoutSpec::default() };
    assert_eq!(default_layout_of(Fid::new(5, 1, 0), Some(&spec)), Some(spec.clone()));
    assert_eq!(default_layout_of(Fid::ROOT, Some(&spec)), None);
    assert_eq!(default_layout_of(Fid::new(5, 1, 0), None), None);
}

// names

#[test]
fn names_are_looked_at() {
    assert_eq!(check_name(b"a"), Ok(()));
    assert_eq!(check_name(b""), Err(Errno::ENOENT));
    assert_eq!(check_name(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    assert_eq!(check_name(b"a/b"), Err(Errno::EINVAL));
    assert_eq!(check_name(b"a\0"), Err(Errno::EINVAL));
    assert!(is_dots(b".") && is_dots(b"..") && !is_dots(b"..."));
    assert_eq!(may_add(&Cred::root(), &dir(0o777).subject(), 0), Err(Errno::ENOENT), "it was removed");
    assert_eq!(may_add(&Cred::new(9, 9), &dir(0o755).subject(), 2), Err(Errno::EACCES));
}

#[test]
fn a_directory_counts_its_names_and_those_that_are_directories() {
    let mut d = dir(0o755);
    let change = NamesChange::added(FileType::Directory);
    names_changed(&mut d, 64, change.dirs, at(200));
    assert_eq!((d.nlink, d.size, d.blocks, d.mtime, d.ctime), (3, 8192, 16, at(200), at(200)));
    let change = NamesChange::replaced(FileType::Directory, FileType::Regular);
    assert_eq!(change, NamesChange { names: 0, dirs: -1 });
    names_changed(&mut d, 63, NamesChange::removed(FileType::Directory).dirs, at(150));
    assert_eq!((d.nlink, d.size, d.mtime, d.ctime), (2, 4096, at(150), at(200)), "ctime never goes backward");
    assert_eq!(d.mtime_stamp, at(200));
}

#[test]
fn links_are_counted() {
    let mut f = file();
    assert_eq!(may_link(&f.subject(), 1), Ok(()));
    assert_eq!(may_link(&f.subject(), limits::LINK_MAX_LINKS), Err(Errno::EMLINK));
    assert_eq!(may_link(&dir(0o755).subject(), 2), Err(Errno::EPERM));
    assert_eq!(may_link(&Attr { flags: FLAG_APPEND, ..file() }.subject(), 1), Err(Errno::EPERM));
    linked(&mut f, at(200));
    assert_eq!((f.nlink, f.ctime, f.mtime), (2, at(200), at(100)));
    assert!(!unlinked(&mut f, at(300)) && unlinked(&mut f, at(250)));
    assert_eq!((f.nlink, f.ctime), (0, at(300)));
    let mut d = dir(0o755);
    assert!(unlinked(&mut d, at(200)), "with its name a directory loses its `.` as well");
    assert_eq!(d.nlink, 0);
    moved(&mut f, at(400));
    assert_eq!((f.ctime, f.mtime), (at(400), at(100)));
}

#[test]
fn renames_are_refused_in_the_kernels_order() {
    let (d, f) = (Attr { uid: USER, ..dir(0o755) }, file());
    let (user, other) = (Cred::new(USER, USER), Cred::new(9, 9));
    let ok = RenameCheck {
        projects: [0; 4],
        old_dir: d.subject(),
        new_dir: d.subject(),
        new_dir_nlink: 2,
        src: f.subject(),
        dst: None,
        same_dir: true,
        exchange: false,
    };
    assert_eq!(may_rename(&user, &ok), Ok(()));
    assert_eq!(may_rename(&other, &ok), Err(Errno::EACCES));
    assert_eq!(may_rename(&user, &RenameCheck { new_dir_nlink: 0, ..ok }), Err(Errno::ENOENT));
    let over_dir = RenameCheck { dst: Some((d.subject(), true)), ..ok };
    assert_eq!(may_rename(&user, &over_dir), Err(Errno::EISDIR));
    assert_eq!(may_rename(&user, &RenameCheck { exchange: true, ..over_dir }), Ok(()));
    let dirs = RenameCheck { src: d.subject(), ..over_dir };
    assert_eq!(may_rename(&user, &dirs), Err(Errno::ENOTEMPTY));
    assert_eq!(may_rename(&user, &RenameCheck { dst: Some((d.subject(), false)), ..dirs }), Ok(()));
    assert_eq!(
        may_rename(&user, &RenameCheck { dst: Some((f.subject(), false)), ..dirs }),
        Err(Errno::ENOTDIR)
    );
    // What is made in `of_3` belongs to project 3, and nothing else comes in; within it names may change.
    let of_3 = Attr { flags: FLAG_PROJINHERIT, ..d.clone() };
    let into = RenameCheck { new_dir: of_3.subject(), projects: [0, 3, 0, 0], same_dir: false, ..ok };
    assert_eq!(may_rename(&user, &into), Err(Errno::EXDEV));
    assert_eq!(may_rename(&user, &RenameCheck { projects: [0, 3, 3, 0], ..into }), Ok(()));
    assert_eq!(may_rename(&user, &RenameCheck { same_dir: true, ..into }), Ok(()));
    let out = RenameCheck { old_dir: of_3.subject(), projects: [3, 0, 3, 0], same_dir: false, ..ok };
    assert_eq!(may_rename(&user, &out), Ok(()));
    let back = RenameCheck { exchange: true, dst: Some((f.subject(), false)), ..out };
    assert_eq!(may_rename(&user, &back), Err(Errno::EXDEV));
    assert_eq!(may_enter(&of_3.subject(), 3, 4), Err(Errno::EXDEV));
    // `..` of a directory changes with its parent, which is a write to it.
    let closed = Attr { mode: 0o555, ..d.clone() };
    let away = RenameCheck { src: closed.subject(), ..ok };
    assert_eq!(may_rename(&user, &away), Ok(()));
    assert_eq!(may_rename(&user, &RenameCheck { same_dir: false, ..away }), Err(Errno::EACCES));
}

// attributes

fn changed(i: &Attr, s: &SetAttr, cred: &Cred) -> Attr {
    let mut i = i.clone();
    set(&mut i, s, cred, at(200));
    i
}

#[test]
fn set_id_bits_go_with_owners_and_data() {
    let f = Attr { mode: 0o6755, ..file() };
    let (root, user) = (Cred::root(), Cred::new(USER, USER));
    let none = SetAttr::default();
    let chown = SetAttr { uid: Some(9), ..none.clone() };
    let written = SetAttr { kill_suid_sgid: true, ..none.clone() };
    let cut = SetAttr { size: Some(0), ..none.clone() };
    let chmod = SetAttr { mode: Some(0o4711), ..none.clone() };
    for (s, cred, mode) in [(&chown, &root, 0o755), (&written, &root, 0o755), (&cut, &user, 0o755)] {
        assert_eq!(changed(&f, s, cred).mode, mode, "{s:?}");
        assert!(drops_capability(s));
    }
    assert_eq!(changed(&f, &cut, &root).mode, 0o6755, "the superuser's truncate takes nothing away");
    assert_eq!(changed(&f, &chmod, &user).mode, 0o4711);
    assert!(!drops_capability(&chmod));
    let outside = changed(&Attr { gid: 50, ..f.clone() }, &SetAttr { mode: Some(0o2755), ..none }, &user);
    assert_eq!(outside.mode, 0o755, "no member of the group");
}

#[test]
fn chmod_changes_the_access_list() {
    let mut i = Listed(Attr { mode: 0o760, ..file() }, Some(list()));
    set(&mut i, &SetAttr { mode: Some(0o640), ..SetAttr::default() }, &Cred::root(), at(200));
    assert_eq!((i.0.mode, i.1.as_ref().unwrap().mode_bits()), (0o640, 0o640));
    // What does not change the mode leaves the list as it is.
    let before = i.1.clone();
    set(&mut i, &SetAttr { kill_suid_sgid: true, ..SetAttr::default() }, &Cred::root(), at(200));
    assert_eq!(i.1, before);
}

#[test]
fn times_are_set_and_stamped() {
    let s = SetAttr { mtime: Some(SetTime::At(at(5))), atime: Some(SetTime::Now), ..SetAttr::default() };
    let f = changed(&file(), &s, &Cred::root());
    assert_eq!((f.mtime, f.atime, f.ctime, f.mtime_stamp), (at(5), at(200), at(200), at(200)));
    let f = changed(&file(), &SetAttr { mode: Some(0o600), ..SetAttr::default() }, &Cred::root());
    assert_eq!((f.mtime, f.ctime, f.mtime_stamp), (at(100), at(200), at(100)), "chmod is no change of data");
    let f = changed(&file(), &SetAttr { size: Some(3), ..SetAttr::default() }, &Cred::root());
    assert_eq!((f.mtime, f.mtime_stamp), (at(200), at(200)));
    let s = SetAttr { projid: Some(3), flags: Some(FLAG_NODUMP), gid: Some(4), ..SetAttr::default() };
    let f = changed(&file(), &s, &Cred::root());
    assert_eq!((f.projid, f.flags, f.gid), (3, FLAG_NODUMP, 4));
}

#[test]
fn changes_of_attributes_are_refused() {
    let (f, none) = (file(), SetAttr::default());
    let (owner, other, root) = (Cred::new(USER, USER), Cred::new(9, 9), Cred::root());
    let may = |cred: &Cred, i: &Attr, s: &SetAttr| may_set(cred, &i.subject(), i.projid, s);
    let chmod = SetAttr { mode: Some(0o600), ..none.clone() };
    let now = SetAttr { mtime: Some(SetTime::Now), atime: Some(SetTime::Now), ..none.clone() };
    let half = SetAttr { atime: None, ..now.clone() };
    let size = |n| SetAttr { size: Some(n), ..none.clone() };
    assert_eq!(may(&owner, &f, &chmod), Ok(()));
    assert_eq!(may(&other, &f, &chmod), Err(Errno::EPERM));
    assert_eq!(may(&other, &f, &now), Err(Errno::EACCES));
    assert_eq!(may(&other, &Attr { mode: 0o666, ..f.clone() }, &now), Ok(()));
    assert_eq!(may(&other, &Attr { mode: 0o666, ..f.clone() }, &half), Err(Errno::EPERM));
    assert_eq!(may(&other, &f, &SetAttr { by_handle: true, ..now.clone() }), Ok(()));
    let odd = Timestamp { sec: 0, nsec: 1_000_000_000 };
    assert_eq!(
        may(&owner, &f, &SetAttr { atime: Some(SetTime::At(odd)), ..none.clone() }),
        Err(Errno::EINVAL)
    );
    assert_eq!(may(&other, &f, &size(0)), Err(Errno::EACCES));
    assert_eq!(may(&other, &f, &SetAttr { by_handle: true, ..size(0) }), Ok(()));
    assert_eq!(may(&owner, &f, &size(u64::MAX)), Err(Errno::EFBIG));
    assert_eq!(may(&owner, &dir(0o777), &size(0)), Err(Errno::EISDIR));
    assert_eq!(may(&owner, &file_type(FileType::Fifo), &size(0)), Err(Errno::EINVAL));
    assert_eq!(may(&owner, &f, &SetAttr { uid: Some(9), ..none.clone() }), Err(Errno::EPERM));
    assert_eq!(may(&owner, &f, &SetAttr { projid: Some(9), ..none.clone() }), Ok(()));
    assert_eq!(may(&other, &f, &SetAttr { projid: Some(9), ..none.clone() }), Err(Errno::EPERM));
    assert_eq!(may(&other, &f, &SetAttr { projid: Some(0), ..none.clone() }), Ok(()), "it is there already");
    let append = SetAttr { flags: Some(FLAG_APPEND), ..none.clone() };
    assert_eq!((may(&owner, &f, &append), may(&root, &f, &append)), (Err(Errno::EPERM), Ok(())));
    let fixed = Attr { flags: FLAG_IMMUTABLE, ..f.clone() };
    for s in [&chmod, &now, &none, &size(0)] {
        assert_eq!(may(&root, &fixed, s), Err(Errno::EPERM), "{s:?}");
    }
    let log = Attr { flags: FLAG_APPEND, ..f };
    assert_eq!((may(&root, &log, &now), may(&root, &log, &size(0))), (Ok(()), Err(Errno::EPERM)));
    assert!(is_nothing(&other, USER, &none) && !is_nothing(&owner, USER, &none));
    assert!(!is_nothing(&other, USER, &chmod));
}

// data

#[test]
fn a_write_is_later_than_what_was_before() {
    let mut f = file();
    wrote(&mut f, 10, 20, at(50));
    let later = at(100).plus_nanos(1);
    assert_eq!((f.size, f.mtime, f.ctime, f.mtime_stamp), (20, later, later, later));
    wrote(&mut f, 0, 5, at(200));
    assert_eq!((f.size, f.mtime), (20, at(200)));
    grow_to(&mut f, 30);
    assert_eq!((f.size, f.mtime), (30, at(200)));
    assert_eq!(cut(&mut f, 4097), None, "a hole");
    assert_eq!((cut(&mut f, 4097), f.size), (Some(2), 4097), "what was reserved behind the end goes");
    assert_eq!((cut(&mut f, 4096), cut(&mut f, 0), f.size), (Some(1), Some(0), 0));
    written(&mut f);
    assert_eq!(f.version, 1);
}

proptest! {
    #[test]
    fn blocks_hold_the_bytes_of_their_range(off in 0u64..300_000, len in 1u64..100_000, at in 0u64..400_000) {
        let blocks = blocks_of(off, off + len);
        let inside = (off..off + len).contains(&at);
        let block = at / DATA_BLOCK_BYTES;
        prop_assert!(!inside || blocks.contains(&block));
        prop_assert_eq!(blocks.start * DATA_BLOCK_BYTES <= off, true);
        prop_assert!(off + len <= blocks.end * DATA_BLOCK_BYTES);
        prop_assert!(blocks.end * DATA_BLOCK_BYTES < off + len + DATA_BLOCK_BYTES);
        prop_assert_eq!(blocks_within(off + len), blocks.end);
    }

    #[test]
    fn ctime_never_goes_backward(times in proptest::collection::vec((0i64..300, 0u8..6), 1..30)) {
        let mut f = file();
        for (sec, how) in times {
            let before = f.ctime;
            match how {
                0 => linked(&mut f, at(sec)),
                1 => drop(unlinked(&mut f, at(sec))),
                2 => moved(&mut f, at(sec)),
                3 => wrote(&mut f, 0, 1, at(sec)),
                4 => set(&mut f, &SetAttr { mtime: Some(SetTime::At(at(sec))), ..SetAttr::default() }, &Cred::root(), at(sec)),
                _ => touch_mtime(&mut f, at(sec)),
            }
            prop_assert!(f.ctime >= before && f.mtime_stamp <= f.ctime);
        }
    }
}
