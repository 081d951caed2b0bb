//! After a restart of a target: every client that was known comes back, says what it had and sends again what
//! the crash took, before anybody's new requests are served; who does not come in time is evicted.
//!
//! The same for every kind of target. What a target adds is in [`Recover`].
//!
//! The window's end is adaptive ([`Limits`]): it is put off while clients arrive, and for those that are back
//! while they go on saying what they had; never behind `recovery_time_hard`. Whoever is back but not done by
//! then is evicted as well: served beside others before it has its locks again it would lose what it keeps,
//! and nobody would be told.

use super::{ClientId, Peers};
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use wire::Op;
use world::sync::watch;
use world::{BoxFuture, Either, Instant, World, select};

/// Default of the `recovery_time_soft` parameters, seconds.
pub const RECOVERY_TIME_DEFAULT_S: u64 = 15;
/// Default of the `recovery_time_hard` parameters, seconds.
pub const RECOVERY_HARD_DEFAULT_S: u64 = 90;
/// While clients arrive, the others are awaited for this part of `recovery_time_soft` longer: what kept them
/// away ended a moment ago.
const ARRIVALS_PART: u32 = 3;
/// How often the window's end is looked at (the parameter may be changed meanwhile).
const TICK: Duration = Duration::from_millis(250);

/// How far a target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Known clients are awaited; only what belongs to their recovery is executed.
    Recovering,
    Serving,
    Stopped,
}

/// A client that was known when the target started.
#[derive(Clone, Copy, Default, Debug)]
struct Member {
    /// Connected since this start of the target.
    connected: bool,
    /// Has nothing (more) to say about what it had before this start.
    done: bool,
    /// It connected but did not end in time, and is being evicted.
    given_up: bool,
}

/// For `recovery_status`.
#[derive(Default, Debug)]
struct Report {
    start: Timestamp,
    end: Timestamp,
    clients: usize,
    evicted: usize,
    /// Requests of before the restart that were done again.
    replayed: u64,
    /// New requests that wait.
    queued: usize,
}

#[derive(Default)]
struct RecoveryState {
    members: BTreeMap<ClientId, Member>,
    report: Report,
    /// From the start to the next time that clients are given up.
    window: Duration,
    /// From the start to the last client that came back, and to the last thing that one of them said or did
    /// again.
    arrived: Option<Duration>,
    progress: Option<Duration>,
    /// An administrator wants it to end.
    aborted: bool,
    /// Clients that are about to depart: their requests wait for nothing here any more.
    leaving: BTreeSet<ClientId>,
}

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// So long they may rely on what they had: nobody is given up before.
    least: Duration,
    soft: Duration,
    hard: Duration,
}

/// From the start of the target: when clients that are missing are given up, and when those that are back but
/// not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ends {
    missing: Duration,
    slow: Duration,
}

impl Limits {
    fn ends(&self, arrived: Option<Duration>, progress: Option<Duration>) -> Ends {
        let soft = self.soft.max(self.least);
        // Two windows at least: one to come back, one to end.
        let hard = self.hard.max(soft * 2);
        let later = arrived.map_or(Duration::ZERO, |a| a + self.soft / ARRIVALS_PART);
        let missing = soft.max(later).min(hard);
        let slow = (missing + soft).max(progress.map_or(Duration::ZERO, |p| p + soft)).min(hard);
        assert!(missing >= self.least, "nobody is given up while he may rely on what he had");
        assert!(missing <= slow && slow <= hard, "who is back has longer than who is not, and not for ever");
        Ends { missing, slow }
    }
}

/// How far a recovery is, for `nacre status`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// Known when the target started.
    pub clients: usize,
    pub connected: usize,
    pub completed: usize,
    /// So long are missing clients awaited.
    pub seconds_left: u64,
}

/// What a target does in its recovery.
pub trait Recover: Send + Sync + 'static {
    fn recovery(&self) -> &Arc<Recovery>;
    /// `recovery_time_soft`: how long clients may take to come back, at least [`Peers::lease_life`]; asked
    /// for again and again.
    fn patience(&self) -> Duration;
    /// `recovery_time_hard`: clients that come or go on cannot put the end off for longer than that.
    fn hard_limit(&self) -> Duration;
    /// The target's clients. For their [`Peers::lease_life`] after the start one that does not come back may
    /// still rely on locks of the target's former life: nobody else is served before, whatever an
    /// administrator says.
    fn peers(&self) -> &Peers;
    /// Takes a client that never came back out of the tables, durably, unless it came after all: the target
    /// calls [`Recovery::give_up`] under whatever keeps clients from connecting meanwhile, and stops if that
    /// says no.
    fn evict_absent(self: Arc<Self>, client: ClientId) -> BoxFuture<()>;
    /// Nobody is awaited any more. Called once, also if there was nothing to recover.
    fn recovered(self: Arc<Self>) -> BoxFuture<()>;
}

/// One target's recovery window.
pub struct Recovery {
    world: World,
    /// `fsname-OST0000`, for messages.
    label: String,
    start: Instant,
    phase: watch::Sender<Phase>,
    state: Mutex<RecoveryState>,
}

/// A request that waits; no more when dropped.
struct Queued<'a>(&'a Recovery);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.lock().report.queued -= 1;
    }
}

impl Recovery {
    /// Waits for `known`; without any the target serves at once.
    pub fn new(world: &World, label: String, known: impl IntoIterator<Item = ClientId>) -> Arc<Recovery> {
        let members: BTreeMap<ClientId, Member> = known.into_iter().map(|c| (c, Member::default())).collect();
        let phase = if members.is_empty() { Phase::Serving } else { Phase::Recovering };
        let report = Report { start: world.wall(), clients: members.len(), ..Report::default() };
        if !members.is_empty() {
            let n = members.len();
            model::event!(
                INFO,
                RecoveryBegan,
                label,
                "{label}: waiting for {n} clients of before its restart"
            );
        }
        Arc::new(Recovery {
            world: world.clone(),
            label,
            start: world.now(),
            phase: watch::Sender::new(phase),
            state: Mutex::new(RecoveryState { members, report, ..RecoveryState::default() }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RecoveryState> {
        self.state.lock()
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Clients of before the restart are still awaited.
    pub fn recovering(&self) -> bool {
        self.phase() == Phase::Recovering
    }

    /// Whether a message is served while clients are awaited.
    fn always(op: Op) -> bool {
        op.verb().in_recovery || planted::on(Bug::NoRecoveryWindow)
    }

    /// Waits until requests of this kind may be served; replayed ones are part of the recovery. `ESHUTDOWN`
    /// once the target stops.
    pub async fn admitted(&self, client: ClientId, op: Op, replay: bool) -> Result<(), Errno> {
        // What a client that is not awaited says it had is looked at when those that are have theirs again.
        let foreign = op == Op::Reclaim && !self.is_member(client);
        let always = replay || (Recovery::always(op) && !foreign);
        let mut phase = self.phase.subscribe();
        let _queued = self.recovering().then(|| {
            let mut g = self.lock();
            if replay || op == Op::Reclaim {
                g.progress = Some(self.age());
            }
            let r = &mut g.report;
            r.replayed += u64::from(replay);
            r.queued += 1;
            Queued(self)
        });
        let ends = |p: &Phase| always || *p != Phase::Recovering || self.lock().leaving.contains(&client);
        let seen = phase.wait_for(ends).await.map(|p| *p);
        match seen {
            Ok(Phase::Stopped) | Err(_) => Err(Errno::ESHUTDOWN),
            // Its client is evicted, perhaps for what recovery waits for.
            Ok(Phase::Recovering) if !always => Err(Errno::ESHUTDOWN),
            Ok(p) => {
                assert!(always || p == Phase::Serving, "nothing new is served before recovery is over");
                Ok(())
            }
        }
    }

    /// A client connected. True if it is to say what it had, and then that this is all ([`Recovery::ended`]).
    pub fn connected(&self, client: ClientId) -> bool {
        let mut g = self.lock();
        let Some(m) = g.members.get_mut(&client) else { return false };
        let first = !std::mem::replace(&mut m.connected, true);
        let more = !m.done;
        if first {
            g.arrived = Some(self.age());
            g.progress = g.arrived;
        }
        more
    }

    /// Whether the client was known before this start, and has been since.
    pub fn is_member(&self, client: ClientId) -> bool {
        self.lock().members.contains_key(&client)
    }

    /// Whether the client has something left to say about what it had before this start.
    pub fn owes(&self, client: ClientId) -> bool {
        self.lock().members.get(&client).is_some_and(|m| m.connected && !m.done)
    }

    /// How long ago the target started.
    fn age(&self) -> Duration {
        self.world.now().since(self.start)
    }

    /// A client said all it had.
    pub fn ended(&self, client: ClientId) {
        if let Some(m) = self.lock().members.get_mut(&client) {
            m.done = true;
        }
        self.check();
    }

    /// A client is about to depart, which waits for its requests: those that wait here wait no longer.
    pub fn leaving(&self, client: ClientId) {
        if self.recovering() {
            self.lock().leaving.insert(client);
            // Nothing but another look of those that wait.
            self.phase.send_modify(|_| {});
        }
    }

    /// A client is gone for good and not waited for.
    pub fn departed(&self, client: ClientId) {
        let mut g = self.lock();
        let was = g.members.remove(&client);
        g.leaving.remove(&client);
        g.report.evicted += usize::from(was.is_some_and(|m| m.given_up));
        assert!(g.report.evicted <= g.report.clients, "only who was known is given up");
        drop(g);
        self.check();
    }

    /// No longer waits for a client that never connected; false if it is connected.
    pub fn give_up(&self, client: ClientId) -> bool {
        let mut g = self.lock();
        if g.members.get(&client).is_none_or(|m| m.connected) {
            return false;
        }
        g.members.remove(&client);
        g.report.evicted += 1;
        assert!(g.report.evicted <= g.report.clients, "only who was known is given up");
        true
    }

    /// `lctl abort_recovery`: clients that are missing, or have something left to say, are evicted as soon as
    /// they cannot rely on anything any more. No effect once all are back.
    pub fn abort(&self) {
        if self.recovering() {
            tracing::warn!(
                "{}: recovery is to end: missing clients are evicted, and those that are not done",
                self.label
            );
            self.lock().aborted = true;
        }
    }

    /// `None`: nobody is awaited.
    pub fn progress(&self) -> Option<Progress> {
        if !self.recovering() {
            return None;
        }
        let g = self.lock();
        let count = |f: fn(&Member) -> bool| g.members.values().filter(|m| f(m)).count();
        let left = g.window.saturating_sub(self.age());
        Some(Progress {
            clients: g.report.clients,
            connected: count(|m| m.connected),
            completed: count(|m| m.done),
            seconds_left: left.as_millis().div_ceil(1000) as u64,
        })
    }

    /// Requests that wait get `ESHUTDOWN`, and so does everything that comes later.
    pub fn stop(&self) {
        self.phase.send_replace(Phase::Stopped);
    }

    /// Ends recovery if nobody is missing any more.
    fn check(&self) {
        let mut g = self.lock();
        if g.members.values().any(|m| !m.done || m.given_up) {
            return;
        }
        g.report.end = self.world.wall();
        drop(g);
        let ends = self.phase.send_if_modified(|p| {
            let was = *p == Phase::Recovering;
            if was {
                *p = Phase::Serving;
            }
            was
        });
        if ends {
            self.tell_end();
        }
    }

    /// For the log.
    fn tell_end(&self) {
        let (label, g) = (&self.label, self.lock());
        let Report { clients, evicted, replayed, .. } = g.report;
        model::event!(
            INFO,
            RecoveryEnded,
            label,
            "{label}: recovery is over after {:.1} s: of {clients} clients {evicted} were evicted, {replayed} requests were done again",
            self.age().as_secs_f64()
        );
    }

    /// Runs a target's recovery to its end. To be spawned once when the target starts.
    pub async fn run<T: Recover>(target: Arc<T>) {
        let me = target.recovery().clone();
        let mut phase = me.phase.subscribe();
        loop {
            match me.phase() {
                Phase::Stopped => return,
                Phase::Serving => return target.recovered().await,
                Phase::Recovering => {}
            }
            let mut limits = Limits {
                least: target.peers().lease_life(),
                soft: target.patience(),
                hard: target.hard_limit(),
            };
            if planted::on(Bug::WindowClosedEarly) {
                limits = Limits { least: Duration::ZERO, soft: Duration::ZERO, hard: Duration::ZERO };
            }
            let ends = me.look(&limits);
            if me.age() >= ends.missing {
                me.close_window(&target, me.age() >= ends.slow).await;
            }
            let change = async { phase.wait_for(|p| *p != Phase::Recovering).await.is_ok() };
            if let Either::Left(false) = select(change, me.world.sleep(TICK)).await {
                return;
            }
        }
    }

    /// The ends as they are now.
    fn look(&self, limits: &Limits) -> Ends {
        let mut g = self.lock();
        let ends = match g.aborted {
            true => Ends { missing: limits.least, slow: limits.least },
            false => limits.ends(g.arrived, g.progress),
        };
        let missing = g.members.values().any(|m| !m.connected);
        g.window = if missing { ends.missing } else { ends.slow };
        ends
    }

    /// The time is up: clients that never connected are evicted. Those that did but are not done have more
    /// time; then (`all`) they are, too, and recovery ends when they have departed.
    async fn close_window<T: Recover>(&self, target: &Arc<T>, all: bool) {
        let missing: Vec<ClientId> = {
            let g = self.lock();
            g.members.iter().filter(|(_, m)| !m.connected).map(|(c, _)| *c).collect()
        };
        for client in missing {
            target.clone().evict_absent(client).await;
        }
        if all {
            self.give_up_slow(target.peers());
        }
        self.check();
    }

    /// Has clients evicted that are back but not done.
    fn give_up_slow(&self, peers: &Peers) {
        let slow: Vec<ClientId> = {
            let g = self.lock();
            g.members.iter().filter(|(_, m)| m.connected && !m.done && !m.given_up).map(|(c, _)| *c).collect()
        };
        for client in slow {
            let is_planted = planted::on(Bug::SlowServedBeside);
            if !is_planted && !peers.evict_slow(client) {
                continue;
            }
            if let Some(m) = self.lock().members.get_mut(&client) {
                (m.done, m.given_up) = (m.done || is_planted, !is_planted);
            }
            model::event!(
                WARN,
                RecoveryIncomplete,
                self.label,
                "{}: client {client} does not end its recovery in time: it is evicted",
                self.label
            );
        }
    }

    /// `recovery_status`, in Lustre's words. `last_transno`: newest durable transaction.
    pub fn status(&self, last_transno: u64) -> String {
        let progress = self.progress();
        let g = self.lock();
        let r = &g.report;
        if r.clients == 0 {
            return "status: INACTIVE\n".into();
        }
        let mut s = String::new();
        if let Some(p) = progress {
            let _ = writeln!(s, "status: RECOVERING\nrecovery_start: {}", r.start.sec);
            let _ = writeln!(s, "time_remaining: {}", p.seconds_left);
            let _ = writeln!(s, "connected_clients: {}/{}", p.connected, p.clients);
            let _ = writeln!(s, "req_replay_clients: {}", p.connected.saturating_sub(p.completed));
            let _ = writeln!(s, "completed_clients: {}\nevicted_clients: {}", p.completed, r.evicted);
            let _ = writeln!(s, "replayed_requests: {}\nqueued_requests: {}", r.replayed, r.queued);
        } else {
            let took = r.end.sec - r.start.sec;
            let _ =
                writeln!(s, "status: COMPLETE\nrecovery_start: {}\nrecovery_duration: {took}", r.start.sec);
            let _ = writeln!(s, "completed_clients: {}/{}", r.clients - r.evicted.min(r.clients), r.clients);
            let _ = writeln!(s, "replayed_requests: {}", r.replayed);
            let _ = writeln!(s, "last_transno: {last_transno}\nVBR: DISABLED\nIR: ENABLED");
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_end_is_put_off_while_clients_come_and_go_on() {
        let l = Limits { least: s(12), soft: s(15), hard: s(90) };
        let ends = |a, p| {
            let e = l.ends(a, p);
            (e.missing.as_secs(), e.slow.as_secs())
        };
        assert_eq!(ends(None, None), (15, 30));
        assert_eq!(ends(Some(s(3)), Some(s(3))), (15, 30), "who comes early changes nothing");
        assert_eq!(ends(Some(s(14)), Some(s(14))), (19, 34), "others may be on their way");
        assert_eq!(ends(Some(s(14)), Some(s(40))), (19, 55), "it goes on saying what it had");
        assert_eq!(ends(Some(s(89)), Some(s(200))), (90, 90), "not for ever");
    }

    #[test]
    fn the_least_time_is_kept_whatever_the_settings_say() {
        let l = Limits { least: s(12), soft: s(1), hard: s(1) };
        let e = l.ends(None, None);
        assert_eq!((e.missing, e.slow), (s(12), s(24)));
        let late = l.ends(Some(s(23)), Some(s(23)));
        assert_eq!((late.missing.as_secs(), late.slow), (23, s(24)));
    }
}
