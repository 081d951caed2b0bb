//! Check and repair of a served target: each kind of damage, made by hand, is gone afterwards.

use super::damage::{CASES, Tree, tree};
use super::*;
use crate::check::Rule;
use crate::lfsck::State;
use crate::schema::value;
use crate::schema::{DentryValue, Inode, key};
use std::collections::BTreeSet;
use std::time::Duration;

const R: Fid = Fid::ROOT;

/// What is left for people: no consumer may miss records of the changelog without a word.
const LEFT: &[&str] = &["a record of the changelog that is missing", "a consumer of records that never were"];

type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn order(t: &Tree, text: &str) {
    block_on(t.rig.mdt.set_params("mdd.*.lfsck", text)).unwrap();
}

fn text(t: &Tree) -> String {
    t.rig.mdt.get_params("mdd.*.lfsck_namespace").pop().unwrap().1
}

fn field(t: &Tree, name: &str) -> String {
    let text = text(t);
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_string()
}

/// Until the check is over.
fn finished(t: &Tree) -> String {
    let end = t.rig.world.now().plus(Duration::from_secs(30));
    loop {
        let status = field(t, "status");
        if !matches!(status.as_str(), "scanning-phase1" | "scanning-phase2") {
            return status;
        }
        assert!(t.rig.world.now() < end, "it does not end: {}", text(t));
        block_on(t.rig.world.sleep(Duration::from_millis(1)));
    }
}

fn mended(t: &Tree, order_text: &str) -> String {
    order(t, order_text);
    finished(t)
}

/// A file that lies in the trash, and since when.
fn trashed(t: &Tree) -> (Fid, Timestamp) {
    let d = t.rig.mkdir(R, "bin");
    t.rig.root(msg::trashdir::Trashdir { fid: d, on: true }).unwrap();
    let f = t.rig.create(d, "x");
    t.rig.unlink(d, "x").unwrap();
    let v = t.rig.mdt.db.get(&key::inode(f)).unwrap().unwrap();
    (f, Inode::decode(f, &v).unwrap().removed.expect("it lies in the trash").when)
}

type Damage = (&'static str, fn(&Tree) -> Writes);

/// Damage beside that of the checker's own test.
const MORE: &[Damage] = &[
    ("a file in the trash that the trash does not know", |t| {
        let (f, when) = trashed(t);
        vec![(key::trash(when, f), None)]
    }),
    ("a file in the trash with links", |t| {
        let (f, _) = trashed(t);
        vec![t.inode(f, |i| i.nlink = 1)]
    }),
    ("a file in the trash that is counted elsewhere", |t| {
        let (f, _) = trashed(t);
        vec![t.inode(f, |i| i.directory = 0)]
    }),
    ("a file in the trash that is listed as an orphan", |t| {
        let (f, _) = trashed(t);
        vec![(key::orphan(f), Some(value::OrphanKind::Unlinked.encode()))]
    }),
    ("a record of the trash of a file that has names", |t| {
        vec![(key::trash(Timestamp::ZERO, t.file), Some(value::encode_trash()))]
    }),
    ("a file without a name", |t| {
        let (f, g) = (t.cookie(t.dir, "f"), t.cookie(R, "g"));
        vec![
            (key::dentry(t.dir, f, b"f"), None),
            (key::backptr(t.file, t.dir, f), None),
            (key::dentry(R, g, b"g"), None),
            (key::backptr(t.file, R, g), None),
        ]
    }),
    ("a directory without a name", |t| {
        let c = t.cookie(R, "d");
        vec![(key::dentry(R, c, b"d"), None), (key::backptr(t.dir, R, c), None)]
    }),
    ("a directory that is gone", |t| vec![(key::inode(t.dir), None)]),
    ("a back-pointer with another name", |t| {
        vec![(key::backptr(t.file, R, t.cookie(R, "g")), Some(value::encode_name(b"other")))]
    }),
    ("a back-pointer that does not decode", |t| {
        vec![(key::backptr(t.file, R, t.cookie(R, "g")), Some(vec![77]))]
    }),
    ("a name that does not decode", |t| vec![(key::dentry(R, t.cookie(R, "g"), b"g"), Some(vec![1]))]),
    ("an entry of a file", |t| {
        let d = DentryValue { fid: t.small, kind: FileType::Regular };
        vec![
            (key::dentry(t.file, 777, b"x"), Some(d.encode())),
            (key::backptr(t.small, t.file, 777), Some(value::encode_name(b"x"))),
        ]
    }),
    ("a cookie out of range", |t| {
        let (c, d) = (t.cookie(R, "g"), DentryValue { fid: t.file, kind: FileType::Regular });
        vec![
            (key::dentry(R, c, b"g"), None),
            (key::backptr(t.file, R, c), None),
            (key::dentry(R, 3, b"g"), Some(d.encode())),
            (key::backptr(t.file, R, 3), Some(value::encode_name(b"g"))),
        ]
    }),
    ("a directory in two places", |t| {
        let d = DentryValue { fid: t.dir, kind: FileType::Directory };
        vec![
            (key::dentry(R, 1 << 20, b"twice"), Some(d.encode())),
            (key::backptr(t.dir, R, 1 << 20), Some(value::encode_name(b"twice"))),
        ]
    }),
    ("the reverse index gives an object to another file", |t| {
        let o = t.rig.lookup(R, "g").unwrap().layout.unwrap().components[0].objects[0];
        vec![(key::reverse(o.ost, o.id), Some(value::encode_owner(t.small)))]
    }),
    ("a reverse index that does not decode", |t| {
        let o = t.rig.lookup(R, "g").unwrap().layout.unwrap().components[0].objects[0];
        vec![(key::reverse(o.ost, o.id), Some(vec![1, 2]))]
    }),
    ("an orphan's record that does not decode", |t| vec![(key::orphan(t.file), Some(vec![1, 99]))]),
    ("an outbox that does not decode", |_| vec![(key::outbox(1, 7), Some(vec![9, 9]))]),
    ("a lease that does not decode", |_| vec![(key::lease(model_seq()), Some(vec![9]))]),
    ("an inode's key of another length", |t| {
        let mut k = key::inode(t.file);
        k.push(1);
        vec![(k, Some(vec![1]))]
    }),
    ("an inode lost with its data", |t| vec![(key::inode(t.small), None)]),
    ("an inode of data that does not decode", |t| vec![(key::inode(t.small), Some(vec![1, 8, 3]))]),
    ("a directory that does not decode", |t| vec![(key::inode(t.dir), Some(vec![1, 4]))]),
    ("an attribute of no file", |_| vec![(key::xattr(Fid::new(1, 1, 0), b"user.a"), Some(vec![1, 2]))]),
    ("usage", |t| {
        let k =
            store::usage::usage_key(::model::usage::QuotaId { of: ::model::usage::QuotaType::User, id: 7 });
        let v = t.rig.mdt.db.get(&store::usage::usage_key(::model::usage::QuotaId {
            of: ::model::usage::QuotaType::User,
            id: 0,
        }));
        vec![(k, v.unwrap())]
    }),
];

fn model_seq() -> u64 {
    ::model::fid::SEQ_NORMAL
}

fn harm(t: &Tree, writes: Writes) -> BTreeSet<Rule> {
    t.broken(writes).into_iter().collect()
}

#[test]
fn each_kind_of_damage_is_mended_or_put_into_lost_and_found() {
    let checkers = CASES.iter().map(|(what, harm, _)| (*what, *harm));
    let (mut kinds, mut wrong) = (BTreeSet::new(), Vec::new());
    for (what, make) in checkers.chain(MORE.iter().copied()) {
        let t = tree();
        assert!(!harm(&t, make(&t)).is_empty(), "{what}: the checker sees nothing");
        assert_eq!(mended(&t, "start namespace"), "completed", "{what}");
        let left = check::check(&t.rig.mdt.db).unwrap().findings;
        if left.is_empty() == LEFT.contains(&what) || (field(&t, "left") == "0") == LEFT.contains(&what) {
            wrong.push(format!("{what}: {left:?} {}", t.rig.mdt.shared.lfsck.problems()));
        }
        for l in text(&t).lines().filter(|l| l.starts_with("found_") && !l.ends_with(": 0")) {
            kinds.insert(l.split(':').next().unwrap().to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kinds.len() >= 30, "{} kinds: {kinds:?}", kinds.len());
}

/// With fewer links than names a user who removes a name would remove the file.
#[test]
fn a_file_has_all_its_links_while_its_names_are_looked_at() {
    let t = tree();
    let lost = [(t.dir, "f"), (R, "g")].map(|(d, n)| (key::backptr(t.file, d, t.cookie(d, n)), None));
    assert!(!harm(&t, lost.to_vec()).is_empty());
    order(&t, "start namespace speed=4");
    let end = t.rig.world.now().plus(Duration::from_secs(30));
    while field(&t, "repaired") == "0" {
        assert!(t.rig.world.now() < end, "nothing is mended: {}", text(&t));
        block_on(t.rig.world.sleep(Duration::from_millis(1)));
    }
    let nlink = || {
        let v = t.rig.mdt.db.get(&key::inode(t.file)).unwrap().unwrap();
        Inode::decode(t.file, &v).unwrap().nlink
    };
    assert_eq!((field(&t, "repaired"), nlink()), ("1".into(), 2), "one of its names has its back-pointer");
    block_on(t.rig.mdt.set_params("mdd.*.lfsck_speed_limit", "0")).unwrap();
    assert_eq!((finished(&t).as_str(), nlink()), ("completed", 2));
    t.rig.assert_clean();
}

#[test]
fn what_lies_in_the_trash_is_left_there() {
    let t = tree();
    let (f, when) = trashed(&t);
    assert_eq!(mended(&t, "start namespace"), "completed");
    assert_eq!((field(&t, "found"), field(&t, "repaired")), ("0".into(), "0".into()), "{}", text(&t));
    assert!(t.rig.mdt.db.get(&key::trash(when, f)).unwrap().is_some());
    t.rig.assert_clean();
}

#[test]
fn a_dry_run_says_all_of_it_and_changes_nothing() {
    let t = tree();
    let writes = vec![
        t.inode(t.file, |i| i.nlink = 3),
        (key::backptr(t.file, R, t.cookie(R, "g")), None),
        (key::inode(t.small), None),
    ];
    let before = harm(&t, writes);
    assert_eq!(mended(&t, "start namespace dryrun"), "completed");
    let after: BTreeSet<Rule> =
        check::check(&t.rig.mdt.db).unwrap().findings.into_iter().map(|f| f.rule).collect();
    assert_eq!(before, after);
    assert_ne!(field(&t, "found"), "0");
    assert_eq!((field(&t, "repaired"), field(&t, "quarantined")), ("0".into(), "0".into()));
    assert_eq!(field(&t, "flags"), "inconsistent");
    assert_eq!(mended(&t, "start namespace"), "completed");
    t.rig.assert_clean();
    // What the missing inode had is in lost+found, under its FID.
    let kept = t.rig.names(Fid::LOST_FOUND);
    assert!(kept.iter().any(|n| n.starts_with(&t.small.to_string())), "{kept:?}");
}

#[test]
fn it_goes_on_where_it_was_when_the_server_is_killed() {
    let mut t = tree();
    for n in 0..300 {
        t.rig.create(R, &format!("n{n}"));
    }
    harm(&t, vec![t.inode(t.file, |i| i.nlink = 3)]);
    block_on(t.rig.mdt.set_params("mdd.*.lfsck_speed_limit", "40")).unwrap();
    order(&t, "start namespace");
    let end = t.rig.world.now().plus(Duration::from_secs(30));
    let at = loop {
        let k = t.rig.mdt.db.get(key::STATE_LFSCK).unwrap();
        let kept = k.map(|v| State::decode(key::STATE_LFSCK, &v).unwrap().at).unwrap_or_default();
        if !kept.is_empty() {
            break kept;
        }
        assert!(t.rig.world.now() < end, "where it is is never written down");
        block_on(t.rig.world.sleep(Duration::from_millis(20)));
    };
    t.rig.crash(7);
    let kept = t.rig.mdt.shared.lfsck.state().at.clone();
    assert!(kept >= at, "it goes on at {kept:?}, not at the beginning");
    assert_eq!(field(&t, "status"), "scanning-phase1");
    assert_eq!(
        t.rig.mdt.get_params("mdd.*.lfsck_speed_limit").pop().unwrap().1,
        "40",
        "it goes on as slowly"
    );
    block_on(t.rig.mdt.set_params("mdd.*.lfsck_speed_limit", "0")).unwrap();
    for c in [A, B] {
        t.rig.reclaim(c, &[]);
    }
    assert_eq!(finished(&t), "completed", "{}", text(&t));
    let i = t.rig.mdt.db.get(&key::inode(t.file)).unwrap().unwrap();
    assert_eq!(Inode::decode(t.file, &i).unwrap().nlink, 2);
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let t = tree();
    for (bad, want) in [("go", Errno::EINVAL), ("stop", Errno::EALREADY), ("start all", Errno::EINVAL)] {
        let r = block_on(t.rig.mdt.set_params("mdd.*.lfsck", bad));
        assert_eq!(r.err(), Some(want), "{bad}");
    }
}
