//! After a restart of a target: every client that was known comes back, says what it had and sends again what
//! the crash took, before anybody's new requests are served; who does not come in time is evicted.
//!
//! The same for every kind of target. What a target adds is in [`Recover`].

use super::ClientId;
use model::planted::{self, Bug};
use model::{Errno, Timestamp};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::Op;
use world::sync::watch;
use world::{BoxFuture, Either, Instant, World, select};

/// Default of the `recovery_time_soft` parameters, seconds.
pub const RECOVERY_TIME_DEFAULT_S: u64 = 15;
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
    /// It connected but did not end in time: recovery ended without it. It may still say what it had.
    waived: bool,
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
struct State {
    members: BTreeMap<ClientId, Member>,
    report: Report,
    /// From the start to the next time that missing clients are given up.
    window: Duration,
    /// An administrator wants it to end.
    aborted: bool,
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
    /// `recovery_time_soft`: how long clients may take to come back, at least [`Recover::lease_life`]; asked for again
    /// and again.
    fn patience(&self) -> Duration;
    /// So long after the start a client that does not come back may still rely on locks of the target's former life
    /// ([`super::Peers::lease_life`]): nobody else is served before, whatever an administrator says.
    fn lease_life(&self) -> Duration;
    /// Takes a client that never came back out of the tables, durably, unless it came after all: the target calls
    /// [`Recovery::give_up`] under whatever keeps clients from connecting meanwhile, and stops if that says no.
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
    state: Mutex<State>,
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
        Arc::new(Recovery {
            world: world.clone(),
            label,
            start: world.now(),
            phase: watch::Sender::new(phase),
            state: Mutex::new(State { members, report, ..State::default() }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Clients of before the restart are still awaited.
    pub fn recovering(&self) -> bool {
        self.phase() == Phase::Recovering
    }

    /// Whether a message is served while clients are awaited: what belongs to a session's recovery, and what an
    /// administrator looks at.
    fn always(op: Op) -> bool {
        matches!(op, Op::Ping | Op::Disconnect | Op::Reclaim | Op::GetParam | Op::SetParam | Op::Statfs)
            || planted::on(Bug::NoRecoveryWindow)
    }

    /// Waits until requests of this kind may be served; replayed ones are part of the recovery. `ESHUTDOWN` once the
    /// target stops.
    pub async fn admitted(&self, op: Op, replay: bool) -> Result<(), Errno> {
        let always = replay || Recovery::always(op);
        let mut phase = self.phase.subscribe();
        let _queued = self.recovering().then(|| {
            let r = &mut self.lock().report;
            r.replayed += u64::from(replay);
            r.queued += 1;
            Queued(self)
        });
        let seen = phase.wait_for(|p| always || *p != Phase::Recovering).await.map(|p| *p);
        match seen {
            Ok(Phase::Stopped) | Err(_) => Err(Errno::ESHUTDOWN),
            Ok(_) => Ok(()),
        }
    }

    /// A client connected. True if it is to say what it had, and then that this is all ([`Recovery::ended`]).
    pub fn connected(&self, client: ClientId) -> bool {
        match self.lock().members.get_mut(&client) {
            Some(m) => {
                m.connected = true;
                !m.done
            }
            None => false,
        }
    }

    /// A client said all it had.
    pub fn ended(&self, client: ClientId) {
        if let Some(m) = self.lock().members.get_mut(&client) {
            m.done = true;
        }
        self.check();
    }

    /// A client is gone for good and not waited for.
    pub fn departed(&self, client: ClientId) {
        self.lock().members.remove(&client);
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
        true
    }

    /// `lctl abort_recovery`: clients that are missing are evicted as soon as they cannot rely on anything any more, and
    /// those that have something left to say are not waited for. No effect once all are back.
    pub fn abort(&self) {
        if self.recovering() {
            tracing::warn!("{}: recovery is to end: missing clients are evicted", self.label);
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
        let left = g.window.saturating_sub(self.world.now().since(self.start));
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
        if g.members.values().any(|m| !m.done && !m.waived) {
            return;
        }
        g.report.end = self.world.wall();
        drop(g);
        self.phase.send_if_modified(|p| {
            let was = *p == Phase::Recovering;
            if was {
                *p = Phase::Serving;
            }
            was
        });
    }

    /// Runs a target's recovery to its end. To be spawned once when the target starts.
    pub async fn run<T: Recover>(target: Arc<T>) {
        let me = target.recovery().clone();
        let mut rounds = 1;
        let mut phase = me.phase.subscribe();
        loop {
            match me.phase() {
                Phase::Stopped => return,
                Phase::Serving => return target.recovered().await,
                Phase::Recovering => {}
            }
            let (mut least, mut patience) = (target.lease_life(), target.patience());
            if planted::on(Bug::WindowClosedEarly) {
                (least, patience) = (Duration::ZERO, Duration::ZERO);
            }
            let (window, aborted) = {
                let mut g = me.lock();
                g.window = if g.aborted { least } else { patience.max(least) * rounds };
                (g.window, g.aborted)
            };
            if me.world.now().since(me.start) >= window {
                rounds += 1;
                me.close_window(&target, aborted || rounds > 2).await;
            }
            let change = async { phase.wait_for(|p| *p != Phase::Recovering).await.is_ok() };
            if let Either::Left(false) = select(change, me.world.sleep(TICK)).await {
                return;
            }
        }
    }

    /// The time is up: clients that never connected are evicted. Those that did but are not done get as much
    /// time again; then (`all`) the others no longer wait for them.
    async fn close_window<T: Recover>(&self, target: &Arc<T>, all: bool) {
        let missing: Vec<ClientId> = {
            let mut g = self.lock();
            for (c, m) in g.members.iter_mut().filter(|(_, m)| m.connected && !m.done && all) {
                tracing::warn!(
                    "{}: client {c} does not end its recovery: not waited for any longer",
                    self.label
                );
                m.waived = true;
            }
            g.members.iter().filter(|(_, m)| !m.connected).map(|(c, _)| *c).collect()
        };
        for client in missing {
            target.clone().evict_absent(client).await;
        }
        self.check();
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
