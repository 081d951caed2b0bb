//! The scrubber of a target: reads all that is stored at a bounded rate, while the target serves, and says
//! what differs from its checksum. Where it is survives a restart.

use model::mutex::{Mutex, MutexGuard};
use model::{ObjectId, Timestamp};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::object::Objects;
use store::object::scrub::{Bad, Cursor, Step};
use world::{Instant, OpenMode, World};

/// MiB a second unless told otherwise.
pub const RATE_DEFAULT_MIB: u64 = 100;
pub const RATE_MAX_MIB: u64 = 100_000;
/// Read at a time.
const STEP_BYTES: u32 = 1 << 20;
/// A step over nothing but holes and small objects counts as so many bytes, so that it takes time too.
const STEP_COST_BYTES: u64 = 4096;
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// Bad blocks listed; more are only counted.
const LISTED_MAX: usize = 64;
const STATE_MAX_BYTES: usize = 4096;

/// How a walk stands.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub at: Cursor,
    pub objects: u64,
    pub bytes: u64,
    pub bad: u64,
    /// The last ones found by this process.
    pub listed: VecDeque<Bad>,
    pub started: Timestamp,
    /// Everything was looked at.
    pub completed: bool,
}

impl Progress {
    /// Takes in what a step did.
    pub fn add(&mut self, s: Step) {
        assert!(!self.completed, "a walk that is over takes no step");
        assert_ne!(s.next, Some(self.at), "each step of a walk goes on");
        self.objects += s.objects;
        self.bytes += s.bytes;
        self.bad += s.bad.len() as u64;
        for b in s.bad {
            self.listed.push_back(b);
            if self.listed.len() > LISTED_MAX {
                self.listed.pop_front();
            }
        }
        match s.next {
            Some(at) => self.at = at,
            None => self.completed = true,
        }
    }

    /// Kept in file `scrub` of the target's folder, one `name value` a line.
    fn encode(&self) -> String {
        let object: String = self.at.object.map_or("-".into(), |o| model::hex(&o.to_bytes()));
        format!(
            "object {object}\noffset {}\nobjects {}\nbytes {}\nbad {}\nstarted {}\ncompleted {}\n",
            self.at.offset,
            self.objects,
            self.bytes,
            self.bad,
            self.started.sec,
            u8::from(self.completed)
        )
    }

    fn decode(text: &str) -> Option<Progress> {
        let get = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        let number = |name: &str| get(name)?.parse::<u64>().ok();
        let object = match get("object")? {
            "-" => None,
            hex => Some(unhex(hex)?),
        };
        Some(Progress {
            at: Cursor { object, offset: number("offset")? },
            objects: number("objects")?,
            bytes: number("bytes")?,
            bad: number("bad")?,
            listed: VecDeque::new(),
            started: Timestamp { sec: get("started")?.parse().ok()?, nsec: 0 },
            completed: number("completed")? == 1,
        })
    }

    /// What an earlier walk left; a new one if there is nothing, or nothing readable.
    pub fn load(world: &World, dir: &str) -> Progress {
        let read = || -> Option<Progress> {
            let f = world.disk.open(&path(dir), OpenMode::READ).ok()?;
            let mut buf = [0; STATE_MAX_BYTES];
            let n = f.read_at(&mut buf, 0).ok()?;
            Progress::decode(std::str::from_utf8(&buf[..n]).ok()?)
        };
        read().unwrap_or_default()
    }

    /// Losing it costs a second look at some objects only: it is not flushed.
    pub fn save(&self, world: &World, dir: &str) -> std::io::Result<()> {
        let new = format!("{}.new", path(dir));
        let f = world.disk.open(&new, OpenMode { truncate: true, ..OpenMode::CREATE })?;
        f.write_at(self.encode().as_bytes(), 0)?;
        world.disk.rename(&new, &path(dir))
    }
}

fn path(dir: &str) -> String {
    format!("{dir}/scrub")
}

fn unhex(s: &str) -> Option<ObjectId> {
    store::object::location::id_of_name(s)
}

/// Walks with a bounded rate.
pub struct Pace {
    began: Instant,
    cost: u64,
}

impl Pace {
    pub fn new(world: &World) -> Pace {
        Pace { began: world.now(), cost: 0 }
    }

    /// Waits until what was read so far is within `rate` MiB a second.
    pub async fn keep(&mut self, world: &World, bytes: u64, rate_mib: u64) {
        self.cost += bytes.max(STEP_COST_BYTES);
        let due = Duration::from_micros(self.cost.saturating_mul(1_000_000) / (rate_mib.max(1) << 20));
        let spent = world.now().since(self.began);
        if due > spent {
            world.sleep(due - spent).await;
        } else if spent > due + Duration::from_secs(1) {
            // Behind: what was missed is not caught up.
            *self = Pace::new(world);
        }
    }
}

/// One step of a walk.
pub async fn step(objects: &Arc<Objects>, at: Cursor) -> Result<Step, store::StoreError> {
    objects.scrub(at, STEP_BYTES).await
}

#[derive(Default)]
struct ScrubState {
    running: bool,
    stop: bool,
    /// The target stops: no walk goes on.
    closed: bool,
    rate_mib: u64,
    progress: Progress,
    failed: Option<String>,
}

/// A target's scrubber.
pub struct Scrubber {
    world: World,
    objects: Arc<Objects>,
    /// `FSNAME-OST0000`.
    label: String,
    /// The target's folder.
    dir: String,
    state: Mutex<ScrubState>,
}

/// What may be written to the parameter `scrub`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Go on where the last walk stopped; from the beginning if it was completed. MiB a second.
    Start(Option<u64>),
    /// From the beginning.
    Restart(Option<u64>),
    Stop,
}

impl Order {
    /// `start [RATE]`, `restart [RATE]`, `stop`.
    pub fn parse(s: &str) -> Option<Order> {
        let mut words = s.split_whitespace();
        let verb = words.next()?;
        let rate = match words.next() {
            Some(n) => Some(n.parse().ok().filter(|r| (1..=RATE_MAX_MIB).contains(r))?),
            None => None,
        };
        match (verb, rate, words.next()) {
            ("start", r, None) => Some(Order::Start(r)),
            ("restart", r, None) => Some(Order::Restart(r)),
            ("stop", None, None) => Some(Order::Stop),
            _ => None,
        }
    }
}

impl Scrubber {
    /// With what an earlier walk left.
    pub fn open(world: &World, objects: &Arc<Objects>, label: String, dir: &str) -> Arc<Scrubber> {
        let state = ScrubState { progress: Progress::load(world, dir), ..ScrubState::default() };
        let (world, objects, dir) = (world.clone(), objects.clone(), dir.to_string());
        Arc::new(Scrubber { world, objects, label, dir, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, ScrubState> {
        self.state.lock()
    }

    /// `name: value` lines; each bad block that is listed on a line of its own.
    pub fn text(&self) -> String {
        let s = self.lock();
        let p = &s.progress;
        let status = match () {
            () if s.running => "running",
            () if s.failed.is_some() => "failed",
            () if p.completed => "completed",
            () if p.started == Timestamp::default() => "never",
            () => "stopped",
        };
        let mut out = String::new();
        let object = p.at.object.map_or("-".to_string(), |o| o.to_string());
        let rate = if s.rate_mib == 0 { RATE_DEFAULT_MIB } else { s.rate_mib };
        let _ = write!(
            out,
            "status: {status}\nrate_mib: {rate}\nobject: {object}\noffset: {}\nobjects: {}\nbytes: {}\nbad_blocks: {}\n\
             started: {}",
            p.at.offset, p.objects, p.bytes, p.bad, p.started.sec
        );
        if let Some(why) = &s.failed {
            let _ = write!(out, "\nerror: {why}");
        }
        for b in &p.listed {
            let _ = write!(out, "\nbad: {} {} {} {}", b.file, b.object, b.offset, b.path);
        }
        out
    }

    /// Carries an order out; a running walk takes a new rate at once.
    pub fn order(self: &Arc<Self>, order: Order) {
        if self.take(order) {
            let walk = Scrubber::walk(Arc::downgrade(self), self.objects.clone(), self.world.clone());
            self.world.spawn("scrub", walk);
        }
    }

    /// The target stops, and with it a walk.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Takes an order in. True if a walk is to begin.
    fn take(&self, order: Order) -> bool {
        let mut s = self.lock();
        match order {
            Order::Stop => {
                s.stop = true;
                false
            }
            Order::Start(rate) | Order::Restart(rate) => {
                if let Some(r) = rate {
                    assert!(
                        (1..=RATE_MAX_MIB).contains(&r),
                        "an order's rate was looked at when it was parsed"
                    );
                    s.rate_mib = r;
                }
                if matches!(order, Order::Restart(_)) || (s.progress.completed && !s.running) {
                    s.progress = Progress::default();
                }
                if s.progress.started == Timestamp::default() {
                    s.progress.started = self.world.wall();
                }
                s.stop = false;
                s.failed = None;
                !std::mem::replace(&mut s.running, true)
            }
        }
    }

    /// Walks until all is looked at, or somebody wants no more of it: also when the target is dropped.
    async fn walk(me: Weak<Scrubber>, objects: Arc<Objects>, world: World) {
        let mut pace = Pace::new(&world);
        let mut saved = world.now();
        loop {
            let Some(scrubber) = me.upgrade() else { return };
            let (at, rate, stop) = {
                let s = scrubber.lock();
                let rate = if s.rate_mib == 0 { RATE_DEFAULT_MIB } else { s.rate_mib };
                (s.progress.at, rate, s.stop || s.closed || s.progress.completed)
            };
            if stop {
                scrubber.ended(None);
                return;
            }
            drop(scrubber);
            let step = step(&objects, at).await;
            let Some(scrubber) = me.upgrade() else { return };
            let bytes = match step {
                Ok(s) => scrubber.took(at, s),
                Err(e) => return scrubber.ended(Some(e.to_string())),
            };
            if world.now().since(saved) > SAVE_EVERY {
                saved = world.now();
                scrubber.save();
            }
            drop(scrubber);
            pace.keep(&world, bytes, rate).await;
        }
    }

    /// Bytes read.
    fn took(&self, at: Cursor, s: Step) -> u64 {
        for b in &s.bad {
            model::event!(ERROR, BlockDamaged, self.label, "{}: scrub: {}", self.label, b.why);
        }
        let bytes = s.bytes;
        let mut state = self.lock();
        // Unless it was restarted meanwhile.
        if state.progress.at == at {
            state.progress.add(s);
        }
        bytes
    }

    fn ended(&self, failed: Option<String>) {
        {
            let mut s = self.lock();
            assert!(s.running, "a walk ends once");
            s.running = false;
            s.failed = failed;
            let p = &s.progress;
            let how = if p.completed { "completed" } else { "stopped" };
            tracing::info!(
                "{}: scrub {how}: {} objects, {} bytes, {} bad blocks",
                self.label,
                p.objects,
                p.bytes,
                p.bad
            );
        }
        self.save();
    }

    fn save(&self) {
        let p = self.lock().progress.clone();
        if let Err(e) = p.save(&self.world, &self.dir) {
            tracing::warn!("{}: the scrubber's position is not kept: {e}", self.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fid;

    #[test]
    fn progress_goes_there_and_back() {
        let object = Some(ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 });
        let p = Progress {
            at: Cursor { object, offset: 4096 },
            objects: 1,
            bytes: 2,
            bad: 3,
            listed: VecDeque::new(),
            started: Timestamp { sec: 5, nsec: 0 },
            completed: false,
        };
        let q = Progress::decode(&p.encode()).unwrap();
        assert_eq!((q.at, q.objects, q.bytes, q.bad, q.started), (p.at, 1, 2, 3, p.started));
        assert!(Progress::decode("object x\n").is_none());
        assert_eq!(Order::parse("start 7"), Some(Order::Start(Some(7))));
        assert_eq!(Order::parse(" restart"), Some(Order::Restart(None)));
        assert_eq!(Order::parse("stop"), Some(Order::Stop));
        for bad in ["", "start 0", "stop 1", "start 1 2", "go"] {
            assert_eq!(Order::parse(bad), None, "{bad}");
        }
    }
}
