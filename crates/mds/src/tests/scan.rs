//! Scans of inodes beside walks: the same files by the same names, for root and for others.

use super::{A, B, Rig, user};
use crate::scan::{Bounds, page};
use crate::schema::Inode;
use crate::tx::Tx;
use ::model::perm::{self, MAY_EXEC, MAY_READ};
use ::model::{Cred, Errno, Fid, FileType, SetAttr, SetTime, Timestamp};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wire::msg;
use wire::msg::scan::{Condition, Cursor, Number, ROOT_PLACE, Scan, ScanReply, Test};
use wire::trailing::Trailing;

const R: Fid = Fid::ROOT;

/// What a whole scan says: paths that may fit, and paths of directories that are closed.
#[derive(PartialEq, Eq, Debug, Default)]
struct Seen {
    found: BTreeSet<String>,
    closed: BTreeSet<String>,
}

fn path(r: &ScanReply, place: u32, name: &[u8]) -> String {
    let name = String::from_utf8(name.to_vec()).unwrap();
    if place == ROOT_PLACE {
        return name;
    }
    let d = &r.dirs[place as usize];
    assert!(d.parent == ROOT_PLACE || d.parent < place, "a directory stands behind its parent");
    format!("{}/{name}", path(r, d.parent, &d.name))
}

fn scan(rig: &Rig, cred: &Cred, root: Fid, tests: &[Test], bounds: Bounds) -> Result<Seen, Errno> {
    let (mut seen, mut after, mut met) = (Seen::default(), None::<Cursor>, BTreeSet::new());
    loop {
        let core = rig.mdt.transactions.core.read();
        let mut tx = Tx::new(rig.mdt.db.view(), &core.opens, &rig.mdt.shared);
        let r = page(&mut tx, cred, &Scan { root, after, tests: tests.to_vec() }, bounds)?;
        for f in &r.files {
            for n in &f.names {
                let p = path(&r, n.parent, &n.name);
                assert!(met.insert(p.clone()), "{p} is told twice");
                seen.found.insert(p);
            }
        }
        seen.closed.extend(r.closed.iter().map(|n| path(&r, n.parent, &n.name)));
        assert!(r.next.is_none() || r.next != after, "a scan goes on");
        after = r.next;
        if after.is_none() {
            return Ok(seen);
        }
    }
}

/// The same by a walk that reads directories.
fn walk(rig: &Rig, cred: &Cred, dir: Fid, above: &str, seen: &mut Seen, fits: &dyn Fn(&Inode) -> bool) {
    let entries = rig.root(msg::readdir::Readdir {
        fid: dir,
        cookie: 0,
        max_bytes: 1 << 20,
        plus: false,
        grows_into: Trailing(None),
    });
    for e in entries.unwrap().entries {
        let name = format!("{above}{}", String::from_utf8(e.name).unwrap());
        let record = rig.mdt.db.get(&crate::schema::key::inode(e.fid)).unwrap().unwrap();
        let inode = Inode::decode(e.fid, &record).unwrap();
        if fits(&inode) {
            seen.found.insert(name.clone());
        }
        if inode.is_dir() {
            if perm::access(cred, &inode.subject(), MAY_READ | MAY_EXEC).is_ok() {
                walk(rig, cred, e.fid, &format!("{name}/"), seen, fits);
            } else {
                seen.closed.insert(name);
            }
        }
    }
}

fn walked(rig: &Rig, cred: &Cred, root: Fid, fits: &dyn Fn(&Inode) -> bool) -> Seen {
    let mut seen = Seen::default();
    walk(rig, cred, root, "", &mut seen, fits);
    seen
}

fn test(negated: bool, condition: Condition) -> Test {
    Test { negated, condition }
}

fn within(of: Number, from: i64, to: i64) -> Condition {
    Condition::Within(of, from, to)
}

/// One step in the making of a tree: what, in which of the directories so far, of which file so far.
type Step = (u8, prop::sample::Index, prop::sample::Index, u32);

fn step() -> impl Strategy<Value = Step> {
    (0u8..12, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u32..100_000)
}

struct Tree {
    rig: Rig,
    dirs: Vec<Fid>,
    /// Where each file has its first name.
    files: Vec<(Fid, Fid, String)>,
}

fn grow(steps: &[Step]) -> Tree {
    let mut t = Tree { rig: Rig::new(), dirs: vec![R], files: Vec::new() };
    for (n, (what, dir, other, number)) in steps.iter().enumerate() {
        let (name, dir, other) = (format!("n{n}"), *dir.get(&t.dirs), *other.get(&t.dirs));
        match what {
            0..=2 => {
                let d = t.rig.mkdir(dir, &name);
                t.rig.chmod(d, [0o755, 0o700, 0o711, 0o744, 0o755][*number as usize % 5]);
                t.rig.chown(d, number % 3, 0);
                t.dirs.push(d);
            }
            3..=6 => {
                let f = t.rig.create(dir, &name);
                t.rig.chown(f, number % 3, number % 2);
                let set = SetAttr {
                    mtime: Some(SetTime::At(Timestamp { sec: i64::from(*number), nsec: 1 })),
                    ..SetAttr::default()
                };
                t.rig.write(f, 0, &vec![1; (number % 5000) as usize + 1]).unwrap();
                t.rig.setattr(&Cred::root(), f, set).unwrap();
                t.files.push((f, dir, name));
            }
            7 => {
                let f = t.rig.create_striped(dir, &name, 1 + (*number % 3) as i32);
                t.files.push((f, dir, name));
            }
            8 if !t.files.is_empty() => {
                let (f, ..) = t.files[*number as usize % t.files.len()];
                t.rig.link(f, other, &name).unwrap();
            }
            // A directory below itself is refused.
            9 if t.dirs.len() > 1 => {
                let d = t.dirs[1 + *number as usize % (t.dirs.len() - 1)];
                let record = t.rig.attr(d);
                let names =
                    t.rig.root(msg::getpath::Getpath { fid: record.fid, root: R, max_paths: 1 }).unwrap();
                let (parent, old) = names.links[0].clone();
                let _ = t.rig.rename((parent, &String::from_utf8(old).unwrap()), (other, &name), 0);
            }
            _ if !t.files.is_empty() => {
                let (f, parent, name) = t.files.swap_remove(*number as usize % t.files.len());
                // Some go while they are open.
                if number % 2 == 0 {
                    t.rig.open(f, 0);
                }
                t.rig.unlink(parent, &name).unwrap();
                t.files.retain(|(other, ..)| *other != f);
            }
            _ => {}
        }
    }
    t
}

/// What a condition means, as far as an inode says.
type Meaning = fn(&Inode) -> Option<bool>;

fn conditions() -> Vec<(Condition, Meaning)> {
    fn striped(i: &Inode) -> bool {
        i.layout.as_ref().is_some_and(|l| l.objects().next().is_some())
    }
    vec![
        (within(Number::Uid, 1, 2), |i| Some((1..=2).contains(&i.uid))),
        (within(Number::Gid, 1, i64::MAX), |i| Some(i.gid >= 1)),
        (within(Number::Links, 2, 2), |i| Some(i.nlink == 2)),
        (within(Number::Size, 100, 2500), |i| (!striped(i)).then(|| (100..=2500).contains(&i.size()))),
        (within(Number::Space, 1, 4096), |i| (!striped(i)).then(|| (1..=8).contains(&i.blocks()))),
        (within(Number::Mtime, 0, 40_000), |i| (!striped(i)).then_some(i.mtime.sec <= 40_000)),
        (within(Number::Ctime, 0, 40_000), |i| Some(i.ctime.sec <= 40_000)),
        (within(Number::Btime, 40_000, i64::MAX), |_| Some(true)),
        (within(Number::StripeCount, 2, 9), |i| match i.kind {
            FileType::Directory => None,
            _ => Some(i.layout.as_ref().is_some_and(|l| l.objects().count() >= 2)),
        }),
        (Condition::Types(1 << 4), |i| Some(i.is_dir())),
        (Condition::Osts(vec![0, 1]), |i| Some(i.layout.iter().flat_map(|l| l.objects()).any(|o| o.ost < 2))),
        (Condition::FirstOst(vec![3]), |i| {
            Some(i.layout.iter().flat_map(|l| l.objects()).next().is_some_and(|o| o.ost == 3))
        }),
        (Condition::Mode { mask: 0o044, bits: 0o044 }, |i| Some(i.mode & 0o044 == 0o044)),
        (Condition::Flags { with: 0x10, without: 0 }, |_| Some(false)),
        (Condition::Pool(b"none".to_vec()), |i| if i.is_dir() { None } else { Some(false) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_finds_what_a_walk_finds_whoever_looks_and_however_it_is_cut_into_pages(
        steps in prop::collection::vec(step(), 1..60),
        which in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..4),
        start in any::<prop::sample::Index>(),
        cost in 1usize..60,
        bytes in 1usize..4000,
        names in 1usize..4,
    ) {
        let t = grow(&steps);
        let all = conditions();
        let chosen: Vec<_> = which.iter().map(|(negated, n)| (*negated, n.get(&all))).collect();
        let tests: Vec<Test> = chosen.iter().map(|(negated, c)| test(*negated, c.0.clone())).collect();
        let fits = |i: &Inode| chosen.iter().all(|(negated, c)| (c.1)(i).is_none_or(|f| f != *negated));
        for root in [R, *start.get(&t.dirs)] {
            for cred in [Cred::root(), user(1), user(77)] {
                let record = t.rig.mdt.db.get(&crate::schema::key::inode(root)).unwrap().unwrap();
                let start = Inode::decode(root, &record).unwrap();
                let open = perm::access(&cred, &start.subject(), MAY_READ | MAY_EXEC);
                let got = scan(&t.rig, &cred, root, &tests, Bounds { cost, bytes, names });
                match open {
                    Ok(()) => prop_assert_eq!(got, Ok(walked(&t.rig, &cred, root, &fits))),
                    Err(e) => prop_assert_eq!(got, Err(e)),
                }
            }
        }
        t.rig.assert_clean();
    }
}

fn whole(rig: &Rig, client: rpc::ClientId, cred: &Cred, root: Fid) -> Result<ScanReply, Errno> {
    rig.call(client, cred, Scan { root, after: None, tests: Vec::new() })
}

#[test]
fn owners_are_asked_what_they_have_done_before_the_first_page_and_for_no_other() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let own = || {
        let m = msg::own::Own { dir: d, cookie: 0, max_bytes: 0, children: false, knows_limits: true.into() };
        rig.root(m).unwrap();
        assert!(rig.mdt.shared.leases.is_owner(A));
    };
    own();
    whole(&rig, A, &Cred::root(), R).unwrap();
    assert!(rig.mdt.shared.leases.is_owner(A), "its own mount told before");
    let m = Scan { root: R, after: Some(Cursor { file: R, name: None }), tests: Vec::new() };
    assert_eq!(rig.call(B, &Cred::root(), m).unwrap().files.len(), 1);
    assert!(rig.mdt.shared.leases.is_owner(A), "later pages are in nobody's way");
    // A's session is not there in this rig: it is asked, and what it owns is in nobody's way.
    whole(&rig, B, &Cred::root(), R).unwrap();
    assert!(!rig.mdt.shared.leases.is_owner(A));
}

#[test]
fn a_root_that_is_none_and_too_many_conditions_are_refused() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let d = rig.mkdir_as(&Cred::root(), R, "d", 0o700).unwrap().attr.fid;
    assert_eq!(whole(&rig, A, &Cred::root(), f).err(), Some(Errno::ENOTDIR));
    assert_eq!(whole(&rig, A, &user(5), d).err(), Some(Errno::EACCES));
    assert!(whole(&rig, A, &Cred::root(), Fid::new(9, 9, 0)).is_err());
    let many = vec![test(false, Condition::Types(1)); wire::msg::scan::TESTS_MAX + 1];
    let m = Scan { root: R, after: None, tests: many };
    assert_eq!(rig.root(m).err(), Some(Errno::E2BIG));
}

#[test]
fn pages_that_hold_nothing_are_not_sent() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let files: Vec<Fid> = (0..9000).map(|n| rig.create(d, &format!("f{n}"))).collect();
    rig.chown(*files.last().unwrap(), 7, 0);
    let m = Scan { root: R, after: None, tests: vec![test(false, within(Number::Uid, 7, 7))] };
    let r = rig.root(m).unwrap();
    assert_eq!((r.files.len(), r.looked, r.next), (1, 9002, None), "the root and the directory beside them");
    assert_eq!(path(&r, r.files[0].names[0].parent, &r.files[0].names[0].name), "d/f8999");
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_found() {
    let rig = Rig::new();
    let (d, e) = (rig.mkdir(R, "d"), rig.mkdir(R, "e"));
    let bad = rig.create(e, "bad");
    rig.create(d, "lost");
    rig.create(e, "found");
    for fid in [d, bad] {
        let mut txn = store::Txn::new();
        txn.put(crate::schema::key::inode(fid), vec![99]);
        rig.mdt.db.submit(txn).unwrap();
    }
    let r = whole(&rig, A, &Cred::root(), R).unwrap();
    let found: BTreeSet<String> =
        r.files.iter().flat_map(|f| &f.names).map(|n| path(&r, n.parent, &n.name)).collect();
    assert_eq!(found, ["e", "e/found"].map(String::from).into());
    assert_eq!(r.damaged.iter().copied().collect::<BTreeSet<_>>(), [d, bad].into());
}
