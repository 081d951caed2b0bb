//! Reports of a tree in memory.

use super::tally::is_by_hand;
use super::*;
use crate::walk::fake::{Fake, striped};
use model::layout::ComponentSpec;
use model::{Errno, Fid, FileType, Layout, LayoutSpec, Timestamp};
use world::sys::walk::FullStat;

const MIB: u64 = 1 << 20;

/// Two small files of two users, one with two names, a wide one by hand, and what is no file.
fn tree() -> Fake {
    let now = world::sys::wall_seconds();
    let mut t = Fake::new();
    let default = LayoutSpec { stripe_count: 1, stripe_size: MIB, ..LayoutSpec::default() };
    t.add("d", FileType::Directory).default = Some(default);
    for (name, uid, size, days) in [("d/a", 70007, 5000, 2), ("d/b", 70008, 100, 40)] {
        let f = t.add(name, FileType::Regular);
        (f.attr.uid, f.attr.gid, f.attr.size, f.attr.blocks) = (uid, 5, size, 16);
        f.attr.mtime = Timestamp { sec: now - days * 86400 + 60, nsec: 0 };
        f.attr.atime = Timestamp { sec: now - 60, nsec: 0 };
    }
    let a = t.files[Path::new("/m/d/a")].clone();
    for name in ["/m/d/a", "/m/d/again"] {
        let mut twice = a.clone();
        twice.attr.nlink = 2;
        t.files.insert(name.into(), twice);
    }
    let stat = |size| {
        let t = (now - 800 * 86400, 0);
        Ok(FullStat { size, blocks: size / 512, atime: t, mtime: t, ctime: t, btime: None })
    };
    for (name, osts, size) in [("d/wide", &[0, 1][..], 3 * MIB), ("d/plain", &[0], 0)] {
        let f = t.add(name, FileType::Regular);
        (f.layout, f.stat, f.attr.uid) = (Some(striped(osts, MIB as u32, "")), stat(size), 70007);
    }
    t.add("link", FileType::Symlink);
    t
}

fn counted(t: &Fake, subject: Subject) -> (Tally, i32) {
    let (interrupt, seen) = (Interrupt::default(), AtomicU64::new(0));
    let run = Run::new("test", &interrupt, &seen);
    let counter = Counter { subject, tally: Mutex::new(Tally::new(subject)) };
    walk::walk(t, &t.root, 3, &counter, &run);
    (counter.tally.into_inner(), run.finish().exit_code())
}

#[test]
fn layouts_are_told_with_who_chose_them_by_hand() {
    let (tally, code) = counted(&tree(), Subject::Striping);
    let lines = tally.lines();
    assert_eq!(code, 0);
    let row = |start: &str| {
        let line = lines.iter().find(|l| l.starts_with(start)).expect("a row");
        line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    assert!(lines[0].starts_with("layout  stripes  stripe size"), "{lines:?}");
    assert_eq!(row("raid0         2"), ["raid0", "2", "1.0M", "1", "3.0M", "1", "70007", "(1)"], "{lines:?}");
    assert_eq!(row("raid0         1"), ["raid0", "1", "1.0M", "1", "0", "0"], "{lines:?}");
    assert_eq!(
        row("mdt"),
        ["mdt", "0", "64.0K", "2", "5.0K", "0"],
        "a file with two names is one: {lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "total: 4 files of 3.0M in 3.0M, 2 directories, 1 others");
    let wide = tally.rows(0);
    let wide = wide.as_array().unwrap().iter().find(|r| r["layout"]["stripe_count"] == 2).unwrap();
    assert_eq!((wide["by_hand"].as_u64(), wide["owners"][0]["uid"].as_u64()), (Some(1), Some(70007)));
}

#[test]
fn owners_are_told_by_users_and_groups() {
    let (tally, _) = counted(&tree(), Subject::Owners);
    let rows = tally.rows(0);
    let of = |kind: &str, id: u32| {
        let all = rows[kind].as_array().unwrap();
        let row = all.iter().find(|r| r["id"] == id).unwrap();
        (row["sum"]["files"].as_u64().unwrap(), row["sum"]["bytes"].as_u64().unwrap())
    };
    assert_eq!(of("users", 70007), (3, 5000 + 3 * MIB));
    assert_eq!(of("users", 70008), (1, 100));
    assert_eq!(of("groups", 5), (2, 5100));
    assert_eq!(of("users", 0).0, 3, "two directories and a link");
    assert_eq!(tally.total_row()["files"], 4);
}

#[test]
fn sizes_and_ages_are_told_in_steps() {
    let (tally, _) = counted(&tree(), Subject::Sizes);
    let lines = tally.lines();
    for want in ["empty           1   25.0%", "up to 4K        1", "up to 16K       1", "up to 4M        1"] {
        assert!(lines.iter().any(|l| l.starts_with(want)), "{want}: {lines:?}");
    }
    let (tally, _) = counted(&tree(), Subject::Ages);
    let rows = tally.rows(0);
    let files = |i: usize, how: &str| rows[i][how]["files"].as_u64().unwrap();
    assert_eq!((files(0, "read"), files(7, "read")), (2, 2));
    assert_eq!((files(1, "written"), files(3, "written"), files(7, "written")), (1, 1, 2));
}

#[test]
fn what_cannot_be_counted_is_reported_and_the_rest_is_counted() {
    let mut t = tree();
    t.files.get_mut(Path::new("/m/d/wide")).unwrap().stat = Err(Errno::EIO);
    let (tally, code) = counted(&t, Subject::Sizes);
    assert_eq!((tally.total_row()["files"].as_u64(), code), (Some(3), Errno::EIO.0));
}

#[test]
fn wrong_usage_is_refused_by_name() {
    let refusal = |args: &[&str]| {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        parse(&args).expect_err("it is wrong").to_string()
    };
    assert!(refusal(&[]).contains("a report of what?"));
    assert!(refusal(&["colours", "/m"]).contains("no report of 'colours'"));
    assert!(refusal(&["sizes"]).contains("no directory"));
    assert!(refusal(&["sizes", "/m", "--threads", "0"]).contains("1 to 32"));
    assert!(refusal(&["sizes", "/m", "--frob"]).contains("--frob"));
}

#[test]
fn what_a_file_got_by_default_is_not_by_hand_however_large_it_became() {
    let default = LayoutSpec::builtin();
    let fid = Fid::new(7, 1, 0);
    let as_default = |stripes: &[&[u16]]| {
        let mut l = Layout::composite(1, 0, &default.full_components().unwrap());
        for (n, osts) in stripes.iter().enumerate() {
            l.instantiate(n, fid, ("", osts));
        }
        l
    };
    assert!(!is_by_hand(&as_default(&[&[3]]), &default));
    assert!(!is_by_hand(&as_default(&[&[3], &[0, 1, 2, 3]]), &default));
    assert!(!is_by_hand(&as_default(&[&[3], &[0, 1], &[0, 1]]), &default), "there are two OSTs");
    assert!(is_by_hand(&as_default(&[&[3, 1]]), &default));
    assert!(is_by_hand(&Layout::plain(fid, 4 << 20, "", &[3]), &default), "one component");
    let mut other = LayoutSpec::builtin();
    other.set_components(&[ComponentSpec { end: 1 << 20, ..ComponentSpec::default() }]);
    assert!(is_by_hand(&as_default(&[&[3]]), &other));
    assert!(!is_by_hand(&Layout::on_mdt(65536), &default));
    let mut grows = LayoutSpec::builtin();
    grows.set_components(&[ComponentSpec { extension_bytes: 1 << 20, ..ComponentSpec::default() }]);
    let mut l = Layout::composite(1, 0, &grows.full_components().unwrap());
    l.instantiate(0, fid, ("", &[3]));
    l.grow(1, 4 << 20);
    assert!(!is_by_hand(&l, &grows), "it has grown");
}
