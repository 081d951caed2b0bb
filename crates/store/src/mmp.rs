//! Multi-mount protection: a heartbeat in the target's folder, so that two hosts that reach the same storage
//! do not both serve it. Byte table in `docs/formats/superblock.md`, the argument in
//! `docs/decisions/0021-heartbeats.md`.
//!
//! The holder writes a block each [`Times::interval`] and stops writing anything once its last beat is older
//! than half a [`Times::term`]. Whoever wants the target watches the block for a term, takes it if it stood
//! still, and looks again a little later whether somebody else did the same. The lock on the host
//! (`TargetLock`) makes waiting needless where it says as much: same kernel, same lock file.

use crate::bytes::{Reader, Writer};
use crate::format::TargetLock;
use crate::lease::{Beats, apart};
use crate::{Lease, StoreError};
use model::planted::{self, Bug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::frame::crc32c;
use world::sync::{Notify, watch};
use world::{Instant, OpenMode, World, select};

const MAGIC: [u8; 8] = *b"NACREMMP";
const VERSION: u32 = 1;
pub const BLOCK_BYTES: usize = 512;
const HOST_FIELD_BYTES: usize = 64;
/// A block that asks for more is damaged or hostile: nobody waits longer.
const TERM_MAX: Duration = Duration::from_secs(300);
/// Whoever takes a target waits for so many intervals between writing its block and using what is there.
pub(crate) const INTERVALS_BEFORE_USE: u32 = 2;
/// So often it is tried to write the first block in time.
const CLAIMS_MAX: u32 = 3;
/// How often it is looked whether a heartbeat has reached the disk.
const WRITING_LOOK: Duration = Duration::from_millis(20);

/// How often the holder writes, and how long its word counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    pub interval: Duration,
    pub term: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times { interval: Duration::from_secs(2), term: Duration::from_secs(20) }
    }
}

/// Who holds, or wants to hold, a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    /// `pid N on host H`, for the one who is refused.
    pub words: String,
    /// The running kernel: locks on files hold within it.
    pub boot: [u8; 16],
    /// The lock file that is held.
    pub lock: [u8; 16],
}

impl Who {
    /// This process, with the lock that it holds.
    pub fn holding(world: &World, lock: &TargetLock) -> Who {
        Who::here(world, lock.token)
    }

    fn here(world: &World, lock: [u8; 16]) -> Who {
        let boot = crate::format::proc_word(world, "/proc/sys/kernel/random/boot_id");
        let hex: String = boot.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&hex, 16).map_or_else(|_| world.random_uuid(), u128::to_be_bytes);
        Who { words: crate::format::holder_words(world), boot, lock }
    }

    /// The holder before is gone for certain: its lock is ours now.
    fn succeeds(&self, b: &Block) -> bool {
        self.boot == b.who.boot && self.lock == b.who.lock
    }
}

/// The block as it is on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// One more with each beat; 0: the holder left in an orderly way.
    sequence: u64,
    /// Chosen by the holder when it came: tells it from all others.
    pub(crate) nonce: u64,
    times: Times,
    who: Who,
}

/// What can be read there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Absent,
    /// No block, or half of one: somebody may be writing it.
    Damaged(u32),
    Block(Block),
}

fn path(dir: &str) -> String {
    format!("{dir}/mmp")
}

impl Block {
    fn encode(&self) -> Vec<u8> {
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u32(0); // crc, below
        w.u64(self.sequence);
        w.u64(self.nonce);
        w.u32(ms(self.times.interval));
        w.u32(ms(self.times.term));
        w.raw(&self.who.boot);
        w.raw(&self.who.lock);
        let words = self.who.words.as_bytes();
        w.raw(&words[..words.len().min(HOST_FIELD_BYTES)]);
        w.0.resize(BLOCK_BYTES, 0);
        let crc = crc32c(&w.0[16..]);
        w.0[12..16].copy_from_slice(&crc.to_le_bytes());
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<Block> {
        if bytes.len() != BLOCK_BYTES || bytes[..8] != MAGIC {
            return None;
        }
        let mut r = Reader(&bytes[8..]);
        let (version, crc) = (r.u32()?, r.u32()?);
        if version != VERSION || crc != crc32c(&bytes[16..]) {
            return None;
        }
        let (sequence, nonce) = (r.u64()?, r.u64()?);
        let mut time = || r.u32().map(|ms| Duration::from_millis(u64::from(ms)).min(TERM_MAX));
        let times = Times { interval: time()?, term: time()? };
        let (boot, lock) = (r.array()?, r.array()?);
        let words = String::from_utf8_lossy(r.raw(HOST_FIELD_BYTES)?);
        let words = words.trim_end_matches('\0').to_string();
        Some(Block { sequence, nonce, times, who: Who { words, boot, lock } })
    }

    /// Durable when it returns.
    fn write(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        let path = path(dir);
        let what = "cannot write heartbeat";
        let file = world.disk.open(&path, OpenMode::CREATE).map_err(StoreError::io(what, &path))?;
        file.write_at(&self.encode(), 0).map_err(StoreError::io(what, &path))?;
        file.sync_data().map_err(StoreError::io("cannot flush heartbeat", &path))
    }
}

/// Opened anew each time: a host that shares the storage may have written it.
pub(crate) fn read(world: &World, dir: &str) -> Result<Seen, StoreError> {
    let path = path(dir);
    if !world.disk.exists(&path).map_err(StoreError::io("cannot look at", &path))? {
        return Ok(Seen::Absent);
    }
    let file = world.disk.open(&path, OpenMode::READ).map_err(StoreError::io("cannot open", &path))?;
    let mut bytes = vec![0; BLOCK_BYTES];
    let n = file.read_at(&mut bytes, 0).map_err(StoreError::io("cannot read", &path))?;
    bytes.truncate(n);
    Ok(Block::decode(&bytes).map_or_else(|| Seen::Damaged(crc32c(&bytes)), Seen::Block))
}

/// Why a target whose block is not the holder's own any more is lost.
pub(crate) fn taken(dir: &str, now: &Seen) -> String {
    match now {
        Seen::Block(b) => format!("'{dir}' was taken over by {}", b.who.words),
        _ => format!("the heartbeat of '{dir}' was removed"),
    }
}

fn in_use(dir: &str, now: &Seen) -> StoreError {
    let by = match now {
        Seen::Block(b) => b.who.words.as_str(),
        _ => "another server",
    };
    StoreError::Refused(format!("'{dir}' is in use by {by}: its heartbeat goes on; stop that server first"))
}

async fn look(world: &World, dir: &str) -> Result<Seen, StoreError> {
    let (w, d) = (world.clone(), dir.to_string());
    world.blocking(move || read(&w, &d)).await
}

/// A target that is being made; so that its first server on this host need not wait.
pub fn format(world: &World, dir: &str) -> Result<(), StoreError> {
    let path = format!("{dir}/lock");
    let file =
        world.disk.open(&path, OpenMode::CREATE).map_err(StoreError::io("cannot make lock file", &path))?;
    let who = Who::here(world, crate::format::write_lock(world, dir, file.as_ref())?);
    Block { sequence: 0, nonce: 0, times: Times::default(), who }.write(world, dir)
}

/// The right to write to a target, renewed in the background for as long as this value lives. It ends by
/// itself ([`Lease::check`]) when somebody else took the target, and when no beat reached the disk for half a
/// term.
pub struct Heartbeat {
    world: World,
    dir: String,
    who: Who,
    times: Times,
    beats: Arc<Beats>,
    lease: Lease,
    asked: Arc<Asked>,
    ended: watch::Sender<bool>,
}

/// What the task that beats is told.
#[derive(Default)]
struct Asked {
    wake: Notify,
    /// To write no more: the owner is gone.
    stop: AtomicBool,
    /// To say that nobody has the target, and stop.
    leave: AtomicBool,
}

impl Heartbeat {
    /// Waits until nobody else can be using the target, and takes it. Nothing of it was written by then, but
    /// for the block itself. Refused, with the holder's words, if somebody else is alive.
    pub async fn take(world: &World, dir: &str, who: Who, times: Times) -> Result<Heartbeat, StoreError> {
        Heartbeat::take_within(world, dir, who, times, Duration::ZERO).await
    }

    /// As [`Heartbeat::take`]; a living server is given `patience` to end. For an engine of failover, which
    /// had it fenced or is about to stop it.
    pub async fn take_within(
        world: &World,
        dir: &str,
        who: Who,
        times: Times,
        patience: Duration,
    ) -> Result<Heartbeat, StoreError> {
        let mut seen = look(world, dir).await?;
        let sure = matches!(&seen, Seen::Block(b) if who.succeeds(b));
        let sure = sure || planted::on(Bug::TakenUnwatched);
        if !sure && let Some(doubt) = Doubt::about(world, dir, seen.clone(), times) {
            seen = doubt.outlast(times, patience).await?;
        }
        let block = Block { sequence: 1, nonce: world.random_u64(), times, who };
        let beats = Beats::new(world, block.nonce, times);
        let asked = Arc::<Asked>::default();
        let renewed = world.now();
        let mut b = Beater { world: world.clone(), dir: dir.to_string(), block, renewed, beats, asked };
        let late = b.claim(seen).await?;
        if late || !sure {
            b.find_others(late).await?;
        }
        let h = Heartbeat {
            world: world.clone(),
            dir: dir.to_string(),
            who: b.block.who.clone(),
            times,
            beats: b.beats.clone(),
            lease: Lease::of_heartbeats(b.until(), b.beats.clone()),
            asked: b.asked.clone(),
            ended: watch::Sender::new(false),
        };
        let (lease, ended) = (h.lease.clone(), h.ended.clone());
        world.spawn("heartbeat", async move {
            b.run(&lease).await;
            ended.send_replace(true);
        });
        Ok(h)
    }

    /// For the databases of the target.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Whether nobody took the target since the lease ended: the block is this holder's (its kernel, its
    /// lock, its nonce), and cannot have been put over a successor's. A start, now, finds what this server
    /// left. Waits for a heartbeat that is on its way to the disk, and for a term if that arrived so late
    /// that a successor may be there, which finds it then and stops.
    pub async fn is_still_own(&self) -> Result<bool, StoreError> {
        while self.beats.is_writing() {
            self.world.sleep(WRITING_LOOK).await;
        }
        if self.beats.is_late() {
            self.world.sleep(self.times.term).await;
        }
        let ours = |b: &Block| {
            b.nonce == self.beats.nonce && b.who.boot == self.who.boot && b.who.lock == self.who.lock
        };
        Ok(matches!(&look(&self.world, &self.dir).await?, Seen::Block(b) if ours(b)))
    }

    /// After the databases were closed: whoever wants the target next need not wait.
    pub async fn leave(&self) {
        self.asked.leave.store(true, Relaxed);
        self.asked.wake.notify_one();
        let mut ended = self.ended.subscribe();
        ended.wait_for(|e| *e).await.expect("the sender is in self");
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.asked.stop.store(true, Relaxed);
        self.asked.wake.notify_one();
    }
}

/// The task behind a [`Heartbeat`].
struct Beater {
    world: World,
    dir: String,
    block: Block,
    renewed: Instant,
    beats: Arc<Beats>,
    asked: Arc<Asked>,
}

impl Beater {
    /// Until then the holder may write.
    fn until(&self) -> Instant {
        self.renewed.plus(self.block.times.term / 2)
    }

    /// Writes the first block over what was `seen`. A host that is stopped between its look and the end of
    /// the write, its clocks perhaps with it, may put its block over one that is in use meanwhile: whether
    /// that may have been; then it was written anew.
    async fn claim(&mut self, mut seen: Seen) -> Result<bool, StoreError> {
        for tries in 0..CLAIMS_MAX {
            self.beats.looks(&self.world);
            let now = look(&self.world, &self.dir).await?;
            if now != seen {
                return Err(in_use(&self.dir, &now));
            }
            self.write().await?;
            if !self.beats.came_late(&self.world) {
                return Ok(tries > 0);
            }
            tracing::info!("the heartbeat of '{}' was late: another server may use the target", self.dir);
            seen = Seen::Block(self.block.clone());
        }
        Err(StoreError::Refused(format!("the heartbeat of '{}' takes too long to reach its disk", self.dir)))
    }

    /// Waits until everybody else who came has found this server's block, or is found. Whoever may use the
    /// target already, as this block was `late`, finds it with the next beat, or is out of time after half a
    /// term.
    async fn find_others(&mut self, late: bool) -> Result<(), StoreError> {
        let Times { interval, term } = self.block.times;
        let step = interval * INTERVALS_BEFORE_USE;
        let end = self.world.now().plus(if late { term } else { step });
        while self.world.now() < end {
            self.world.sleep(step).await;
            self.beat().await?;
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        let (w, d, b, start) = (self.world.clone(), self.dir.clone(), self.block.clone(), self.world.now());
        self.world.blocking(move || b.write(&w, &d)).await?;
        self.renewed = start;
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        self.write_if_own(self.block.sequence + 1).await
    }

    /// `Refused`: somebody else has the target now, or may have it.
    async fn write_if_own(&mut self, sequence: u64) -> Result<(), StoreError> {
        let (start, until, apart) = (self.world.now(), self.until(), apart(&self.world));
        let next = Block { sequence, ..self.block.clone() };
        let (w, d, b, asked) = (self.world.clone(), self.dir.clone(), next.clone(), self.asked.clone());
        let beats = self.beats.clone();
        let beaten = self.world.blocking(move || -> Result<(), StoreError> {
            let mut jump = w.jumped();
            loop {
                beats.reads(&w);
                match read(&w, &d)? {
                    Seen::Block(now) if now.nonce == b.nonce => {}
                    other => return Err(StoreError::Refused(taken(&d, &other))),
                }
                // Looked at last: a process that was stopped here for long must not write over its
                // successor's block.
                if w.now() >= until || asked.stop.load(Relaxed) {
                    return Err(StoreError::Refused(format!("the heartbeat of '{d}' came too late")));
                }
                match std::mem::replace(&mut jump, w.jumped()) {
                    before if before == jump => break,
                    _ => {} // It stood still after the look.
                }
            }
            beats.writes();
            b.write(&w, &d)
        });
        let done = beaten.await;
        self.beats.ended(&self.world, &self.dir)?;
        done?;
        self.beats.written(start, apart);
        (self.block, self.renewed) = (next, start);
        Ok(())
    }

    async fn run(mut self, lease: &Lease) {
        loop {
            let pause = self.world.sleep(self.block.times.interval);
            let asked = self.asked.clone();
            select(asked.wake.notified(), pause).await;
            if asked.stop.load(Relaxed) {
                return;
            }
            if asked.leave.load(Relaxed) {
                if let Err(e) = self.write_if_own(0).await {
                    tracing::warn!("the next server of '{}' will have to wait: {e}", self.dir);
                }
                return;
            }
            match self.beat().await.and_then(|()| lease.renew(self.until())) {
                Ok(()) => {}
                Err(StoreError::Refused(why)) => return lease.lose(&why),
                Err(e) => {
                    let left = self.until().since(self.world.now());
                    tracing::warn!("{e}; without a heartbeat this server stops in {left:?}");
                }
            }
        }
    }
}

/// Somebody who may be alive: its block, and for how long that must stand still.
struct Doubt<'a> {
    world: &'a World,
    dir: &'a str,
    seen: Seen,
    times: Times,
}

impl<'a> Doubt<'a> {
    /// `None`: nobody has the target.
    fn about(world: &'a World, dir: &'a str, seen: Seen, own: Times) -> Option<Doubt<'a>> {
        let doubt = Doubt::about_quietly(world, dir, seen, own)?;
        if let Seen::Block(b) = &doubt.seen {
            let words = &b.who.words;
            tracing::info!("'{dir}' was not left in an orderly way by {words}: looking whether it is alive");
        }
        Some(doubt)
    }

    fn about_quietly(world: &'a World, dir: &'a str, seen: Seen, own: Times) -> Option<Doubt<'a>> {
        let times = match &seen {
            Seen::Absent => return None,
            Seen::Block(b) if b.sequence == 0 => return None,
            Seen::Damaged(_) => own,
            Seen::Block(b) => {
                Times { interval: own.interval.max(b.times.interval), term: own.term.max(b.times.term) }
            }
        };
        Some(Doubt { world, dir, seen, times })
    }

    /// For as long as the holder may write, and longer.
    fn patience(&self) -> Duration {
        self.times.term + self.times.interval
    }

    /// `Refused`: the block changed.
    fn check(&self, now: &Seen) -> Result<(), StoreError> {
        if *now == self.seen {
            return Ok(());
        }
        Err(in_use(self.dir, now))
    }

    /// How long to sleep before the next look; `None`: it stood still for long enough.
    fn pause(&self, since: Instant, step: Duration) -> Option<Duration> {
        let left = since.plus(self.patience()).since(self.world.now());
        (!left.is_zero()).then(|| left.min(step))
    }

    /// Until nobody has the target any more: what was seen then. `Refused`: somebody had it for longer than
    /// `patience`.
    async fn outlast(mut self, own: Times, patience: Duration) -> Result<Seen, StoreError> {
        let (start, mut since) = (self.world.now(), self.world.now());
        let mut told = false;
        while let Some(pause) = self.pause(since, own.interval) {
            self.world.sleep(pause).await;
            let now = look(self.world, self.dir).await?;
            let Err(alive) = self.check(&now) else { continue };
            if self.world.now().since(start) >= patience {
                return Err(alive);
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!("{alive} (its end is waited for, {} s at most)", patience.as_secs());
            }
            match Doubt::about_quietly(self.world, self.dir, now.clone(), own) {
                Some(doubt) => (self, since) = (doubt, self.world.now()),
                None => return Ok(now),
            }
        }
        Ok(self.seen)
    }
}

/// For programs that work on a target that nobody serves, with its lock held: waits, by `sleep`, until that
/// is certain. Refused, with the holder's words, if another host serves it.
pub fn wait_idle(
    world: &World,
    dir: &str,
    lock: &TargetLock,
    mut sleep: impl FnMut(Duration),
) -> Result<(), StoreError> {
    let seen = read(world, dir)?;
    if matches!(&seen, Seen::Block(b) if Who::holding(world, lock).succeeds(b)) {
        return Ok(());
    }
    let times = Times::default();
    let Some(doubt) = Doubt::about(world, dir, seen, times) else { return Ok(()) };
    let since = world.now();
    while let Some(pause) = doubt.pause(since, times.interval) {
        sleep(pause);
        doubt.check(&read(world, dir)?)?;
    }
    Ok(())
}
