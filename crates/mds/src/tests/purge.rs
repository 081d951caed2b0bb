//! Names that go if a rule still holds.

use super::*;
use msg::purge::Purge;
use msg::scan::{Condition, Number, Test};

const R: Fid = Fid::ROOT;

fn within(of: Number, from: i64, to: i64) -> Test {
    Test { negated: false, condition: Condition::Within(of, from, to) }
}

fn purge(rig: &Rig, name: &str, fid: Fid) -> Purge {
    let seen = rig.attr(fid).ctime;
    Purge { parent: R, name: name.into(), fid, seen, tests: Vec::new(), unless: Vec::new() }
}

#[test]
fn a_file_that_is_what_it_was_goes_and_its_objects_with_it() {
    let rig = Rig::new();
    let f = rig.create_striped(R, "f", 1);
    let tests = vec![within(Number::Uid, 0, 0), within(Number::Links, 1, 1), within(Number::Size, 1, 5)];
    let c = rig.root(Purge { tests, ..purge(&rig, "f", f) }).unwrap();
    assert_eq!((c.gone, c.entries.len()), (vec![f], 1), "its size is its objects' business");
    assert_eq!(rig.lookup(R, "f").unwrap_err(), Errno::ENOENT);
    assert_eq!(rig.assert_clean().outbox, 1);
}

#[test]
fn a_file_that_is_not_what_it_was_stays() {
    let rig = Rig::new();
    let (f, g) = (rig.create(R, "f"), rig.create(R, "g"));
    rig.write(f, 0, b"data").unwrap();
    let seen = purge(&rig, "f", f);
    let refused = |m: Purge| assert_eq!(rig.root(m).unwrap_err(), Errno::ECANCELED);
    refused(Purge { fid: g, ..seen.clone() });
    refused(Purge { tests: vec![within(Number::Uid, 1, 9)], ..seen.clone() });
    refused(Purge { tests: vec![within(Number::Atime, i64::MIN, 0)], ..seen.clone() });
    refused(Purge { tests: vec![within(Number::Size, 5, 9)], ..seen.clone() });
    let held = vec![within(Number::Uid, 0, 0), within(Number::Size, 4, 4)];
    let not_held = vec![within(Number::Uid, 0, 0), within(Number::Size, 5, 5)];
    refused(Purge { unless: vec![not_held.clone(), held.clone()], ..seen.clone() });
    rig.write(f, 4, b"more").unwrap();
    refused(seen);
    let seen = purge(&rig, "f", f);
    rig.rename((R, "f"), (R, "h"), 0).unwrap();
    rig.rename((R, "g"), (R, "f"), 0).unwrap();
    refused(seen);
    assert_eq!(rig.names(R), ["f", "h"]);
    rig.root(Purge { unless: vec![not_held], ..purge(&rig, "h", f) }).unwrap();
    assert_eq!(rig.names(R), ["f"]);
    rig.assert_clean();
}

#[test]
fn a_file_that_is_open_stays() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let h = rig.open(f, 0);
    assert_eq!(rig.root(purge(&rig, "f", f)).unwrap_err(), Errno::EBUSY);
    rig.close(f, h);
    rig.root(purge(&rig, "f", f)).unwrap();
    rig.assert_clean();
}

#[test]
fn who_may_not_remove_a_name_may_not_purge_it_and_too_much_is_refused() {
    let rig = Rig::new();
    let (f, d) = (rig.create(R, "f"), rig.mkdir(R, "d"));
    let m = purge(&rig, "f", f);
    let other = Cred { uid: 7, gid: 7, ..Cred::root() };
    assert_eq!(rig.call(A, &other, m.clone()).unwrap_err(), Errno::EACCES);
    assert_eq!(rig.root(Purge { name: b"d".to_vec(), fid: d, ..m.clone() }).unwrap_err(), Errno::EISDIR);
    assert_eq!(rig.root(Purge { name: b"..".to_vec(), ..m.clone() }).unwrap_err(), Errno::EISDIR);
    assert_eq!(rig.root(Purge { name: b"x".to_vec(), ..m.clone() }).unwrap_err(), Errno::ENOENT);
    let many = vec![Vec::new(); msg::purge::EXEMPTIONS_MAX + 1];
    assert_eq!(rig.root(Purge { unless: many, ..m }).unwrap_err(), Errno::E2BIG);
    rig.assert_clean();
}
