//! Directories with a quota: what lies below one is counted, wherever it came from.

use super::{A, B, Rig, damage, user};
use crate::check::Rule;
use crate::labels;
use crate::tx::Tx;
use ::model::quota::{LimitChange, LimitOrder};
use ::model::usage::{QuotaId, QuotaType};
use ::model::{Cred, Errno, Fid};
use std::time::Duration;
use wire::msg::quotadir::{Quotadir, QuotadirReply};
use wire::msg::rename::RENAME_EXCHANGE;
use wire::msg::setquota::Setquota;

const R: Fid = Fid::ROOT;

fn add(rig: &Rig, fid: Fid) -> u32 {
    let r = rig.root(Quotadir::Add(fid)).unwrap();
    settled(rig, fid);
    r.directories[0].id
}

fn around(rig: &Rig, fid: Fid) -> QuotadirReply {
    rig.root(Quotadir::Around(fid)).unwrap()
}

fn ids_around(rig: &Rig, fid: Fid) -> Vec<u32> {
    around(rig, fid).directories.iter().map(|d| d.id).collect()
}

/// The background has counted what there was.
fn settled(rig: &Rig, fid: Fid) {
    for _ in 0..6000 {
        if !around(rig, fid).unsettled {
            return;
        }
        world::block_on(rig.world.sleep(Duration::from_millis(10)));
    }
    panic!("what lies in {fid} is still being counted after a minute");
}

fn inodes(rig: &Rig, id: u32) -> u64 {
    rig.mdt.shared.usage.get(QuotaId { of: QuotaType::Directory, id }).inodes
}

fn limit(rig: &Rig, id: u32, hard: u64) {
    let of = QuotaId { of: QuotaType::Directory, id };
    let inodes = LimitChange { soft: None, hard: Some(hard) };
    rig.root(Setquota { order: LimitOrder::Own { of, space: LimitChange::default(), inodes } }).unwrap();
}

fn make(rig: &Rig, uid: u32, dir: Fid, name: &str) -> Result<Fid, Errno> {
    rig.create_as(&user(uid), dir, name, 0o644).map(|r| r.entry.attr.fid)
}

/// A directory that everybody may write.
fn mkdir(rig: &Rig, parent: Fid, name: &str) -> Fid {
    let fid = rig.mkdir(parent, name);
    rig.chmod(fid, 0o777);
    fid
}

fn rename_as(rig: &Rig, cred: &Cred, from: (Fid, &str), to: (Fid, &str)) -> Result<(), Errno> {
    rig.call(A, cred, super::rename_msg(from, to, 0)).map(drop)
}

#[test]
fn what_lies_below_counts_in_all_around_it() {
    let mut rig = Rig::new();
    let outer = mkdir(&rig, R, "outer");
    let before = mkdir(&rig, outer, "before");
    make(&rig, 7, before, "f").unwrap();
    let o = add(&rig, outer);
    assert_eq!(inodes(&rig, o), 3, "itself and what there was");
    let inner = mkdir(&rig, before, "inner");
    let i = add(&rig, inner);
    for n in 0..70 {
        make(&rig, 7, inner, &format!("f{n}")).unwrap();
    }
    assert_eq!((inodes(&rig, o), inodes(&rig, i)), (74, 71));
    assert_eq!(
        (ids_around(&rig, inner), ids_around(&rig, before), ids_around(&rig, R)),
        (vec![i, o], vec![o], vec![])
    );
    assert_eq!(rig.attr(inner).directory(), i, "mounts know it");
    rig.assert_clean();
    rig.crash(3);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!((inodes(&rig, o), inodes(&rig, i)), (74, 71), "after a crash as well");
    rig.root(Quotadir::Remove(inner)).unwrap();
    settled(&rig, inner);
    assert_eq!((inodes(&rig, o), inodes(&rig, i), ids_around(&rig, inner)), (74, 0, vec![o]));
    rig.root(Quotadir::Remove(outer)).unwrap();
    settled(&rig, outer);
    assert_eq!((inodes(&rig, o), ids_around(&rig, inner)), (0, vec![]));
    assert_eq!(rig.root(Quotadir::Remove(outer)).err(), Some(Errno::ENOENT));
    rig.assert_clean();
}

#[test]
fn a_directory_that_gets_a_quota_lies_around_those_that_had_one() {
    let rig = Rig::new();
    let outer = mkdir(&rig, R, "outer");
    let homes: Vec<(Fid, u32)> = (0..3)
        .map(|n| {
            let fid = mkdir(&rig, outer, &format!("home{n}"));
            (fid, add(&rig, fid))
        })
        .collect();
    make(&rig, 7, homes[0].0, "f").unwrap();
    let o = add(&rig, outer);
    assert_eq!(inodes(&rig, o), 5);
    assert!(homes.iter().all(|(fid, id)| ids_around(&rig, *fid) == [*id, o]));
    let all = rig.root(Quotadir::List { after: 0 }).unwrap();
    assert_eq!(
        all.directories.iter().map(|d| (d.id, d.parent)).collect::<Vec<_>>(),
        [(homes[0].1, o), (homes[1].1, o), (homes[2].1, o), (o, 0)]
    );
    assert_eq!(rig.call(A, &user(7), Quotadir::List { after: 0 }).err(), Some(Errno::EPERM));
    assert_eq!(rig.call(A, &user(7), Quotadir::Add(outer)).err(), Some(Errno::EPERM));
    rig.unlink(homes[0].0, "f").unwrap();
    rig.rmdir(outer, "home0").unwrap();
    assert_eq!((inodes(&rig, o), inodes(&rig, homes[0].1)), (3, 0), "a quota goes with its directory");
    assert_eq!(rig.root(Quotadir::List { after: 0 }).unwrap().directories.len(), 3);
    rig.assert_clean();
}

#[test]
fn what_is_renamed_counts_where_it_goes() {
    let mut rig = Rig::new();
    let (a, b) = (mkdir(&rig, R, "a"), mkdir(&rig, R, "b"));
    let (ia, ib) = (add(&rig, a), add(&rig, b));
    // A file, in one transaction; OSTs hear of it.
    let f = rig.create_striped(a, "f", 2);
    rig.rename((a, "f"), (b, "g"), 0).unwrap();
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (1, 2));
    let told = super::usage::owners_told(&rig);
    assert!(told.iter().any(|o| o.file == f && o.owner().directory == ib), "{told:?}");
    // An empty directory, and a tree.
    mkdir(&rig, a, "empty");
    rig.rename((a, "empty"), (b, "empty"), 0).unwrap();
    let tree = mkdir(&rig, a, "tree");
    for n in 0..3 {
        let d = mkdir(&rig, tree, &format!("d{n}"));
        for m in 0..70 {
            make(&rig, 7, d, &format!("f{m}")).unwrap();
        }
    }
    assert_eq!(inodes(&rig, ia), 1 + 1 + 3 + 210);
    rig.rename((a, "tree"), (b, "tree"), 0).unwrap();
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (1, 3 + 214), "exact when it returns");
    settled(&rig, tree);
    rig.assert_clean();
    // Out of all.
    rig.rename((b, "tree"), (R, "tree"), 0).unwrap();
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (1, 3));
    // Files change places; of trees a copy has to be made.
    make(&rig, 7, a, "x").unwrap();
    rig.rename((a, "x"), (R, "tree"), RENAME_EXCHANGE).unwrap_err();
    rig.rename((a, "x"), (b, "empty"), RENAME_EXCHANGE).unwrap();
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (2, 3));
    rig.crash(5);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    settled(&rig, tree);
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (2, 3), "after a crash as well");
    rig.assert_clean();
}

#[test]
fn a_file_with_several_names_lies_in_one() {
    let rig = Rig::new();
    let (a, b) = (mkdir(&rig, R, "a"), mkdir(&rig, R, "b"));
    let (ia, ib) = (add(&rig, a), add(&rig, b));
    let f = make(&rig, 7, a, "f").unwrap();
    assert_eq!(rig.link(f, b, "g").err(), Some(Errno::EXDEV));
    let below = mkdir(&rig, a, "below");
    rig.link(f, below, "g").unwrap();
    assert_eq!(rig.rename((a, "f"), (b, "f"), 0), Err(Errno::EXDEV), "its other name stays");
    assert_eq!(rig.rename((a, "below"), (b, "below"), 0), Err(Errno::EXDEV));
    settled(&rig, below);
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (3, 1), "nothing is left of the attempt");
    rig.rename((a, "f"), (below, "f"), 0).unwrap();
    rig.rename((a, "below"), (b, "below"), 0).unwrap();
    settled(&rig, below);
    assert_eq!((inodes(&rig, ia), inodes(&rig, ib)), (1, 3), "with all of its names it goes");
    rig.assert_clean();
}

#[test]
fn a_file_of_which_a_name_is_left_lies_where_that_is() {
    let rig = Rig::new();
    let (a, b) = (mkdir(&rig, R, "a"), mkdir(&rig, R, "b"));
    let (f, g) = (make(&rig, 7, a, "f").unwrap(), make(&rig, 7, b, "g").unwrap());
    for (fid, dir) in [(f, b), (g, a)] {
        rig.link(fid, dir, "older than the quota").unwrap();
    }
    let ia = add(&rig, a);
    assert_eq!(inodes(&rig, ia), 3, "one name of each lies there");
    rig.unlink(b, "g").unwrap();
    assert_eq!(inodes(&rig, ia), 3, "the one that it has left is there");
    rig.unlink(a, "f").unwrap();
    assert_eq!(inodes(&rig, ia), 2, "the one that it has left is elsewhere");
    let h = make(&rig, 7, a, "h").unwrap();
    rig.link(h, a, "h, too").unwrap();
    rig.rename((a, "h"), (a, "older than the quota"), 0).unwrap();
    assert_eq!(inodes(&rig, ia), 2, "g had its last name there");
    rig.assert_clean();
}

#[test]
fn the_check_knows_where_a_file_with_several_names_may_be_counted() {
    let t = damage::tree();
    let (first, second) = (add(&t.rig, t.dir), mkdir(&t.rig, R, "second"));
    let second = add(&t.rig, second);
    assert_eq!(
        t.broken(vec![t.inode(t.file, |i| i.directory = 0)]),
        [Rule::Usage],
        "a name of it is in the root"
    );
    assert_eq!(t.broken(vec![t.inode(t.file, |i| i.directory = first)]), []);
    let elsewhere = t.broken(vec![t.inode(t.file, |i| i.directory = second)]);
    assert!(elsewhere.contains(&Rule::Directory), "{elsewhere:?}");
}

#[test]
fn limits_hold_for_all_that_lies_below() {
    let rig = Rig::new();
    rig.chmod(R, 0o777);
    let outer = mkdir(&rig, R, "outer");
    let inner = mkdir(&rig, outer, "inner");
    let (o, i) = (add(&rig, outer), add(&rig, inner));
    limit(&rig, o, 5);
    make(&rig, 7, inner, "1").unwrap();
    make(&rig, 8, outer, "2").unwrap();
    make(&rig, 7, inner, "3").unwrap();
    assert_eq!(make(&rig, 7, inner, "4"), Err(Errno::EDQUOT), "the outer one is full");
    assert_eq!(make(&rig, 7, outer, "4"), Err(Errno::EDQUOT));
    limit(&rig, o, 100);
    limit(&rig, i, 3);
    assert_eq!(make(&rig, 7, inner, "4"), Err(Errno::EDQUOT), "the inner one is");
    make(&rig, 7, outer, "4").unwrap();
    // By a rename nobody gets around it.
    let f = make(&rig, 7, R, "f").unwrap();
    assert_eq!(rename_as(&rig, &user(7), (R, "f"), (inner, "f")), Err(Errno::EDQUOT));
    assert_eq!(rig.attr(f).directory(), 0);
    let tree = rig.mkdir_as(&user(7), R, "tree", 0o755).unwrap().attr.fid;
    for n in 0..100 {
        make(&rig, 7, tree, &format!("f{n}")).unwrap();
    }
    assert_eq!(rename_as(&rig, &user(7), (R, "tree"), (outer, "tree")), Err(Errno::EDQUOT));
    settled(&rig, tree);
    assert_eq!((inodes(&rig, o), inodes(&rig, i)), (6, 3), "what was counted of it is counted back");
    rig.assert_clean();
    // A directory with a quota takes along what it has, if it was counted before or not.
    let t = rig.root(Quotadir::Add(tree)).unwrap().directories[0].id;
    assert_eq!(rename_as(&rig, &user(7), (R, "tree"), (outer, "tree")), Err(Errno::EDQUOT));
    limit(&rig, o, 107);
    rename_as(&rig, &user(7), (R, "tree"), (outer, "tree")).unwrap();
    assert_eq!((inodes(&rig, o), inodes(&rig, t)), (107, 101));
    // In a tree as well.
    rename_as(&rig, &user(7), (outer, "tree"), (R, "tree")).unwrap();
    rig.mkdir_as(&user(7), R, "around", 0o755).unwrap();
    let around = rig.lookup(R, "around").unwrap().attr.fid;
    rename_as(&rig, &user(7), (R, "tree"), (around, "tree")).unwrap();
    assert_eq!(rename_as(&rig, &user(7), (R, "around"), (outer, "around")), Err(Errno::EDQUOT));
    settled(&rig, around);
    assert_eq!(inodes(&rig, o), 6);
    rename_as(&rig, &user(7), (around, "tree"), (outer, "tree")).unwrap();
    assert_eq!(ids_around(&rig, tree), [t, o]);
    assert_eq!(make(&rig, 7, tree, "beyond"), Err(Errno::EDQUOT));
    rig.unlink(outer, "2").unwrap();
    make(&rig, 7, tree, "beyond").unwrap();
    let of = QuotaId { of: QuotaType::Directory, id: 99 };
    let none = LimitChange::default();
    let order = LimitOrder::Own { of, space: none, inodes: LimitChange { soft: None, hard: Some(1) } };
    assert_eq!(rig.root(Setquota { order }).err(), Some(Errno::ENOENT), "no such directory");
    rig.assert_clean();
}

#[test]
fn an_unnamed_file_counts_where_it_gets_its_name() {
    let rig = Rig::new();
    let a = mkdir(&rig, R, "a");
    let ia = add(&rig, a);
    let f = make(&rig, 7, a, "f").unwrap();
    let handle = rig.open(f, 0);
    rig.unlink(a, "f").unwrap();
    assert_eq!(inodes(&rig, ia), 2, "it is open");
    rig.close(f, handle);
    assert_eq!(inodes(&rig, ia), 1);
    rig.assert_clean();
}

/// A tree and a directory with a quota in it come in the same steps: together they must fit.
#[test]
fn a_tree_and_the_quota_in_it_fit_together_or_not_at_all() {
    let rig = Rig::new();
    rig.chmod(R, 0o777);
    let (to, tree) = (mkdir(&rig, R, "to"), mkdir(&rig, R, "tree"));
    let id = add(&rig, to);
    limit(&rig, id, 6);
    // In the order of their cookies, whichever that is: some come before the inner one.
    for n in 0..2 {
        make(&rig, 7, tree, &format!("f{n}")).unwrap();
    }
    let inner = mkdir(&rig, tree, "inner");
    add(&rig, inner);
    for n in 0..2 {
        make(&rig, 7, inner, &format!("f{n}")).unwrap();
    }
    // Six of the tree, one of the directory.
    assert_eq!(rename_as(&rig, &user(7), (R, "tree"), (to, "tree")), Err(Errno::EDQUOT));
    settled(&rig, tree);
    assert_eq!(inodes(&rig, id), 1);
    limit(&rig, id, 7);
    rename_as(&rig, &user(7), (R, "tree"), (to, "tree")).unwrap();
    assert_eq!(inodes(&rig, id), 7);
    rig.assert_clean();
}

/// Half of a tree that is being moved is counted to where it is not yet: who gets a quota in it meanwhile
/// lies where it lies.
#[test]
fn a_directory_in_a_tree_that_is_being_moved_gets_its_quota_by_its_place() {
    let rig = Rig::new();
    let (to, tree) = (mkdir(&rig, R, "to"), mkdir(&rig, R, "tree"));
    let inner = mkdir(&rig, tree, "inner");
    let limited = add(&rig, to);
    let moving = rig.mdt.shared.directories.begin_moving(tree, limited).expect("nobody moves it");
    let half = |tx: &mut Tx| {
        labels::unsettle(tx, tree);
        let mut i = tx.inode(inner)?;
        labels::set(&mut i, limited, tx.shared.world.wall());
        tx.put_inode(inner, &mut i);
        Ok(Vec::new())
    };
    world::block_on(rig.mdt.transactions.transact(None, half)).result.unwrap();
    assert_eq!(inodes(&rig, limited), 2);
    let (began, taken) = (rig.world.now(), Duration::from_millis(200));
    let world = rig.world.clone();
    rig.world.spawn("somebody gives up to move it", async move {
        world.sleep(taken).await;
        drop(moving);
    });
    let r = rig.root(Quotadir::Add(inner)).unwrap();
    assert!(rig.world.now().since(began) >= taken, "it waits for who moves the tree");
    assert_eq!((r.directories[0].parent, inodes(&rig, limited)), (0, 1));
    settled(&rig, tree);
    rig.assert_clean();
}

/// It got its quota when somebody had just begun to move it.
#[test]
fn a_tree_that_gets_a_quota_of_its_own_is_not_counted_anew() {
    let rig = Rig::new();
    let (to, tree) = (mkdir(&rig, R, "to"), mkdir(&rig, R, "tree"));
    make(&rig, 7, tree, "f").unwrap();
    let (id, own) = (add(&rig, to), add(&rig, tree));
    let t = &rig.mdt.transactions;
    world::block_on(labels::relabel(t, tree, id, labels::By::Server)).unwrap();
    settled(&rig, tree);
    assert_eq!((inodes(&rig, id), inodes(&rig, own)), (1, 2));
    rig.assert_clean();
}
