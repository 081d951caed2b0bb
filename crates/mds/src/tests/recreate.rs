//! Objects that are lost with their OST, and what an administrator makes of them.

use super::{Cred, Errno, Fid, Rig, user};
use ::model::{Layout, LayoutSpec, TargetMark};
use wire::msg::create::Create;
use wire::msg::layout::Layout as AskLayout;
use wire::msg::recreate::Recreate;
use world::block_on;

const R: Fid = Fid::ROOT;

fn layout(rig: &Rig, fid: Fid) -> Layout {
    rig.root(AskLayout { fid }).unwrap().layout.unwrap()
}

fn recreate(rig: &Rig, fid: Fid, ost: u16) -> Result<Layout, Errno> {
    rig.root(Recreate { fid, ost }).map(|e| e.layout.unwrap())
}

fn set_active(rig: &Rig, ost: u16, value: &str) {
    block_on(rig.mdt.set_params(&format!("osp.test-OST000{ost}-osc-MDT0000.active"), value)).unwrap();
}

#[test]
fn lost_objects_become_new_ones_elsewhere_and_the_others_stay() {
    let mut rig = Rig::new();
    let asked = Some(LayoutSpec { stripe_count: 2, osts: vec![1, 2], ..LayoutSpec::default() });
    let m = Create { layout: asked, ..super::create_msg(R, "f", rig.fid(), 0o644) };
    let fid = rig.root(m).unwrap().entry.attr.fid;
    let old = layout(&rig, fid);
    assert_eq!(recreate(&rig, fid, 1), Err(Errno::EBUSY), "it is in use");
    set_active(&rig, 1, "0");
    assert_eq!(rig.call(super::A, &user(7), Recreate { fid, ost: 1 }).err(), Some(Errno::EPERM));
    let new = recreate(&rig, fid, 1).unwrap();
    let (was, is): (Vec<_>, Vec<_>) = (old.objects().collect(), new.objects().collect());
    assert_eq!((was[1], new.generation), (is[1], old.generation + 1));
    assert!([0, 3].contains(&is[0].ost), "an OST that has none of it comes first: {is:?}");
    assert_eq!(is[0].id.stripe_number(), was[0].id.stripe_number());
    assert_ne!(is[0].id.component, was[0].id.component, "its id was never used");
    let s = rig.assert_clean();
    assert_eq!((s.objects, s.outbox), (2, 1), "should it come back, its object goes");
    assert_eq!(recreate(&rig, fid, 1), Ok(new.clone()), "once more changes nothing");
    rig.crash(3);
    rig.reclaim(super::A, &[]);
    rig.reclaim(super::B, &[]);
    assert_eq!(layout(&rig, fid), new, "the answer was durable");
    // What took its place is lost as well, and the first one is back: it does not get an id that it had.
    let second = is[0].ost;
    set_active(&rig, second, "0");
    let third = recreate(&rig, fid, second).unwrap();
    let ids: Vec<_> = [&old, &new, &third].map(|l| l.objects().next().unwrap().id.component).into();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    rig.assert_clean();
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.assert_clean().objects, 0);
}

#[test]
fn what_lay_on_an_ost_that_was_replaced_is_lost_and_what_is_new_there_is_not() {
    let rig = Rig::new();
    let on_one = || Some(LayoutSpec { stripe_count: 1, osts: vec![1], ..LayoutSpec::default() });
    let make = |name| {
        let m = Create { layout: on_one(), ..super::create_msg(R, name, rig.fid(), 0o644) };
        rig.root(m).unwrap().entry.attr.fid
    };
    let mark = |uuid: u8| {
        let mark = TargetMark::of(&[uuid; 16]);
        assert!(rig.mdt.shared.osts.update(1, |o| o.mark = mark));
        mark
    };
    mark(5);
    let before = make("before");
    let now = mark(6);
    let after = make("after");
    assert_eq!(recreate(&rig, after, 1), Err(Errno::EBUSY));
    let l = recreate(&rig, before, 1).unwrap();
    assert!(l.objects().all(|o| o.ost != 1 || o.id.mark() == now), "{l:?}");
    assert_eq!(rig.call(super::A, &Cred::root(), Recreate { fid: R, ost: 1 }).err(), Some(Errno::EINVAL));
    rig.assert_clean();
}
