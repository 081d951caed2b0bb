//! Limits on inodes: exact, and kept over restarts.

use super::{A, B, Rig};
use ::model::quota::{Enforced, Grace, LimitChange, LimitOrder};
use ::model::usage::{QuotaId, QuotaType};
use ::model::{Cred, Errno, Fid, SetAttr};
use wire::msg::own::Own;
use wire::msg::quotactl::{QuotaAsk, Quotactl};
use wire::msg::setquota::Setquota;

const R: Fid = Fid::ROOT;

fn id(of: QuotaType, id: u32) -> QuotaId {
    QuotaId { of, id }
}

fn set(rig: &Rig, order: LimitOrder) -> Result<(), Errno> {
    rig.root(Setquota { order })
}

/// Soft and hard limit on somebody's inodes.
fn limit(rig: &Rig, of: QuotaId, soft: u64, hard: u64) {
    let inodes = LimitChange { soft: Some(soft), hard: Some(hard) };
    set(rig, LimitOrder::Own { of, space: LimitChange::default(), inodes }).unwrap();
}

fn make(rig: &Rig, uid: u32, name: &str) -> Result<Fid, Errno> {
    rig.create_as(&Cred::new(uid, uid), R, name, 0o644).map(|r| r.entry.attr.fid)
}

/// How many files somebody can make.
fn can_make(rig: &Rig, uid: u32, prefix: &str) -> usize {
    let refused = (0..100).find_map(|i| make(rig, uid, &format!("{prefix}{i}")).err().map(|e| (i, e)));
    let (made, e) = refused.expect("a limit");
    assert_eq!(e, Errno::EDQUOT);
    made
}

fn open_to_all() -> Rig {
    let rig = Rig::new();
    rig.chmod(R, 0o777);
    rig
}

#[test]
fn nobody_gets_beyond_a_hard_limit_whatever_makes_the_inode() {
    let mut rig = open_to_all();
    limit(&rig, id(QuotaType::User, 7), 0, 5);
    assert_eq!(can_make(&rig, 7, "f"), 5);
    assert_eq!(rig.mkdir_as(&Cred::new(7, 7), R, "d", 0o755).err(), Some(Errno::EDQUOT));
    make(&rig, 8, "other").unwrap();
    let f = rig.lookup(R, "f0").unwrap().attr.fid;
    rig.link(f, R, "second").unwrap();
    rig.unlink(R, "f1").unwrap();
    make(&rig, 7, "again").unwrap();
    assert_eq!(make(&rig, 7, "beyond"), Err(Errno::EDQUOT));
    rig.crash(1);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(make(&rig, 7, "beyond"), Err(Errno::EDQUOT), "after a crash as well");
    limit(&rig, id(QuotaType::User, 7), 0, 6);
    make(&rig, 7, "beyond").unwrap();
    rig.assert_clean();
}

#[test]
fn groups_and_projects_are_limited_and_root_gives_what_it_likes() {
    let rig = open_to_all();
    limit(&rig, id(QuotaType::Group, 20), 0, 1);
    let f = make(&rig, 7, "f").unwrap();
    let g = make(&rig, 7, "g").unwrap();
    let to = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
    let member = Cred { groups: vec![20], ..Cred::new(7, 7) };
    rig.setattr(&member, f, to(20)).unwrap();
    assert_eq!(rig.setattr(&member, g, to(20)).err(), Some(Errno::EDQUOT));
    assert_eq!(rig.attr(g).gid, 7, "nothing changed");
    rig.setattr(&Cred::root(), g, to(20)).unwrap();
    rig.setattr(&member, g, to(7)).unwrap();
    limit(&rig, id(QuotaType::Project, 77), 0, 3);
    let d = rig.mkdir_as(&Cred::new(7, 7), R, "d", 0o777).unwrap().attr.fid;
    let project = SetAttr {
        projid: Some(77),
        flags: Some(::model::inode_rules::FLAG_PROJINHERIT),
        ..SetAttr::default()
    };
    rig.setattr(&Cred::root(), d, project).unwrap();
    for name in ["1", "2"] {
        rig.create_as(&Cred::new(8, 8), d, name, 0o644).unwrap();
    }
    assert_eq!(rig.create_as(&Cred::new(8, 8), d, "3", 0o644).err(), Some(Errno::EDQUOT));
    rig.create_as(&Cred::root(), d, "3", 0o644).unwrap();
    rig.assert_clean();
}

#[test]
fn a_soft_limit_has_its_grace_time() {
    let rig = open_to_all();
    let of = id(QuotaType::User, 7);
    limit(&rig, of, 2, 0);
    for name in ["a", "b", "c"] {
        make(&rig, 7, name).unwrap();
    }
    let standing = |rig: &Rig| {
        let r = rig.call(A, &Cred::new(7, 7), Quotactl { ask: QuotaAsk::Of(vec![of]) }).unwrap();
        r.limits.0.unwrap().owners[0].1
    };
    let left = standing(&rig).inodes_grace_left.expect("the grace time runs");
    assert!(left > 600_000, "a week: {left}");
    set(&rig, LimitOrder::Grace { of: QuotaType::User, space: None, inodes: Some(Grace::Seconds(0)) })
        .unwrap();
    assert_eq!(standing(&rig).inodes_grace_left, Some(0));
    assert_eq!(make(&rig, 7, "d"), Err(Errno::EDQUOT));
    set(&rig, LimitOrder::Grace { of: QuotaType::User, space: None, inodes: Some(Grace::Notify) }).unwrap();
    make(&rig, 7, "d").unwrap();
    set(&rig, LimitOrder::Grace { of: QuotaType::User, space: None, inodes: Some(Grace::Seconds(0)) })
        .unwrap();
    for name in ["a", "b"] {
        rig.unlink(R, name).unwrap();
    }
    assert_eq!(standing(&rig).inodes.over_since, None, "as much as allowed");
    rig.assert_clean();
}

#[test]
fn defaults_hold_for_who_has_no_limits_of_his_own() {
    let rig = open_to_all();
    let inodes = LimitChange { soft: None, hard: Some(2) };
    set(&rig, LimitOrder::Default { of: QuotaType::User, space: LimitChange::default(), inodes }).unwrap();
    limit(&rig, id(QuotaType::User, 8), 0, 4);
    assert_eq!((can_make(&rig, 7, "f"), can_make(&rig, 8, "g")), (2, 4));
    set(&rig, LimitOrder::UseDefault { of: id(QuotaType::User, 8) }).unwrap();
    assert_eq!(make(&rig, 8, "more"), Err(Errno::EDQUOT));
    limit(&rig, id(QuotaType::User, 8), 0, 0);
    make(&rig, 8, "more").unwrap();
    rig.create_as(&Cred::root(), R, "root's", 0o644).unwrap();
    crate::enforce_limits(&rig.mdt, Enforced::parse("gp").unwrap());
    make(&rig, 7, "free").unwrap();
    crate::enforce_limits(&rig.mdt, Enforced::ALL);
    assert_eq!(make(&rig, 7, "not"), Err(Errno::EDQUOT));
    let r = rig.root(Quotactl { ask: QuotaAsk::All { of: QuotaType::User, after: None } }).unwrap();
    let shown: Vec<u32> = r.limits.0.unwrap().owners.iter().map(|(id, _)| id.id).collect();
    assert_eq!(shown, [7, 8], "by default, and of his own although they are none");
    rig.assert_clean();
}

#[test]
fn only_root_sets_limits_and_not_its_own() {
    let rig = open_to_all();
    let inodes = LimitChange { soft: None, hard: Some(2) };
    let order = |uid, space| LimitOrder::Own { of: id(QuotaType::User, uid), space, inodes };
    let none = LimitChange::default();
    let user = rig.call(A, &Cred::new(7, 7), Setquota { order: order(7, none) });
    assert_eq!((user, set(&rig, order(0, none))), (Err(Errno::EPERM), Err(Errno::EINVAL)));
    assert_eq!(set(&rig, order(7, LimitChange { hard: Some(0), ..none })), Ok(()), "0 is no limit");
}

#[test]
fn directories_of_this_target_count_as_space() {
    let mut rig = open_to_all();
    let of = id(QuotaType::User, 7);
    let hard = |n: u64| {
        let space = LimitChange { soft: None, hard: Some(n) };
        LimitOrder::Own { of, space, inodes: LimitChange::default() }
    };
    set(&rig, hard(64 << 10)).unwrap();
    let fill = |rig: &Rig, prefix: &str| {
        let mut dirs = (0..1000).map(|i| rig.mkdir_as(&Cred::new(7, 7), R, &format!("{prefix}{i}"), 0o755));
        let refused = dirs.find_map(|r| r.err()).expect("a limit");
        assert_eq!(refused, Errno::EDQUOT);
        let r = rig.call(A, &Cred::new(7, 7), Quotactl { ask: QuotaAsk::Of(vec![of]) }).unwrap();
        r.usage[0].1.bytes()
    };
    let used = fill(&rig, "a");
    assert!((60 << 10..=64 << 10).contains(&used), "{used}");
    rig.mkdir_as(&Cred::new(8, 8), R, "other", 0o755).unwrap();
    rig.crash(1);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(fill(&rig, "b"), used, "after a crash as well");
    rig.rmdir(R, "a0").unwrap();
    assert_eq!(fill(&rig, "c"), used, "what was freed may be used");
    set(&rig, hard(96 << 10)).unwrap();
    let used = fill(&rig, "d");
    assert!((92 << 10..=96 << 10).contains(&used), "{used}");
    rig.assert_clean();
}

#[test]
fn who_is_near_a_limit_has_no_directory_for_himself() {
    let rig = open_to_all();
    let d = rig.mkdir_as(&Cred::new(7, 7), R, "d", 0o755).unwrap().attr.fid;
    let own = |knows: bool| {
        let m = Own { dir: d, cookie: 0, max_bytes: 1 << 16, children: false, knows_limits: knows.into() };
        let r = rig.call(A, &Cred::root(), m).unwrap();
        (r.dir.grant.is_some_and(|g| g.exclusive), r.limited.0)
    };
    limit(&rig, id(QuotaType::User, 7), 0, 1000);
    assert_eq!(own(true), (false, Some(true)), "the client could make more than that before it tells");
    limit(&rig, id(QuotaType::User, 7), 0, 1 << 40);
    assert_eq!(own(false), (false, Some(true)), "a client of an earlier version would keep no rule");
    assert_eq!(own(true), (true, Some(true)));
}
