//! The table against a naive one, and every interleaving of a small protocol.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const A: Client = [1; 16];
const B: Client = [2; 16];
const C: Client = [3; 16];

fn fid(n: u32) -> Fid {
    Fid::new(7, n, 0)
}

fn item(n: u32, bits: u8, seq: u64) -> LeaseItem {
    LeaseItem { fid: fid(n), bits, seq, look: false }
}

fn take(l: &mut Leases, c: Client, n: u32, bits: u8, mode: Mode) -> u8 {
    let bits = l.grantable(c, fid(n), bits, mode);
    if bits != 0 {
        let seq = l.next_seq();
        l.grant(c, fid(n), bits, mode, seq);
    }
    bits
}

#[test]
fn a_change_meets_every_other_holder_and_nothing_is_granted_meanwhile() {
    let mut l = Leases::new(100, 10);
    assert_eq!((take(&mut l, A, 1, 3, Mode::Shared), take(&mut l, B, 1, 2, Mode::Shared)), (3, 2));
    assert!(l.conflicts(None, fid(1), 3, Mode::Shared).is_empty(), "readers share");
    assert_eq!(l.conflicts(Some(A), fid(1), 3, Mode::Exclusive), [(B, item(1, 2, 102))]);
    assert_eq!(l.conflicts(Some(C), fid(1), 1, Mode::Exclusive), [(A, item(1, 1, 101))]);
    l.begin_revoke(fid(1));
    assert_eq!(take(&mut l, C, 1, 3, Mode::Shared), 0);
    assert!(!l.cancel(B, &item(1, 3, 101)), "a cancel of what was before the grant");
    assert!(l.cancel(B, &item(1, 3, 102)));
    assert!(l.conflicts(Some(A), fid(1), 3, Mode::Exclusive).is_empty());
    l.end_revoke(fid(1));
    assert_eq!(take(&mut l, C, 1, 3, Mode::Shared), 3);
    l.client_gone(C);
    l.file_gone(fid(1));
    assert!(l.files.is_empty() && l.clients.is_empty());
}

#[test]
fn exclusive_means_alone() {
    let mut l = Leases::new(0, 10);
    assert_eq!(take(&mut l, A, 1, 3, Mode::Shared), 3);
    assert_eq!(take(&mut l, B, 1, 3, Mode::Exclusive), 0);
    assert_eq!(take(&mut l, A, 1, 1, Mode::Exclusive), 1, "its own is not in the way");
    assert_eq!(take(&mut l, B, 1, 3, Mode::Shared), 2);
    assert_eq!(
        l.conflicts(Some(B), fid(1), 3, Mode::Shared),
        [(A, LeaseItem { look: true, ..item(1, 1, 2) })]
    );
}

#[test]
fn a_client_is_granted_so_many_files_and_no_more() {
    let mut l = Leases::new(0, 2);
    assert_eq!([1, 2, 3].map(|n| take(&mut l, A, n, 1, Mode::Shared)), [1, 1, 0]);
    assert_eq!(take(&mut l, A, 2, 2, Mode::Shared), 2, "more of the same file");
    assert_eq!(take(&mut l, B, 3, 1, Mode::Shared), 1);
    assert!(l.cancel(A, &item(1, 3, 9)));
    assert_eq!(take(&mut l, A, 3, 1, Mode::Shared), 1);
    assert_eq!((l.count_of(A), l.total()), (2, 3));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u8, u32, u8, bool),
    Begin(u32),
    End(u32),
    /// The last says whether the lease is only given down.
    Cancel(u8, u32, u8, u64, bool),
    ClientGone(u8),
    FileGone(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (c, f, b) = (0u8..3, 0u32..3, 1u8..4);
    prop_oneof![
        6 => (c.clone(), f.clone(), b.clone(), any::<bool>()).prop_map(|(c, f, b, x)| Step::Take(c, f, b, x)),
        1 => f.clone().prop_map(Step::Begin),
        1 => f.clone().prop_map(Step::End),
        3 => (c.clone(), f.clone(), b, 0u64..4, any::<bool>())
            .prop_map(|(c, f, b, s, look)| Step::Cancel(c, f, b, s, look)),
        1 => c.prop_map(Step::ClientGone),
        1 => f.prop_map(Step::FileGone),
    ]
}

/// Each bit by itself: (client, file, bit) → exclusive; and the newest grant of (client, file).
#[derive(Default)]
struct Naive {
    held: BTreeMap<(u8, u32, u8), bool>,
    seq: BTreeMap<(u8, u32), u64>,
    revoking: BTreeMap<u32, u32>,
}

impl Naive {
    fn grantable(&self, c: u8, f: u32, bits: u8, exclusive: bool) -> u8 {
        if self.revoking.get(&f).is_some_and(|n| *n > 0) {
            return 0;
        }
        let free = |b: u8| {
            self.held.iter().all(|(&(hc, hf, hb), &x)| hc == c || hf != f || hb != b || !(x || exclusive))
        };
        [1, 2].into_iter().filter(|b| bits & b != 0 && free(*b)).sum()
    }

    fn conflicts(&self, c: u8, f: u32, bits: u8, exclusive: bool) -> BTreeMap<u8, u8> {
        let mut out = BTreeMap::new();
        for (&(hc, hf, hb), &x) in &self.held {
            if hc != c && hf == f && bits & hb != 0 && (x || exclusive) {
                *out.entry(hc).or_default() |= hb;
            }
        }
        out
    }
}

proptest! {
    #[test]
    fn the_table_is_what_a_list_of_bits_says(steps in proptest::collection::vec(step(), 1..120)) {
        let clients = [A, B, C];
        let (mut l, mut n) = (Leases::new(0, 100), Naive::default());
        for s in steps {
            match s {
                Step::Take(c, f, bits, x) => {
                    let mode = if x { Mode::Exclusive } else { Mode::Shared };
                    let want = n.grantable(c, f, bits, x);
                    prop_assert_eq!(take(&mut l, clients[usize::from(c)], f, bits, mode), want);
                    for b in [1, 2].into_iter().filter(|b| want & b != 0) {
                        let e = n.held.entry((c, f, b)).or_default();
                        *e |= x;
                        n.seq.insert((c, f), l.seq);
                    }
                }
                Step::Begin(f) => {
                    l.begin_revoke(fid(f));
                    *n.revoking.entry(f).or_default() += 1;
                }
                Step::End(f) => {
                    if let Some(k) = n.revoking.get_mut(&f).filter(|k| **k > 0) {
                        *k -= 1;
                        l.end_revoke(fid(f));
                    }
                }
                Step::Cancel(c, f, bits, back, look) => {
                    let newest = n.seq.get(&(c, f)).copied().unwrap_or(0);
                    let seq = (newest + 1).saturating_sub(back);
                    l.cancel(clients[usize::from(c)], &LeaseItem { look, ..item(f, bits, seq) });
                    if seq >= newest && look {
                        let down = n.held.iter_mut().filter(|(k, _)| (k.0, k.1) == (c, f) && bits & k.2 != 0);
                        down.for_each(|(_, x)| *x = false);
                    } else if seq >= newest {
                        n.held.retain(|(hc, hf, hb), _| !(*hc == c && *hf == f && bits & hb != 0));
                    }
                }
                Step::ClientGone(c) => {
                    l.client_gone(clients[usize::from(c)]);
                    n.held.retain(|(hc, _, _), _| *hc != c);
                }
                Step::FileGone(f) => {
                    l.file_gone(fid(f));
                    n.held.retain(|(_, hf, _), _| *hf != f);
                }
            }
            for (c, f, x) in (0..3).flat_map(|c| (0..3).flat_map(move |f| [(c, f, false), (c, f, true)])) {
                let mode = if x { Mode::Exclusive } else { Mode::Shared };
                let got = l.conflicts(Some(clients[usize::from(c)]), fid(f), 3, mode);
                let got: BTreeMap<u8, u8> = got
                    .iter()
                    .map(|(h, i)| (clients.iter().position(|k| k == h).unwrap() as u8, i.bits))
                    .collect();
                prop_assert_eq!(got, n.conflicts(c, f, 3, x));
            }
            let pairs: BTreeSet<(u8, u32)> = n.held.keys().map(|k| (k.0, k.1)).collect();
            prop_assert_eq!(l.total(), pairs.len());
            let owned: BTreeMap<(u8, u32), u8> = n.held.iter().filter(|(_, x)| **x).fold(
                BTreeMap::new(),
                |mut m, (k, _)| {
                    *m.entry((k.0, k.1)).or_default() |= k.2;
                    m
                },
            );
            let owners: BTreeSet<u8> = owned.keys().map(|k| k.0).collect();
            prop_assert_eq!(l.owners(), owners.len());
            for c in 0..3 {
                prop_assert_eq!(l.is_owner(clients[usize::from(c)]), owners.contains(&c));
                for f in 0..3 {
                    let bits = owned.get(&(c, f)).copied().unwrap_or(0);
                    prop_assert_eq!(l.owned(clients[usize::from(c)], fid(f)), bits);
                }
            }
            prop_assert_eq!(l.exclusive().len(), owned.len());
        }
    }
}

/// One file, one client that keeps what it is shown, others that change the file: every interleaving of
/// frames, with connections that break. What the client keeps is always what the server has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    version: u8,
    /// What the server thinks the client holds: the newest grant.
    held: Option<u64>,
    next_seq: u64,
    /// A change that waits.
    changing: bool,
    to_client: Vec<Frame>,
    to_server: Vec<Frame>,
    /// A read that is under way: the client's count of revocations when it started, if it is answered already
    /// what the answer says, in case it has to be sent again.
    reading: Option<(u8, Option<Frame>)>,
    revocations: u8,
    cached: Option<u8>,
    reads: u8,
    changes: u8,
    cuts: u8,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Frame {
    Read,
    Answer { version: u8, grant: Option<u64> },
    Revoke(u64),
    Cancelled(u64),
}

impl World {
    fn table(&self) -> Leases {
        let mut l = Leases::new(self.next_seq, 10);
        if let Some(seq) = self.held {
            l.grant(A, fid(1), 2, Mode::Shared, seq);
        }
        if self.changing {
            l.begin_revoke(fid(1));
        }
        l
    }

    fn keep(&mut self, l: &Leases) {
        self.next_seq = l.seq;
        self.held = l.conflicts(None, fid(1), 2, Mode::Exclusive).first().map(|(_, i)| i.seq);
    }

    /// The server takes the client's next frame.
    fn serve(&mut self) {
        let mut l = self.table();
        match self.to_server.remove(0) {
            Frame::Read => {
                let grant = (take(&mut l, A, 1, 2, Mode::Shared) != 0).then_some(l.seq);
                let answer = Frame::Answer { version: self.version, grant };
                self.reading = self.reading.take().map(|(t, _)| (t, Some(answer.clone())));
                self.to_client.push(answer);
            }
            Frame::Cancelled(seq) => drop(l.cancel(A, &item(1, 2, seq))),
            _ => unreachable!("servers send these"),
        }
        self.keep(&l);
    }

    /// The client takes the server's next frame.
    fn take(&mut self) {
        match self.to_client.remove(0) {
            Frame::Answer { version, grant } => {
                let (started, _) = self.reading.take().expect("answered once");
                if grant.is_some() && started == self.revocations {
                    self.cached = Some(version);
                }
            }
            Frame::Revoke(seq) => {
                self.revocations += 1;
                self.cached = None;
                self.to_server.push(Frame::Cancelled(seq));
            }
            _ => unreachable!("clients send these"),
        }
    }

    fn successors(&self) -> Vec<World> {
        let mut out = Vec::new();
        let mut with = |f: &dyn Fn(&mut World)| {
            let mut n = self.clone();
            f(&mut n);
            out.push(n);
        };
        if self.reads > 0 && self.reading.is_none() && self.cached.is_none() {
            with(&|n| {
                n.reads -= 1;
                n.reading = Some((n.revocations, None));
                n.to_server.push(Frame::Read);
            });
        }
        if !self.to_server.is_empty() {
            with(&World::serve);
        }
        if !self.to_client.is_empty() {
            with(&World::take);
        }
        let conflicts = self.table().conflicts(Some(B), fid(1), 2, Mode::Exclusive);
        if self.changes > 0 && !self.changing {
            with(&|n| {
                n.changes -= 1;
                n.changing = true;
                let revokes = conflicts.iter().map(|(_, i)| Frame::Revoke(i.seq));
                n.to_client.extend(revokes);
            });
        }
        if self.changing && conflicts.is_empty() {
            with(&|n| {
                n.changing = false;
                n.version += 1;
            });
        }
        if self.cuts > 0 {
            with(&|n| {
                n.cuts -= 1;
                n.to_client.clear();
                n.to_server.clear();
                // The read is sent again, or answered again if it had been answered; the revocation is
                // repeated.
                match &n.reading {
                    Some((_, None)) => n.to_server.push(Frame::Read),
                    Some((_, Some(a))) => n.to_client.push(a.clone()),
                    None => {}
                }
                if n.changing {
                    n.to_client.extend(conflicts.iter().map(|(_, i)| Frame::Revoke(i.seq)));
                }
            });
        }
        out
    }
}

#[test]
fn no_interleaving_keeps_what_is_no_more() {
    let start = World {
        version: 0,
        held: None,
        next_seq: 0,
        changing: false,
        to_client: vec![],
        to_server: vec![],
        reading: None,
        revocations: 0,
        cached: None,
        reads: 4,
        changes: 3,
        cuts: 2,
    };
    let (mut seen, mut todo) = (BTreeSet::from([start.clone()]), VecDeque::from([start]));
    let mut kept = 0;
    while let Some(s) = todo.pop_front() {
        assert!(s.cached.is_none_or(|v| v == s.version), "an old version is kept");
        kept += usize::from(s.cached.is_some());
        let next = s.successors();
        if next.is_empty() {
            assert!(!s.changing && s.reading.is_none(), "somebody waits for ever");
        }
        for n in next {
            if seen.insert(n.clone()) {
                todo.push_back(n);
            }
        }
    }
    assert!(kept > 0 && seen.len() > 1000, "{} states", seen.len());
}
