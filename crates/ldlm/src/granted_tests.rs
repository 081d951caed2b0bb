use super::*;
use model::Fid;
use proptest::prelude::*;

fn spec(id: u64, mode: LockMode, owner: u64, start: u64, end: u64) -> LockSpec {
    LockSpec { id, fid: Fid::new(9, 1, 0), kind: LockKind::Posix, mode, owner, pid: 1, start, end }
}

/// Bytes where blocks of all sizes begin and end.
fn byte() -> impl Strategy<Value = u64> {
    let near = (0u32..64, 0u64..6).prop_map(|(bit, n)| (1u64 << bit).wrapping_add(n).wrapping_sub(3));
    prop_oneof![3 => near, 2 => 0u64..40, 1 => any::<u64>(), 1 => (0u64..4).prop_map(|n| u64::MAX - n)]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (byte(), byte()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

#[derive(Clone, Debug)]
enum Op {
    Set(u64, bool, (u64, u64)),
    Clear(u64, (u64, u64)),
    ById(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u64..5, any::<bool>(), range()).prop_map(|(o, w, r)| Op::Set(o, w, r)),
        2 => (0u64..5, range()).prop_map(|(o, r)| Op::Clear(o, r)),
        1 => (0usize..64).prop_map(Op::ById),
    ]
}

const A: Client = [1; 16];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    /// A list that is looked at from its beginning to its end says the same.
    #[test]
    fn what_overlaps_is_found(ops in proptest::collection::vec(op(), 1..40), asked in proptest::collection::vec((any::<bool>(), range()), 1..8)) {
        let (mut g, mut list): (Granted, Vec<LockSpec>) = Default::default();
        for (i, op) in (1u64..).zip(ops) {
            match op {
                Op::Set(owner, write, (start, end)) => {
                    // Whoever conflicts is not let in; the index does not mind.
                    let mode = if write { LockMode::Write } else { LockMode::Read };
                    let s = spec(i, mode, owner, start, end);
                    g.carve((A, owner), start, end);
                    list = list.iter().flat_map(|p| if p.owner == owner && p.start <= end && start <= p.end { rest(p, start, end).collect() } else { vec![p.clone()] }).collect();
                    g.insert(A, s.clone());
                    list.push(s);
                }
                Op::Clear(owner, (start, end)) => {
                    g.carve((A, owner), start, end);
                    list = list.iter().flat_map(|p| if p.owner == owner && p.start <= end && start <= p.end { rest(p, start, end).collect() } else { vec![p.clone()] }).collect();
                }
                Op::ById(n) if !list.is_empty() => {
                    let id = list[n % list.len()].id;
                    prop_assert!(g.has_id(A, id));
                    g.remove_id(A, id);
                    list.retain(|p| p.id != id);
                    prop_assert!(!g.has_id(A, id));
                }
                Op::ById(_) => {}
            }
            prop_assert_eq!(g.len(), list.len());
        }
        let mut all: Vec<LockSpec> = g.iter().map(|(_, s)| s.clone()).collect();
        all.sort_by_key(|s| (s.owner, s.start));
        list.sort_by_key(|s| (s.owner, s.start));
        prop_assert_eq!(&all, &list);
        for (write, (start, end)) in asked {
            let mode = if write { LockMode::Write } else { LockMode::Read };
            let mut found: Vec<_> = g.conflicts(A, &spec(0, mode, 0, start, end)).collect();
            found.sort_unstable();
            let hits = list.iter().filter(|p| p.owner != 0 && (write || p.mode == LockMode::Write) && p.start <= end && start <= p.end);
            let want: Vec<_> = hits.map(|p| ((A, p.owner), p.start)).collect();
            prop_assert_eq!(found, want);
        }
        g.remove_client(A);
        prop_assert!(g.is_empty() && g.reads.by_end.is_empty() && g.writes.by_start.is_empty());
    }
}
