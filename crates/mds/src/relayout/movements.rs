//! The one queue of a metadata target's movements: so many run at once (`mdt.*.movements_max`), in the order
//! in which they came, and copy so many bytes a second together (`mdt.*.movements_bandwidth`).
//!
//! Nobody waits here for good: a queue that is full says so, and a movement whose client gave it up, or went
//! away, ends where it is.

use super::yielding::Yielding;
use crate::mdt::Mdt;
use model::mutex::Mutex;
use model::{Errno, Fid, Layout, Timestamp};
use rpc::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::migrate::{Migrate, Pace};
use world::sync::watch;
use world::{Either, Instant, select};

/// `movements_max`.
pub const MOVEMENTS_DEFAULT: u64 = 4;
/// Largest `movements_max`.
pub const MOVEMENTS_MAX: u64 = 64;
/// Movements that wait or run, at most.
const PLACES_MAX: usize = 1024;
/// Who is slowed down looks again after so long whether it is still wanted.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// All movements of a metadata target.
pub struct Movements {
    places: Mutex<Places>,
    /// `movements_max`.
    at_once: AtomicU64,
    /// `movements_bandwidth`, MiB/s; 0: no bound.
    pub bandwidth_mb: AtomicU64,
    spent: Spent,
    /// Of those that yield.
    yielding: Yielding,
    spent_yielding: Spent,
    /// Counts what may let somebody go on: one ended, was withdrawn, or more may run.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Places {
    last: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, Arc<Movement>>,
    running: usize,
}

impl Default for Movements {
    fn default() -> Movements {
        Movements {
            places: Mutex::default(),
            at_once: AtomicU64::new(MOVEMENTS_DEFAULT),
            bandwidth_mb: AtomicU64::new(0),
            spent: Spent::default(),
            yielding: Yielding::default(),
            spent_yielding: Spent::default(),
            changed: watch::Sender::new(0),
        }
    }
}

/// How far a movement is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// For its turn.
    Waiting,
    /// While the file is used.
    Copying,
    /// Users of the file wait.
    Switching,
}

/// One file that is moved, or waits for that.
pub struct Movement {
    fid: Fid,
    client: ClientId,
    ticket: u64,
    pace: Pace,
    /// Nobody asked for it: it goes as fast as servers have nothing else to do.
    yields: bool,
    since: Timestamp,
    /// Why it ends, if it does: the number of an errno; 0: it goes on.
    ended: AtomicI32,
    /// Bytes, of the copy that is under way.
    done: AtomicU64,
    total: AtomicU64,
    spent: Spent,
    shown: Mutex<Shown>,
}

struct Shown {
    state: State,
    /// Indices of OSTs.
    from: BTreeSet<u16>,
    to: BTreeSet<u16>,
}

/// When what was copied so far is paid for, at so many bytes a second.
#[derive(Default)]
struct Spent(Mutex<Instant>);

impl Spent {
    /// When `bytes` more may be copied.
    fn take(&self, now: Instant, bytes: u64, per_second: u64) -> Instant {
        if per_second == 0 {
            return now;
        }
        let mut free = self.0.lock();
        let start = (*free).max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second);
        *free = start.plus(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        start
    }
}

impl Movements {
    pub fn at_once(&self) -> u64 {
        self.at_once.load(Relaxed)
    }

    pub fn set_at_once(&self, n: u64) {
        assert!((1..=MOVEMENTS_MAX).contains(&n), "a parameter's value is within its bounds");
        self.at_once.store(n, Relaxed);
        self.something_changed();
    }

    /// Bytes that movements in the background may copy in a second now.
    pub fn background_rate(&self) -> u64 {
        self.yielding.rate()
    }

    fn something_changed(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Ends the movement that a client knows by this number. Whether there was one.
    pub fn withdraw(&self, client: ClientId, ticket: u64) -> bool {
        self.end_where(Errno::EINTR, |m| m.client == client && m.ticket == ticket)
    }

    /// Nobody waits for this client's movements any more.
    pub fn client_gone(&self, client: ClientId) {
        self.end_where(Errno::ENOTCONN, |m| m.client == client);
    }

    fn end_where(&self, why: Errno, chosen: impl Fn(&Movement) -> bool) -> bool {
        let mut any = false;
        for m in self.places.lock().all.values().filter(|m| chosen(m)) {
            m.ended.store(why.0, Relaxed);
            any = true;
        }
        if any {
            self.something_changed();
        }
        any
    }

    /// All of them, a line each, in the order in which they came.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for m in self.places.lock().all.values() {
            let _ = writeln!(out, "{m}");
        }
        out
    }

    /// Lets the oldest that waits run, if this is the one and one more may run.
    fn start(&self, number: u64) -> bool {
        let mut p = self.places.lock();
        let oldest = p.all.iter().find(|(_, m)| m.state() == State::Waiting && m.check().is_ok());
        if p.running as u64 >= self.at_once() || oldest.is_none_or(|(n, _)| *n != number) {
            return false;
        }
        p.all[&number].shown.lock().state = State::Copying;
        p.running += 1;
        assert!(p.running as u64 <= MOVEMENTS_MAX, "so many run at once and no more");
        true
    }
}

impl std::fmt::Display for Movement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |osts: &BTreeSet<u16>| osts.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let s = self.shown.lock();
        let state = format!("{:?}", s.state).to_lowercase();
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        let (from, to, since) = (list(&s.from), list(&s.to), self.since.sec);
        let fid = self.fid;
        write!(f, "fid={fid} state={state} from={from} to={to} done={done} total={total} since={since} ")?;
        if self.yields { write!(f, "client=rebalance") } else { write!(f, "client={}", self.client) }
    }
}

impl Movement {
    fn state(&self) -> State {
        self.shown.lock().state
    }

    /// `EINTR` if its caller gave it up, `ENOTCONN` if its client went away.
    pub(super) fn check(&self) -> Result<(), Errno> {
        match self.ended.load(Relaxed) {
            0 => Ok(()),
            why => Err(Errno(why)),
        }
    }

    pub(super) fn is_non_block(&self) -> bool {
        self.pace.non_block
    }

    /// Whether there is to be no other attempt after one that ended like this.
    pub(super) fn is_over_with(&self, e: Errno) -> bool {
        self.check().is_err() || (self.pace.non_block && e == Errno::EBUSY)
    }

    /// An attempt begins.
    pub(super) fn begins(&self, from: &Layout, to: &Layout) {
        let osts = |l: &Layout| l.objects().map(|o| o.ost).collect();
        assert!(self.state() != State::Waiting, "{} is moved when it has its turn", self.fid);
        *self.shown.lock() = Shown { state: State::Copying, from: osts(from), to: osts(to) };
        self.done.store(0, Relaxed);
    }

    /// A copy of so many bytes begins.
    pub(super) fn copies(&self, total: u64) {
        self.total.store(total, Relaxed);
        self.done.store(0, Relaxed);
    }

    pub(super) fn copied(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// From now on users of the file wait.
    pub(super) fn switches(&self) {
        self.shown.lock().state = State::Switching;
    }
}

/// A place in the queue, as long as it lives.
pub(super) struct Place {
    mdt: Arc<Mdt>,
    number: u64,
    pub movement: Arc<Movement>,
}

impl Place {
    /// `EAGAIN` if too many wait.
    pub fn take(mdt: &Arc<Mdt>, client: ClientId, m: &Migrate) -> Result<Place, Errno> {
        Place::of(mdt, (client, m.ticket), m.fid, (m.pace, false))
    }

    /// As [`Place::take`], for the target itself: whoever uses the file goes first.
    pub fn in_background(mdt: &Arc<Mdt>, fid: Fid) -> Result<Place, Errno> {
        let pace = Pace { non_block: true, ..Pace::default() };
        Place::of(mdt, (ClientId([0; 16]), 0), fid, (pace, true))
    }

    fn of(
        mdt: &Arc<Mdt>,
        (client, ticket): (ClientId, u64),
        fid: Fid,
        (pace, yields): (Pace, bool),
    ) -> Result<Place, Errno> {
        // Who yields takes nobody's turn.
        let state = if yields { State::Copying } else { State::Waiting };
        let movement = Arc::new(Movement {
            fid,
            client,
            ticket,
            pace,
            yields,
            since: mdt.world.wall(),
            ended: AtomicI32::new(0),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            spent: Spent::default(),
            shown: Mutex::new(Shown { state, from: BTreeSet::new(), to: BTreeSet::new() }),
        });
        let mut p = mdt.shared.movements.places.lock();
        if p.all.len() >= PLACES_MAX {
            return Err(Errno::EAGAIN);
        }
        p.last += 1;
        let number = p.last;
        p.all.insert(number, movement.clone());
        assert!(p.all.len() <= PLACES_MAX, "there are so many places and no more");
        Ok(Place { mdt: mdt.clone(), number, movement })
    }

    /// Waits for its turn. Errors as [`Movement::check`] has them, `ESHUTDOWN` when the target stops.
    pub async fn turn(&self) -> Result<(), Errno> {
        let movements = &self.mdt.shared.movements;
        let mut changed = movements.changed.subscribe();
        loop {
            self.movement.check()?;
            if self.movement.yields || movements.start(self.number) {
                return Ok(());
            }
            if let Either::Right(()) = select(changed.changed(), self.mdt.stop.begun()).await {
                return Err(Errno::ESHUTDOWN);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let movements = &self.mdt.shared.movements;
        let mut p = movements.places.lock();
        let m = p.all.remove(&self.number).expect("it has its place as long as it lives");
        let counted = m.state() != State::Waiting && !m.yields;
        assert!(!counted || p.running > 0, "what runs is counted");
        p.running -= usize::from(counted);
        drop(p);
        movements.something_changed();
    }
}

/// Waits until a movement may copy `bytes` more. `each` is called as long as it waits, from time to time.
/// Errors as [`Movement::check`] has them, `ESHUTDOWN` when the target stops.
pub(super) async fn pace(mdt: &Mdt, m: &Movement, bytes: u64, each: impl Fn()) -> Result<(), Errno> {
    let movements = &mdt.shared.movements;
    let now = mdt.world.now();
    let all = movements.bandwidth_mb.load(Relaxed) << 20;
    let own = if m.yields {
        movements.spent_yielding.take(now, bytes, movements.yielding.rate())
    } else {
        m.spent.take(now, bytes, m.pace.bandwidth_bytes)
    };
    let start = movements.spent.take(now, bytes, all).max(own);
    loop {
        m.check()?;
        let left = start.since(mdt.world.now());
        if left.is_zero() {
            return Ok(());
        }
        each();
        if mdt.stop.pause(left.min(LOOK_AGAIN)).await {
            return Err(Errno::ESHUTDOWN);
        }
    }
}

/// A piece of a movement is copied that was begun at `start`.
pub(super) fn took(mdt: &Mdt, m: &Movement, start: Instant) {
    if m.yields {
        let now = mdt.world.now();
        mdt.shared.movements.yielding.took(now, now.since(start));
    }
}

/// Waits until nobody wants a movement any more.
pub(super) async fn ended(mdt: &Mdt, m: &Movement) {
    let mut changed = mdt.shared.movements.changed.subscribe();
    while m.check().is_ok() {
        // The sender lives as long as the target.
        let _ = changed.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{A, B, Rig};
    use model::LayoutSpec;

    fn asked(ticket: u64) -> Migrate {
        let spec = LayoutSpec { stripe_count: 1, ..LayoutSpec::default() };
        Migrate { fid: Fid::new(9, 9, 0), spec, ticket, pace: Pace::default() }
    }

    #[test]
    fn a_full_queue_says_so_and_each_end_makes_room() {
        let rig = Rig::new();
        let take = |client, ticket| Place::take(&rig.mdt, client, &asked(ticket));
        let mut all: Vec<Place> = (0..PLACES_MAX as u64).map(|n| take(A, n).unwrap()).collect();
        assert_eq!(take(A, 5000).err(), Some(Errno::EAGAIN));
        assert_eq!(rig.mdt.get_params("mdt.*.movements")[0].1.lines().count(), PLACES_MAX);
        drop(all.pop());
        assert!(take(B, 5000).is_ok());
        drop(all);
        assert_eq!(rig.mdt.get_params("mdt.*.movements")[0].1, "");
    }

    #[test]
    fn turns_go_in_order_and_past_those_that_were_given_up() {
        let rig = Rig::new();
        let movements = &rig.mdt.shared.movements;
        let take = |client, ticket| Place::take(&rig.mdt, client, &asked(ticket)).unwrap();
        let [a, b, c, d] = [take(A, 1), take(A, 2), take(B, 1), take(A, 3)];
        movements.set_at_once(1);
        assert!(!movements.start(b.number) && movements.start(a.number));
        assert!(!movements.start(b.number), "one at a time");
        assert!(movements.withdraw(A, 2) && !movements.withdraw(A, 9) && !movements.withdraw(B, 3));
        assert_eq!(world::block_on(b.turn()), Err(Errno::EINTR));
        drop(a);
        assert!(!movements.start(d.number) && movements.start(c.number));
        movements.client_gone(B);
        assert_eq!(c.movement.check(), Err(Errno::ENOTCONN), "nobody waits for it");
        movements.set_at_once(2);
        assert_eq!(world::block_on(d.turn()), Ok(()));
        drop((b, c, d));
        assert_eq!(movements.places.lock().running, 0);
    }

    #[test]
    fn bytes_are_paid_for_one_after_the_other() {
        let (spent, now) = (Spent::default(), Instant(5_000_000_000));
        assert_eq!(spent.take(now, 100, 0), now, "no bound");
        assert_eq!(spent.take(now, 1 << 20, 1 << 20), now);
        assert_eq!(spent.take(now, 1 << 19, 1 << 20), now.plus(Duration::from_secs(1)));
        assert_eq!(spent.take(now, 1, 1 << 20), now.plus(Duration::from_millis(1500)));
        let later = now.plus(Duration::from_secs(60));
        assert_eq!(spent.take(later, 1, 1 << 20), later, "what was not used is gone");
    }
}
