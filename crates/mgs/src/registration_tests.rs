//! What registrations are let in.

use super::*;
use crate::testing::entry;
use wire::proof::Challenge;

/// As its server makes it, which proves its key and says it.
pub(crate) fn claim_with_key<T>(
    fsname: &str,
    fs_uuid: u8,
    entry: TargetEntry,
    replace: bool,
    f: impl FnOnce(Claim) -> T,
) -> T {
    let key = [entry.target_uuid[0]; 32];
    let proofs = rpc::Proofs::of(Challenge::default(), &[(Claimant::Target(entry.target_uuid), key)]);
    let from = rpc::Principal::new(rpc::ClientId([9; 16]), [127, 0, 0, 1].into()).with_proofs(proofs);
    f(Claim {
        fsname,
        fs_uuid: [fs_uuid; 16],
        entry,
        replace,
        key: Some(key),
        knows_domains: false,
        from: &from,
    })
}

#[derive(Default)]
pub(crate) struct Rig {
    pub(crate) s: MgsState,
}

impl Rig {
    pub(crate) fn register(
        &mut self,
        fs: &str,
        fs_uuid: u8,
        entry: TargetEntry,
        replace: bool,
    ) -> Result<bool, Errno> {
        let mut next = self.s.clone();
        let mut txn = Txn::new();
        claim_with_key(fs, fs_uuid, entry, replace, |claim| {
            next.register(claim, &Fresh { fs_uuid: [9; 16], server_key: [8; 32] }, &mut txn)
        })?;
        assert_eq!(txn.is_empty(), next == self.s);
        self.s = next;
        Ok(!txn.is_empty())
    }

    pub(crate) fn order(&mut self, label: &str, order: Order) -> Result<(), Errno> {
        self.s.administer(label, &order, &mut Txn::new()).map_err(|(e, _)| e)
    }
}

#[test]
fn an_index_belongs_to_one_target() {
    let mut t = Rig::default();
    let ost = TargetId::ost(1);
    assert_eq!(t.register("demo", 0, entry(ost, 1, 1), false), Ok(true));
    assert_eq!(t.register("demo", 9, entry(ost, 1, 1), false), Ok(false), "nothing new");
    assert_eq!(t.register("demo", 9, entry(ost, 1, 2), false), Ok(true));
    assert_eq!(t.register("demo", 9, entry(ost, 1, 1), false), Err(Errno::ESTALE));
    assert_eq!(t.register("demo", 0, entry(ost, 2, 1), false), Err(Errno::EADDRINUSE));
    assert_eq!(t.register("demo", 7, entry(TargetId::ost(2), 3, 1), false), Err(Errno::EINVAL));
    assert_eq!(t.s.config("demo").unwrap().fs_uuid, [9; 16]);
    assert_eq!(t.s.config("other").err(), Some(Errno::ENOENT));
    for (fs, e) in [
        ("too-long-a-name", entry(ost, 2, 1)),
        ("demo", entry(TargetId::MGT, 2, 1)),
        ("demo", entry(TargetId::ost(0xffff), 2, 1)),
        ("demo", entry(TargetId::ost(5), 0, 1)),
        ("demo", entry(TargetId::ost(5), 4, 0)),
        ("demo", entry(TargetId::ost(5), 4, u32::MAX)),
        ("demo", TargetEntry { nids: vec![], ..entry(TargetId::ost(5), 4, 1) }),
    ] {
        assert_eq!(t.register(fs, 0, e, false), Err(Errno::EINVAL));
    }
    assert_eq!(t.register("lost", 5, entry(ost, 6, 7), false), Ok(true), "an MGS that lost its memory");
    assert_eq!(t.s.config("lost").unwrap().fs_uuid, [5; 16]);
}

#[test]
fn a_lost_target_is_replaced_once_and_when_an_operator_says_so() {
    let mut t = Rig::default();
    let ost = TargetId::ost(1);
    t.register("demo", 0, entry(ost, 1, 7), false).unwrap();
    assert_eq!(t.register("demo", 0, entry(ost, 2, 1), true), Err(Errno::EACCES), "nobody opened it");
    assert_eq!(t.order("demo-OST0002", Order::Open), Err(Errno::ENODEV));
    t.order("demo-OST0001", Order::Open).unwrap();
    assert_eq!(t.register("demo", 0, entry(ost, 2, 1), false), Err(Errno::EADDRINUSE), "not by mistake");
    t.order("demo-OST0001", Order::Close).unwrap();
    assert_eq!(t.register("demo", 0, entry(ost, 2, 1), true), Err(Errno::EACCES));
    t.order("demo-OST0001", Order::Open).unwrap();
    assert!(t.s.registration("demo-OST0001").unwrap().contains("may be replaced: yes"));
    assert_eq!(t.register("demo", 9, entry(ost, 1, 8), false), Ok(true), "it was not lost after all");
    assert_eq!(t.register("demo", 0, entry(ost, 2, 1), true), Ok(true));
    assert_eq!(t.register("demo", 9, entry(ost, 2, 1), true), Ok(false), "the same once more");
    assert_eq!(t.register("demo", 0, entry(ost, 3, 1), true), Err(Errno::EACCES), "once");
}

#[test]
fn an_epoch_that_cannot_be_is_refused_and_a_wrong_one_set_right() {
    let mut t = Rig::default();
    let ost = TargetId::ost(0);
    t.register("demo", 0, entry(ost, 1, 5), false).unwrap();
    assert_eq!(t.register("demo", 9, entry(ost, 1, 6 + EPOCH_JUMP_MAX), false), Err(Errno::ERANGE));
    assert_eq!(t.register("demo", 9, entry(ost, 1, EPOCH_MAX), false), Err(Errno::ERANGE));
    assert_eq!(t.register("demo", 9, entry(ost, 1, u32::MAX), false), Err(Errno::EINVAL));
    // The most that a liar gets; the real one is refused from then on …
    assert_eq!(t.register("demo", 9, entry(ost, 1, 5 + EPOCH_JUMP_MAX), false), Ok(true));
    assert_eq!(t.register("demo", 9, entry(ost, 1, 6), false), Err(Errno::ESTALE));
    // … until somebody sets it right.
    assert_eq!(t.order("demo-OST0000", Order::Epoch(u32::MAX)), Err(Errno::ERANGE));
    t.order("demo-OST0000", Order::Epoch(5)).unwrap();
    assert_eq!(t.register("demo", 9, entry(ost, 1, 6), false), Ok(true));
    let there: Nid = "10.0.0.7@tcp".parse().unwrap();
    t.order("demo-OST0000", Order::Nids(vec![there])).unwrap();
    assert_eq!(t.s.config("demo").unwrap().targets[0].nids, [there]);
    assert_eq!(t.order("demo-OST0000", Order::Nids(vec![])), Err(Errno::EINVAL));
}

#[test]
fn a_false_target_is_taken_out() {
    let mut t = Rig::default();
    t.register("demo", 0, entry(TargetId::ost(0), 1, 1), false).unwrap();
    t.register("demo", 0, entry(TargetId::ost(6), 2, 1), false).unwrap();
    assert_eq!(t.order("demo-OST0006", Order::Remove), Err(Errno::EBUSY), "it is in use");
    t.s.set_param("osc.demo-OST0006*.active", "0", false, &mut Txn::new()).unwrap();
    t.order("demo-OST0006", Order::Remove).unwrap();
    assert_eq!(t.s.config("demo").unwrap().targets.len(), 1);
    assert!(t.s.params.is_empty(), "the next one of this index begins without its settings");
    assert_eq!(t.register("demo", 0, entry(TargetId::ost(6), 3, 1), false), Ok(true));
}

#[test]
fn an_index_that_was_removed_for_good_is_free_for_a_replacement_alone() {
    let mut t = Rig::default();
    let ost = TargetId::ost(6);
    t.register("demo", 0, entry(TargetId::ost(0), 1, 1), false).unwrap();
    t.register("demo", 0, entry(ost, 2, 1), false).unwrap();
    let set = |t: &mut Rig, name: &str| t.s.set_param(name, "0", false, &mut Txn::new()).unwrap();
    for name in ["osp.demo-OST0006-osc-*.max_create_count", "obdfilter.demo-OST0006.no_create", "osc.*.x"] {
        set(&mut t, name);
    }
    assert_eq!(t.order("demo-OST0006", Order::Retire), Err(Errno::EBUSY), "it is in use");
    set(&mut t, "osc.demo-OST0006*.active");
    t.order("demo-OST0006", Order::Retire).unwrap();
    t.order("demo-OST0006", Order::Retire).unwrap();
    assert_eq!(t.s.params.keys().collect::<Vec<_>>(), ["osc.*.x"], "what names it is gone");
    let told = |t: &Rig| t.s.config("demo").unwrap().is_retired(ost);
    assert!(told(&t));
    assert_eq!(t.order("demo-OST0006", Order::Show), Err(Errno::ENODEV));
    for (uuid, replace) in [(2, false), (2, true), (3, false)] {
        let again = t.register("demo", 9, entry(ost, uuid, 2), replace);
        assert_eq!(again, Err(Errno::ENODEV), "{uuid} {replace}");
    }
    assert_eq!(t.register("demo", 0, entry(ost, 3, 1), true), Ok(true));
    assert!(!told(&t));
    assert_eq!(t.register("demo", 9, entry(ost, 2, 2), false), Err(Errno::EADDRINUSE));
    set(&mut t, "osc.demo-OST0006*.active");
    t.order("demo-OST0006", Order::Retire).unwrap();
    assert!(told(&t), "once more");
}

#[test]
fn who_has_no_index_gets_the_next_free_one() {
    let mut t = Rig::default();
    let next = |t: &Rig, uuid: u8| t.s.next_index("demo", TargetKind::Ost, [uuid; 16]);
    assert_eq!(next(&t, 1), Ok(TargetId::ost(0)), "the first of a file system that nobody knows");
    for i in [0, 1, 3] {
        t.register("demo", 0, entry(TargetId::ost(i), i as u8 + 1, 1), false).unwrap();
    }
    assert_eq!(next(&t, 9), Ok(TargetId::ost(2)));
    assert_eq!(next(&t, 4), Ok(TargetId::ost(3)), "it was given one and did not hear of it");
    t.s.set_param("osc.demo-OST0001*.active", "0", false, &mut Txn::new()).unwrap();
    t.order("demo-OST0001", Order::Retire).unwrap();
    assert_eq!(next(&t, 9), Ok(TargetId::ost(2)), "one that is retired is not given");
    t.register("demo", 0, entry(TargetId::ost(2), 9, 1), false).unwrap();
    assert_eq!(next(&t, 10), Ok(TargetId::ost(4)));
    assert_eq!(t.s.next_index("other", TargetKind::Ost, [1; 16]), Ok(TargetId::ost(0)), "each its own");
    assert_eq!(t.s.next_index("demo", TargetKind::Mdt, [1; 16]), Err(Errno::EINVAL));
}
