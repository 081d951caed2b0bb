use super::*;
use proptest::prelude::*;

/// A byte as a naive cache holder knows it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cell {
    Nothing,
    Is(u8, SegmentState),
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u8),
    Fill(u64, u64, u8),
    Cut(u64, u64),
    DropClean(u64, u64),
    Take(u64, u64, u64),
    Done(usize, bool),
    Evict,
}

const SPACE: u64 = 48;

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..SPACE, 1..12u64).prop_map(|(a, n)| (a, (a + n).min(SPACE)))
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (range(), any::<u8>()).prop_map(|((a, b), v)| Step::Write(a, b, v)),
        3 => (range(), any::<u8>()).prop_map(|((a, b), v)| Step::Fill(a, b, v)),
        1 => range().prop_map(|(a, b)| Step::Cut(a, b)),
        1 => range().prop_map(|(a, b)| Step::DropClean(a, b)),
        4 => (range(), 1..9u64).prop_map(|((a, b), m)| Step::Take(a, b, m)),
        4 => (0..5usize, any::<bool>()).prop_map(|(i, ok)| Step::Done(i, ok)),
        1 => Just(Step::Evict),
    ]
}

fn bytes(a: u64, b: u64, v: u8) -> Bytes {
    (a..b).map(|i| v.wrapping_add(i as u8)).collect::<Vec<u8>>().into()
}

fn check(s: &Segments, cells: &[Cell]) {
    for i in 0..SPACE {
        let got = s.known(i, i + 1).next();
        match cells[i as usize] {
            Cell::Nothing => assert!(got.is_none() && s.gaps(i, i + 1) == vec![(i, i + 1)], "byte {i}"),
            Cell::Is(v, _) => assert_eq!(got, Some((i, &[v][..])), "byte {i}"),
        }
    }
    let count = |f: &dyn Fn(SegmentState) -> bool| {
        cells.iter().filter(|c| matches!(c, Cell::Is(_, st) if f(*st))).count() as u64
    };
    assert_eq!(s.dirty_bytes(), count(&|x| x == SegmentState::Dirty));
    assert_eq!(s.clean_bytes(), count(&|x| x == SegmentState::Clean));
    assert_eq!(s.unwritten_bytes(), count(&|x| x != SegmentState::Clean));
    let last = cells.iter().rposition(|c| *c != Cell::Nothing).map_or(0, |i| i as u64 + 1);
    assert_eq!(s.end(), last);
    assert_eq!(s.dirty.len(), s.map.values().filter(|x| x.state == SegmentState::Dirty).count());
    assert_eq!(s.ages.len(), s.map.values().filter(|x| x.state == SegmentState::Clean).count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn behaves_as_single_bytes_would(run in prop::collection::vec(steps(), 1..50)) {
        let mut s = Segments::default();
        let mut cells = vec![Cell::Nothing; SPACE as usize];
        let mut flights: Vec<(u64, u64, u64)> = Vec::new();
        let mut number = 0;
        for step in run {
            match step {
                Step::Write(a, b, v) => {
                    let dirty = (a..b).filter(|i| matches!(cells[*i as usize], Cell::Is(_, SegmentState::Dirty))).count();
                    prop_assert_eq!(s.write(a, bytes(a, b, v)), dirty as u64);
                    for i in a..b {
                        cells[i as usize] = Cell::Is(v.wrapping_add(i as u8), SegmentState::Dirty);
                    }
                }
                Step::Fill(a, b, v) => {
                    s.fill(a, &bytes(a, b, v));
                    for i in a..b {
                        if cells[i as usize] == Cell::Nothing {
                            cells[i as usize] = Cell::Is(v.wrapping_add(i as u8), SegmentState::Clean);
                        }
                    }
                }
                Step::Cut(a, b) => {
                    s.cut(a, b);
                    cells[a as usize..b as usize].fill(Cell::Nothing);
                }
                Step::DropClean(a, b) => {
                    s.drop_clean(a, b);
                    for c in &mut cells[a as usize..b as usize] {
                        if matches!(c, Cell::Is(_, SegmentState::Clean)) {
                            *c = Cell::Nothing;
                        }
                    }
                }
                Step::Take(a, b, max) => {
                    let busy: Vec<(u64, u64)> = flights.iter().map(|f| (f.0, f.1)).collect();
                    let free = |i: u64| !busy.iter().any(|(x, y)| *x <= i && i < *y);
                    let first = (a..b).find(|i| {
                        matches!(cells[*i as usize], Cell::Is(_, SegmentState::Dirty)) && free(*i)
                    });
                    let found = s.next_dirty((a, b), max, &busy, u64::MAX);
                    prop_assert_eq!(found.map(|f| f.0), first);
                    let Some((x, y)) = found else { continue };
                    prop_assert!(y > x && y <= b && y - x <= max);
                    number += 1;
                    let data = s.take(x, y, number).into_bytes();
                    for i in x..y {
                        let Cell::Is(v, SegmentState::Dirty) = cells[i as usize] else { panic!("not dirty") };
                        prop_assert_eq!(v, data[(i - x) as usize]);
                        prop_assert!(free(i));
                        cells[i as usize] = Cell::Is(v, SegmentState::Flushing(number));
                    }
                    flights.push((x, y, number));
                }
                Step::Done(i, ok) if !flights.is_empty() => {
                    let (x, y, n) = flights.remove(i % flights.len());
                    s.flushed(x, y, n, ok);
                    for c in &mut cells[x as usize..y as usize] {
                        if let Cell::Is(v, SegmentState::Flushing(m)) = *c && m == n {
                            *c = if ok { Cell::Is(v, SegmentState::Clean) } else { Cell::Nothing };
                        }
                    }
                }
                Step::Done(..) => {}
                Step::Evict => {
                    let before = s.clean_bytes();
                    let gone = s.evict_oldest().unwrap_or(0);
                    prop_assert_eq!(before - s.clean_bytes(), gone);
                    for (i, c) in cells.iter_mut().enumerate() {
                        if s.known(i as u64, i as u64 + 1).next().is_none() {
                            *c = Cell::Nothing;
                        }
                    }
                }
            }
            check(&s, &cells);
        }
    }
}

#[test]
fn a_log_is_gathered_and_a_run_is_seen() {
    let mut s = Segments::default();
    for i in 0..1000u64 {
        s.write(i * 7, Bytes::from(vec![i as u8; 7]));
    }
    assert_eq!((s.count(), s.dirty_bytes()), (1, 7000));
    assert_eq!(s.run_around(7000, 1 << 20), (0, 7000));
    let newest = s.newest();
    s.write(9000, Bytes::from_static(b"later"));
    assert!(!s.is_written(0, 7000, newest) && s.is_written(7001, 20_000, newest));
    assert_eq!(s.take(0, 7000, 1).len(), 7000);
    s.flushed(0, 7000, 1, true);
    assert!(s.is_written(0, u64::MAX, newest) && !s.is_written(0, u64::MAX, u64::MAX));
    assert_eq!(s.slice(10, 20).unwrap().len(), 10);
}

#[test]
fn what_fits_together_goes_out_without_a_copy() {
    const MIB: u64 = 1 << 20;
    let byte = |i: u64| (i * 31 / 5) as u8;
    let record = |off: u64, len: u64| Bytes::from((off..off + len).map(byte).collect::<Vec<u8>>());
    // Records that fit nothing: gathered up to where blocks end.
    let mut s = Segments::default();
    for i in 0..100 {
        s.write(i * 47_008, record(i * 47_008, 47_008));
    }
    assert_eq!(s.next_dirty((0, u64::MAX), 4 * MIB, &[], u64::MAX), Some((0, 4 * MIB)));
    let b = s.take(0, 4 * MIB, 1);
    assert_eq!(b.parts().map(|p| p.len() as u64).collect::<Vec<_>>(), [MIB; 4]);
    assert_eq!(b.into_bytes(), record(0, 4 * MIB));
    assert_eq!(s.flushed(0, 4 * MIB, 1, true), 4 * MIB);
    assert_eq!(s.slice(47_000, MIB).unwrap(), record(47_000, MIB - 47_000));
    // Large writes that begin inside of a block are put together; a message ends where its successor can be
    // aligned.
    let mut s = Segments::default();
    for i in 0..5 {
        s.write(100 + i * MIB, record(100 + i * MIB, MIB));
    }
    assert_eq!(s.next_dirty((0, u64::MAX), 4 * MIB, &[], u64::MAX), Some((100, 4 * MIB)));
    assert_eq!(s.next_full(4 * MIB, &[]), Some((100, 4 * MIB)));
    assert_eq!(s.next_full(4 * MIB, &[(100, 4 * MIB)]), None, "the next one is not full yet");
    let b = s.take(100, 4 * MIB, 1);
    assert_eq!((b.parts().count(), b.into_bytes()), (1, record(100, 4 * MIB - 100)));
}

#[test]
fn only_full_messages_are_full() {
    let mut s = Segments::default();
    let bytes = |n: usize| Bytes::from(vec![7; n]);
    // A crumb before a message, one message, a tail, and something far away.
    s.write(90, bytes(310));
    s.write(1000, bytes(5));
    assert_eq!(s.next_full(100, &[]), Some((100, 200)));
    assert_eq!(s.next_full(100, &[(100, 200)]), Some((200, 300)));
    assert_eq!(s.next_full(100, &[(100, 300)]), Some((300, 400)));
    assert_eq!(s.next_full(100, &[(100, 400)]), None);
    // As soon as the rest is there.
    s.write(40, bytes(50));
    assert_eq!(s.next_full(100, &[]), Some((40, 100)));
}

#[test]
fn full_messages_are_those_of_all_runs() {
    let mut x = 88_172_645_463_325_252u64;
    let mut random = |below: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % below
    };
    let (mut found, mut none) = (0, 0);
    for _ in 0..3_000 {
        let mut s = Segments::default();
        for n in 0..random(12) {
            let (at, len) = (random(900), random(250) + 1);
            s.write(at, Bytes::from(vec![n as u8; len as usize]));
            if random(4) == 0 {
                let at = random(900);
                let end = at + random(120) + 1;
                // Some of it is on its way, or known to be as the server has it.
                if let Some((a, b)) = s.next_dirty((at, end), 100, &[], u64::MAX) {
                    s.take(a, b, n + 1);
                }
            }
        }
        let mut busy: Vec<(u64, u64)> = (0..random(3)).map(|_| random(900)).map(|a| (a, a + 60)).collect();
        busy.sort_unstable();
        let full = |start: u64, end: u64| end.is_multiple_of(100) && end - start >= 50;
        let all = s.find_dirty((0, u64::MAX), 100, &busy, u64::MAX, full);
        assert_eq!(s.next_full(100, &busy), all, "{s:?} {busy:?}");
        *(if all.is_some() { &mut found } else { &mut none }) += 1;
    }
    assert!(found > 500 && none > 200, "{found} {none}");
}
