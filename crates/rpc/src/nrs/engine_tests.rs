//! The order of requests against what it promises: nobody starves, shares are equal within one request of
//! each, rates hold, what is remembered is bounded.

use super::bucket::{Alike, BUCKETS_MAX, BucketKey, DEPTH, Rate};
use super::engine::{CLASSES_MAX, COST_MAX, ClassKey, Next, Party, Queue};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use world::Instant;

const T0: Instant = Instant(1_000_000_000);

fn class(uid: u32, job: u32) -> ClassKey {
    ClassKey { party: Party::User(uid), job: format!("job.{job}").into(), bucket: None }
}

fn limited(uid: u32, job: u32, rule: u64) -> ClassKey {
    let alike = Alike::In { uid: Some(uid), gid: None, job: None, from: None, op: None };
    ClassKey { bucket: Some(BucketKey { rule, alike }), ..class(uid, job) }
}

fn begin<T: std::fmt::Debug>(e: &mut Queue<T>, now: Instant) -> T {
    match e.pop(now, |_| None) {
        Next::Begin(t) => t,
        n => panic!("{n:?} although something waits"),
    }
}

proptest! {
    /// Against a model that is a queue for each class: nothing is lost or doubled, classes keep their order,
    /// and while something waits something begins.
    #[test]
    fn classes_are_queues_and_nobody_idles(
        steps in proptest::collection::vec((0..4u32, 0..3u32, 1..40u64, 0..4u8), 1..300),
    ) {
        let mut e = Queue::default();
        let mut model: BTreeMap<ClassKey, VecDeque<(u64, u32)>> = BTreeMap::new();
        let mut n = 0;
        for (uid, job, cost, what) in steps {
            let key = class(uid, job);
            match what {
                0 | 1 => {
                    n += 1;
                    let (as_is, ticket) = e.push(key.clone(), cost, T0, (key.clone(), n));
                    prop_assert_eq!(&as_is, &key);
                    model.entry(key).or_default().push_back((ticket, n));
                }
                2 => {
                    let queued = model.values().map(VecDeque::len).sum::<usize>();
                    prop_assert_eq!(e.len(), queued);
                    match e.pop(T0, |_| None) {
                        Next::Begin((key, n)) => {
                            let first = model.get_mut(&key).and_then(VecDeque::pop_front);
                            prop_assert_eq!(first.map(|(_, n)| n), Some(n));
                        }
                        Next::Nothing => prop_assert_eq!(queued, 0),
                        Next::At(at) => prop_assert!(false, "nothing is limited, and it waits for {at:?}"),
                    }
                }
                _ => {
                    let Some(q) = model.get_mut(&key) else { continue };
                    let at = q.len() / 2;
                    let Some((ticket, n)) = q.remove(at) else { continue };
                    prop_assert_eq!(e.remove(&key, ticket), Some((key.clone(), n)));
                    prop_assert_eq!(e.remove(&key, ticket), None, "once");
                }
            }
        }
        let left = model.values().map(VecDeque::len).sum::<usize>();
        prop_assert_eq!(e.drain().len(), left);
        prop_assert!(e.is_empty());
    }

    /// Parties that always have something to do share equally, whatever their requests cost and however many
    /// jobs they have; so do the jobs of each. Nobody is off by more than one request of each.
    #[test]
    fn shares_are_equal_within_a_request_of_each(
        costs in proptest::collection::vec(1..100u64, 2..6),
        jobs in 1..40u32,
        late in 0..200usize,
    ) {
        let mut e = Queue::default();
        let jobs_of = |uid: usize| if uid == 0 { jobs } else { 1 + uid as u32 % 3 };
        let add = |e: &mut Queue<(usize, u32)>, uid: usize, job: u32| {
            e.push(class(uid as u32, job), costs[uid], T0, (uid, job));
        };
        let last = costs.len() - 1;
        for uid in 0..last {
            (0..jobs_of(uid)).for_each(|job| add(&mut e, uid, job));
        }
        for _ in 0..late {
            let (uid, job) = begin(&mut e, T0);
            add(&mut e, uid, job);
        }
        // The last one comes later: he saved nothing up, and is owed nothing.
        (0..jobs_of(last)).for_each(|job| add(&mut e, last, job));
        let mut had = vec![0; costs.len()];
        let mut of_jobs: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for _ in 0..400 {
            let (uid, job) = begin(&mut e, T0);
            had[uid] += costs[uid];
            *of_jobs.entry((uid, job)).or_default() += costs[uid];
            add(&mut e, uid, job);
            for (i, j) in (0..costs.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                let apart = had[i].abs_diff(had[j]);
                prop_assert!(apart <= 2 * (costs[i] + costs[j]), "{had:?} with {costs:?}");
            }
        }
        for (uid, cost) in costs.iter().enumerate() {
            let all: Vec<u64> = (0..jobs_of(uid)).map(|j| of_jobs.get(&(uid, j)).copied().unwrap_or(0)).collect();
            let (min, max) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            prop_assert!(max - min <= 2 * cost, "jobs of {uid} had {all:?}");
        }
    }

    /// However requests come, no more begin in any stretch of time than the rate says, and the few that a
    /// bucket is deep; others are not held up; all of them begin in the end.
    #[test]
    fn rates_hold_and_hold_nobody_else_up(
        per_second in 1..2000u64,
        gaps in proptest::collection::vec(0..20_000_000u64, 1..120),
    ) {
        let rate = Rate::new(per_second).unwrap();
        let rate_of = |rule| (rule == 7).then_some(rate);
        let mut e = Queue::default();
        let (mut now, mut begun, mut free) = (T0, Vec::new(), 0);
        for (i, gap) in gaps.iter().enumerate() {
            // Two jobs of one user: one bucket.
            e.push(limited(5, i as u32 % 2, 7), 1, now, true);
            e.push(class(6, 0), 1, now, false);
            loop {
                match e.pop(now, rate_of) {
                    Next::Begin(true) => begun.push(now),
                    Next::Begin(false) => free += 1,
                    Next::At(at) => {
                        prop_assert!(at > now);
                        break;
                    }
                    Next::Nothing => break,
                }
            }
            prop_assert_eq!(free, i + 1, "who has no rate begins at once");
            now = Instant(now.0 + gap);
        }
        loop {
            match e.pop(now, rate_of) {
                Next::Begin(_) => begun.push(now),
                Next::At(at) => now = at,
                Next::Nothing => break,
            }
        }
        prop_assert_eq!(begun.len(), gaps.len());
        let interval = 1_000_000_000_u64.div_ceil(per_second);
        for (i, from) in begun.iter().enumerate() {
            for (j, to) in begun.iter().enumerate().skip(i) {
                let most = DEPTH + (to.0 - from.0) / interval;
                prop_assert!((j - i + 1) as u64 <= most, "{} began in {} ns", j - i + 1, to.0 - from.0);
            }
        }
    }
}

#[test]
fn what_costs_much_is_paid_for_and_bounded() {
    let mut e = Queue::default();
    for _ in 0..3 {
        e.push(class(1, 0), u64::MAX, T0, "large");
    }
    for _ in 0..2 * COST_MAX {
        e.push(class(2, 0), 1, T0, "small");
    }
    let order: Vec<&str> = (0..2 * COST_MAX + 3).map(|_| begin(&mut e, T0)).collect();
    let large: Vec<usize> =
        order.iter().enumerate().filter(|(_, w)| **w == "large").map(|(i, _)| i).collect();
    assert_eq!(large.len(), 3);
    assert!(
        large[1] - large[0] >= COST_MAX as usize && large[2] - large[1] >= COST_MAX as usize,
        "{large:?}"
    );
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut e = Queue::default();
    let rate = Rate::new(1).unwrap();
    let n = 3 * CLASSES_MAX as u32;
    for i in 0..n {
        let key = if i % 2 == 0 { class(i, 0) } else { limited(i, 0, 7) };
        let key = ClassKey { bucket: key.bucket.map(|b| e.buckets.bounded(b, T0)), ..key };
        e.push(key, 1, T0, i);
        if i % 5 == 0 {
            let _ = e.pop(T0, |_| Some(rate));
        }
    }
    let known = e.classes().count();
    assert!(known <= 2 * CLASSES_MAX, "{known}");
    assert!(e.buckets.len() <= BUCKETS_MAX + 2 * CLASSES_MAX, "{}", e.buckets.len());
    assert_eq!(e.len() + n.div_ceil(5) as usize, n as usize, "nothing is lost");
    // All of them begin, in time.
    let mut now = T0;
    loop {
        match e.pop(now, |_| Some(rate)) {
            Next::Begin(_) => {}
            Next::At(at) => now = at,
            Next::Nothing => break,
        }
    }
    // Idle ones go when others come.
    for i in 0..n {
        e.push(class(100_000 + i, 0), 1, now, i);
        begin(&mut e, now);
    }
    assert!(e.classes().count() <= 2 * CLASSES_MAX);
}

#[test]
fn a_rule_that_goes_sets_free_who_waited() {
    let mut e = Queue::default();
    let rate = Rate::new(1).unwrap();
    for job in 0..10 {
        e.push(limited(1, job, 7), 1, T0, job);
    }
    for _ in 0..DEPTH {
        assert!(matches!(e.pop(T0, |_| Some(rate)), Next::Begin(_)));
    }
    assert_eq!(e.pop(T0, |_| Some(rate)), Next::At(Instant(T0.0 + 1_000_000_000)));
    e.forget_rule(7);
    let rest: Vec<u32> = (DEPTH..10).map(|_| begin(&mut e, T0)).collect();
    assert_eq!(rest.len(), 7);
    assert!(e.is_empty());
}
