//! OST pools: who gets objects, what becomes of files whose pool is gone, and spilling. Of the four OSTs of
//! the rig 0 and 1 are one server's, 2 and 3 another's.

use super::*;
use ::model::Pool;
use ::model::param::testing::every_declaration_holds;
use wire::msg::setlayout::Setlayout;

const R: Fid = Fid::ROOT;

fn pools(rig: &Rig, all: &[(&str, &[u16])]) {
    let one = |(name, osts): &(&str, &[u16])| Pool { name: name.to_string(), osts: osts.to_vec() };
    rig.mdt.shared.osts.pools.configure(&all.iter().map(one).collect::<Vec<_>>());
}

fn in_pool(pool: &str) -> LayoutSpec {
    LayoutSpec { pool: pool.into(), ..LayoutSpec::default() }
}

fn set_default(rig: &Rig, dir: Fid, spec: LayoutSpec) -> Result<(), Errno> {
    rig.root(Setlayout { fid: dir, spec: Some(spec) }).map(drop)
}

/// Pool and OSTs of a new file.
fn made(rig: &Rig, dir: Fid, layout: Option<LayoutSpec>) -> Result<(String, Vec<u16>), Errno> {
    let name = format!("f{}", rig.fid().oid);
    let e = rig.root(Create { layout, ..create_msg(dir, &name, rig.fid(), 0o644) })?.entry;
    let c = e.layout.unwrap().shown().clone();
    Ok((c.pool.clone(), c.objects.iter().map(|o| o.ost).collect()))
}

fn get(rig: &Rig, name: &str) -> String {
    rig.mdt.get_params(&format!("lod.*.pool.{name}")).pop().unwrap().1
}

fn set(rig: &Rig, name: &str, value: &str) -> Result<(), Errno> {
    block_on(rig.mdt.set_params(&format!("lod.*.pool.{name}"), value)).map(drop)
}

/// So many of a hundred parts of an OST are in use.
fn fill(rig: &Rig, ost: u16, percent: u64) {
    let free = (1 << 40) / 100 * (100 - percent);
    let space = StatfsReply { total: 1 << 40, free, available: free, ..Default::default() };
    rig.mdt.shared.osts.update(ost, |o| o.space = Some(space));
}

#[test]
fn only_members_of_the_pool_get_objects() {
    let rig = Rig::new();
    pools(&rig, &[("flash", &[1, 3]), ("disk", &[0, 2]), ("none_in", &[])]);
    let d = rig.mkdir(R, "d");
    set_default(&rig, d, in_pool("flash")).unwrap();
    let mut hits = [0; 4];
    for _ in 0..8 {
        // Files of another pool in between take no turns away.
        assert_eq!(made(&rig, R, Some(in_pool("disk"))).unwrap().0, "disk");
        let (pool, osts) = made(&rig, d, None).unwrap();
        assert_eq!((pool.as_str(), osts.len()), ("flash", 1));
        hits[usize::from(osts[0])] += 1;
    }
    assert_eq!(hits, [0, 4, 0, 4], "members take turns");
    let all = LayoutSpec { stripe_count: -1, ..LayoutSpec::default() };
    let (pool, mut osts) = made(&rig, d, Some(all.clone())).unwrap();
    osts.sort_unstable();
    assert_eq!((pool.as_str(), osts), ("flash", vec![1, 3]), "all OSTs of the pool, which is inherited");
    let without = LayoutSpec { pool: "ignore".into(), ..all };
    let (pool, osts) = made(&rig, d, Some(without)).unwrap();
    assert_eq!((pool.as_str(), osts.len()), ("", 4));
    let sub = rig.mkdir(d, "sub");
    assert_eq!(made(&rig, sub, None).unwrap().0, "flash", "the default is copied");
}

#[test]
fn a_pool_that_is_not_there_and_osts_outside_of_it_are_refused() {
    let rig = Rig::new();
    pools(&rig, &[("flash", &[1, 3]), ("empty", &[])]);
    let d = rig.mkdir(R, "d");
    let first = |i| LayoutSpec { stripe_start: i, ..in_pool("flash") };
    let listed = |l: &[u16]| LayoutSpec { osts: l.to_vec(), ..in_pool("flash") };
    for bad in [in_pool("gone"), in_pool("empty"), first(0), listed(&[1, 2])] {
        assert_eq!(set_default(&rig, d, bad.clone()), Err(Errno::EINVAL), "{bad:?}");
        assert_eq!(made(&rig, d, Some(bad.clone())).unwrap_err(), Errno::EINVAL, "{bad:?}");
    }
    assert_eq!(made(&rig, d, Some(first(3))), Ok(("flash".into(), vec![3])));
    assert_eq!(made(&rig, d, Some(listed(&[3, 1]))), Ok(("flash".into(), vec![3, 1])));
}

#[test]
fn files_whose_pool_is_gone_go_to_all_osts() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let spread = |rig: &Rig| {
        let all: Vec<(String, Vec<u16>)> = (0..8).map(|_| made(rig, d, None).unwrap()).collect();
        let osts: std::collections::BTreeSet<u16> = all.iter().flat_map(|(_, o)| o).copied().collect();
        assert!(all.iter().all(|(pool, _)| *pool == all[0].0));
        (all[0].0.clone(), osts.len())
    };
    pools(&rig, &[("flash", &[1])]);
    set_default(&rig, d, in_pool("flash")).unwrap();
    assert_eq!(spread(&rig), ("flash".into(), 1));
    pools(&rig, &[("flash", &[])]);
    assert_eq!(spread(&rig), (String::new(), 4), "it has no members");
    pools(&rig, &[]);
    assert_eq!(spread(&rig), (String::new(), 4), "it was destroyed");
    pools(&rig, &[("flash", &[1, 2])]);
    assert_eq!(spread(&rig), ("flash".into(), 2), "it is back");
    // A directory that names an OST which is not in the pool any more.
    set_default(&rig, d, LayoutSpec { stripe_start: 2, ..in_pool("flash") }).unwrap();
    pools(&rig, &[("flash", &[1])]);
    assert_eq!(made(&rig, d, None), Ok((String::new(), vec![2])));
    // Who names another pool is not held to the place of the directory's.
    pools(&rig, &[("flash", &[1, 2]), ("disk", &[3])]);
    assert_eq!(made(&rig, d, Some(in_pool("disk"))), Ok(("disk".into(), vec![3])));
}

#[test]
fn a_pool_that_is_too_full_spills_into_the_next() {
    let rig = Rig::new();
    pools(&rig, &[("a", &[0, 1]), ("b", &[2]), ("c", &[3])]);
    set(&rig, "a.spill_target", "b").unwrap();
    set(&rig, "a.spill_threshold_pct", "80").unwrap();
    let pool = |rig: &Rig| made(rig, R, Some(in_pool("a"))).unwrap().0;
    (0..4).for_each(|i| fill(&rig, i, 10));
    assert_eq!((pool(&rig), get(&rig, "a.spill_is_active")), ("a".into(), "0".into()));
    fill(&rig, 0, 95);
    assert_eq!(pool(&rig), "a", "half of it has room");
    fill(&rig, 1, 70);
    assert_eq!((pool(&rig), get(&rig, "a.spill_is_active")), ("b".into(), "1".into()));
    assert_eq!(get(&rig, "a.spill_hit"), "1");
    let here = LayoutSpec { stripe_start: 1, ..in_pool("a") };
    assert_eq!(made(&rig, R, Some(here)), Ok(("a".into(), vec![1])), "who names an OST gets it");
    // Along the chain, as far as it goes.
    set(&rig, "b.spill_target", "c").unwrap();
    set(&rig, "b.spill_threshold_pct", "5").unwrap();
    assert_eq!(pool(&rig), "c");
    pools(&rig, &[("a", &[0, 1]), ("b", &[2])]);
    assert_eq!((pool(&rig), get(&rig, "b.spill_target")), ("b".into(), "c".into()), "c is gone");
    set(&rig, "a.spill_threshold_pct", "0").unwrap();
    assert_eq!(pool(&rig), "a");
}

#[test]
fn what_cannot_be_spilled_to_is_refused() {
    let rig = Rig::new();
    pools(&rig, &[("a", &[0]), ("b", &[1]), ("c", &[2])]);
    assert_eq!(set(&rig, "a.spill_target", "gone"), Err(Errno::ENOENT));
    assert_eq!(set(&rig, "a.spill_target", "x.y"), Err(Errno::EINVAL));
    assert_eq!(set(&rig, "a.spill_target", "a"), Err(Errno::ELOOP));
    set(&rig, "a.spill_target", "b").unwrap();
    set(&rig, "b.spill_target", "c").unwrap();
    assert_eq!(set(&rig, "c.spill_target", "a"), Err(Errno::ELOOP));
    assert_eq!(set(&rig, "a.spill_threshold_pct", "101"), Err(Errno::ERANGE));
    assert_eq!(set(&rig, "a.spill_hit", "0"), Err(Errno::EACCES));
    set(&rig, "b.spill_target", "").unwrap();
    set(&rig, "c.spill_target", "a").unwrap();
    every_declaration_holds(&rig.mdt.params("lod.*.pool.b.*"));
    let listed = rig.mdt.get_params("lod.*.pools.*");
    let names: Vec<&str> = listed.iter().map(|(n, _)| n.rsplit_once('.').unwrap().1).collect();
    assert_eq!((names, listed[1].1.as_str()), (vec!["a", "b", "c"], "test-OST0001_UUID"));
}
