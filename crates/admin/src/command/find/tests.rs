//! Questions to a tree in memory: what is found, what is refused, and what it costs.

use super::*;
use crate::walk::fake::{Asked, Fake, FakeFile, striped};
use model::perm::FLAG_IMMUTABLE;
use model::{Errno, LayoutSpec, Timestamp};
use std::sync::atomic::{AtomicUsize, Ordering};
use world::sys::walk::FullStat;

fn query(args: &[&str]) -> Result<Query, Failure> {
    Query::parse(&args.iter().map(OsString::from).collect::<Vec<_>>()).map(|(_, q)| q)
}

/// What is found, sorted, below the root, and the exit status.
fn found(tree: &Fake, args: &[&str]) -> (Vec<String>, i32) {
    let q = query(args).unwrap();
    let (interrupt, seen) = (Interrupt::default(), AtomicU64::new(0));
    let run = Run::new("test", &interrupt, &seen);
    let c = Collector { finder: Finder { q: &q }, out: model::mutex::Mutex::default() };
    walk::walk(tree, &tree.root, q.threads.unwrap_or(2), &c, &run);
    let walked = (lines(c), run.finish().exit_code());
    assert_eq!(walked.0, scanned(tree, &q).0, "a scan finds what a walk finds: {args:?}");
    walked
}

/// The same by a scan, which asks a copy of the tree.
fn scanned(tree: &Fake, q: &Query) -> (Vec<String>, i32) {
    let tree = Fake { files: tree.files.clone(), root: tree.root.clone(), ..Fake::default() };
    let (interrupt, seen) = (Interrupt::default(), AtomicU64::new(0));
    let run = Run::new("test", &interrupt, &seen);
    let c = Collector { finder: Finder { q }, out: model::mutex::Mutex::default() };
    let tests = q.tests();
    let objects = q.wanted_of_objects();
    let threads = q.threads.unwrap_or(2);
    let s = ScanPlan { root: &tree.root, tests: &tests, objects, threads, is_forced: true };
    index::scan(&tree, &tree, &s, &c, &run);
    let is_closed = |f: &FakeFile| f.may_not_search || f.refused.is_some();
    let pages = tree.asked.full_pages.load(Ordering::Relaxed);
    assert!(pages == 0 || tree.files.values().any(is_closed), "no other directory is read");
    (lines(c), run.finish().exit_code())
}

fn lines(c: Collector<'_>) -> Vec<String> {
    let text = String::from_utf8(c.out.into_inner()).unwrap();
    let mut lines: Vec<String> = text.lines().map(|l| l.trim_start_matches("/m/").to_string()).collect();
    lines.sort();
    lines
}

/// A [`Finder`] whose output is kept.
struct Collector<'a> {
    finder: Finder<'a>,
    out: model::mutex::Mutex<Vec<u8>>,
}

impl Visitor for Collector<'_> {
    fn wants_inodes(&self) -> bool {
        self.finder.wants_inodes()
    }

    fn max_depth(&self) -> u32 {
        self.finder.max_depth()
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        let text = self.finder.found(at, entries, run);
        self.out.lock().extend(text);
    }
}

const MIB: u64 = 1 << 20;
const DAY: i64 = 86400;

/// `a` (65 KiB with its inode), `b.bin` (3 MiB on three OSTs, a pool), `d` with a default and `d/e`, a link.
fn tree() -> Fake {
    let now = world::sys::wall_seconds();
    let at = |days: i64| Timestamp { sec: now - days * DAY - 60, nsec: 5 };
    let mut t = Fake::new();
    t.add("", FileType::Directory).attr.mode = 0o755;
    let a = t.add("a", FileType::Regular);
    (a.attr.size, a.attr.blocks, a.attr.uid, a.attr.gid, a.attr.mode) = (65_000, 128, 7, 8, 0o4711);
    (a.attr.atime, a.attr.mtime, a.attr.ctime, a.attr.btime) = (at(1), at(2), at(3), at(4));
    a.xattrs = vec![("user.color", b"dark red".to_vec())];
    let b = t.add("b.bin", FileType::Regular);
    b.layout = Some(striped(&[2, 0, 1], MIB as u32, "flash"));
    (b.attr.flags, b.attr.projid, b.attr.nlink) = (FLAG_IMMUTABLE, 9, 2);
    let time = (now - 10 * DAY - 60, 0);
    b.stat = Ok(FullStat { size: 3 * MIB, blocks: 6144, atime: time, mtime: time, ctime: time, btime: None });
    let d = t.add("d", FileType::Directory);
    d.default = Some(LayoutSpec {
        stripe_count: 4,
        stripe_size: 2 * MIB,
        pool: "slow".into(),
        ..LayoutSpec::default()
    });
    t.add("d/e", FileType::Regular).layout = Some(striped(&[1], 65536, ""));
    t.add("link", FileType::Symlink).attr.mode = 0o777;
    t
}

#[test]
fn every_predicate_finds_what_it_says() {
    let t = tree();
    let all = ["/m", "a", "b.bin", "d", "d/e", "link"];
    for (args, want) in [
        (&[][..], &all[..]),
        (&["-name", "*.bin"], &["b.bin"]),
        (&["!", "-name", "*b*", "-type", "f"], &["a", "d/e"]),
        (&["-name", "m"], &["/m"]),
        (&["-type", "d,l"], &["/m", "d", "link"]),
        (&["-size", "+1M"], &["b.bin"]),
        (&["-size", "3M"], &["b.bin"]),
        (&["-size", "65000c"], &["a"]),
        (&["-size", "127", "-type", "f"], &["a"]),
        (&["-blocks", "+2M"], &["b.bin"]),
        (&["-atime", "1"], &["a"]),
        (&["-mtime", "-5", "-type", "f"], &["a"]),
        (&["-mtime", "10"], &["b.bin"]),
        (&["-ctime", "+9d", "-ctime", "-11", "-type", "f"], &["b.bin"]),
        (&["-B", "-1w"], &["a"]),
        (&["-newermt", "@1000"], &["a", "b.bin"]),
        (&["-user", "7"], &["a"]),
        (&["-uid", "+0"], &["a"]),
        (&["!", "-u", "root", "!", "-gid", "-8"], &["a"]),
        (&["-group", "8"], &["a"]),
        (&["-perm", "4711"], &["a"]),
        (&["-perm", "/u+s,g+s"], &["a"]),
        (&["-perm", "-a=r", "-type", "d"], &["/m", "d"]),
        (&["-links", "+1"], &["b.bin"]),
        (&["-projid", "9"], &["b.bin"]),
        (&["-attrs", "immutable"], &["b.bin"]),
        (&["-attrs", "^i,^c", "-type", "f"], &["a", "d/e"]),
        (&["-xattr", "user.color"], &["a"]),
        (&["-xattr", "user.color=dark.*"], &["a"]),
        (&["-xattr", "user.color=dark"], &[]),
        (&["-type", "f", "-xattr", "^user.color"], &["b.bin", "d/e"]),
        (&["-c", "3"], &["b.bin"]),
        (&["-c", "+3"], &["d"]),
        (&["-S", "1M"], &["b.bin"]),
        (&["-S", "64"], &["a", "d/e"]),
        (&["-S", "2M"], &["d"]),
        (&["-i", "2"], &["b.bin"]),
        (&["-O", "1"], &["b.bin", "d/e"]),
        (&["-ost", "fs-OST0000_UUID-fs-OST0000_UUID"], &["b.bin"]),
        (&["-type", "f", "!", "-ost", "0-1"], &["a"]),
        (&["-p", "fl*"], &["b.bin"]),
        (&["--pool", "slow"], &["d"]),
        (&["-L", "mdt"], &["a"]),
        (&["-L", "raid0,mdt"], &["a", "b.bin", "d/e"]),
        (&["-L", "released"], &[]),
        (&["-component-count", "1"], &["a", "b.bin", "d/e"]),
        (&["-component-count", "+1"], &[]),
        (&["-E", "eof", "-component-start", "0", "-component-flags", "init,^stale"], &["a", "b.bin", "d/e"]),
        (&["-E", "-1G"], &[]),
        (&["-z", "64M"], &[]),
        (&["-N", "1"], &["a", "b.bin", "d/e"]),
        (&["-N", "+1"], &[]),
        (&["-mirror-state", "ro"], &[]),
        (&["-mirror-state", "^ro"], &["a", "b.bin", "d/e"]),
        (&["-foreign"], &[]),
        (&["!", "--foreign=symlink", "-maxdepth", "0"], &["/m"]),
        (&["-m", "0", "-type", "l"], &["link"]),
        (&["-m", "MDT0001"], &[]),
        (&["-T", "1"], &["/m", "d"]),
        (&["-T", "+1"], &[]),
        (&["-H", "none"], &["/m", "d"]),
        (&["-H", "crush"], &[]),
        (&["-mindepth", "2"], &["d/e"]),
        (&["-maxdepth", "1", "-mindepth", "1"], &["a", "b.bin", "d", "link"]),
        (&["-skip", "100"], &[]),
        (&["-threads", "7", "-lazy"], &all),
        (&["-type", "f", "-printf", "%s %p\\n", "-size", "+0"], &["3145728 /m/b.bin", "65000 /m/a"]),
    ] {
        assert_eq!(found(&t, args), (want.iter().map(|s| (*s).to_string()).collect(), 0), "{args:?}");
    }
}

#[test]
fn a_share_that_is_skipped_is_the_same_each_time() {
    let mut t = Fake::new();
    for i in 0..400 {
        t.add(&format!("f{i}"), FileType::Regular);
    }
    let (half, _) = found(&t, &["-skip", "50"]);
    assert!((120..280).contains(&half.len()), "{}", half.len());
    assert_eq!(found(&t, &["-skip", "50", "-threads", "1"]).0, half);
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    for (args, part) in [
        (&["-size", "x"][..], "bad number 'x'"),
        (&["-type", "z"], "bad type 'z'"),
        (&["-user", "nobody-of-this-name"], "unknown user"),
        (&["-group", "nobody-of-this-name"], "unknown group"),
        (&["-projid", "nothing-of-this-name"], "unknown project"),
        (&["-perm", "9"], "bad mode '9'"),
        (&["-mtime", "1q"], "bad number '1q'"),
        (&["-newermt", "soon"], "bad time 'soon'"),
        (&["-attrs", "shiny"], "bad attribute 'shiny'"),
        (&["-xattr", "=x"], "bad extended attribute"),
        (&["-xattr", "user.a=("], "bad regular expression"),
        (&["-layout", "raid9"], "bad layout 'raid9'"),
        (&["-component-flags", "odd"], "bad component flag 'odd'"),
        (&["-mirror-state", "xx"], "bad mirror state 'xx'"),
        (&["-mdt-hash", "md5"], "bad hash 'md5'"),
        (&["-ost", "x"], "bad target index 'x'"),
        (&["-skip", "101"], "0 to 100"),
        (&["-threads", "0"], "at least one"),
        (&["-threads", "33"], "0 to 32"),
        (&["-printf", "%q"], "unknown directive '%q'"),
        (&["-printf", "%Lq"], "unknown directive '%Lq'"),
        (&["-printf", "%A"], "unknown directive '%A'"),
        (&["-printf", "\\q"], "unknown escape"),
        (&["-printf", "%99999p"], "a width of 99999"),
        (&["!", "-maxdepth", "1"], "cannot negate"),
    ] {
        match query(args) {
            Err(f @ Failure::Usage(_)) => {
                assert!(f.to_string().contains(part), "{args:?}: {f}");
                assert_eq!(f.exit_code(), crate::EXIT_USAGE);
            }
            other => panic!("{args:?}: {other:?}"),
        }
    }
    assert_eq!(query(&["-newer", "/no/such/file"]).unwrap_err().exit_code(), Errno::ENOENT.0);
}

/// (plain pages, pages with inodes, inodes, sizes, defaults, extended attributes).
fn cost(t: &Fake, args: &[&str]) -> [usize; 6] {
    let before = counts(&t.asked);
    let _ = found(t, args);
    let after = counts(&t.asked);
    std::array::from_fn(|i| after[i] - before[i])
}

fn counts(a: &Asked) -> [usize; 6] {
    let n = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    [n(&a.plain_pages), n(&a.full_pages), n(&a.inodes), n(&a.stats), n(&a.defaults), n(&a.xattrs)]
}

#[test]
fn a_file_that_is_refused_early_costs_nothing_more() {
    let t = tree();
    // The root has one page and d another.
    for (args, want) in [
        (&[][..], [2, 0, 0, 0, 0, 0]),
        (&["-name", "a", "-type", "f"], [2, 0, 0, 0, 0, 0]),
        (&["-print0", "-maxdepth", "1", "-printf", "%p %y %LF\\n"], [1, 0, 0, 0, 0, 0]),
        (&["-user", "7"], [0, 2, 0, 0, 0, 0]),
        (&["-c", "3", "-type", "f"], [0, 2, 0, 0, 0, 0]),
        // Objects of those that are left are asked, and of none whose data lies with its inode.
        (&["-size", "+1M"], [0, 2, 0, 2, 0, 0]),
        (&["-size", "+1M", "-projid", "9"], [0, 2, 0, 1, 0, 0]),
        (&["-size", "+1M", "-user", "7"], [0, 2, 0, 0, 0, 0]),
        (&["-atime", "-5", "-btime", "+0"], [0, 2, 0, 0, 0, 0]),
        (&["-mtime", "+5", "-L", "mdt"], [0, 2, 0, 0, 0, 0]),
        // Of few names each is asked for.
        (&["-name", "b*", "-size", "+1M"], [2, 0, 1, 1, 0, 0]),
        (&["-xattr", "user.color", "-user", "7"], [0, 2, 0, 0, 0, 1]),
        (&["-c", "4", "-name", "d"], [2, 0, 1, 0, 1, 0]),
        (&["-ls"], [0, 2, 0, 2, 0, 0]),
    ] {
        assert_eq!(cost(&t, args), want, "{args:?}");
    }
}

#[test]
fn names_that_leave_much_of_a_directory_bring_its_inodes_at_once() {
    let mut t = Fake::new();
    t.add("d", FileType::Directory);
    for i in 0..16 {
        t.add(&format!("d/f{i}"), FileType::Regular);
    }
    assert_eq!(cost(&t, &["-name", "f*", "-user", "0"])[..3], [2, 1, 0]);
    assert_eq!(
        cost(&t, &["-name", "f?", "-name", "*[1-4]", "-user", "0"])[..3],
        [2, 0, 4],
        "few are not worth it"
    );
}

#[test]
fn what_cannot_be_asked_is_reported_and_the_rest_is_found() {
    let mut t = tree();
    t.files.get_mut(Path::new("/m/b.bin")).unwrap().stat = Err(Errno::EIO);
    assert_eq!(found(&t, &["-size", "-2M", "-type", "f"]), (vec!["a".into(), "d/e".into()], Errno::EIO.0));
    assert_eq!(found(&t, &["-name", "b.bin", "-c", "3"]), (vec!["b.bin".into()], 0), "its layout is known");
    let mut t = tree();
    t.files.get_mut(Path::new("/m/d")).unwrap().may_not_search = true;
    assert_eq!(found(&t, &["-type", "f"]), (vec!["a".into(), "b.bin".into(), "d/e".into()], 0));
    assert_eq!(
        found(&t, &["-type", "f", "-user", "0"]),
        (vec!["b.bin".into()], Errno::EACCES.0),
        "who may not search a directory sees names"
    );
}

#[test]
fn lines_are_made_as_the_format_says() {
    let t = tree();
    let line = |args: &[&str], format: &str| {
        let all: Vec<&str> = args.iter().copied().chain(["-printf", format]).collect();
        found(&t, &all).0.join("|")
    };
    let b = &["-name", "b.bin"][..];
    assert_eq!(line(b, "%f %h %d %s %b %k %n %m %y\\n"), "b.bin /m 1 3145728 6144 3072 2 644 f");
    assert_eq!(line(b, "%Lc %LS %Li %Lo %Lp %LP %Lh %La %LA\\n"), "3 1048576 2 2,0,1 flash 9  i Immutable");
    assert_eq!(line(&["-name", "a"], "%Lc %LS %Li %Lo %Lp %La\\n"), "0 65536 0   ---");
    assert_eq!(line(&["-name", "d"], "%Lc %LS %Lp %Lh %Li\\n"), "4 2097152 slow none 0");
    assert_eq!(line(&["-name", "link"], "%M %y%%[%Lc]\\n"), "lrwxrwxrwx l%[]");
    assert_eq!(line(&["-name", "a"], "%u %U %g %G %M\\n").split(' ').nth(1), Some("7"));
    assert_eq!(line(&["-name", "a"], "[%3U,%-3U,%03U]\\101\n"), "[  7,7  ,007]A");
}
