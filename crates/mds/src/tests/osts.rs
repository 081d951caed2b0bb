//! OSTs that take no new objects.

use super::Rig;
use ::model::{Errno, Fid, LayoutSpec};
use wire::msg::create::Create;
use wire::msg::statfs::StatfsReply;
use world::block_on;

const R: Fid = Fid::ROOT;

fn osts(rig: &Rig, name: &str) -> Vec<u16> {
    let layout = Some(LayoutSpec { stripe_count: -1, ..LayoutSpec::default() });
    let m = Create { layout, ..super::create_msg(R, name, rig.fid(), 0o644) };
    let mut on: Vec<u16> = rig.root(m).unwrap().entry.layout.unwrap().objects().map(|o| o.ost).collect();
    on.sort_unstable();
    on
}

#[test]
fn an_ost_that_is_told_to_take_no_objects_gets_none_until_it_may_again() {
    let rig = Rig::new();
    let set = |value: &str| block_on(rig.mdt.set_params("osp.test-OST0001-*.max_create_count", value));
    assert_eq!(rig.mdt.get_params("osp.test-OST0001-osc-MDT0000.max_create_count")[0].1, "20000");
    set("0").unwrap();
    assert_eq!(osts(&rig, "a"), [0, 2, 3]);
    assert!(!rig.mdt.shared.osts.has_room(1, 0), "nothing grows there either");
    let listed = Some(LayoutSpec { stripe_count: 1, osts: vec![1], ..LayoutSpec::default() });
    let m = Create { layout: listed, ..super::create_msg(R, "named", rig.fid(), 0o644) };
    assert_eq!(rig.root(m).err(), Some(Errno::ENOSPC), "whoever names it");
    assert_eq!(set("20001").err(), Some(Errno::ERANGE));
    set("1").unwrap();
    assert_eq!(osts(&rig, "b"), [0, 1, 2, 3]);
}

#[test]
fn what_an_ost_says_of_its_state_decides_whether_it_gets_objects() {
    let rig = Rig::new();
    let say = |state| {
        let said = StatfsReply { total: 1 << 40, available: 1 << 39, state, ..StatfsReply::default() };
        rig.mdt.shared.osts.heard(2, said, rig.world.now());
    };
    for (n, refuses) in [2, 4, 8, 16].into_iter().enumerate() {
        say(refuses);
        assert_eq!(osts(&rig, &format!("without{n}")), [0, 1, 3], "state {refuses}");
    }
    say(1);
    assert_eq!(osts(&rig, "degraded"), [0, 1, 3], "there are others");
    say(0);
    assert_eq!(osts(&rig, "all"), [0, 1, 2, 3]);
}

#[test]
fn why_an_ost_is_passed_over_is_told_until_it_is_over() {
    let rig = Rig::new();
    let why = || rig.mdt.get_params("osp.test-OST0002-osc-MDT0000.passed_over")[0].1.clone();
    let say = |state, available| {
        let said = StatfsReply { total: 1 << 40, available, state, ..StatfsReply::default() };
        rig.mdt.shared.osts.heard(2, said, rig.world.now());
        rig.mdt.review_osts();
        why()
    };
    assert_eq!(say(0, 1 << 39), "");
    assert_eq!(say(2, 1 << 39), "read-only");
    assert_eq!(say(1, 1 << 39), "degraded");
    assert_eq!(say(0, 1000), "out of space");
    assert_eq!(say(0, (1 << 20) + 1), "out of space", "a little more than nothing is said once");
    assert_eq!(say(0, 1 << 39), "");
    let set = |name: &str, value: &str| {
        block_on(rig.mdt.set_params(&format!("osp.test-OST0002-*.{name}"), value)).unwrap();
        why()
    };
    assert_eq!(set("max_create_count", "0"), "set to max_create_count 0");
    assert_eq!(set("max_create_count", "20000"), "");
    assert_eq!(set("active", "0"), "deactivated");
    assert_eq!(osts(&rig, "without"), [0, 1, 3]);
    assert_eq!(set("active", "1"), "");
}
