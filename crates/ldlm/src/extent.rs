//! Extent locks: which client may keep which bytes of an object. The server's end, as a stepped state
//! machine.
//!
//! Locks of one client never conflict with each other: it sees to its own coherence. A request is granted
//! when it conflicts with nobody who has or waited for a lock before it, so nobody starves (but behind a
//! group that goes on getting members); what is granted to a client grows to the largest range that conflicts
//! with nobody. Requests without a lock run under a *server lock*, which conflicts with everybody's, the
//! sender's included.
//!
//! Who must give way is told once ([`Event::Block`]); [`Extents::outstanding`] and [`Extents::overdue`] are
//! for telling again and for losing patience.

use model::planted::{self, Bug};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::msg::extent::ExtentMode;

/// Blocking callbacks of one object in [`WINDOW_NS`] that make it contended.
const CONTENDED_BLOCKS: usize = 16;
const WINDOW_NS: u64 = 1_000_000_000;
/// For so long a contended object gives no locks to those who can do without.
const CONTENDED_NS: u64 = 2_000_000_000;
/// After so many blocking callbacks in the window locks grow only a little.
const NARROW_BLOCKS: usize = 4;
/// What a lock may grow by then, in bytes.
const NARROW_GROWTH: u64 = 32 << 20;
/// Locks of one client, held and waiting.
const LOCKS_PER_CLIENT_MAX: usize = model::limits::LOCKS_PER_CLIENT_MAX;

/// Who has or wants a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who<C> {
    /// A client, and the lock's id of its own choice.
    Client(C, u64),
    /// A request that the server executes, by ticket.
    Server(u64),
}

/// What to tell whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<O, C> {
    /// The client must give the lock back.
    Block { client: C, object: O, id: u64 },
    /// What waited is granted.
    Granted { who: Who<C>, object: O },
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Bytes `start..=end`.
    Granted {
        start: u64,
        end: u64,
    },
    Waits,
    Contended,
    /// The client has too many.
    Refused,
}

fn told(start: u64, end: u64) -> Answer {
    if planted::on(Bug::GrantTooWide) {
        return Answer::Granted { start: 0, end: u64::MAX };
    }
    Answer::Granted { start, end }
}

/// One client's request.
#[derive(Clone, Copy, Debug)]
pub struct Request<O, C> {
    pub client: C,
    pub object: O,
    pub id: u64,
    pub mode: ExtentMode,
    /// Inclusive.
    pub start: u64,
    pub end: u64,
    /// Also on a contended object.
    pub force: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lock<C> {
    who: Who<C>,
    mode: ExtentMode,
    start: u64,
    end: u64,
    /// Told to give way at this time, or heard of since.
    blocked: Option<u64>,
}

impl<C: Copy + Ord> Lock<C> {
    /// Whether the two could not be held together if they overlapped.
    fn rivals(&self, o: &Lock<C>) -> bool {
        let same = match (self.who, o.who) {
            (Who::Client(a, _), Who::Client(b, _)) => a == b,
            _ => false,
        };
        !same
            && match (self.mode, o.mode) {
                (ExtentMode::Read, ExtentMode::Read) => false,
                (ExtentMode::Group(a), ExtentMode::Group(b)) => a != b && !planted::on(Bug::GroupsMixed),
                _ => true,
            }
    }

    fn overlaps(&self, o: &Lock<C>) -> bool {
        self.start <= o.end && o.start <= self.end
    }

    fn conflicts(&self, o: &Lock<C>) -> bool {
        self.overlaps(o) && self.rivals(o)
    }
}

#[derive(Debug)]
struct OfObject<C> {
    granted: Vec<Lock<C>>,
    waiting: VecDeque<Lock<C>>,
    /// When blocking callbacks went out lately.
    blocks: VecDeque<u64>,
    contended_until: u64,
}

impl<C> Default for OfObject<C> {
    fn default() -> OfObject<C> {
        OfObject {
            granted: Vec::new(),
            waiting: VecDeque::new(),
            blocks: VecDeque::new(),
            contended_until: 0,
        }
    }
}

impl<C: Copy + Ord> OfObject<C> {
    fn note_block(&mut self, now: u64) {
        self.blocks.push_back(now);
        while self.blocks.front().is_some_and(|t| t.saturating_add(WINDOW_NS) < now) {
            self.blocks.pop_front();
        }
        if self.blocks.len() >= CONTENDED_BLOCKS {
            self.contended_until = now.saturating_add(CONTENDED_NS);
            self.blocks.clear();
        }
        assert!(self.blocks.len() < CONTENDED_BLOCKS, "an object remembers a bounded number of callbacks");
    }

    /// The largest range around `l` that conflicts with nobody.
    fn grown(&self, l: &Lock<C>) -> (u64, u64) {
        if planted::on(Bug::GrantTooWide) {
            return (l.start, l.end); // and tells more
        }
        let (mut start, mut end) = (0, u64::MAX);
        if self.blocks.len() >= NARROW_BLOCKS {
            (start, end) = (l.start, l.end.saturating_add(NARROW_GROWTH));
        }
        for o in self.granted.iter().chain(&self.waiting).filter(|o| o.who != l.who && o.rivals(l)) {
            if o.end < l.start {
                start = start.max(o.end + 1);
            } else if o.start > l.end {
                end = end.min(o.start - 1);
            } else {
                return (l.start, l.end); // somebody waits for this very range
            }
        }
        (start, end)
    }

    /// Whether a lock can be granted with `ahead` of those who wait before it. Who joins a group that has its
    /// lock does not wait behind those who wait for the group's end: its members may wait for each other.
    fn is_free(&self, l: &Lock<C>, ahead: usize) -> bool {
        let joins = matches!(l.mode, ExtentMode::Group(_))
            && self.granted.iter().any(|g| g.mode == l.mode && g.overlaps(l));
        !self.granted.iter().any(|g| g.conflicts(l))
            && (joins || !self.waiting.iter().take(ahead).any(|w| w.conflicts(l)))
    }

    /// Grants what can be granted, in order, and tells who stands in the way of the rest.
    fn advance<O: Copy>(&mut self, object: O, now: u64, out: &mut Vec<Event<O, C>>) {
        let mut i = 0;
        while i < self.waiting.len() {
            let l = self.waiting[i];
            if self.is_free(&l, i) {
                self.waiting.remove(i);
                self.grant(l);
                out.push(Event::Granted { who: l.who, object });
                // Those before it do not stand in its way, but it may stand in theirs.
                i = if matches!(l.mode, ExtentMode::Group(_)) { 0 } else { i };
            } else {
                self.block(object, &l, now, out);
                i += 1;
            }
        }
    }

    fn grant(&mut self, mut l: Lock<C>) -> (u64, u64) {
        let asked = (l.start, l.end);
        if matches!(l.who, Who::Client(..)) {
            (l.start, l.end) = self.grown(&l);
        }
        assert!(l.start <= asked.0 && asked.1 <= l.end, "a lock grows around what was asked for");
        assert!(
            !self.granted.iter().any(|g| g.conflicts(&l)),
            "locks that are held beside each other are apart"
        );
        self.granted.push(l);
        (l.start, l.end)
    }

    fn block<O: Copy>(&mut self, object: O, l: &Lock<C>, now: u64, out: &mut Vec<Event<O, C>>) {
        let mut told = 0;
        for g in &mut self.granted {
            if let Who::Client(client, id) = g.who
                && g.blocked.is_none()
                && g.conflicts(l)
            {
                g.blocked = Some(now);
                told += 1;
                out.push(Event::Block { client, object, id });
            }
        }
        for _ in 0..told {
            self.note_block(now);
        }
    }

    /// Nothing left that anybody needs to remember.
    fn is_over(&self, now: u64) -> bool {
        self.granted.is_empty()
            && self.waiting.is_empty()
            && self.contended_until <= now
            && self.blocks.back().is_none_or(|t| t.saturating_add(WINDOW_NS) < now)
    }
}

/// All extent locks of a target. `O` names an object, `C` a client. Times are nanoseconds of one clock.
#[derive(Debug)]
pub struct Extents<O, C> {
    objects: BTreeMap<O, OfObject<C>>,
    of_client: BTreeMap<C, BTreeSet<(O, u64)>>,
    next_ticket: u64,
    /// Objects with locks that must be given back, and perhaps others.
    blocked: BTreeSet<O>,
    /// Objects without locks that are remembered for their contention.
    idle: usize,
}

impl<O: Copy + Ord, C: Copy + Ord> Default for Extents<O, C> {
    fn default() -> Self {
        Extents {
            objects: BTreeMap::new(),
            of_client: BTreeMap::new(),
            next_ticket: 1,
            blocked: BTreeSet::new(),
            idle: 0,
        }
    }
}

/// Objects that are looked at for a client that was told to give way.
const BLOCKED_SEEN: usize = 1000;

/// Objects remembered for their contention only; more are forgotten together.
const IDLE_MAX: usize = 10_000;

impl<O: Copy + Ord, C: Copy + Ord> Extents<O, C> {
    /// A client asks; asking again with the same id is harmless.
    pub fn enqueue(&mut self, now: u64, r: &Request<O, C>) -> (Answer, Vec<Event<O, C>>) {
        assert!(r.start <= r.end, "checked where it came in");
        let who = Who::Client(r.client, r.id);
        let known = self.of_client.entry(r.client).or_default();
        let obj = self.objects.entry(r.object).or_default();
        let mut out = Vec::new();
        if known.contains(&(r.object, r.id)) {
            let held = obj.granted.iter().find(|g| g.who == who);
            let waits = || obj.waiting.iter().any(|w| w.who == who);
            assert!(held.is_some() || waits(), "a client's lock is one that it holds or waits for");
            let answer = held.map_or(Answer::Waits, |g| told(g.start, g.end));
            return (answer, out);
        }
        let lock = Lock { who, mode: r.mode, start: r.start, end: r.end, blocked: None };
        let busy = !obj.is_free(&lock, usize::MAX);
        let answer = if known.len() >= LOCKS_PER_CLIENT_MAX {
            Answer::Refused
        } else if !r.force && now < obj.contended_until {
            Answer::Contended
        } else {
            known.insert((r.object, r.id));
            assert!(known.len() <= LOCKS_PER_CLIENT_MAX, "a client's locks are bounded");
            if busy {
                obj.waiting.push_back(lock);
                obj.advance(r.object, now, &mut out);
                Answer::Waits
            } else {
                let (start, end) = obj.grant(lock);
                // It may have joined a group while somebody waits for the group's end.
                if matches!(r.mode, ExtentMode::Group(_)) {
                    obj.advance(r.object, now, &mut out);
                }
                told(start, end)
            }
        };
        if known.is_empty() {
            self.of_client.remove(&r.client);
        }
        self.note(&out);
        self.forget(r.object, now);
        (answer, out)
    }

    /// A request without a lock begins. True: at once; otherwise [`Event::Granted`] says when. End it with
    /// [`Extents::server_unlock`], also when it waited in vain.
    pub fn server_lock(
        &mut self,
        now: u64,
        object: O,
        mode: ExtentMode,
        start: u64,
        end: u64,
    ) -> (u64, bool, Vec<Event<O, C>>) {
        assert!(start <= end, "checked where it came in");
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let obj = self.objects.entry(object).or_default();
        let lock = Lock { who: Who::Server(ticket), mode, start, end, blocked: None };
        let mut out = Vec::new();
        let busy = !obj.is_free(&lock, usize::MAX);
        if busy {
            obj.waiting.push_back(lock);
            obj.advance(object, now, &mut out);
        } else {
            obj.grant(lock);
        }
        self.note(&out);
        (ticket, !busy, out)
    }

    pub fn server_unlock(&mut self, now: u64, object: O, ticket: u64) -> Vec<Event<O, C>> {
        self.remove(now, object, Who::Server(ticket))
    }

    /// A client gives a lock back, or stops waiting for it.
    pub fn cancel(&mut self, now: u64, client: C, object: O, id: u64) -> Vec<Event<O, C>> {
        if let Some(known) = self.of_client.get_mut(&client) {
            known.remove(&(object, id));
            if known.is_empty() {
                self.of_client.remove(&client);
            }
        }
        self.remove(now, object, Who::Client(client, id))
    }

    /// The client is gone for good.
    pub fn client_gone(&mut self, now: u64, client: C) -> Vec<Event<O, C>> {
        let mut out = Vec::new();
        let all = self.of_client.remove(&client).unwrap_or_default();
        for object in all.into_iter().map(|(object, _)| object).collect::<BTreeSet<O>>() {
            out.extend(self.remove_if(now, object, |w| matches!(w, Who::Client(c, _) if c == client)));
        }
        out
    }

    fn remove(&mut self, now: u64, object: O, who: Who<C>) -> Vec<Event<O, C>> {
        self.remove_if(now, object, |w| w == who)
    }

    fn remove_if(&mut self, now: u64, object: O, goes: impl Fn(Who<C>) -> bool) -> Vec<Event<O, C>> {
        let mut out = Vec::new();
        if let Some(obj) = self.objects.get_mut(&object) {
            obj.granted.retain(|l| !goes(l.who));
            obj.waiting.retain(|l| !goes(l.who));
            obj.advance(object, now, &mut out);
        }
        self.note(&out);
        self.forget(object, now);
        out
    }

    fn forget(&mut self, object: O, now: u64) {
        let Some(o) = self.objects.get(&object) else { return };
        if o.is_over(now) {
            self.objects.remove(&object);
        } else if o.granted.is_empty() && o.waiting.is_empty() {
            self.idle += 1;
            if self.idle > IDLE_MAX {
                self.idle = 0;
                self.objects.retain(|_, o| !(o.granted.is_empty() && o.waiting.is_empty()));
            }
            assert!(self.idle <= IDLE_MAX, "objects without locks are remembered in bounded numbers");
        }
    }

    /// A client had this lock before the server restarted. False if somebody else has it by now.
    pub fn reclaim(&mut self, r: &Request<O, C>) -> bool {
        let who = Who::Client(r.client, r.id);
        if self.knows(r.client, r.object, r.id) {
            return true;
        }
        let lock = Lock { who, mode: r.mode, start: r.start, end: r.end, blocked: None };
        let held = self.of_client.get(&r.client).map_or(0, BTreeSet::len);
        let taken = self.objects.get(&r.object).is_some_and(|o| o.granted.iter().any(|g| g.conflicts(&lock)));
        let fits = r.start <= r.end && held < LOCKS_PER_CLIENT_MAX && !taken;
        // Entries are made for what is kept only: nothing would ever remove those of a refused reclaim.
        if fits {
            self.of_client.entry(r.client).or_default().insert((r.object, r.id));
            self.objects.entry(r.object).or_default().granted.push(lock);
        }
        fits
    }

    /// Whether the client holds this lock, and it covers `start..=end` for writing or reading.
    pub fn covers(&self, client: C, object: O, id: u64, write: bool, start: u64, end: u64) -> bool {
        self.objects.get(&object).is_some_and(|o| {
            o.granted.iter().any(|g| {
                g.who == Who::Client(client, id)
                    && !(write && g.mode == ExtentMode::Read)
                    && g.start <= start
                    && end <= g.end
            })
        })
    }

    /// Whether the client holds or waits for this lock.
    pub fn knows(&self, client: C, object: O, id: u64) -> bool {
        self.of_client.get(&client).is_some_and(|k| k.contains(&(object, id)))
    }

    /// Locks under which other clients may keep changes of the object.
    pub fn writers(&self, object: O, except: C) -> impl Iterator<Item = (C, u64)> {
        let of = move |g: &Lock<C>| match g.who {
            Who::Client(c, id) if c != except && g.mode != ExtentMode::Read => Some((c, id)),
            _ => None,
        };
        self.objects.get(&object).into_iter().flat_map(|o| &o.granted).filter_map(of)
    }

    /// A sign that the client works at giving the lock back: its time starts anew.
    pub fn touch(&mut self, now: u64, client: C, object: O, id: u64) {
        let Some(o) = self.objects.get_mut(&object) else { return };
        for g in o.granted.iter_mut().filter(|g| g.who == Who::Client(client, id)) {
            if g.blocked.is_some() {
                g.blocked = Some(now);
            }
        }
    }

    /// What a client was told to give back and has not. Its time starts anew.
    pub fn outstanding(&mut self, now: u64, client: C) -> Vec<(O, u64)> {
        let mut out = Vec::new();
        for &(object, id) in self.of_client.get(&client).into_iter().flatten() {
            let Some(o) = self.objects.get_mut(&object) else { continue };
            for g in o.granted.iter_mut().filter(|g| g.who == Who::Client(client, id)) {
                if g.blocked.is_some() {
                    g.blocked = Some(now);
                    out.push((object, id));
                }
            }
        }
        out
    }

    /// Clients that were told to give way before `limit` and did not; locks of groups may be kept.
    pub fn overdue(&mut self, limit: u64) -> BTreeSet<C> {
        let mut out = BTreeSet::new();
        let objects = &self.objects;
        self.blocked.retain(|object| {
            let mut any = false;
            for g in objects.get(object).into_iter().flat_map(|o| &o.granted) {
                if let (Who::Client(c, _), Some(t)) = (g.who, g.blocked) {
                    any = true;
                    // A group's lock is its users', who take the time that they take.
                    if t < limit && !matches!(g.mode, ExtentMode::Group(_)) {
                        out.insert(c);
                    }
                }
            }
            any
        });
        out
    }

    /// Everybody's time starts anew.
    pub fn excuse(&mut self, now: u64) {
        for object in &self.blocked {
            for g in self.objects.get_mut(object).into_iter().flat_map(|o| &mut o.granted) {
                if g.blocked.is_some() {
                    g.blocked = Some(now);
                }
            }
        }
    }

    /// Who was told to give way and has not.
    pub fn blocked(&self) -> Vec<(C, O, u64)> {
        let mut out = Vec::new();
        for object in &self.blocked {
            for g in self.objects.get(object).into_iter().flat_map(|o| &o.granted) {
                if let (Who::Client(c, id), Some(_)) = (g.who, g.blocked) {
                    out.push((c, *object, id));
                }
            }
        }
        out
    }

    /// Whether a client was told to give way somewhere and has not, as far as a short look shows.
    pub fn is_blocked(&self, client: C) -> bool {
        let objects = self.blocked.iter().take(BLOCKED_SEEN).filter_map(|o| self.objects.get(o));
        let held = objects.flat_map(|o| &o.granted);
        let mut asked = held.filter(|g| g.blocked.is_some());
        asked.any(|g| matches!(g.who, Who::Client(c, _) if c == client))
    }

    /// Whether anybody was told to give way and, as far as is known, has not.
    pub fn any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn note(&mut self, events: &[Event<O, C>]) {
        for e in events {
            if let Event::Block { object, .. } = e {
                self.blocked.insert(*object);
            }
        }
    }

    /// Every holder of the object must give way: it is gone.
    pub fn block_all(&mut self, now: u64, object: O) -> Vec<Event<O, C>> {
        let mut out = Vec::new();
        if let Some(o) = self.objects.get_mut(&object) {
            for g in &mut o.granted {
                if let Who::Client(client, id) = g.who
                    && g.blocked.is_none()
                {
                    g.blocked = Some(now);
                    out.push(Event::Block { client, object, id });
                }
            }
        }
        self.note(&out);
        out
    }

    /// Locks that clients hold for a group: object, client, group, and how many others wait for the object.
    pub fn groups(&self) -> Vec<(O, C, u64, usize)> {
        let of = |(object, o): (&O, &OfObject<C>)| {
            let (object, waiting) = (*object, o.waiting.len());
            let held = o.granted.iter().filter_map(move |g| match (g.who, g.mode) {
                (Who::Client(c, _), ExtentMode::Group(gid)) => Some((object, c, gid, waiting)),
                _ => None,
            });
            held.collect::<Vec<_>>()
        };
        self.objects.iter().flat_map(of).collect()
    }

    /// Locks held and waiting.
    pub fn count(&self) -> (usize, usize) {
        let held = self.objects.values().map(|o| o.granted.len()).sum();
        (held, self.objects.values().map(|o| o.waiting.len()).sum())
    }
}

#[cfg(test)]
#[path = "extent_tests.rs"]
mod tests;
