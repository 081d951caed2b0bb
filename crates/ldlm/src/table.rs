//! The server's lock table.
//!
//! Three kinds that know nothing of each other, each with what is granted and who waits:
//!
//! * **Flock**: the whole file, owned by an open file description (client, owner). A change of mode gives the
//!   old lock back first and then asks for the new one: others may come between, as flock(2) says.
//! * **Posix**: byte ranges of a process (client, owner). A new lock replaces what the owner has in its
//!   range. Waiting in a circle, over any number of files, is EDEADLK.
//! * **Extent**: a byte range for one operation (client, id). First come, first served: a request waits
//!   behind every earlier one that conflicts with it, granted or not, so that writers do not starve.
//!
//! Flock and POSIX requests conflict with granted locks only (a non-blocking one must not fail because of
//! somebody who waits); waiters are served in the order of their arrival.

use crate::granted::{Granted, who};
use crate::posix::overlap;
use model::limits::LOCKS_PER_CLIENT_MAX;
use model::planted::{self, Bug};
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::msg::enqueue::{LockKind, LockMode, LockSpec};

/// A client's uuid.
pub type Client = [u8; 16];

/// What a waiting client must be told (`Notify::LockGranted`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub client: Client,
    pub id: u64,
    /// `None`: granted.
    pub error: Option<Errno>,
}

/// The outcome of one step: for the caller, and for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// `Ok(true)`: granted (or done); `Ok(false)`: waits, an [`Event`] will follow.
    pub result: Result<bool, Errno>,
    pub events: Vec<Event>,
}

impl Step {
    fn new(result: Result<bool, Errno>) -> Step {
        Step { result, events: Vec::new() }
    }
}

/// One lock as `list` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub client: Client,
    pub spec: LockSpec,
    pub granted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    client: Client,
    spec: LockSpec,
}

struct Waiting {
    /// Order of arrival, over the whole table.
    seq: u64,
    held: Held,
}

#[derive(Default)]
struct Queue {
    granted: Granted,
    waiting: VecDeque<Waiting>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }
}

type Owner = (Client, u64);

/// Locks of one client.
#[derive(Default)]
struct Counts {
    total: usize,
    at: BTreeMap<(Fid, LockKind), usize>,
}

/// Every lock of one metadata target.
pub struct LockTable {
    queues: BTreeMap<(Fid, LockKind), Queue>,
    /// Locks of each client, granted pieces and waiting ones, by where they are.
    counts: BTreeMap<Client, Counts>,
    /// Where each owner waits for POSIX ranges.
    posix_waits: BTreeMap<Owner, BTreeSet<(Fid, u64)>>,
    next_seq: u64,
    per_client_max: usize,
}

impl Default for LockTable {
    fn default() -> LockTable {
        LockTable::new()
    }
}

fn owner(h: &Held) -> Owner {
    (h.client, h.spec.owner)
}

/// Whether two extents of one file exclude each other.
fn conflict(a: &Held, b: &Held) -> bool {
    let both_read = a.spec.mode == LockMode::Read && b.spec.mode == LockMode::Read;
    !both_read
        && overlap(&a.spec, b.spec.start, b.spec.end)
        && who(a.client, &a.spec) != who(b.client, &b.spec)
}

/// Requests behind which `new` has its turn, besides what is granted. Only extents have to wait for those.
fn in_turn<'a>(
    kind: LockKind,
    q: &'a Queue,
    new: &'a Held,
    before: Option<u64>,
) -> impl Iterator<Item = &'a Waiting> {
    let all = (kind == LockKind::Extent).then_some(&q.waiting);
    let earlier = all.into_iter().flatten().take_while(move |w| before.is_none_or(|b| w.seq < b));
    earlier.filter(move |w| conflict(&w.held, new))
}

impl LockTable {
    pub fn new() -> LockTable {
        LockTable::with_limit(LOCKS_PER_CLIENT_MAX)
    }

    /// A table in which each client may have about `per_client_max` locks; more fail with ENOLCK.
    pub fn with_limit(per_client_max: usize) -> LockTable {
        LockTable {
            queues: BTreeMap::new(),
            counts: BTreeMap::new(),
            posix_waits: BTreeMap::new(),
            next_seq: 0,
            per_client_max,
        }
    }

    /// Asks for a lock. Repeating a request (same client and id) that waits or is granted changes nothing.
    ///
    /// Errors: EAGAIN if it conflicts and `wait` is false, EDEADLK if it would wait in a circle, ENOLCK over
    /// the limit, EINVAL for an empty range.
    pub fn enqueue(&mut self, client: Client, spec: &LockSpec, wait: bool) -> Step {
        let Some(new) = normal(client, spec) else { return Step::new(Err(Errno::EINVAL)) };
        let (fid, kind) = (spec.fid, spec.kind);
        let at = (fid, kind);
        if let Some(q) = self.queues.get(&at) {
            if q.waiting.iter().any(|w| w.held.client == client && w.held.spec.id == spec.id) {
                return Step::new(Ok(false));
            }
            if kind != LockKind::Posix && q.granted.has_id(client, spec.id) {
                return Step::new(Ok(true));
            }
        }
        let mut step = Step::new(Ok(true));
        if kind == LockKind::Flock && self.give_back_other_mode(at, &new) {
            self.promote(at, &mut step.events);
        }
        if self.total(client) >= self.per_client_max {
            step.result = Err(Errno::ENOLCK);
            self.tidy(at);
            return step;
        }
        if !self.is_blocked(at, &new, None) {
            self.grant(at, new);
            self.settle(at, &mut step.events);
        } else if !wait {
            step.result = Err(Errno::EAGAIN);
        } else if kind == LockKind::Posix && self.waits_for(&self.blockers(at, &new, None), owner(&new)) {
            step.result = Err(Errno::EDEADLK);
        } else {
            self.push_waiting(at, new);
            step.result = Ok(false);
        }
        self.tidy(at);
        step
    }

    /// Gives a lock back, or stops waiting for it. A POSIX range that was granted goes as far as no later
    /// lock of its owner has replaced it. Unknown ids are no error.
    pub fn cancel(&mut self, client: Client, fid: Fid, id: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for kind in [LockKind::Flock, LockKind::Posix, LockKind::Extent] {
            let at = (fid, kind);
            let Some(q) = self.queues.get_mut(&at) else { continue };
            let mine = |h: &Held| h.client == client && h.spec.id == id;
            let before = q.granted.len();
            q.granted.remove_id(client, id);
            let gone = before - q.granted.len();
            let seqs: Vec<u64> = q.waiting.iter().filter(|w| mine(&w.held)).map(|w| w.seq).collect();
            self.uncount(client, at, gone);
            for seq in &seqs {
                self.remove_waiting(at, *seq);
            }
            if gone > 0 || !seqs.is_empty() {
                self.promote(at, &mut events);
                self.tidy(at);
            }
        }
        events
    }

    /// Unlocks `start..=end` of an owner's POSIX locks, or its flock whatever the range. Extents are given
    /// back by id alone: EINVAL. ENOLCK if the split would exceed the client's limit.
    pub fn cancel_range(
        &mut self,
        client: Client,
        fid: Fid,
        kind: LockKind,
        owner: u64,
        start: u64,
        end: u64,
    ) -> Step {
        if kind == LockKind::Extent || start > end {
            return Step::new(Err(Errno::EINVAL));
        }
        let (start, end) = if kind == LockKind::Flock { (0, u64::MAX) } else { (start, end) };
        let at = (fid, kind);
        let mut step = Step::new(Ok(true));
        let full = self.total(client) >= self.per_client_max;
        let Some(q) = self.queues.get_mut(&at) else { return step };
        let w = (client, owner);
        if full && q.granted.would_split(&w, start, end) {
            return Step::new(Err(Errno::ENOLCK));
        }
        let before = q.granted.len();
        let changed = q.granted.carve(w, start, end);
        let after = q.granted.len();
        self.recount(client, at, before, after);
        if changed && !planted::on(Bug::LockWaiterForgotten) {
            self.promote(at, &mut step.events);
        }
        self.tidy(at);
        step
    }

    /// The first granted lock that would stand in the way (F_GETLK), as its owner sees it: neighbouring
    /// pieces of one mode are one.
    pub fn getlock(&self, client: Client, spec: &LockSpec) -> Option<LockSpec> {
        let new = normal(client, spec)?;
        let q = self.queues.get(&(spec.fid, spec.kind))?;
        let (w, start) = q.granted.conflicts(client, &new.spec).min_by_key(|(w, start)| (*start, *w))?;
        q.granted.pieces(&w)?.coalesced(start)
    }

    /// Everything of a client is gone: it left or was evicted.
    pub fn client_gone(&mut self, client: Client) -> Vec<Event> {
        if planted::on(Bug::EvictionForgetsRecordLock) {
            return Vec::new();
        }
        let places: Vec<_> =
            self.counts.remove(&client).map(|c| c.at.into_keys().collect()).unwrap_or_default();
        let mut events = Vec::new();
        for at in &places {
            let Some(q) = self.queues.get_mut(at) else { continue };
            q.granted.remove_client(client);
            q.waiting.retain(|w| w.held.client != client);
        }
        let owners = (client, 0)..=(client, u64::MAX);
        let gone: Vec<Owner> = self.posix_waits.range(owners).map(|(o, _)| *o).collect();
        for o in gone {
            self.posix_waits.remove(&o);
        }
        for at in places {
            self.promote(at, &mut events);
            self.tidy(at);
        }
        events
    }

    /// After a restart: a client says what it had been granted. False: somebody else has it by now. Waiting
    /// locks are not reclaimed but asked for again.
    pub fn reclaim(&mut self, client: Client, spec: &LockSpec) -> bool {
        let Some(new) = normal(client, spec) else { return false };
        let at = (spec.fid, spec.kind);
        if let Some(q) = self.queues.get(&at) {
            if q.granted.conflicts(client, &new.spec).next().is_some() {
                return false;
            }
            if spec.kind != LockKind::Posix && q.granted.has_id(client, spec.id) {
                return true;
            }
            // It asked for that one anew already, and is told when it has it.
            if q.waiting.iter().any(|w| w.held.client == client && w.held.spec.id == spec.id) {
                return false;
            }
        }
        if self.total(client) >= self.per_client_max {
            return false;
        }
        if spec.kind == LockKind::Flock {
            self.give_back_other_mode(at, &new);
        }
        self.grant(at, new);
        true
    }

    /// At most `limit` locks, by file.
    pub fn list(&self, limit: usize) -> Vec<Listed> {
        let one = |client, spec: &LockSpec, granted| Listed { client, spec: spec.clone(), granted };
        let all = self.queues.values().flat_map(|q| {
            let granted = q.granted.iter().map(move |(client, spec)| one(client, spec, true));
            granted.chain(q.waiting.iter().map(move |w| one(w.held.client, &w.held.spec, false)))
        });
        all.take(limit).collect()
    }

    /// Granted pieces and waiting requests of a client.
    pub fn total(&self, client: Client) -> usize {
        self.counts.get(&client).map_or(0, |c| c.total)
    }

    /// Granted pieces and waiting requests of all clients.
    pub fn held_and_waiting(&self) -> (usize, usize) {
        let held = self.queues.values().map(|q| q.granted.iter().count()).sum();
        (held, self.queues.values().map(|q| q.waiting.len()).sum())
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// flock: the owner's lock of the other mode goes before the new one is tried. One of the same mode only
    /// takes the new id. True if something was given back.
    fn give_back_other_mode(&mut self, at: (Fid, LockKind), new: &Held) -> bool {
        let Some(q) = self.queues.get_mut(&at) else { return false };
        let old = q.granted.remove_all(owner(new));
        assert!(old.len() <= 1, "an owner has one flock on a file");
        self.uncount(new.client, at, old.len());
        old.iter().any(|o| o.mode != new.spec.mode)
    }

    /// Owners (for extents: operations) that `new` must wait for. `before`: as a waiter with this number,
    /// otherwise as one that arrives now.
    fn blockers(&self, at: (Fid, LockKind), new: &Held, before: Option<u64>) -> Vec<Owner> {
        let Some(q) = self.queues.get(&at) else { return Vec::new() };
        let mut out: Vec<Owner> = q.granted.conflicts(new.client, &new.spec).map(|(w, _)| w).collect();
        out.extend(in_turn(at.1, q, new, before).map(|w| who(w.held.client, &w.held.spec)));
        out
    }

    /// Whether there are any [`LockTable::blockers`].
    fn is_blocked(&self, at: (Fid, LockKind), new: &Held, before: Option<u64>) -> bool {
        let Some(q) = self.queues.get(&at) else { return false };
        q.granted.conflicts(new.client, &new.spec).next().is_some()
            || in_turn(at.1, q, new, before).next().is_some()
    }

    /// Whether any of `from` waits, directly or through others, for a POSIX lock of `me`.
    fn waits_for(&self, from: &[Owner], me: Owner) -> bool {
        let mut seen: BTreeSet<Owner> = BTreeSet::new();
        let mut todo: Vec<Owner> = from.to_vec();
        while let Some(o) = todo.pop() {
            if o == me {
                return true;
            }
            if !seen.insert(o) {
                continue;
            }
            for (fid, seq) in self.posix_waits.get(&o).into_iter().flatten() {
                let at = (*fid, LockKind::Posix);
                if let Some(w) = self.find_waiting(at, *seq) {
                    todo.extend(self.blockers(at, &w.held, Some(*seq)));
                }
            }
        }
        false
    }

    fn find_waiting(&self, at: (Fid, LockKind), seq: u64) -> Option<&Waiting> {
        let q = self.queues.get(&at)?;
        q.waiting.binary_search_by_key(&seq, |w| w.seq).ok().map(|i| &q.waiting[i])
    }

    fn push_waiting(&mut self, at: (Fid, LockKind), held: Held) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.count(held.client, at, 1);
        if at.1 == LockKind::Posix {
            self.posix_waits.entry(owner(&held)).or_default().insert((at.0, seq));
        }
        let waiting = &mut self.queues.entry(at).or_default().waiting;
        assert!(waiting.back().is_none_or(|w| w.seq < seq), "waiters stand in the order of their arrival");
        waiting.push_back(Waiting { seq, held });
    }

    fn remove_waiting(&mut self, at: (Fid, LockKind), seq: u64) -> Option<Held> {
        let q = self.queues.get_mut(&at)?;
        let i = q.waiting.binary_search_by_key(&seq, |w| w.seq).ok()?;
        let w = q.waiting.remove(i).expect("the index was found");
        self.uncount(w.held.client, at, 1);
        if at.1 == LockKind::Posix {
            let o = owner(&w.held);
            if let Some(set) = self.posix_waits.get_mut(&o) {
                let was = set.remove(&(at.0, seq));
                assert!(was, "an owner that waits for a range is known to");
                if set.is_empty() {
                    self.posix_waits.remove(&o);
                }
            }
        }
        Some(w.held)
    }

    /// Enters a lock that conflicts with nothing.
    fn grant(&mut self, at: (Fid, LockKind), new: Held) {
        let q = self.queues.entry(at).or_default();
        assert!(q.granted.conflicts(new.client, &new.spec).next().is_none(), "what conflicts waits");
        let client = new.client;
        let before = q.granted.len();
        if at.1 == LockKind::Posix {
            q.granted.carve(owner(&new), new.spec.start, new.spec.end);
        }
        q.granted.insert(client, new.spec);
        let after = q.granted.len();
        self.recount(client, at, before, after);
    }

    /// Grants what can be granted now, in order of arrival.
    fn promote(&mut self, at: (Fid, LockKind), events: &mut Vec<Event>) {
        let mut i = 0;
        loop {
            let Some(w) = self.queues.get(&at).and_then(|q| q.waiting.get(i)) else { return };
            if self.is_blocked(at, &w.held, Some(w.seq)) {
                i += 1;
                continue;
            }
            let seq = w.seq;
            let held = self.remove_waiting(at, seq).expect("it was just seen");
            events.push(Event { client: held.client, id: held.spec.id, error: None });
            if at.1 == LockKind::Flock {
                // Its other thread may have got a lock meanwhile.
                self.give_back_other_mode(at, &held);
            }
            self.grant(at, held);
            self.break_circles(at, events);
            // A POSIX or flock grant may have been a downgrade that lets earlier waiters in.
            i = 0;
        }
    }

    /// After a grant: a downgrade lets waiters in, and an owner that waits elsewhere may have closed a
    /// circle.
    fn settle(&mut self, at: (Fid, LockKind), events: &mut Vec<Event>) {
        if at.1 == LockKind::Extent {
            return;
        }
        self.promote(at, events);
        self.break_circles(at, events);
    }

    /// A lock granted to an owner that waits elsewhere (another thread of it) may close a circle through
    /// those who wait here: they fail, the latest first.
    fn break_circles(&mut self, at: (Fid, LockKind), events: &mut Vec<Event>) {
        if at.1 != LockKind::Posix {
            return;
        }
        loop {
            let Some(q) = self.queues.get(&at) else { return };
            // Only an owner that holds something here and waits somewhere can close one.
            let both = match q.granted.owners().len() < self.posix_waits.len() {
                true => q.granted.owners().any(|o| self.posix_waits.contains_key(o)),
                false => self.posix_waits.keys().any(|o| q.granted.has_any(o)),
            };
            if q.waiting.is_empty() || !both {
                return;
            }
            let closed = q.waiting.iter().rev().find(|w| {
                let blockers = self.blockers(at, &w.held, Some(w.seq));
                self.waits_for(&blockers, owner(&w.held))
            });
            let Some(seq) = closed.map(|w| w.seq) else { return };
            let held = self.remove_waiting(at, seq).expect("it was just seen");
            events.push(Event { client: held.client, id: held.spec.id, error: Some(Errno::EDEADLK) });
        }
    }

    fn count(&mut self, client: Client, at: (Fid, LockKind), n: usize) {
        let counts = self.counts.entry(client).or_default();
        counts.total += n;
        *counts.at.entry(at).or_default() += n;
    }

    fn uncount(&mut self, client: Client, at: (Fid, LockKind), n: usize) {
        if n == 0 {
            return;
        }
        let m = self.counts.get_mut(&client).expect("the client has locks");
        let c = m.at.get_mut(&at).expect("the client has locks here");
        *c = c.checked_sub(n).expect("no more locks go than there were");
        if *c == 0 {
            m.at.remove(&at);
        }
        m.total -= n;
        if m.total == 0 {
            assert!(m.at.is_empty(), "a client's locks are counted where they are");
            self.counts.remove(&client);
        }
    }

    fn recount(&mut self, client: Client, at: (Fid, LockKind), before: usize, after: usize) {
        if after > before {
            self.count(client, at, after - before);
        } else {
            self.uncount(client, at, before - after);
        }
    }

    fn tidy(&mut self, at: (Fid, LockKind)) {
        if self.queues.get(&at).is_some_and(Queue::is_empty) {
            self.queues.remove(&at);
        }
    }
}

/// The request as the table keeps it: a flock covers the whole file. `None` for an empty range.
fn normal(client: Client, spec: &LockSpec) -> Option<Held> {
    let mut spec = spec.clone();
    if spec.kind == LockKind::Flock {
        (spec.start, spec.end) = (0, u64::MAX);
    }
    (spec.start <= spec.end).then_some(Held { client, spec })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
