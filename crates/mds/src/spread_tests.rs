//! What the allocator promises of failure domains, over trees of racks, hosts and OSTs made by chance.

use crate::alloc::{Allocator, OstView, Policy, RESERVE_BYTES};
use model::LayoutSpec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::statfs::StatfsReply;

/// Racks with hosts with OSTs; of each OST what is free, in GiB.
type Racks = Vec<Vec<Vec<u64>>>;

fn racks() -> impl Strategy<Value = Racks> {
    let free = prop_oneof![Just(100u64), 1u64..1000, Just(0u64)];
    let host = prop::collection::vec(free, 1..5);
    prop::collection::vec(prop::collection::vec(host, 1..5), 1..6)
}

/// OSTs of these racks, in an order of indices that goes across them or not.
fn osts(racks: &Racks, across: bool) -> Vec<OstView> {
    let mut all = Vec::new();
    for (r, hosts) in racks.iter().enumerate() {
        for (h, list) in hosts.iter().enumerate() {
            all.extend(
                list.iter().enumerate().map(|(n, free)| (n, vec![format!("r{r}"), format!("h{h}")], *free)),
            );
        }
    }
    if across {
        all.sort_by_key(|(n, _, _)| *n);
    }
    let view = |(index, (_, domain, free)): (usize, (usize, Vec<String>, u64))| OstView {
        index: index as u16,
        domain,
        active: true,
        creates: true,
        reachable: true,
        slow: false,
        space: Some(StatfsReply { available: free << 30, total: 1 << 50, ..StatfsReply::default() }),
        disk: 0,
    };
    all.into_iter().enumerate().map(view).collect()
}

fn spec(count: i32) -> LayoutSpec {
    LayoutSpec { stripe_count: count, ..LayoutSpec::builtin() }
}

fn counts(domains: impl Iterator<Item = Vec<String>>) -> BTreeMap<Vec<String>, usize> {
    let mut all = BTreeMap::new();
    domains.for_each(|d| *all.entry(d).or_default() += 1);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn stripes_share_no_host_while_there_are_others_and_no_rack_either(
        racks in racks(),
        across in any::<bool>(),
        threshold_rr in prop_oneof![Just(0u64), Just(17), Just(100)],
        files in prop::collection::vec(1i32..30, 1..12),
        seed in any::<u64>(),
    ) {
        let osts = osts(&racks, across);
        let usable: Vec<&OstView> = osts.iter().filter(|o| o.space.unwrap().available > RESERVE_BYTES).collect();
        prop_assume!(!usable.is_empty());
        let policy = Policy { threshold_rr, prio_free: 90, reserve_bytes: RESERVE_BYTES, full_too: false };
        let mut dice = world::rng::Rng::new(seed);
        let mut allocator = Allocator::new(seed);
        for count in files {
            let got = allocator.choose(&spec(count), &osts, policy, &mut || dice.u64()).unwrap();
            let different: BTreeSet<u16> = got.iter().copied().collect();
            prop_assert_eq!(different.len(), got.len(), "an object on an OST");
            prop_assert_eq!(got.len(), usable.len().min(count as usize));
            let domain = |i: &u16| osts[usize::from(*i)].domain.clone();
            let rack = |i: &u16| vec![domain(i)[0].clone()];
            let (hosts, racks) = (counts(got.iter().map(domain)), counts(got.iter().map(rack)));
            let room = counts(usable.iter().map(|o| o.domain.clone()));
            let all_racks = counts(usable.iter().map(|o| vec![o.domain[0].clone()]));
            prop_assert_eq!(hosts.len(), got.len().min(room.len()), "hosts {:?}", hosts);
            prop_assert_eq!(racks.len(), got.len().min(all_racks.len()), "racks {:?}", racks);
            // A host with an OST left has no two stripes less than another.
            let most = hosts.values().max().copied().unwrap_or(0);
            for (host, osts) in room {
                let has = hosts.get(&host).copied().unwrap_or(0);
                prop_assert!(has == osts || has + 1 >= most, "{host:?} has {has} of {osts}, another {most}");
            }
        }
    }

    #[test]
    fn the_same_osts_in_the_same_state_give_the_same_choice(racks in racks(), count in 1i32..20, seed in any::<u64>()) {
        let osts = osts(&racks, false);
        let policy = Policy { threshold_rr: 17, prio_free: 90, reserve_bytes: RESERVE_BYTES, full_too: false };
        let go = || {
            let mut dice = world::rng::Rng::new(seed);
            Allocator::new(seed).choose(&spec(count), &osts, policy, &mut || dice.u64())
        };
        prop_assert_eq!(go(), go());
    }
}

/// Indices in the order of the given places; all of them even.
fn placed(places: &[&str]) -> Vec<OstView> {
    let mut all = osts(&vec![vec![vec![100; places.len()]]], false);
    all.iter_mut().zip(places).for_each(|(o, p)| o.domain = model::domain::parse(p).unwrap());
    all
}

fn choose(a: &mut Allocator, count: i32, osts: &[OstView]) -> Vec<u16> {
    let policy = Policy { threshold_rr: 100, prio_free: 90, reserve_bytes: RESERVE_BYTES, full_too: false };
    a.choose(&spec(count), osts, policy, &mut || 0).unwrap()
}

#[test]
fn a_host_with_many_osts_in_a_rack_of_its_own_is_not_used_twice_while_others_have_none() {
    let osts = placed(&["a/h1", "a/h1", "a/h1", "b/h2", "b/h3", "b/h4"]);
    let mut got = choose(&mut Allocator::new(0), 4, &osts);
    got.sort_unstable();
    assert_eq!(got[1..], [3, 4, 5], "one on each host: {got:?}");
}

#[test]
fn hosts_of_the_same_name_in_two_racks_are_two() {
    let osts = placed(&["a/h1", "a/h1", "b/h1", "b/h1"]);
    for _ in 0..4 {
        let got = choose(&mut Allocator::new(0), 2, &osts);
        assert_ne!(osts[usize::from(got[0])].domain, osts[usize::from(got[1])].domain);
    }
}

#[test]
fn what_was_placed_in_fewer_domains_is_a_host_all_the_same() {
    let osts = placed(&["a/h1", "a/h2", "10.0.0.9@tcp", "10.0.0.9@tcp"]);
    let got = choose(&mut Allocator::new(0), 3, &osts);
    assert_eq!(got.iter().filter(|i| **i >= 2).count(), 1, "{got:?}");
    let got = choose(&mut Allocator::new(0), 2, &osts);
    assert_eq!(got.iter().filter(|i| **i >= 2).count(), 1, "two racks: {got:?}");
}

#[test]
fn in_turn_every_ost_of_an_even_tree_gets_as_much_as_the_others() {
    let osts = placed(&["a/h1", "a/h1", "a/h2", "a/h2", "b/h3", "b/h3", "b/h4", "b/h4"]);
    for count in 1..=8 {
        let (mut a, mut hits, mut first) = (Allocator::new(3), [0; 8], [0; 8]);
        for _ in 0..800 {
            let got = choose(&mut a, count, &osts);
            first[usize::from(got[0])] += 1;
            got.iter().for_each(|i| hits[usize::from(*i)] += 1);
        }
        let spread = hits.iter().max().unwrap() - hits.iter().min().unwrap();
        assert!(spread <= 8, "{count} stripes: {hits:?}");
        assert_eq!(first, [100; 8], "{count} stripes");
    }
}

#[test]
fn the_second_stripe_goes_by_turns_where_one_host_has_more_osts() {
    let osts = placed(&["h1", "h1", "h1", "h2"]);
    let (mut a, mut hits) = (Allocator::new(0), [0; 4]);
    for _ in 0..600 {
        choose(&mut a, 2, &osts).iter().for_each(|i| hits[usize::from(*i)] += 1);
    }
    assert_eq!(hits[3], 600);
    assert!(hits[..3].iter().all(|h| (100..=300).contains(h)), "{hits:?}");
}
