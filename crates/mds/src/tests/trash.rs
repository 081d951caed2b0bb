//! The trash: what goes in, who sees it, and how it comes out again.

use super::*;
use ::model::inode_rules::FLAG_TRASH;
use ::model::usage::TRASH;
use msg::trashdir::Trashdir;
use msg::trashlist::{Trashed, Trashlist};
use msg::trashtake::{FILES_MAX, Takeout, Trashtake};
use wire::msg::statfs::StatfsReply;
use wire::msg::statfs::state::NO_SPACE;

const R: Fid = Fid::ROOT;

fn on(rig: &Rig, fid: Fid) {
    rig.root(Trashdir { fid, on: true }).unwrap();
}

/// A directory that everybody may write, with its trash kept.
fn trashing(rig: &Rig, name: &str) -> Fid {
    let d = rig.mkdir(R, name);
    rig.chmod(d, 0o777);
    on(rig, d);
    d
}

fn list_as(rig: &Rig, cred: &Cred, under: Fid) -> Vec<Trashed> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let r = rig.call(A, cred, Trashlist { under, after }).unwrap();
        all.extend(r.files);
        match r.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

fn list(rig: &Rig) -> Vec<Trashed> {
    list_as(rig, &Cred::root(), R)
}

fn take_as(rig: &Rig, cred: &Cred, fid: Fid, how: Takeout) -> Result<(), Errno> {
    let r = rig.call(A, cred, Trashtake { files: vec![(fid, how)] }).unwrap();
    match r.results[..] {
        [0] => Ok(()),
        [e] => Err(Errno(i32::from(e))),
        _ => panic!("one file has one result"),
    }
}

fn take(rig: &Rig, fid: Fid, how: Takeout) -> Result<(), Errno> {
    take_as(rig, &Cred::root(), fid, how)
}

fn gone(rig: &Rig, fid: Fid) -> bool {
    rig.root(msg::getattr::Getattr { fid }).err() == Some(Errno::ENOENT)
}

fn in_trash(rig: &Rig) -> u64 {
    rig.mdt.shared.usage.get(TRASH).inodes
}

#[test]
fn what_is_removed_lies_in_the_trash_and_comes_back_as_it_was() {
    let mut rig = Rig::new();
    let d = trashing(&rig, "d");
    let (f, g) = (rig.create(d, "f"), rig.create_striped(d, "g", 2));
    rig.write(f, 0, b"data").unwrap();
    let before = rig.attr(g);
    rig.unlink(d, "f").unwrap();
    rig.unlink(d, "g").unwrap();
    assert_eq!((rig.names(d), in_trash(&rig)), (Vec::new(), 2));
    let all = list(&rig);
    let shown = |t: &Trashed| (t.attr.fid, t.attr.nlink, t.parent, t.name.clone(), t.by, t.way.clone());
    let way = Some(b"d".to_vec());
    assert_eq!(shown(&all[0]), (f, 0, d, b"f".to_vec(), 0, way.clone()));
    assert_eq!(shown(&all[1]), (g, 0, d, b"g".to_vec(), 0, way));
    assert_eq!((all.len(), all[0].attr.size), (2, 4));
    rig.assert_clean();
    rig.crash(3);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(list(&rig), all, "a crash loses nothing of it");
    take(&rig, f, Takeout::Back).unwrap();
    take(&rig, g, Takeout::To(R, b"h".to_vec())).unwrap();
    assert_eq!(
        (rig.names(d), rig.names(R), in_trash(&rig)),
        (vec!["f".into()], vec!["d".into(), "h".into()], 0)
    );
    let after = rig.attr(g);
    assert_eq!((after.nlink, after.mtime, after.special), (1, before.mtime, before.special));
    assert_eq!(rig.attr(f).size, 4);
    assert!(list(&rig).is_empty());
    assert_eq!(take(&rig, f, Takeout::Back).err(), Some(Errno::ENOENT));
    rig.assert_clean();
}

#[test]
fn only_the_last_name_that_is_removed_brings_a_file_there() {
    let rig = Rig::new();
    let (d, other) = (trashing(&rig, "d"), rig.mkdir(R, "other"));
    let f = rig.create(d, "f");
    rig.link(f, other, "g").unwrap();
    rig.unlink(d, "f").unwrap();
    assert!(list(&rig).is_empty(), "it has another name");
    rig.unlink(other, "g").unwrap();
    assert!(gone(&rig, f), "and that is in a directory that wants no trash");
    let (a, b) = (rig.create(d, "a"), rig.create(d, "b"));
    rig.rename((d, "a"), (d, "b"), 0).unwrap();
    assert!(gone(&rig, b) && list(&rig).is_empty(), "what a rename replaces is no deletion");
    rig.root(Trashdir { fid: d, on: false }).unwrap();
    rig.unlink(d, "b").unwrap();
    assert!(gone(&rig, a) && list(&rig).is_empty(), "it was switched off");
    rig.assert_clean();
}

#[test]
fn new_directories_inherit_it_and_come_back_before_what_was_in_them() {
    let rig = Rig::new();
    let d = trashing(&rig, "d");
    let sub = rig.mkdir(d, "sub");
    let deep = rig.mkdir(sub, "deep");
    let f = rig.create(deep, "f");
    assert_eq!(rig.attr(deep).flags & FLAG_TRASH, FLAG_TRASH);
    rig.unlink(deep, "f").unwrap();
    rig.rmdir(sub, "deep").unwrap();
    rig.rmdir(d, "sub").unwrap();
    let all = list(&rig);
    let shown: Vec<_> = all.iter().map(|t| (t.attr.fid, t.way.clone().unwrap(), t.removed.clone())).collect();
    let want = [
        (f, b"d/sub/deep".to_vec(), vec![sub, deep]),
        (deep, b"d/sub".to_vec(), vec![sub]),
        (sub, b"d".to_vec(), vec![]),
    ];
    assert_eq!(shown, want);
    let below = list_as(&rig, &Cred::root(), d);
    assert_eq!(
        below.iter().map(|t| t.way.clone().unwrap()).collect::<Vec<_>>(),
        [b"sub/deep".to_vec(), b"sub".to_vec(), b"".to_vec()]
    );
    assert_eq!(list_as(&rig, &Cred::root(), rig.mkdir(R, "elsewhere")).len(), 0);
    assert_eq!(take(&rig, f, Takeout::Back).err(), Some(Errno::ESTALE), "its directory lies in the trash");
    let files = [sub, deep, f].map(|fid| (fid, Takeout::Back)).to_vec();
    assert_eq!(rig.root(Trashtake { files }).unwrap().results, [0, 0, 0]);
    assert_eq!((rig.names(d), rig.names(deep)), (vec!["sub".to_string()], vec!["f".to_string()]));
    assert_eq!(rig.attr(d).nlink, 3);
    rig.assert_clean();
    rig.unlink(deep, "f").unwrap();
    rig.rmdir(sub, "deep").unwrap();
    take(&rig, deep, Takeout::Gone).unwrap();
    assert_eq!(list(&rig)[0].way, None, "its directory is gone for good");
    assert_eq!(take(&rig, f, Takeout::Back).err(), Some(Errno::ESTALE));
    take(&rig, f, Takeout::To(d, b"f".to_vec())).unwrap();
    rig.assert_clean();
}

#[test]
fn who_may_see_restore_and_empty() {
    let rig = Rig::new();
    let d = trashing(&rig, "d");
    let (mine, his) = (user(5), user(6));
    let f = rig.create_as(&mine, d, "f", 0o600).unwrap().entry.attr.fid;
    // Whoever may write a directory without the sticky bit may remove everybody's names.
    rig.call(A, &his, msg::unlink::Unlink { parent: d, name: b"f".to_vec() }).unwrap();
    assert_eq!(list_as(&rig, &mine, R)[0].by, 6);
    assert!(list_as(&rig, &his, R).is_empty(), "it is not his");
    for how in [Takeout::Back, Takeout::Gone, Takeout::To(d, b"x".to_vec())] {
        assert_eq!(take_as(&rig, &his, f, how).err(), Some(Errno::EPERM));
    }
    rig.create_as(&his, d, "f", 0o600).unwrap();
    assert_eq!(take_as(&rig, &mine, f, Takeout::Back).err(), Some(Errno::EEXIST));
    rig.chmod(d, 0o755);
    let to = |name: &str| Takeout::To(d, name.into());
    assert_eq!(take_as(&rig, &mine, f, to("x")).err(), Some(Errno::EACCES));
    assert_eq!(take_as(&rig, &mine, f, Takeout::To(f, b"x".to_vec())).err(), Some(Errno::ENOTDIR));
    assert_eq!(take_as(&rig, &mine, f, Takeout::To(rig.fid(), b"x".to_vec())).err(), Some(Errno::ESTALE));
    assert_eq!(take_as(&rig, &mine, f, to("a/b")).err(), Some(Errno::EINVAL));
    assert_eq!(rig.call(A, &mine, Trashdir { fid: d, on: false }).err(), Some(Errno::EPERM));
    assert_eq!(rig.root(Trashdir { fid: f, on: true }).err(), Some(Errno::ENOTDIR));
    let set = SetAttr { flags: Some(0), ..SetAttr::default() };
    assert_eq!(rig.setattr(&Cred::root(), d, set).err(), Some(Errno::EOPNOTSUPP), "trashdir does that");
    rig.chmod(d, 0o700);
    assert_eq!(list_as(&rig, &mine, R)[0].way, None, "he could not find that directory by looking");
    take_as(&rig, &mine, f, Takeout::Gone).unwrap();
    assert!(gone(&rig, f));
    let many = vec![(f, Takeout::Back); FILES_MAX + 1];
    assert_eq!(rig.root(Trashtake { files: many }).err(), Some(Errno::E2BIG));
    rig.assert_clean();
}

#[test]
fn what_is_open_has_no_links_there_and_lives_until_both_are_over() {
    let mut rig = Rig::new();
    let d = trashing(&rig, "d");
    let (f, g) = (rig.create(d, "f"), rig.create(d, "g"));
    let (h, k) = (rig.open(f, 2), rig.open(g, 2));
    rig.unlink(d, "f").unwrap();
    rig.unlink(d, "g").unwrap();
    assert_eq!(rig.attr(f).nlink, 0);
    assert_eq!(rig.link(f, d, "again").err(), Some(Errno::ENOENT), "restoring it is another matter");
    rig.write(f, 0, b"late").unwrap();
    rig.close(f, h);
    assert_eq!(list(&rig)[0].attr.size, 4, "closed, and still there");
    take(&rig, g, Takeout::Gone).unwrap();
    assert_eq!((rig.attr(g).nlink, rig.assert_clean().orphans), (0, 1), "an orphan like any other");
    rig.crash(9);
    rig.reclaim(A, &[(g, k)]);
    rig.reclaim(B, &[]);
    assert_eq!(list(&rig).len(), 1);
    rig.close(g, k);
    assert!(gone(&rig, g));
    rig.assert_clean();
}

#[test]
fn nobody_has_such_a_directory_for_himself() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let own = |c| {
        let m = msg::own::Own {
            dir: d,
            cookie: 0,
            max_bytes: 1 << 16,
            children: true,
            knows_limits: true.into(),
        };
        let g = rig.call(c, &Cred::root(), m).unwrap().dir.grant;
        g.is_some_and(|g| g.exclusive)
    };
    assert!(own(A));
    rig.depart(A, Departure::Disconnected);
    on_by(&rig, B, d);
    assert!(!own(B));
    assert!(!rig.mdt.shared.leases.is_owner(B));
}

fn on_by(rig: &Rig, c: ClientId, fid: Fid) {
    rig.call(c, &Cred::root(), Trashdir { fid, on: true }).unwrap();
}

#[test]
fn a_rule_that_makes_room_goes_past_it() {
    let rig = Rig::new();
    let d = trashing(&rig, "d");
    let f = rig.create(d, "f");
    let seen = rig.attr(f).ctime;
    let purge = msg::purge::Purge {
        parent: d,
        name: b"f".to_vec(),
        fid: f,
        seen,
        tests: Vec::new(),
        unless: Vec::new(),
    };
    rig.root(purge).unwrap();
    assert!(gone(&rig, f) && list(&rig).is_empty());
    rig.assert_clean();
}

#[test]
fn long_lists_come_in_pages() {
    let rig = Rig::new();
    let d = trashing(&rig, "d");
    for n in 0..1100 {
        let name = format!("f{n}");
        rig.create(d, &name);
        rig.unlink(d, &name).unwrap();
    }
    assert_eq!(list(&rig).len(), 1100);
    assert!(list_as(&rig, &user(5), R).is_empty(), "pages without anything for him end as well");
    rig.assert_clean();
}

/// Waits until as many are left.
fn until_left(rig: &Rig, n: usize) {
    for _ in 0..6000 {
        if list(rig).len() == n {
            return;
        }
        block_on(rig.world.sleep(std::time::Duration::from_millis(10)));
    }
    panic!("{} are left after a minute, not {n}", list(rig).len());
}

fn filled(rig: &Rig, n: usize) {
    let d = trashing(rig, "d");
    for n in 0..n {
        let name = format!("f{n}");
        let f = rig.create(d, &name);
        rig.write(f, 0, &[7; 9000]).unwrap();
        rig.unlink(d, &name).unwrap();
    }
}

fn set(rig: &Rig, name: &str, value: &str) {
    block_on(rig.mdt.set_params(&format!("mdt.*.{name}"), value)).unwrap();
}

#[test]
fn what_is_old_goes() {
    let rig = Rig::new();
    // Of three transactions.
    filled(&rig, 250);
    set(&rig, "trash_max_age", "1");
    until_left(&rig, 0);
    assert_eq!(in_trash(&rig), 0);
    rig.assert_clean();
}

#[test]
fn the_oldest_go_when_the_trash_is_too_large_or_an_object_target_is_nearly_full() {
    let rig = Rig::new();
    filled(&rig, 10);
    let (bytes, newest) = (10 * 3 * 4096, list(&rig).pop().unwrap().attr.fid);
    let full = |available: u64, total: u64| {
        for i in 0..4 {
            let now = rig.world.now();
            rig.mdt.shared.osts.update(i, |o| {
                o.space = Some(StatfsReply { total, available, ..StatfsReply::default() });
                o.heard = Some(now);
            });
        }
    };
    // All four together have ten times as much as the trash takes, and may give half as much to it.
    full(bytes, 10 * bytes / 4);
    set(&rig, "trash_max_space", "5");
    until_left(&rig, 5);
    assert_eq!(list(&rig).pop().unwrap().attr.fid, newest, "the oldest went");
    set(&rig, "trash_max_space", "100");
    let total = 100 * bytes;
    full(total * 5 / 100 - 4096, total);
    until_left(&rig, 3);
    rig.assert_clean();
}

#[test]
fn a_full_target_gets_objects_while_trash_can_make_room() {
    let rig = Rig::new();
    let d = trashing(&rig, "d");
    rig.create_striped(d, "gone", 1);
    let full = || {
        let said = StatfsReply { total: 1 << 30, state: NO_SPACE, ..StatfsReply::default() };
        let osts = &rig.mdt.shared.osts;
        osts.list().into_iter().for_each(|(index, _)| osts.heard(index, said, rig.world.now()));
    };
    let create = |name: &str| {
        let layout = Some(LayoutSpec { stripe_count: 1, ..LayoutSpec::default() });
        let m = msg::create::Create { layout, ..create_msg(d, name, rig.fid(), 0o644) };
        rig.root(m).map(drop)
    };
    full();
    assert_eq!(create("none"), Err(Errno::ENOSPC));
    rig.unlink(d, "gone").unwrap();
    assert_eq!(in_trash(&rig), 1);
    full();
    create("some").unwrap();
    rig.assert_clean();
}
