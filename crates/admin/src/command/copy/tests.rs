//! Trees with files of every kind are copied between temporary directories, in one go and in pieces.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use world::sys::tree::{Kind, Node};

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A folder with `src` in it, where `dst` is to be; removed with all in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let n = SERIAL.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("nacre-copy-{}-{n}", std::process::id()));
        files::create_dir_all(dir.join("src")).unwrap();
        Scratch(files::canonical(dir).unwrap())
    }

    fn src(&self) -> Folder {
        Folder::open(&self.0.join("src")).unwrap()
    }

    fn dst(&self) -> Folder {
        Folder::open(&self.0.join("dst")).unwrap()
    }

    fn args(&self, more: &[&str]) -> Args {
        let (src, dst) = (self.0.join("src"), self.0.join("dst"));
        let words = [NAME.as_ref(), src.as_os_str(), dst.as_os_str()].map(OsString::from);
        let all = words.into_iter().chain(more.iter().map(OsString::from));
        Args::try_parse_from(all).unwrap()
    }

    /// One run, in which every file above 1 MiB is a large one.
    fn copy(&self, more: &[&str], stop: &Stop) -> Report {
        let args = self.args(more);
        let mut o = options(&args).unwrap();
        o.large_bytes = 1 << 20;
        let report = Report::new(NAME, ProgressLine::none());
        run(&args, &o, &report, stop).unwrap();
        report
    }

    fn complete(&self, more: &[&str]) -> Report {
        let report = self.copy(more, &Stop::default());
        assert!(report.is_same(), "{:#}", report.json());
        report
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

fn name(n: &str) -> &OsStr {
    OsStr::new(n)
}

fn file(d: &Folder, n: &str, content: &[u8], mode: u32, mtime: (i64, u32)) {
    let f = d.create_file(name(n), 0o600).unwrap();
    f.write_at(content, 0).unwrap();
    let node = Node::Open(f.as_fd());
    node.set_permissions(mode).unwrap();
    node.set_times((1_000_000, 5), mtime).unwrap();
}

fn content(d: &Folder, n: &str) -> Vec<u8> {
    let f = d.read_file(name(n)).unwrap();
    let mut out = vec![0; d.stat_at(name(n)).unwrap().size as usize];
    assert_eq!(f.read_at(&mut out, 0).unwrap(), out.len());
    out
}

fn number(r: &Report, what: &str) -> u64 {
    r.json()[what].as_u64().unwrap()
}

/// Some of every kind that this user can make.
fn every_kind(s: &Scratch) {
    let d = s.src();
    file(&d, "plain", b"hello", 0o640, (1_111_111_111, 123_456_789));
    file(&d, "empty", b"", 0o444, (7, 0));
    file(&d, "program", b"#!", 0o6755, (8, 1));
    file(&d, "large", &vec![7; (17 << 20) + 3], 0o600, (9, 2));
    let sparse = d.create_file(name("sparse"), 0o600).unwrap();
    sparse.write_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
    let holes = d.create_file(name("holes"), 0o600).unwrap();
    holes.set_len(300_000).unwrap();
    d.make_folder(name("folder"), 0o700).unwrap();
    let folder = d.folder(name("folder")).unwrap();
    file(&folder, "inner", b"inner", 0o600, (10, 3));
    folder.make_hard_link(Path::new("inner"), &d, name("again")).unwrap();
    d.make_hard_link(Path::new("large"), &folder, name("large too")).unwrap();
    folder.make_symlink(name("link"), name("../nowhere")).unwrap();
    Node::Named(&folder, name("link")).set_times((1, 1), (11, 4)).unwrap();
    d.make_node(name("fifo"), 0o010622, 0).unwrap();
    d.make_node(name("socket"), 0o140600, 0).unwrap();
    if world::sys::euid() == 0 {
        // The null device.
        d.make_node(name("device"), 0o020666, 0x103).unwrap();
        Node::Named(&d, name("plain")).set_owner(Some(4711), Some(4712)).unwrap();
        Node::Named(&folder, name("link")).set_owner(Some(4711), Some(4712)).unwrap();
        Node::Named(&d, name("plain")).set_permissions(0o2750).unwrap();
    }
    let xattr = Node::Named(&d, name("plain")).set_xattr(name("user.test"), b"value");
    assert!(xattr.is_ok() || xattr.unwrap_err().raw_os_error() == Some(Errno::EOPNOTSUPP.0));
    folder.make_folder(name("closed"), 0o700).unwrap();
    file(&folder.folder(name("closed")).unwrap(), "deep", b"deep", 0o400, (12, 5));
    Node::Named(&folder, name("closed")).set_permissions(0o555).unwrap();
    Node::Open(folder.as_fd()).set_times((2, 2), (13, 6)).unwrap();
}

fn mtime(d: &Folder, n: &str) -> (i64, u32) {
    d.stat_at(name(n)).unwrap().mtime
}

#[test]
fn files_of_every_kind_are_copied_and_a_second_run_has_nothing_to_do() {
    let s = Scratch::new();
    every_kind(&s);
    let r = s.complete(&["--verify", "all"]);
    assert_eq!(number(&r, "files_copied"), 8, "{:#}", r.json());
    assert_eq!((number(&r, "hard_links_made"), number(&r, "symlinks_made")), (2, 1));
    let (d, folder) = (s.dst(), s.dst().folder(name("folder")).unwrap());
    assert_eq!(content(&d, "plain"), b"hello");
    assert_eq!(d.stat_at(name("again")).unwrap().id(), folder.stat_at(name("inner")).unwrap().id());
    assert_eq!(folder.read_symlink(name("link")).unwrap(), "../nowhere");
    assert_eq!(mtime(&d, "plain"), (1_111_111_111, 123_456_789));
    assert_eq!((mtime(&d, "folder"), mtime(&folder, "link")), ((13, 6), (11, 4)));
    assert_eq!(d.stat_at(name("plain")).unwrap().atime, (1_000_000, 5));
    assert_eq!(d.stat_at(name("program")).unwrap().permissions(), 0o6755);
    assert_eq!(d.stat_at(name("fifo")).unwrap().kind(), Kind::Fifo);
    let sparse = d.stat_at(name("sparse")).unwrap();
    assert_eq!(sparse.size, 40 << 20);
    assert!(sparse.blocks * 512 < 10 << 20, "holes stay holes: {sparse:?}");
    if world::sys::euid() == 0 {
        let plain = d.stat_at(name("plain")).unwrap();
        assert_eq!((plain.uid, plain.gid, plain.permissions()), (4711, 4712, 0o2750));
        assert_eq!(d.stat_at(name("device")).unwrap().rdev, 0x103);
    }
    let r = s.complete(&["--verify", "all", "--delete"]);
    for what in ["files_copied", "bytes_copied", "hard_links_made", "attributes_set", "deleted"] {
        assert_eq!(number(&r, what), 0, "{what}: {:#}", r.json());
    }
}

#[test]
fn what_differs_is_found_and_put_right() {
    let s = Scratch::new();
    every_kind(&s);
    s.complete(&[]);
    let d = s.dst();
    Node::Named(&d, name("empty")).set_permissions(0o600).unwrap();
    let _ = Node::Named(&d, name("plain")).set_xattr(name("user.other"), b"x");
    // A file that is as long and as old is taken for the same, unless it is read.
    let before = d.stat_at(name("program")).unwrap();
    let f = d.write_file(name("program")).unwrap();
    f.write_at(b"!#", 0).unwrap();
    let node = Node::Open(f.as_fd());
    node.set_permissions(before.permissions()).unwrap();
    node.set_times(before.atime, before.mtime).unwrap();
    let r = s.copy(&["--verify", "all"], &Stop::default());
    assert_eq!(number(&r, "difference_count"), 1, "{:#}", r.json());
    assert!(r.json()["differences"][0]["path"].as_str().unwrap().ends_with("dst/program"));
    assert_eq!(d.stat_at(name("empty")).unwrap().permissions(), 0o444);
    assert_eq!(Node::Named(&d, name("plain")).xattr(name("user.other")).unwrap(), None);
    d.unlink(name("again")).unwrap();
    file(&d, "again", b"inner", 0o600, (10, 3));
    file(&d, "fresh", b"", 0o600, (1, 1));
    d.unlink(name("program")).unwrap();
    let r = s.complete(&["--verify", "all"]);
    assert_eq!((number(&r, "files_copied"), number(&r, "hard_links_made")), (1, 1), "{:#}", r.json());
    assert!(d.find(name("fresh")).unwrap().is_some(), "nothing is removed without --delete");
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    for limit in [1, 2, 5, 9, 13, 17, 20] {
        let s = Scratch::new();
        every_kind(&s);
        let stop = Stop::after(limit);
        let first = s.copy(&["--verify", "all", "--threads", "3"], &stop);
        assert!(stop.wanted() && number(&first, "error_count") == 0, "{limit}: {:#}", first.json());
        // Whatever has its size and time is complete.
        if let Ok(d) = Folder::open(&s.0.join("dst"))
            && let Some(large) = d.find(name("large")).unwrap()
        {
            assert!(large.mtime == (9, 2), "{limit}: what is not complete was removed");
        }
        let second = s.complete(&["--verify", "all", "--threads", "3"]);
        let files = number(&first, "files_copied") + number(&second, "files_copied");
        assert_eq!(files, 8, "{limit}: nothing is copied twice");
    }
}

#[test]
fn what_a_killed_run_left_is_copied_anew() {
    let s = Scratch::new();
    file(&s.src(), "f", &[5; 100_000], 0o600, (10, 0));
    files::create_dir_all(s.0.join("dst")).unwrap();
    // All bytes may be there, or space for them: without its time the file does not count.
    let half = s.dst().create_file(name("f"), 0o600).unwrap();
    half.set_len(100_000).unwrap();
    let r = s.complete(&["--verify", "all"]);
    assert_eq!(number(&r, "files_copied"), 1);
    assert_eq!(content(&s.dst(), "f"), [5; 100_000]);
}

#[test]
fn what_is_gone_is_removed_with_delete_only() {
    let s = Scratch::new();
    every_kind(&s);
    s.complete(&[]);
    let (src, dst) = (s.src(), s.dst());
    src.unlink(name("plain")).unwrap();
    files::remove_tree(s.0.join("src/folder")).unwrap();
    let wanted = src.stat().unwrap().mtime;
    s.complete(&[]);
    assert!(dst.find(name("plain")).unwrap().is_some());
    let r = s.complete(&["--delete", "--dry-run"]);
    assert_eq!(number(&r, "deleted"), 2);
    assert!(dst.find(name("plain")).unwrap().is_some(), "a dry run changes nothing");
    let r = s.complete(&["--delete", "--verify", "all"]);
    assert_eq!(number(&r, "deleted"), 7, "one, and a folder with five names in it");
    assert!(dst.find(name("plain")).unwrap().is_none() && dst.find(name("folder")).unwrap().is_none());
    assert_eq!(dst.stat().unwrap().mtime, wanted);
}

#[test]
fn an_empty_source_removes_nothing_unless_forced() {
    let s = Scratch::new();
    file(&s.src(), "f", b"x", 0o600, (1, 0));
    s.complete(&[]);
    s.src().unlink(name("f")).unwrap();
    let refused = options(&s.args(&["--delete"])).map(drop).unwrap_err();
    assert!(refused.to_string().contains("--force"), "{refused}");
    let r = s.complete(&["--delete", "--force"]);
    assert_eq!(number(&r, "deleted"), 1);
}

#[test]
fn another_type_takes_the_place_of_what_is_there() {
    let s = Scratch::new();
    let d = s.src();
    file(&d, "a", b"file", 0o600, (1, 0));
    d.make_symlink(name("b"), name("a")).unwrap();
    d.make_folder(name("c"), 0o700).unwrap();
    files::create_dir_all(s.0.join("dst/a/below")).unwrap();
    let dst = s.dst();
    file(&dst, "b", b"", 0o600, (1, 0));
    file(&dst, "c", b"", 0o600, (1, 0));
    let r = s.copy(&[], &Stop::default());
    assert_eq!(number(&r, "error_count"), 1);
    assert_eq!(r.json()["errors"][0]["errno"], Errno::EISDIR.0, "{:#}", r.json());
    assert_eq!(dst.stat_at(name("b")).unwrap().kind(), Kind::Symlink);
    assert_eq!(dst.stat_at(name("c")).unwrap().kind(), Kind::Folder);
    s.complete(&["--delete", "--verify", "all"]);
    assert_eq!(content(&dst, "a"), b"file");
}

#[test]
fn a_file_is_copied_as_well_as_a_directory() {
    let s = Scratch::new();
    file(&s.src(), "f", b"x", 0o640, (1, 2));
    let args = |src: &str, dst: &str| {
        let words = [NAME.into(), s.0.join(src).into_os_string(), s.0.join(dst).into_os_string()];
        Args::try_parse_from(words).unwrap()
    };
    let a = args("src/f", "g");
    let (o, report) = (options(&a).unwrap(), Report::new(NAME, ProgressLine::none()));
    run(&a, &o, &report, &Stop::default()).unwrap();
    assert!(report.is_same(), "{:#}", report.json());
    assert_eq!(mtime(&Folder::open(&s.0).unwrap(), "g"), (1, 2));
    for (src, dst) in
        [("src", "src/below"), ("src", "src"), ("src/f", "src"), ("nothing", "dst"), ("src", "no/dst")]
    {
        assert!(options(&args(src, dst)).is_err(), "{src} to {dst}");
    }
}

#[test]
fn access_lists_that_new_files_inherit_do_not_stay() {
    let s = Scratch::new();
    file(&s.src(), "f", b"x", 0o640, (1, 2));
    s.src().make_folder(name("d"), 0o750).unwrap();
    files::create_dir_all(s.0.join("dst")).unwrap();
    // user::rwx user:4711:rwx group::r-x mask::rwx other::---
    let mut acl = vec![2, 0, 0, 0];
    for (tag, perm, id) in
        [(1u16, 7u16, u32::MAX), (2, 7, 4711), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let dst = s.dst();
    let default = name("system.posix_acl_default");
    if Node::Open(dst.as_fd()).set_xattr(default, &acl).is_err() {
        return; // No access lists on this file system.
    }
    let access = name("system.posix_acl_access");
    Node::Named(&s.src(), name("f")).set_xattr(access, &acl).unwrap();
    s.complete(&["--verify", "all"]);
    assert_eq!(Node::Named(&dst, name("f")).xattr(access).unwrap(), Some(acl));
    for attribute in [access, default] {
        assert_eq!(Node::Named(&dst, name("d")).xattr(attribute).unwrap(), None);
    }
}

/// What a random tree is made of: path, and what lies there.
#[derive(Clone, Debug)]
enum Thing {
    File(Vec<u8>, u32),
    Sparse(u64),
    Folder(u32),
    Symlink(String),
    Fifo,
    HardLink(usize),
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        4 => (prop::collection::vec(any::<u8>(), 0..3000), 0u32..0o1000).prop_map(|(c, m)| Thing::File(c, m | 0o400)),
        1 => (0u64..3 << 20).prop_map(Thing::Sparse),
        3 => (0u32..0o1000).prop_map(|m| Thing::Folder(m | 0o700)),
        1 => "[a-z/.]{1,20}".prop_map(Thing::Symlink),
        1 => Just(Thing::Fifo),
        2 => any::<usize>().prop_map(Thing::HardLink),
    ]
}

/// Makes things below the folders that were made so far; returns the paths of folders.
fn make(s: &Scratch, things: &[(usize, Thing)]) {
    let mut folders = vec![PathBuf::new()];
    let mut linkable: Vec<PathBuf> = Vec::new();
    let mut modes = BTreeMap::new();
    for (i, (place, thing)) in things.iter().enumerate() {
        let path = folders[place % folders.len()].join(format!("n{i}"));
        let d = Folder::open(&s.0.join("src").join(path.parent().unwrap())).unwrap();
        let n = path.file_name().unwrap();
        match thing {
            Thing::File(c, mode) => file(&d, n.to_str().unwrap(), c, *mode, (1000 + i as i64, i as u32)),
            Thing::Sparse(len) => {
                let f = d.create_file(n, 0o600).unwrap();
                f.set_len(*len).unwrap();
                f.write_at(b"x", len / 2).unwrap();
            }
            Thing::Folder(mode) => {
                d.make_folder(n, 0o700).unwrap();
                modes.insert(path.clone(), *mode);
                folders.push(path);
                continue;
            }
            Thing::Symlink(target) => d.make_symlink(n, OsStr::new(target)).unwrap(),
            Thing::Fifo => d.make_node(n, 0o010600, 0).unwrap(),
            Thing::HardLink(of) if !linkable.is_empty() => {
                let old = &linkable[of % linkable.len()];
                s.src().make_hard_link(old, &d, n).unwrap();
            }
            Thing::HardLink(_) => file(&d, n.to_str().unwrap(), b"", 0o600, (5, 5)),
        }
        linkable.push(path);
    }
    for (path, mode) in modes {
        Node::Named(&s.src(), path.as_os_str()).set_permissions(mode).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_random_tree_stopped_anywhere_ends_as_a_copy(
        things in prop::collection::vec((any::<usize>(), thing()), 0..40),
        threads in 1usize..6,
        stops in prop::collection::vec(1u64..30, 0..3),
    ) {
        let s = Scratch::new();
        make(&s, &things);
        let threads = threads.to_string();
        for limit in stops {
            let report = s.copy(&["--threads", &threads], &Stop::after(limit));
            prop_assert!(report.is_same(), "{:#}", report.json());
        }
        let report = s.complete(&["--verify", "all", "--threads", &threads]);
        prop_assert_eq!(number(&report, "names"), 1 + things.len() as u64);
        let again = s.complete(&["--threads", &threads]);
        prop_assert_eq!(number(&again, "files_copied") + number(&again, "hard_links_made"), 0);
    }
}

fn bring_back_to(s: &Scratch, overwrite: bool, stop: &Stop) -> Report {
    let report = Report::new("restore", ProgressLine::none());
    let restore = Restore { mark: "00c0ffee".into(), overwrite, layouts: false };
    bring_back((&s.0.join("src"), &s.0.join("dst")), restore, Some(3), &report, stop).unwrap();
    report
}

#[test]
fn what_comes_back_replaces_only_what_an_earlier_try_left_incomplete() {
    for limit in [1, 2, 5, 9, 13, 17] {
        let s = Scratch::new();
        every_kind(&s);
        let stop = Stop::after(limit);
        let first = bring_back_to(&s, false, &stop);
        assert!(stop.wanted() && number(&first, "error_count") == 0, "{limit}: {:#}", first.json());
        let second = bring_back_to(&s, false, &Stop::default());
        assert!(second.is_same(), "{limit}: {:#}", second.json());
        // All is as a copy makes it, and no mark is left.
        let third = s.complete(&["--verify", "all", "--delete"]);
        assert_eq!((number(&third, "attributes_set"), number(&third, "deleted")), (0, 0), "{limit}");
        assert_eq!(Node::Open(s.dst().as_fd()).xattr(name(restore::MARK)).unwrap(), None);
    }
}

#[test]
fn what_is_there_and_is_otherwise_stays_unless_it_is_said_to_go() {
    let s = Scratch::new();
    every_kind(&s);
    assert!(bring_back_to(&s, false, &Stop::default()).is_same());
    let d = s.dst();
    d.unlink(name("empty")).unwrap();
    d.unlink(name("holes")).unwrap();
    file(&d, "holes", b"of now", 0o600, (1, 1));
    Node::Named(&d, name("sparse")).set_permissions(0o640).unwrap();
    d.unlink(name("fifo")).unwrap();
    d.make_folder(name("fifo"), 0o700).unwrap();
    // Another snapshot's unfinished file is somebody else's.
    Node::Named(&d, name("holes")).set_xattr(name(restore::MARK), b"another").unwrap();
    let r = bring_back_to(&s, false, &Stop::default());
    assert_eq!((number(&r, "error_count"), number(&r, "difference_count")), (2, 1), "{:#}", r.json());
    assert_eq!(number(&r, "files_copied"), 1, "what is missing is made");
    assert_eq!(content(&d, "holes"), b"of now");
    assert_eq!(d.stat_at(name("sparse")).unwrap().permissions(), 0o640);
    // One that a restore from this snapshot left is its own.
    Node::Named(&d, name("holes")).set_xattr(name(restore::MARK), b"00c0ffee").unwrap();
    d.remove_folder(name("fifo")).unwrap();
    let r = bring_back_to(&s, false, &Stop::default());
    assert_eq!((number(&r, "error_count"), number(&r, "files_copied")), (0, 1), "{:#}", r.json());
    assert!(bring_back_to(&s, true, &Stop::default()).is_same());
    assert_eq!(d.stat_at(name("sparse")).unwrap().permissions(), 0o600);
    d.make_folder(name("empty too"), 0o700).unwrap();
    assert!(bring_back_to(&s, true, &Stop::default()).is_same(), "what the snapshot did not have stays");
    assert!(d.find(name("empty too")).unwrap().is_some());
}
