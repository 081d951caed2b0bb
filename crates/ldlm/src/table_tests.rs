use super::*;
use proptest::prelude::*;

fn client(n: u8) -> Client {
    [n; 16]
}

fn fid(n: u32) -> Fid {
    Fid::new(9, n, 0)
}

fn spec(id: u64, kind: LockKind, mode: LockMode, owner: u64, start: u64, end: u64) -> LockSpec {
    LockSpec { id, fid: fid(1), kind, mode, owner, pid: 100 + owner as u32, start, end }
}

use LockKind::{Extent, Flock, Posix};
use LockMode::{Read, Write};

const A: Client = [1; 16];
const B: Client = [2; 16];
const C: Client = [3; 16];

fn granted(client: Client, id: u64) -> Event {
    Event { client, id, error: None }
}

fn ranges(t: &LockTable, c: Client) -> Vec<(u64, u64, LockMode)> {
    let mut v: Vec<_> = t
        .list(usize::MAX)
        .into_iter()
        .filter(|l| l.client == c && l.granted)
        .map(|l| (l.spec.start, l.spec.end, l.spec.mode))
        .collect();
    v.sort_unstable();
    v
}

#[test]
fn flock_shares_excludes_and_converts() {
    let mut t = LockTable::new();
    assert_eq!(t.enqueue(A, &spec(1, Flock, Read, 1, 0, 0), false).result, Ok(true));
    assert_eq!(t.enqueue(B, &spec(1, Flock, Read, 1, 0, 0), false).result, Ok(true));
    assert_eq!(t.enqueue(C, &spec(1, Flock, Write, 1, 0, 0), false).result, Err(Errno::EAGAIN));
    assert_eq!(t.enqueue(C, &spec(2, Flock, Write, 1, 0, 0), true).result, Ok(false));
    assert_eq!(t.enqueue(C, &spec(2, Flock, Write, 1, 0, 0), true).result, Ok(false), "repeated");
    // A upgrades: its shared lock goes first; B's still stands in C's way and in A's.
    let s = t.enqueue(A, &spec(2, Flock, Write, 1, 0, 0), true);
    assert_eq!((s.result, s.events), (Ok(false), vec![]));
    // When B goes, C was first.
    assert_eq!(t.cancel_range(B, fid(1), Flock, 1, 5, 6).events, vec![granted(C, 2)]);
    assert_eq!(t.cancel(C, fid(1), 2), vec![granted(A, 2)]);
    // A downgrade lets readers in.
    assert_eq!(t.enqueue(B, &spec(3, Flock, Read, 1, 0, 0), true).result, Ok(false));
    let s = t.enqueue(A, &spec(3, Flock, Read, 1, 0, 0), true);
    assert_eq!((s.result, s.events), (Ok(true), vec![granted(B, 3)]));
    // A failed conversion without waiting has lost the old lock.
    assert_eq!(t.enqueue(A, &spec(4, Flock, Write, 1, 0, 0), false).result, Err(Errno::EAGAIN));
    assert!(ranges(&t, A).is_empty());
    // Another description of the same client conflicts as anybody.
    assert_eq!(t.enqueue(B, &spec(9, Flock, Write, 2, 0, 0), false).result, Err(Errno::EAGAIN));
    assert_eq!(t.client_gone(B), vec![]);
    assert!(t.is_empty());
}

#[test]
fn posix_ranges_split_and_change_mode() {
    let mut t = LockTable::new();
    t.enqueue(A, &spec(1, Posix, Write, 1, 0, 99), false);
    t.enqueue(A, &spec(2, Posix, Read, 1, 40, 59), false);
    assert_eq!(ranges(&t, A), [(0, 39, Write), (40, 59, Read), (60, 99, Write)]);
    assert_eq!(t.cancel_range(A, fid(1), Posix, 1, 10, 19).result, Ok(true));
    assert_eq!(ranges(&t, A), [(0, 9, Write), (20, 39, Write), (40, 59, Read), (60, 99, Write)]);
    assert_eq!(t.enqueue(B, &spec(1, Posix, Read, 1, 15, 19), false).result, Ok(true));
    assert_eq!(t.enqueue(B, &spec(2, Posix, Read, 1, 15, 20), false).result, Err(Errno::EAGAIN));
    assert_eq!(t.enqueue(B, &spec(3, Posix, Read, 1, 45, 50), false).result, Ok(true));
    // A's upgrade of what B reads must wait; B's unlock lets it through.
    assert_eq!(t.enqueue(A, &spec(3, Posix, Write, 1, 0, u64::MAX), true).result, Ok(false));
    assert_eq!(t.cancel_range(B, fid(1), Posix, 1, 0, 48).events, vec![]);
    assert_eq!(t.cancel_range(B, fid(1), Posix, 1, 49, u64::MAX).events, vec![granted(A, 3)]);
    assert_eq!(ranges(&t, A), [(0, u64::MAX, Write)]);
    assert_eq!(t.cancel_range(A, fid(1), Posix, 1, 0, u64::MAX).result, Ok(true));
    assert!(t.is_empty());
    assert_eq!(t.enqueue(A, &spec(4, Posix, Read, 1, 9, 8), false).result, Err(Errno::EINVAL));
}

#[test]
fn getlock_names_the_first_conflict_as_its_owner_sees_it() {
    let mut t = LockTable::new();
    t.enqueue(A, &spec(1, Posix, Write, 7, 0, 9), false);
    t.enqueue(A, &spec(2, Posix, Write, 7, 10, 19), false);
    t.enqueue(A, &spec(3, Posix, Read, 7, 20, 29), false);
    let got = t.getlock(B, &spec(9, Posix, Read, 1, 5, 100)).unwrap();
    assert_eq!((got.start, got.end, got.mode, got.pid), (0, 19, Write, 107));
    assert_eq!(t.getlock(B, &spec(9, Posix, Read, 1, 20, 100)), None);
    assert!(t.getlock(B, &spec(9, Posix, Write, 1, 29, 29)).is_some());
    assert_eq!(t.getlock(A, &spec(9, Posix, Write, 7, 0, 100)), None, "one's own is no conflict");
    assert!(t.getlock(A, &spec(9, Posix, Write, 8, 0, 100)).is_some(), "another process of the client");
}

#[test]
fn circles_are_refused_over_several_files() {
    let mut t = LockTable::new();
    let on = |f: u32, id, c: u64| LockSpec { fid: fid(f), ..spec(id, Posix, Write, c, 0, 9) };
    for (n, c) in [A, B, C].into_iter().enumerate() {
        assert_eq!(t.enqueue(c, &on(n as u32, 1, 1), true).result, Ok(true));
    }
    assert_eq!(t.enqueue(A, &on(1, 2, 1), true).result, Ok(false));
    assert_eq!(t.enqueue(B, &on(2, 2, 1), true).result, Ok(false));
    assert_eq!(t.enqueue(C, &on(0, 2, 1), true).result, Err(Errno::EDEADLK));
    assert_eq!(t.enqueue(C, &on(0, 3, 2), true).result, Ok(false), "another owner is in no circle");
    // Two readers that both want to write.
    let mut t = LockTable::new();
    t.enqueue(A, &spec(1, Posix, Read, 1, 0, 9), true);
    t.enqueue(B, &spec(1, Posix, Read, 1, 0, 9), true);
    assert_eq!(t.enqueue(A, &spec(2, Posix, Write, 1, 0, 9), true).result, Ok(false));
    assert_eq!(t.enqueue(B, &spec(2, Posix, Write, 1, 0, 9), true).result, Err(Errno::EDEADLK));
    assert_eq!(t.cancel_range(B, fid(1), Posix, 1, 0, 9).events, vec![granted(A, 2)]);
}

#[test]
fn a_circle_that_a_grant_closes_fails_the_waiter() {
    // Owner A has two threads: one waits on file 2 for B; B waits on file 1 for C; C gives way to A's other
    // thread.
    let mut t = LockTable::new();
    let on = |f: u32, id, end| LockSpec { fid: fid(f), ..spec(id, Posix, Write, 1, 0, end) };
    t.enqueue(B, &on(2, 1, 9), true);
    t.enqueue(C, &on(1, 1, 9), true);
    assert_eq!(t.enqueue(A, &on(2, 1, 9), true).result, Ok(false));
    assert_eq!(t.enqueue(A, &on(1, 2, 4), true).result, Ok(false));
    assert_eq!(t.enqueue(B, &on(1, 2, 9), true).result, Ok(false));
    let s = t.cancel_range(C, fid(1), Posix, 1, 0, 9);
    assert_eq!(s.events, vec![granted(A, 2), Event { client: B, id: 2, error: Some(Errno::EDEADLK) }]);
}

#[test]
fn a_granted_downgrade_lets_earlier_waiters_in() {
    let mut t = LockTable::new();
    t.enqueue(A, &spec(1, Posix, Write, 1, 0, 4), true);
    t.enqueue(B, &spec(1, Posix, Write, 1, 5, 9), true);
    assert_eq!(t.enqueue(C, &spec(1, Posix, Read, 1, 0, 4), true).result, Ok(false));
    assert_eq!(t.enqueue(A, &spec(2, Posix, Read, 1, 0, 9), true).result, Ok(false));
    assert_eq!(t.cancel_range(B, fid(1), Posix, 1, 5, 9).events, vec![granted(A, 2), granted(C, 1)]);
}

#[test]
fn extents_are_served_in_turn() {
    let mut t = LockTable::new();
    let ext = |id, mode, a, b| spec(id, Extent, mode, id, a, b);
    assert_eq!(t.enqueue(A, &ext(1, Read, 0, 99), true).result, Ok(true));
    assert_eq!(t.enqueue(B, &ext(1, Write, 50, 59), true).result, Ok(false));
    // A reader that came later waits behind the writer, where they meet.
    assert_eq!(t.enqueue(C, &ext(1, Read, 55, 70), true).result, Ok(false));
    assert_eq!(t.enqueue(C, &ext(2, Read, 60, 70), true).result, Ok(true));
    assert_eq!(t.enqueue(C, &ext(3, Read, 0, 200), false).result, Err(Errno::EAGAIN));
    assert_eq!(t.cancel(A, fid(1), 1), vec![granted(B, 1)]);
    assert_eq!(t.cancel(B, fid(1), 1), vec![granted(C, 1)]);
    // Two operations of one client exclude each other.
    assert_eq!(t.enqueue(C, &ext(4, Write, 60, 60), true).result, Ok(false));
    assert_eq!(t.cancel(C, fid(1), 1), vec![]);
    assert_eq!(t.cancel(C, fid(1), 2), vec![granted(C, 4)]);
    assert_eq!(t.cancel_range(C, fid(1), Extent, 4, 0, 9).result, Err(Errno::EINVAL));
    assert_eq!(t.cancel(C, fid(1), 4), vec![]);
    assert!(t.is_empty());
}

/// Only a client that lies does that; it ended the server.
#[test]
fn a_lock_that_waits_is_not_reclaimed_beside() {
    let mut t = LockTable::new();
    let ext = |id, a, b| spec(id, Extent, Write, id, a, b);
    assert_eq!(t.enqueue(A, &ext(1, 5, 9), true).result, Ok(true));
    assert_eq!(t.enqueue(B, &ext(2, 0, 9), true).result, Ok(false));
    assert!(!t.reclaim(B, &ext(2, 0, 4)), "it is asked for already");
    assert_eq!(t.cancel(A, fid(1), 1).len(), 1);
    assert_eq!((t.total(A), t.total(B)), (0, 1));
    t.cancel(B, fid(1), 2);
    assert!(t.is_empty());
}

#[test]
fn limits_and_reclaim() {
    let mut t = LockTable::with_limit(3);
    for n in 0..3 {
        assert_eq!(t.enqueue(A, &spec(n, Posix, Read, 1, n * 10, n * 10 + 5), false).result, Ok(true));
    }
    assert_eq!(t.enqueue(A, &spec(9, Posix, Read, 1, 100, 105), false).result, Err(Errno::ENOLCK));
    assert_eq!(t.cancel_range(A, fid(1), Posix, 1, 2, 3).result, Err(Errno::ENOLCK));
    assert_eq!(t.cancel_range(A, fid(1), Posix, 1, 0, 5).result, Ok(true));
    assert_eq!(t.total(A), 2);
    assert_eq!(t.enqueue(B, &spec(1, Posix, Read, 1, 0, 5), false).result, Ok(true));

    let mut t = LockTable::new();
    for kind in [Flock, Posix, Extent] {
        let s = spec(kind as u64 + 1, kind, Write, 1, 0, 9);
        assert!(t.reclaim(A, &s));
        assert!(t.reclaim(A, &s), "twice does no harm");
        assert!(!t.reclaim(B, &LockSpec { id: 77, ..s.clone() }), "somebody else has it");
    }
    // Two pieces of one split range keep their id.
    assert!(t.reclaim(C, &spec(5, Posix, Write, 1, 20, 29)));
    assert!(t.reclaim(C, &spec(5, Posix, Write, 1, 40, 49)));
    assert_eq!(ranges(&t, C), [(20, 29, Write), (40, 49, Write)]);
    assert_eq!(t.total(A), 3);
    t.client_gone(A);
    t.client_gone(C);
    assert!(t.is_empty());
}

/// The reference: bytes one by one, everything asked of everybody.
#[derive(Default)]
struct Model {
    /// (file, kind, byte) → (owner or operation, mode)
    held: Vec<(u32, LockKind, u64, Who, LockMode)>,
    waiting: Vec<(Who, Client, LockSpec)>,
}

/// Who excludes whom: owners, or for extents operations.
type Who = (Client, u64);

/// Bytes above this are one: "to the end".
const LAST: u64 = 12;

fn bytes(s: &LockSpec) -> std::ops::RangeInclusive<u64> {
    if s.kind == Flock { 0..=LAST } else { s.start..=s.end.min(LAST) }
}

fn who(c: Client, s: &LockSpec) -> Who {
    (c, if s.kind == Extent { s.id } else { s.owner })
}

impl Model {
    fn held_conflicts(&self, c: Client, s: &LockSpec) -> Vec<Who> {
        let hits = self.held.iter().filter(|(f, k, b, w, m)| {
            fid(*f) == s.fid
                && *k == s.kind
                && bytes(s).contains(b)
                && *w != who(c, s)
                && (*m == Write || s.mode == Write)
        });
        hits.map(|h| h.3).collect()
    }

    fn clear(&mut self, file: u32, kind: LockKind, w: Who, range: std::ops::RangeInclusive<u64>) {
        self.held.retain(|(f, k, b, o, _)| !(*f == file && *k == kind && *o == w && range.contains(b)));
    }

    fn take(&mut self, c: Client, s: &LockSpec) {
        let w = who(c, s);
        self.clear(s.fid.oid, s.kind, w, bytes(s));
        self.held.extend(bytes(s).map(|b| (s.fid.oid, s.kind, b, w, s.mode)));
    }

    fn blocked(&self, i: usize) -> bool {
        let (_, c, s) = &self.waiting[i];
        let queue = self.waiting[..i].iter().any(|(w, _, e)| {
            s.kind == Extent
                && e.kind == Extent
                && e.fid == s.fid
                && *w != who(*c, s)
                && (e.mode == Write || s.mode == Write)
                && bytes(e).any(|b| bytes(s).contains(&b))
        });
        queue || !self.held_conflicts(*c, s).is_empty()
    }

    fn reaches(&self, from: Vec<Who>, me: Who) -> bool {
        let (mut todo, mut seen) = (from, BTreeSet::new());
        while let Some(w) = todo.pop() {
            if w == me {
                return true;
            }
            if seen.insert(w) {
                for (x, c, s) in self.waiting.iter().filter(|(x, _, s)| *x == w && s.kind == Posix) {
                    assert_eq!(*x, who(*c, s));
                    todo.extend(self.held_conflicts(*c, s));
                }
            }
        }
        false
    }

    /// Nothing that waits could be granted, and nobody waits in a circle.
    fn is_settled(&self) -> bool {
        (0..self.waiting.len()).all(|i| {
            let (w, c, s) = &self.waiting[i];
            self.blocked(i) && !(s.kind == Posix && self.reaches(self.held_conflicts(*c, s), *w))
        })
    }
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue { c: u8, f: u32, kind: LockKind, mode: LockMode, owner: u64, start: u64, len: u64, wait: bool },
    Unlock { c: u8, f: u32, kind: LockKind, owner: u64, start: u64, len: u64 },
    CancelNth(usize),
    Gone(u8),
    Repeat(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = || prop_oneof![3 => Just(Posix), 1 => Just(Flock), 2 => Just(Extent)];
    let mode = || prop_oneof![Just(Read), Just(Write)];
    let enqueue = (0u8..3, 0u32..2, kind(), mode(), 0u64..2, 0u64..LAST, 0u64..LAST + 4, any::<bool>())
        .prop_map(|(c, f, kind, mode, owner, start, len, wait)| Op::Enqueue {
            c,
            f,
            kind,
            mode,
            owner,
            start,
            len,
            wait,
        });
    let unlock =
        (0u8..3, 0u32..2, prop_oneof![Just(Posix), Just(Flock)], 0u64..2, 0u64..LAST, 0u64..LAST + 4)
            .prop_map(|(c, f, kind, owner, start, len)| Op::Unlock { c, f, kind, owner, start, len });
    let op = prop_oneof![
        8 => enqueue,
        4 => unlock,
        3 => (0usize..64).prop_map(Op::CancelNth),
        1 => (0u8..3).prop_map(Op::Gone),
        1 => (0usize..64).prop_map(Op::Repeat),
    ];
    proptest::collection::vec(op, 1..60)
}

/// Much waiting: few bytes, nobody gives up early.
fn crowd() -> impl Strategy<Value = Vec<Op>> {
    let mode = || prop_oneof![Just(Read), Just(Write)];
    let enqueue = (0u8..3, 0u32..2, mode(), 0u64..4, 0u64..3).prop_map(|(c, f, mode, start, len)| {
        Op::Enqueue { c, f, kind: Posix, mode, owner: 0, start, len, wait: true }
    });
    let unlock = (0u8..3, 0u32..2, 0u64..4, 0u64..4).prop_map(|(c, f, start, len)| Op::Unlock {
        c,
        f,
        kind: Posix,
        owner: 0,
        start,
        len,
    });
    proptest::collection::vec(prop_oneof![5 => enqueue, 3 => unlock], 20..80)
}

fn range_end(start: u64, len: u64) -> u64 {
    if start + len >= LAST { u64::MAX } else { start + len }
}

struct Check {
    t: LockTable,
    m: Model,
    /// Every spec that was sent.
    sent: Vec<(Client, LockSpec)>,
}

impl Check {
    /// Applies the table's events to the model; each must be right there and then.
    fn events(&mut self, events: &[Event]) {
        for e in events {
            let i = self.m.waiting.iter().position(|(_, c, s)| (*c, s.id) == (e.client, e.id));
            let i = i.expect("an event belongs to a waiter");
            let (w, c, s) = self.m.waiting[i].clone();
            match e.error {
                None => {
                    assert!(!self.m.blocked(i), "granted although blocked: {s:?}");
                    let earlier = (0..i).find(|j| {
                        let (_, _, o) = &self.m.waiting[*j];
                        o.fid == s.fid && o.kind == s.kind && !self.m.blocked(*j)
                    });
                    assert_eq!(earlier, None, "somebody came before");
                    self.m.waiting.remove(i);
                    self.m.take(c, &s);
                }
                Some(err) => {
                    assert_eq!(err, Errno::EDEADLK);
                    assert!(self.m.reaches(self.m.held_conflicts(c, &s), w), "no circle");
                    self.m.waiting.remove(i);
                }
            }
        }
    }

    fn enqueue(&mut self, c: Client, s: LockSpec, wait: bool) {
        self.sent.push((c, s.clone()));
        let step = self.t.enqueue(c, &s, wait);
        if s.kind == Flock {
            let other =
                self.m.held.iter().any(|(f, k, _, w, m)| {
                    fid(*f) == s.fid && *k == Flock && *w == who(c, &s) && *m != s.mode
                });
            if other {
                self.m.clear(s.fid.oid, Flock, who(c, &s), 0..=LAST);
            }
        }
        // Flock's events come before the grant: what the old mode kept out gets in first (and may, by a
        // second request of the same owner, be a reader again when this one's turn comes). The others' come
        // behind it, after a downgrade.
        if s.kind == Flock {
            self.events(&step.events);
        }
        match step.result {
            Ok(true) => {
                assert_eq!(self.m.held_conflicts(c, &s), vec![]);
                let kind = s.kind;
                self.m.take(c, &s);
                if kind != Flock {
                    self.events(&step.events);
                }
            }
            Ok(false) => {
                assert!(wait);
                self.m.waiting.push((who(c, &s), c, s));
                assert!(self.m.blocked(self.m.waiting.len() - 1));
            }
            Err(Errno::EAGAIN) => {
                assert!(!wait);
                self.m.waiting.push((who(c, &s), c, s));
                assert!(self.m.blocked(self.m.waiting.len() - 1));
                self.m.waiting.pop();
            }
            Err(e) => {
                assert_eq!((e, s.kind), (Errno::EDEADLK, Posix));
                assert!(self.m.reaches(self.m.held_conflicts(c, &s), who(c, &s)));
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Enqueue { c, f, kind, mode, owner, start, len, wait } => {
                let id = self.sent.len() as u64 + 1;
                let end = range_end(start, len);
                let s = LockSpec { id, fid: fid(f), kind, mode, owner, pid: 1, start, end };
                self.enqueue(client(c), s, wait);
            }
            Op::Unlock { c, f, kind, owner, start, len } => {
                let end = range_end(start, len);
                let step = self.t.cancel_range(client(c), fid(f), kind, owner, start, end);
                assert_eq!(step.result, Ok(true));
                let range = if kind == Flock { 0..=LAST } else { start..=end.min(LAST) };
                self.m.clear(f, kind, (client(c), owner), range);
                self.events(&step.events);
            }
            Op::CancelNth(n) if !self.sent.is_empty() => {
                let (c, s) = self.sent[n % self.sent.len()].clone();
                let pieces: Vec<LockSpec> = self
                    .t
                    .list(usize::MAX)
                    .into_iter()
                    .filter(|l| l.granted && l.client == c && l.spec.id == s.id)
                    .map(|l| l.spec)
                    .collect();
                let events = self.t.cancel(c, s.fid, s.id);
                self.m.waiting.retain(|(_, wc, w)| (*wc, w.id) != (c, s.id));
                for p in pieces {
                    self.m.clear(p.fid.oid, p.kind, who(c, &p), bytes(&p));
                }
                self.events(&events);
            }
            Op::Gone(c) => {
                let events = self.t.client_gone(client(c));
                self.m.held.retain(|h| h.3.0 != client(c));
                self.m.waiting.retain(|(_, w, _)| *w != client(c));
                self.events(&events);
            }
            Op::Repeat(n) if !self.m.waiting.is_empty() => {
                let (_, c, s) = self.m.waiting[n % self.m.waiting.len()].clone();
                let step = self.t.enqueue(c, &s, true);
                assert_eq!(step, Step { result: Ok(false), events: vec![] });
            }
            _ => {}
        }
    }

    fn compare(&self) {
        assert!(self.m.is_settled());
        let list = self.t.list(usize::MAX);
        let mut bytes_held: Vec<_> = list
            .iter()
            .filter(|l| l.granted)
            .flat_map(|l| {
                let s = &l.spec;
                bytes(s).map(|b| (s.fid.oid, s.kind, b, who(l.client, s), s.mode)).collect::<Vec<_>>()
            })
            .collect();
        let mut want = self.m.held.clone();
        bytes_held.sort_unstable();
        want.sort_unstable();
        assert_eq!(bytes_held, want);
        assert_eq!(list.iter().filter(|l| !l.granted).count(), self.m.waiting.len());
        for c in 0..3 {
            assert_eq!(self.t.total(client(c)), list.iter().filter(|l| l.client == client(c)).count());
        }
        let waits: usize = self.t.posix_waits.values().map(BTreeSet::len).sum();
        assert_eq!(waits, self.m.waiting.iter().filter(|w| w.2.kind == Posix).count());
        assert_eq!(self.t.is_empty(), list.is_empty(), "nothing is left behind");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn crowded_posix_ranges_do_what_the_reference_does(ops in crowd()) {
        let mut c = Check { t: LockTable::new(), m: Model::default(), sent: Vec::new() };
        for op in ops {
            c.apply(op);
            c.compare();
        }
    }

    #[test]
    fn the_table_does_what_the_reference_does(ops in ops()) {
        let mut c = Check { t: LockTable::new(), m: Model::default(), sent: Vec::new() };
        for op in ops {
            c.apply(op);
            c.compare();
        }
        for n in 0..3 {
            c.apply(Op::Gone(n));
        }
        c.compare();
        prop_assert!(c.t.is_empty());
    }
}

/// A lock for each record of a large file, of one program and of as many: each step looks at what it meets,
/// not at all. (With lists this took minutes.)
#[test]
fn a_hundred_thousand_locks_on_one_file_are_no_burden() {
    const N: u64 = 100_000;
    for owners in [1, N] {
        let mut t = LockTable::new();
        let lock = |n: u64, mode| spec(n, Posix, mode, n % owners, n * 10, n * 10 + 4);
        for n in 0..N {
            assert_eq!(t.enqueue(A, &lock(n, Write), false).result, Ok(true));
        }
        assert_eq!(t.total(A), N as usize);
        for n in 0..N {
            assert_eq!(
                t.enqueue(B, &spec(N + n, Posix, Read, n, n * 10, n * 10), false).result,
                Err(Errno::EAGAIN)
            );
            assert_eq!(t.getlock(B, &lock(n, Read)).map(|l| l.start), Some(n * 10));
        }
        for n in 0..N {
            t.cancel_range(A, fid(1), Posix, n % owners, n * 10, n * 10 + 4);
        }
        assert!(t.is_empty());
    }
}
