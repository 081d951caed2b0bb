//! What a daemon does about snapshots of its targets, asked by who makes them (decisions 0084 and 0089): for
//! each target one thing at a time, on a thread of its own, because executors may stand while a target's disk
//! does.

mod mount;
pub(super) mod relay;

use super::target::Target;
use super::{MGT_SUBDIR, Node};
use model::Errno;
use model::mutex::Mutex;
use model::snapshot::{
    BRIEF_MS, HOLD_MAX_MS, Listed, Listing, PORTS_MAX, SILENCE_MAX_S, SnapshotAnswer, SnapshotOrder, Still,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::StoreError;
use store::snapshot::{self, Making, RECORD_MAX_BYTES};
use world::pause::DiskPause;
use world::sys::{self, Deadline, mounts, process};
use world::{Instant, World};

/// Nothing stands still for longer.
const PAUSE_MAX: Duration = Duration::from_millis(HOLD_MAX_MS as u64);
/// Between two looks whether something is done.
const TICK: Duration = Duration::from_millis(1);
/// Between two looks for what was given up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever is told to stop does so between two files.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

type Said = Result<SnapshotAnswer, (Errno, String)>;

fn refused<T>(e: Errno, why: impl Into<String>) -> Result<T, (Errno, String)> {
    Err((e, why.into()))
}

/// What is done about one target's folder.
struct Job {
    /// Of the snapshot.
    name: String,
    world: World,
    pause: Arc<DiskPause>,
    /// So long it may stand.
    limit: Duration,
    /// The one that is being made; `None`: it has its name, or something else is done.
    making: Mutex<Option<Making>>,
    state: Mutex<State>,
    /// It is not wanted any more.
    stop: AtomicBool,
    /// Files so far.
    files: AtomicU64,
}

struct State {
    running: bool,
    /// Something lies there that counts for nothing yet. Whoever makes it holds `making` for long.
    made: bool,
    /// What came of the last thing.
    answer: SnapshotAnswer,
    /// When a target was let go: an answer says how long ago that was.
    left: Option<Instant>,
    heard: Deadline,
}

fn silence() -> Deadline {
    Deadline::after(Duration::from_secs(SILENCE_MAX_S))
}

fn micros(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX)
}

impl Job {
    fn one(&self) -> bool {
        self.files.fetch_add(1, Relaxed);
        !self.stop.load(Relaxed)
    }

    /// Does it on a thread, unless something is under way: then it is a request that came twice.
    fn run(self: &Arc<Job>, work: impl FnOnce(&Job) -> Said + Send + 'static) {
        {
            let mut s = self.state.lock();
            s.heard = silence();
            if s.running {
                return;
            }
            (s.running, s.left) = (true, None);
        }
        let me = self.clone();
        let begun = sys::thread("snapshot", move || {
            let said = work(&me);
            me.ended(said);
        });
        if let Err(e) = begun {
            self.ended(refused(Errno::from(e), "no thread can be started"));
        }
    }

    fn ended(&self, said: Said) {
        let mut s = self.state.lock();
        assert!(s.running, "what ends was begun");
        s.running = false;
        s.answer = said.unwrap_or_else(|(e, why)| SnapshotAnswer::Failed { errno: e.0, why });
    }

    /// What came of it, or that it is under way, after so long at most.
    fn wait(&self, patience: Duration) -> SnapshotAnswer {
        let end = Deadline::after(patience);
        loop {
            {
                let mut s = self.state.lock();
                s.heard = silence();
                if !s.running {
                    let mut answer = s.answer.clone();
                    if let (SnapshotAnswer::Cut(still), Some(left)) = (&mut answer, s.left) {
                        still.since_us = micros(left, self.world.now());
                    }
                    return answer;
                }
            }
            if end.passed() {
                return SnapshotAnswer::Running { files: self.files.load(Relaxed) };
            }
            sys::sleep(TICK);
        }
    }

    fn is_running(&self) -> bool {
        self.state.lock().running
    }

    fn is_busy(&self) -> bool {
        let s = self.state.lock();
        s.running || s.made
    }

    /// Nothing is left of what was being made; what is under way ends first.
    fn give_up(&self) {
        self.stop.store(true, Relaxed);
        let done = Deadline::after(STOP_PATIENCE).wait_for(|| (!self.is_running()).then_some(()));
        if done.is_none() {
            // The next look does it.
            return;
        }
        if let Some(m) = self.making.lock().take() {
            tracing::warn!("snapshot {} was given up by who made it: there is none", self.name);
            self.pause.forget();
            if let Err(e) = m.drop_all() {
                tracing::warn!("what is left of snapshot {} stays until the next one: {e}", self.name);
            }
            self.state.lock().made = false;
        }
    }

    fn making<T>(
        &self,
        work: impl FnOnce(&mut Making) -> Result<T, StoreError>,
    ) -> Result<T, (Errno, String)> {
        match self.making.lock().as_mut() {
            Some(m) => work(m).map_err(|e| (e.errno(), e.to_string())),
            None => refused(Errno::ENOENT, "no snapshot is being made there"),
        }
    }

    fn copy(&self) -> Result<(), (Errno, String)> {
        if !self.pause.track(self.limit) {
            return refused(Errno::EBUSY, "what is under way there takes too long: try again");
        }
        self.making(|m| m.copy_all(&mut |_| self.one()))
    }

    fn again(&self) -> Said {
        match self.pause.take_changed() {
            Some(changed) => {
                let n = changed.len() as u64;
                self.making(|m| m.copy_changed(&changed, &mut |_| self.one()))?;
                Ok(SnapshotAnswer::Changed(Some(n)))
            }
            None => {
                self.copy()?;
                Ok(SnapshotAnswer::Changed(None))
            }
        }
    }

    /// Stands still for a time that was said before: who stands may not hear anybody.
    fn cut(&self, asked: Instant, lead: Duration, hold: Duration) -> Said {
        assert!(hold <= self.limit / 2, "who stands goes on before its gate opens by itself");
        sys::sleep(lead);
        if !self.pause.close(self.limit) {
            return refused(
                Errno::EBUSY,
                "what was under way there took too long: try again when it has less to do",
            );
        }
        let stood = self.world.now();
        let cloned = match self.pause.take_changed() {
            Some(changed) => {
                let done = self.making(|m| m.copy_changed(&changed, &mut |_| self.one()));
                done.map(|()| changed.len() as u64)
            }
            None => refused(
                Errno::EBUSY,
                "too much changed there while it was cloned: try again when it has less to do",
            ),
        };
        if cloned.is_ok() {
            sys::sleep(hold.saturating_sub(self.world.now().since(stood)));
        }
        let left = self.world.now();
        let whole = self.pause.open();
        let files = cloned?;
        if !whole {
            return refused(
                Errno::EBUSY,
                "it stood still for longer than a server may, and went on before everything was cloned: try again",
            );
        }
        self.state.lock().left = Some(left);
        let (after_us, held_us) = (micros(asked, stood), micros(stood, left));
        Ok(SnapshotAnswer::Cut(Still { after_us, held_us, since_us: 0, files }))
    }

    fn keep(&self, record: &[u8]) -> Said {
        assert!(record.len() <= RECORD_MAX_BYTES, "the caller looked at it");
        // Nothing that changes from here on is in it.
        self.pause.forget();
        self.making(|m| m.make_durable(record))?;
        Ok(SnapshotAnswer::Done)
    }

    fn name(&self) -> Said {
        let Some(m) = self.making.lock().take() else {
            return refused(Errno::ENOENT, "no snapshot is being made there");
        };
        self.state.lock().made = false;
        m.name().map(|()| SnapshotAnswer::Done).map_err(|e| (e.errno(), e.to_string()))
    }
}

/// What is under way, by the target's folder.
#[derive(Default)]
pub struct Jobs(Mutex<BTreeMap<String, Arc<Job>>>);

impl Jobs {
    fn of(&self, folder: &str) -> Option<Arc<Job>> {
        self.0.lock().get(folder).cloned()
    }

    /// What nobody asks for any more goes.
    fn look(&self) {
        let all: Vec<(String, Arc<Job>)> =
            self.0.lock().iter().map(|(f, j)| (f.clone(), j.clone())).collect();
        for (folder, job) in all.iter().filter(|(_, j)| j.state.lock().heard.passed()) {
            job.give_up();
            if !job.is_running() {
                let mut all = self.0.lock();
                if all.get(folder).is_some_and(|j| Arc::ptr_eq(j, job)) {
                    all.remove(folder);
                }
            }
        }
    }
}

/// Takes away what was given up, as long as the node is there.
pub fn watch(node: &Arc<Node>) {
    let (world, node) = (node.world.clone(), Arc::downgrade(node));
    node_watch(world, node);
}

fn node_watch(world: World, node: std::sync::Weak<Node>) {
    let clock = world.clone();
    world.spawn("snapshots", async move {
        while let Some(n) = node.upgrade() {
            clock.blocking(move || n.jobs.look()).await;
            clock.sleep(LOOK_EVERY).await;
        }
    });
}

fn checked(name: &str) -> Result<(), (Errno, String)> {
    match snapshot::name_is_valid(name) {
        true => Ok(()),
        false => refused(Errno::EINVAL, "that is no name of a snapshot"),
    }
}

/// Why a target's files cannot be cloned.
fn explain(dir: &str, e: &StoreError) -> (Errno, String) {
    match e.errno() {
        Errno::EOPNOTSUPP | Errno::EXDEV => {
            let found = mounts::containing(Path::new(dir)).ok().flatten();
            let on = found.map_or_else(
                || "an unknown type".to_string(),
                |m| format!("{} ({})", m.fstype, m.dir.display()),
            );
            let why = format!(
                "'{dir}' lies on {on}, whose files cannot be cloned: XFS (mkfs.xfs -m reflink=1) and btrfs can; without that: nacre backup (metadata) and nacre copy (files)"
            );
            (Errno::EOPNOTSUPP, why)
        }
        errno => (errno, e.to_string()),
    }
}

/// The process that serves a snapshot's folder.
pub fn server_of(dir: &str) -> Option<u32> {
    let text = sys::files::read_to_string(format!("{dir}/lock")).ok()?;
    let pid = text.split("pid ").nth(1)?.split([' ', '\n']).next()?.parse().ok()?;
    (process::alive(pid) && process::arguments(pid).iter().any(|a| a == dir)).then_some(pid)
}

impl Node {
    /// So long a target may stand: its heartbeats go on, but whoever beats may have to wait for somebody who
    /// stands.
    fn pause_limit(&self) -> Duration {
        PAUSE_MAX.min(self.options.mmp_times().term / 4)
    }

    /// Does, or begins, what is asked about a target. May take as long as a target stands.
    pub(super) fn snapshot(self: &Arc<Self>, t: &Arc<Target>, order: SnapshotOrder) -> SnapshotAnswer {
        let said = self.snapshot_order(t, order);
        said.unwrap_or_else(|(e, why)| SnapshotAnswer::Failed { errno: e.0, why })
    }

    fn snapshot_order(self: &Arc<Self>, t: &Arc<Target>, order: SnapshotOrder) -> Said {
        let asked = self.world.now();
        let brief = Duration::from_millis(BRIEF_MS);
        let current = || match self.jobs.of(&t.dir) {
            Some(j) => Ok(j),
            None => refused(
                Errno::ENOENT,
                "nothing is under way there: its server was started again, or was not asked for too long",
            ),
        };
        match order {
            SnapshotOrder::List => self.list(t),
            SnapshotOrder::Ports { first, count, nids } => Ok(self.free_ports(first, count, &nids)),
            SnapshotOrder::Look => Ok(current()?.wait(brief)),
            SnapshotOrder::Begin { name } => self.begin_snapshot(t, &name),
            SnapshotOrder::Again => {
                let job = current()?;
                job.run(Job::again);
                Ok(job.wait(brief))
            }
            SnapshotOrder::Cut { lead_ms, hold_ms } => {
                let job = current()?;
                let lead = Duration::from_millis(lead_ms.into()).min(PAUSE_MAX);
                let hold = Duration::from_millis(hold_ms.into()).min(job.limit / 2);
                job.run(move |j| j.cut(asked, lead, hold));
                Ok(job.wait(lead + hold + brief))
            }
            SnapshotOrder::Keep { record } if record.len() > RECORD_MAX_BYTES => {
                refused(Errno::EMSGSIZE, "a record is bounded")
            }
            SnapshotOrder::Keep { record } => {
                let job = current()?;
                job.run(move |j| j.keep(&record));
                Ok(job.wait(brief))
            }
            SnapshotOrder::Name => {
                let job = current()?;
                job.run(Job::name);
                Ok(job.wait(brief))
            }
            SnapshotOrder::Drop => {
                if let Some(job) = self.jobs.of(&t.dir) {
                    job.give_up();
                    self.jobs.0.lock().remove(&t.dir);
                }
                Ok(SnapshotAnswer::Done)
            }
            other => self.on_snapshot(t, other),
        }
    }

    /// A thing about a target. Who changes something does it alone (a lock on the MGS's host sees to that),
    /// so that what was under way was given up.
    fn new_job(&self, t: &Arc<Target>, name: &str) -> Result<Arc<Job>, (Errno, String)> {
        if let Some(j) = self.jobs.of(&t.dir) {
            j.give_up();
        }
        self.new_job_beside(t, name)
    }

    /// As [`Node::new_job`], for who only looks.
    fn new_job_beside(&self, t: &Arc<Target>, name: &str) -> Result<Arc<Job>, (Errno, String)> {
        checked(name)?;
        let mut all = self.jobs.0.lock();
        if let Some(j) = all.get(&t.dir).filter(|j| j.is_busy()) {
            return refused(Errno::EBUSY, format!("something is under way there about snapshot {}", j.name));
        }
        let job = Arc::new(Job {
            name: name.to_string(),
            world: self.world.clone(),
            pause: t.pause.clone(),
            limit: self.pause_limit(),
            making: Mutex::new(None),
            state: Mutex::new(State {
                running: false,
                made: false,
                answer: SnapshotAnswer::Done,
                left: None,
                heard: silence(),
            }),
            stop: AtomicBool::new(false),
            files: AtomicU64::new(0),
        });
        all.insert(t.dir.clone(), job.clone());
        Ok(job)
    }

    fn begin_snapshot(&self, t: &Arc<Target>, name: &str) -> Said {
        let job = self.new_job(t, name)?;
        let dir = t.dir.clone();
        job.run(move |j| {
            let failed = |e: StoreError| (e.errno(), e.to_string());
            snapshot::tidy(&j.world, &dir).map_err(failed)?;
            *j.making.lock() = Some(Making::begin(&j.world, &dir, &j.name).map_err(|e| explain(&dir, &e))?);
            j.state.lock().made = true;
            j.copy()?;
            Ok(SnapshotAnswer::Done)
        });
        Ok(job.wait(Duration::from_millis(BRIEF_MS)))
    }

    /// What concerns a snapshot that there is.
    fn on_snapshot(self: &Arc<Self>, t: &Arc<Target>, order: SnapshotOrder) -> Said {
        let failed = |e: StoreError| (e.errno(), e.to_string());
        let dir = t.dir.clone();
        let job = match order {
            SnapshotOrder::Modify { name, record, new } => {
                checked(&new)?;
                if record.len() > RECORD_MAX_BYTES {
                    return refused(Errno::EMSGSIZE, "a record is bounded");
                }
                let job = self.new_job(t, &name)?;
                job.run(move |j| {
                    snapshot::write_record(&j.world, &snapshot::place(&dir, &j.name), &record)
                        .map_err(failed)?;
                    if new != j.name {
                        snapshot::rename(&j.world, &dir, &j.name, &new).map_err(failed)?;
                    }
                    Ok(SnapshotAnswer::Done)
                });
                job
            }
            SnapshotOrder::Destroy { name } => {
                let job = self.new_job(t, &name)?;
                job.run(move |j| {
                    let is_served = server_of(&snapshot::place(&dir, &j.name));
                    if let Some(pid) = is_served {
                        return refused(Errno::EBUSY, format!("it is mounted (pid {pid})"));
                    }
                    snapshot::destroy(&j.world, &dir, &j.name, &mut |_| j.one()).map_err(failed)?;
                    snapshot::tidy(&j.world, &dir).map_err(failed)?;
                    Ok(SnapshotAnswer::Done)
                });
                job
            }
            SnapshotOrder::Size { name } => {
                let job = self.new_job_beside(t, &name)?;
                job.run(move |j| {
                    let place = snapshot::place(&dir, &j.name);
                    let size = sys::extents::own_bytes(&place, &mut || j.one());
                    size.map(SnapshotAnswer::Size).map_err(|e| (Errno::from(e), place))
                });
                job
            }
            SnapshotOrder::Mount { name, at } => {
                let (job, node) = (self.new_job(t, &name)?, self.clone());
                job.run(move |j| node.mount_snapshot(&j.name, &at, &j.stop));
                job
            }
            SnapshotOrder::Umount { name } => {
                let job = self.new_job(t, &name)?;
                job.run(move |j| mount::umount(&snapshot::place(&dir, &j.name), &j.name));
                job
            }
            _ => return refused(Errno::EOPNOTSUPP, "this server does not know that order: upgrade it"),
        };
        Ok(job.wait(Duration::from_millis(BRIEF_MS)))
    }

    fn list(&self, t: &Arc<Target>) -> Said {
        let failed = |e: StoreError| (e.errno(), e.to_string());
        let mut all = Vec::new();
        for name in snapshot::names(&self.world, &t.dir).map_err(failed)? {
            let place = snapshot::place(&t.dir, &name);
            if let Some(record) = snapshot::read_record(&self.world, &place).map_err(failed)? {
                let pid = server_of(&place);
                all.push(Listed { up: pid.is_some() && mount::is_up(&place), pid, name, record });
            }
        }
        let (server, nids) = (self.number, self.nids.clone());
        Ok(SnapshotAnswer::Listing(Listing { server, nids, folder: t.dir.clone(), snapshots: all }))
    }

    fn free_ports(&self, first: u16, count: u16, nids: &[model::Nid]) -> SnapshotAnswer {
        let nids = if nids.is_empty() { &self.nids } else { nids };
        let free = |p: &u16| nids.iter().all(|n| sys::can_listen(SocketAddr::new(n.addr, *p)).is_ok());
        let ports = (0..count.min(PORTS_MAX)).filter_map(|n| first.checked_add(n));
        SnapshotAnswer::Ports(ports.filter(free).collect())
    }

    /// Folders of this node's targets, each once: an MGT in an MDT's folder goes with that.
    fn folders(&self) -> Vec<String> {
        let targets = self.targets();
        let within = |dir: &str| {
            let above = dir.strip_suffix(&format!("/{MGT_SUBDIR}"));
            above.is_some_and(|a| targets.iter().any(|t| t.dir == a))
        };
        targets.iter().filter(|t| !within(&t.dir)).map(|t| t.dir.clone()).collect()
    }

    /// Serves all targets of this node that have the snapshot.
    fn mount_snapshot(&self, name: &str, at: &model::snapshot::MountAt, stop: &AtomicBool) -> Said {
        let has = |dir: &String| {
            let record = snapshot::read_record(&self.world, &snapshot::place(dir, name));
            matches!(record, Ok(Some(_)))
        };
        let dirs = self.folders().into_iter().filter(has).map(|d| snapshot::place(&d, name)).collect();
        let nids = if at.nids.is_empty() { self.nids.clone() } else { at.nids.clone() };
        if at.mgs.is_empty() || at.port == 0 {
            return refused(Errno::EINVAL, "it is not said where its MGS is to be");
        }
        assert!(!nids.is_empty(), "a server has an address");
        let at = mount::At { mgs: at.mgs.clone(), nids, port: at.port };
        world::block_on(mount::mount(&self.world, dirs, &at, stop)).map(|()| SnapshotAnswer::Done)
    }

    /// The target of this name, which the MGT in an MDT's folder is not.
    pub(super) fn target_of(&self, label: &str) -> Option<Arc<Target>> {
        self.targets().into_iter().find(|t| t.label() == label)
    }
}
