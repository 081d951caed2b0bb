//! Permissions, owners, modes, times.

use super::*;
use ::model::SetTime;

const R: Fid = Fid::ROOT;

fn mode(m: u32) -> SetAttr {
    SetAttr { mode: Some(m), ..SetAttr::default() }
}

#[test]
fn the_server_checks_permissions_too() {
    let rig = Rig::new();
    let (d, f) = (rig.mkdir(R, "d"), rig.create(R, "f"));
    let u = user(5);
    assert_eq!(rig.create_as(&u, d, "x", 0o644).unwrap_err(), Errno::EACCES);
    assert_eq!(rig.call(A, &u, msg::unlink::Unlink { parent: R, name: b"f".to_vec() }), Err(Errno::EACCES));
    rig.chmod(d, 0o733);
    rig.create_as(&u, d, "x", 0o644).unwrap();
    rig.chmod(d, 0o766);
    assert_eq!(
        rig.call(A, &u, msg::lookup::Lookup { parent: d, name: b"x".to_vec(), data: 0 }).unwrap_err(),
        Errno::EACCES
    );
    rig.chmod(f, 0o640);
    let open = |cred: &Cred, flags| {
        let open = OpenSpec { handle: rig.handle(), flags, lease: false };
        rig.call(A, cred, msg::open::Open { fid: f, open, data: 0 }).map(|_| ())
    };
    assert_eq!(open(&u, 0), Err(Errno::EACCES));
    rig.chown(f, 0, 5);
    assert_eq!(open(&u, 0), Ok(()));
    assert_eq!(open(&u, 2), Err(Errno::EACCES));
    rig.chmod(f, 0o611);
    assert_eq!(open(&u, ::model::perm::FMODE_EXEC), Ok(()), "to execute it");
    assert_eq!(open(&u, 0), Err(Errno::EACCES));
    assert_eq!(
        rig.call(
            A,
            &u,
            msg::open::Open { fid: d, open: OpenSpec { handle: 99, flags: 1, lease: false }, data: 0 }
        )
        .unwrap_err(),
        Errno::EISDIR
    );
    rig.assert_clean();
}

#[test]
fn an_existing_name_is_eexist_even_in_a_directory_one_cannot_write() {
    let rig = Rig::new();
    rig.mkdir(R, "d");
    let u = user(5);
    assert_eq!(rig.mkdir_as(&u, R, "d", 0o755).unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.mkdir_as(&u, R, "e", 0o755).unwrap_err(), Errno::EACCES);
}

#[test]
fn sticky_directories() {
    let rig = Rig::new();
    let t = rig.mkdir(R, "tmp");
    rig.chmod(t, 0o1777);
    rig.create_as(&user(5), t, "five", 0o666).unwrap();
    let rm = |uid: u32| rig.call(A, &user(uid), msg::unlink::Unlink { parent: t, name: b"five".to_vec() });
    assert_eq!(rm(6).unwrap_err(), Errno::EPERM);
    let mv = |uid: u32| rig.call(A, &user(uid), rename_msg((t, "five"), (t, "six"), 0));
    assert_eq!(mv(6).unwrap_err(), Errno::EPERM);
    rm(5).unwrap();
}

#[test]
fn chmod_chown_and_set_id_bits() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    rig.chown(f, 5, 5);
    let u = Cred { uid: 5, gid: 5, groups: vec![7] };
    assert_eq!(rig.setattr(&user(6), f, mode(0o777)).unwrap_err(), Errno::EPERM);
    rig.setattr(&u, f, mode(0o6755)).unwrap();
    assert_eq!(rig.attr(f).mode, 0o6755);
    let chgrp = |cred: &Cred, gid| rig.setattr(cred, f, SetAttr { gid: Some(gid), ..SetAttr::default() });
    assert_eq!(chgrp(&u, 8).unwrap_err(), Errno::EPERM);
    chgrp(&u, 7).unwrap();
    assert_eq!((rig.attr(f).mode, rig.attr(f).gid), (0o755, 7), "set-id bits go with the owner's group");
    let outside = user(5);
    rig.setattr(&outside, f, mode(0o2755)).unwrap();
    assert_eq!(rig.attr(f).mode, 0o755, "not in the file's group");
    rig.chmod(f, 0o6711);
    rig.chown(f, 9, 9);
    assert_eq!(rig.attr(f).mode, 0o711, "the superuser's chown takes them too");
    let before = rig.attr(f);
    rig.setattr(&user(44), f, SetAttr::default()).unwrap();
    assert_eq!(rig.attr(f), before, "chown(-1, -1) by a stranger");
    rig.chmod(f, 0o6777);
    rig.setattr(&user(44), f, SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    assert_eq!(rig.attr(f).mode, 0o777, "a truncate takes set-id bits");
    rig.assert_clean();
}

#[test]
fn set_gid_directories_and_umask() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    rig.chown(d, 0, 50);
    rig.chmod(d, 0o2777);
    let sub = rig.mkdir_as(&user(5), d, "sub", 0o755).unwrap().attr;
    assert_eq!((sub.gid, sub.mode, sub.uid), (50, 0o2755, 5));
    let f = rig.create_as(&user(5), d, "f", 0o644).unwrap().entry.attr;
    assert_eq!((f.gid, f.mode), (50, 0o644));
    let m = Create { umask: 0o027, ..create_msg(d, "g", rig.fid(), 0o666) };
    assert_eq!(rig.call(A, &user(5), m).unwrap().entry.attr.mode, 0o640);
}

#[test]
fn times_follow_the_rules() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    rig.chown(f, 5, 5);
    let t = Timestamp { sec: 12, nsec: 34 };
    let at = SetAttr { atime: Some(SetTime::At(t)), mtime: Some(SetTime::At(t)), ..SetAttr::default() };
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let one = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
    rig.chmod(f, 0o644);
    assert_eq!(rig.setattr(&user(6), f, at.clone()).unwrap_err(), Errno::EPERM);
    assert_eq!(rig.setattr(&user(6), f, now.clone()).unwrap_err(), Errno::EACCES);
    rig.chmod(f, 0o666);
    rig.setattr(&user(6), f, now.clone()).unwrap();
    assert_eq!(rig.setattr(&user(6), f, one).unwrap_err(), Errno::EPERM);
    let before = rig.attr(f);
    rig.setattr(&user(5), f, at).unwrap();
    let after = rig.attr(f);
    assert_eq!((after.atime, after.mtime), (t, t));
    assert!(later(after.ctime, before.ctime) && after.mtime_stamp == after.ctime);
    let bad =
        SetAttr { atime: Some(SetTime::At(Timestamp { sec: 0, nsec: 1_000_000_000 })), ..SetAttr::default() };
    assert_eq!(rig.setattr(&user(5), f, bad).unwrap_err(), Errno::EINVAL);

    let dir = rig.attr(R);
    rig.chmod(f, 0o600);
    let after = rig.attr(f);
    assert_eq!(rig.attr(R), dir, "a chmod is none of the directory's business");
    assert_eq!(after.mtime, t);
    rig.link(f, R, "g").unwrap();
    assert!(later(rig.attr(R).mtime, dir.mtime) && later(rig.attr(f).ctime, after.ctime));
    let dir = rig.attr(R);
    assert_eq!(rig.link(f, R, "g").unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.attr(R), dir, "a failed operation changes nothing");
    rig.unlink(R, "g").unwrap();
    assert!(later(rig.attr(R).ctime, dir.ctime));
}

#[test]
fn new_times_come_after_writes_by_clocks_that_are_ahead() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let now = rig.world.wall();
    let set = SetAttr { mtime: Some(SetTime::At(Timestamp::ZERO)), ..SetAttr::default() };
    let stamped = |written: Option<Timestamp>, client_time| {
        let mut r = rig.incoming(A, &Cred::root(), &msg::setattr::Setattr { fid: f, set: set.clone() });
        r.ctx.client_time = client_time;
        r.ctx = written.map_or(r.ctx.clone(), |at| r.ctx.clone().behind_write(at));
        block_on(rig.mdt.clone().handle(r)).status.unwrap();
        rig.attr(f).mtime_stamp
    };
    let hour = now.plus_nanos(3_600_000_000_000);
    assert!(later(hour, stamped(None, hour)), "a client's clock is believed a second ahead");
    assert!(later(stamped(Some(hour), hour), hour), "a write is where it is");
    let far = now.plus_nanos(7 * 24 * 3_600_000_000_000);
    assert!(later(far, stamped(Some(far), far)), "nobody moves a file into the next week");
}

#[test]
fn truncate_checks_and_stamps() {
    let rig = Rig::new();
    let (f, d) = (rig.create(R, "f"), rig.mkdir(R, "d"));
    let size = |s| SetAttr { size: Some(s), ..SetAttr::default() };
    assert_eq!(rig.setattr(&user(5), f, size(0)).unwrap_err(), Errno::EACCES);
    let handle = SetAttr { by_handle: true, ..size(10) };
    rig.setattr(&user(5), f, handle).unwrap();
    assert_eq!(rig.setattr(&Cred::root(), d, size(0)).unwrap_err(), Errno::EISDIR);
    assert_eq!(rig.setattr(&Cred::root(), f, size(1 << 63)).unwrap_err(), Errno::EFBIG);
    let before = rig.attr(f);
    rig.setattr(&Cred::root(), f, size(0)).unwrap();
    let after = rig.attr(f);
    assert!(later(after.mtime, before.mtime) && later(after.mtime_stamp, before.mtime_stamp));
}

#[test]
fn atime_comes_with_the_close_and_leaves_ctime() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let h = rig.open(f, 0);
    let before = rig.attr(f);
    let t = rig.world.wall();
    rig.root(msg::close::Close { fid: f, handle: h, atime: Some(t) }).unwrap();
    let after = rig.attr(f);
    assert_eq!((after.atime, after.ctime), (t, before.ctime));
}

#[test]
fn a_close_that_was_overtaken_by_a_change_stores_no_time() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let closed = rig.world.wall();
    let old = Timestamp { sec: 1000, nsec: 0 };
    let set = SetAttr { atime: Some(SetTime::At(old)), ..SetAttr::default() };
    rig.setattr(&Cred::root(), f, set).unwrap();
    let close = |at| {
        rig.root(late_close(f, closed, at)).unwrap();
    };
    close(closed);
    assert_eq!(rig.attr(f).atime, old, "it was set by hand after that close");
    close(rig.world.wall());
    assert_eq!(rig.attr(f).atime, closed, "this one comes after it");
}

#[test]
fn clocks_that_are_far_off_are_not_believed() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let mut req = rig.incoming(A, &Cred::root(), &msg::setattr::Setattr { fid: f, set: mode(0o600) });
    req.ctx.client_time = Timestamp { sec: rig.world.wall().sec + 1000, nsec: 0 };
    block_on(rig.mdt.clone().handle(req)).status.unwrap();
    let t = rig.attr(f).ctime;
    assert!(t.sec <= rig.world.wall().sec + 2);
    rig.chmod(f, 0o644);
    assert!(rig.attr(f).ctime >= t, "ctime never goes backward");
}
