//! Locks that programs take: byte ranges (fcntl), and a file for a group. No two that conflict are held at
//! once by clients that live, nobody is refused one, or told of one, that nobody else can have, and who waits
//! gets it once it is free.

use crate::exec::{call, file};
use crate::executor::lock;
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use bytes::Bytes;
use client::{Fs, PosixLock};
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::enqueue::LockMode;

const O_RDWR: u32 = 2;
/// Ranges begin and end within so many bytes.
const RANGE_MAX: u64 = 12;
const GROUPS: u64 = 3;
/// Locks are held so long at most; some of them so long that their holder may well die meanwhile.
const HOLD_US: u64 = 3000;
const LONG_US: u64 = 400_000;
/// Owners of ranges, and their pids, begin here; each actor is one.
const OWNERS: u64 = 3000;

/// An actor on a mount in one of its lives: what he had in another is another owner's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Who {
    actor: usize,
    mount: usize,
    life: u64,
}

impl Who {
    fn lives(self, run: &Run) -> bool {
        *run.cluster.mounts[self.mount].life.borrow() == self.life
    }
}

/// What somebody has, or may have.
#[derive(Clone, Debug)]
struct Claim<L> {
    id: u64,
    what: L,
    who: Who,
    /// The answer came that it is his, and he has not begun to give it back.
    held: bool,
    /// He was answered that he has it no more.
    over: Option<u64>,
}

/// What can be in the way of its like.
trait Rival {
    fn rivals(&self, other: &Self) -> bool;
}

#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
    write: bool,
}

impl Range {
    fn new(rng: &mut Rng) -> Range {
        let start = rng.below(RANGE_MAX);
        // To the end of the file, however long it becomes.
        let end = if rng.below(6) == 0 { u64::MAX } else { rng.range(start, RANGE_MAX) };
        Range { start, end, write: rng.coin() }
    }

    fn as_lock(&self, actor: usize) -> PosixLock {
        let mode = if self.write { LockMode::Write } else { LockMode::Read };
        let owner = OWNERS + actor as u64;
        PosixLock { mode, owner, pid: owner as u32, start: self.start, end: self.end }
    }
}

impl Rival for Range {
    fn rivals(&self, other: &Range) -> bool {
        (self.write || other.write) && self.start <= other.end && other.start <= self.end
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group(u64);

impl Rival for Group {
    fn rivals(&self, other: &Group) -> bool {
        self != other
    }
}

/// All claims on one file.
struct Claims<L>(Mutex<Vec<Claim<L>>>);

impl<L> Default for Claims<L> {
    fn default() -> Claims<L> {
        Claims(Mutex::default())
    }
}

impl<L: Rival + Clone> Claims<L> {
    /// Somebody begins to ask.
    fn ask(&self, id: u64, what: L, who: Who) {
        lock(&self.0).push(Claim { id, what, who, held: false, over: None });
    }

    /// It is his. Whoever has what conflicts with it, if anybody does.
    fn granted(&self, run: &Run, id: u64) -> Option<Claim<L>> {
        let mut all = lock(&self.0);
        let i = all.iter().position(|c| c.id == id).expect("it was asked for");
        all[i].held = true;
        let new = &all[i];
        let in_the_way = |c: &&Claim<L>| c.held && c.who != new.who && c.what.rivals(&new.what);
        all.iter().find(|c| in_the_way(c) && c.who.lives(run)).cloned()
    }

    /// He gives it back.
    fn gives_back(&self, id: u64) {
        lock(&self.0).iter_mut().filter(|c| c.id == id).for_each(|c| c.held = false);
    }

    fn is_over(&self, id: u64, now: u64) {
        lock(&self.0).iter_mut().filter(|c| c.id == id).for_each(|c| c.over = Some(now));
    }

    /// Others that may have had since `called` what conflicts with it.
    fn may_conflict(&self, what: &L, who: Who, called: u64) -> bool {
        let may = |c: &Claim<L>| c.who != who && c.over.is_none_or(|at| at > called);
        lock(&self.0).iter().any(|c| may(c) && c.what.rivals(what))
    }

    /// Somebody on this mount may have had since `called` what does not conflict with it.
    fn may_share(&self, what: &L, mount: usize, called: u64) -> bool {
        let may = |c: &Claim<L>| c.who.mount == mount && c.over.is_none_or(|at| at > called);
        lock(&self.0).iter().any(|c| may(c) && !c.what.rivals(what))
    }

    /// Others that have now what conflicts with it, and live.
    fn held(&self, run: &Run, what: &L, others: impl Fn(Who) -> bool) -> Vec<u64> {
        let all = lock(&self.0);
        let held = all.iter().filter(|c| c.held && others(c.who) && c.who.lives(run) && c.what.rivals(what));
        held.map(|c| c.id).collect()
    }

    /// One of these is still held.
    fn still_held(&self, run: &Run, ids: &[u64]) -> Option<Claim<L>> {
        lock(&self.0).iter().find(|c| ids.contains(&c.id) && c.held && c.who.lives(run)).cloned()
    }
}

/// Files that are locked.
pub struct Locks {
    records: Fid,
    ranges: Claims<Range>,
    shared: Fid,
    groups: Claims<Group>,
    clock: AtomicU64,
}

impl Locks {
    pub async fn new(fs: &Arc<Fs>, dir: Fid, osts: i32) -> Result<Locks, Errno> {
        Ok(Locks {
            records: file(fs, dir, "records", 0).await?,
            ranges: Claims::default(),
            shared: file(fs, dir, "group", osts).await?,
            groups: Claims::default(),
            clock: AtomicU64::new(1),
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// One actor takes a range, perhaps changes it, and gives it back in one or two parts.
    pub async fn range(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let (mount, fs, life) = run.mount(actor, rng).await;
        let (what, wait, called) = (Range::new(rng), rng.below(3) > 0, self.tick());
        run.cluster.sim.log(|| format!("actor {actor} mount {mount} range {what:?} wait {wait}"));
        let at = At { run, who: Who { actor, mount, life }, fs: &fs };
        let work = async {
            if rng.below(5) == 0 {
                return self.look(&at, what, called).await;
            }
            if !self.take(&at, what, wait).await? {
                return Ok(());
            }
            at.hold(rng).await;
            if what.start < what.end && rng.coin() {
                // Another mode for a part of it. Without waiting: two that wait for each other's ranges wait
                // for ever.
                let end = if what.end == u64::MAX { what.start } else { rng.range(what.start, what.end) };
                let part = Range { start: what.start, end, write: !what.write };
                self.take(&at, part, false).await?;
                at.hold(rng).await;
            }
            if what.start < what.end && rng.coin() {
                self.give(&at, what.start, what.start).await?;
                at.hold(rng).await;
            }
            self.give(&at, 0, u64::MAX).await
        };
        at.bounded("a lock of a range", work).await
    }

    /// Asks for a range. False: it is not free. What its owner had there is replaced by it.
    async fn take(&self, at: &At<'_>, what: Range, wait: bool) -> Result<bool, Violation> {
        let (id, called) = (self.tick(), self.tick());
        self.ranges.ask(id, what, at.who);
        // A part that is to be only read from now on may be others' to read before the answer comes.
        if !what.write {
            self.shrink(at.who, what.start, what.end, id);
        }
        match client::Locks(at.fs).setlk(self.records, what.as_lock(at.who.actor), wait).await {
            Ok(()) => {
                self.shrink(at.who, what.start, what.end, id);
                match self.ranges.granted(at.run, id) {
                    None => Ok(true),
                    Some(c) => Err(format!("{:?} has {what:?} while {c:?}", at.who)),
                }
            }
            Err(Errno::EAGAIN) if !wait && self.ranges.may_conflict(&what, at.who, called) => {
                self.ranges.is_over(id, self.tick());
                Ok(false)
            }
            Err(e) => Err(format!("{:?} asked for {what:?}, wait {wait}: {e}", at.who)),
        }
    }

    async fn give(&self, at: &At<'_>, start: u64, end: u64) -> Result<(), Violation> {
        let mine: Vec<u64> = self.shrink(at.who, start, end, 0);
        let owner = OWNERS + at.who.actor as u64;
        let gave = client::Locks(at.fs).unlk(self.records, owner, start, end).await;
        gave.map_err(|e| format!("{:?} unlocked: {e}", at.who))?;
        let now = self.tick();
        mine.into_iter().for_each(|id| self.ranges.is_over(id, now));
        Ok(())
    }

    /// An actor has nothing any more between these two for sure, but by `except`: what is left of his claims
    /// goes on as claims of their own. Those that end altogether.
    fn shrink(&self, who: Who, start: u64, end: u64, except: u64) -> Vec<u64> {
        let mut all = lock(&self.ranges.0);
        let (mut rest, mut gone) = (Vec::new(), Vec::new());
        for c in all.iter_mut().filter(|c| c.who == who && c.id != except && c.over.is_none()) {
            let r = c.what;
            if r.start > end || r.end < start {
                continue;
            }
            let parts =
                [(r.start < start).then(|| (r.start, start - 1)), (r.end > end).then(|| (end + 1, r.end))];
            for (start, end) in parts.into_iter().flatten().filter(|_| c.held) {
                rest.push(Claim { id: self.tick(), what: Range { start, end, ..r }, ..c.clone() });
            }
            c.held = false;
            gone.push(c.id);
        }
        all.extend(rest);
        gone
    }

    /// Who is in the way is named, if anybody is.
    async fn look(&self, at: &At<'_>, what: Range, called: u64) -> Result<(), Violation> {
        let before = self.ranges.held(at.run, &what, |who| who != at.who);
        let told = client::Locks(at.fs).getlk(self.records, what.as_lock(at.who.actor)).await;
        match told.map_err(|e| format!("asking who has {what:?} gave {e}"))? {
            None => match self.ranges.still_held(at.run, &before) {
                None => Ok(()),
                Some(c) => Err(format!("nobody is said to have {what:?} while {c:?}")),
            },
            Some(l) => {
                let told = Range { start: l.start, end: l.end, write: l.mode == LockMode::Write };
                if told.rivals(&what) && self.ranges.may_conflict(&what, at.who, called) {
                    return Ok(());
                }
                Err(format!("{l:?} is said to be in the way of {what:?}, and nobody can have it"))
            }
        }
    }

    /// One actor joins a group, or writes without one while none of another mount has the file.
    pub async fn group(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let (mount, fs, life) = run.mount(actor, rng).await;
        let (gid, wait, plain) = (1 + rng.below(GROUPS), rng.below(4) > 0, rng.below(3) == 0);
        run.cluster.sim.log(|| format!("actor {actor} mount {mount} group {gid} wait {wait} plain {plain}"));
        let at = At { run, who: Who { actor, mount, life }, fs: &fs };
        let gave = |what: &'static str| move |e| format!("group {gid} on mount {mount}: {what} gave {e}");
        let work = async {
            let data = Bytes::from(vec![actor as u8; 100]);
            let place = 100 * actor as u64;
            if plain {
                let called = self.tick();
                let before = self.groups.held(run, &Group(0), |who| who.mount != mount);
                fs.clone()
                    .write(call(), self.shared, place, false, false, data)
                    .await
                    .map_err(gave("write"))?;
                return match self.groups.still_held(run, &before) {
                    // Who does not lock uses the lock of a member on his own mount (decision 0019).
                    Some(c) if !self.groups.may_share(&c.what, mount, called) => {
                        Err(format!("mount {mount} wrote without a group while {c:?}"))
                    }
                    _ => Ok(()),
                };
            }
            let open = fs.clone().open(call(), self.shared, O_RDWR).await.map_err(gave("open"))?;
            let open = Arc::new(open);
            let id = self.tick();
            self.groups.ask(id, Group(gid), at.who);
            match fs.clone().group_lock(open.clone(), gid, wait).await {
                Ok(()) => {
                    if let Some(c) = self.groups.granted(run, id) {
                        return Err(format!("mount {mount} has the file for group {gid} while {c:?}"));
                    }
                    if rng.coin() {
                        let written = fs.clone().write(call(), self.shared, place, false, false, data).await;
                        written.map_err(gave("a member's write"))?;
                    }
                    at.hold(rng).await;
                    self.groups.gives_back(id);
                    if rng.coin() {
                        fs.clone().group_unlock(open.clone(), gid).await.map_err(gave("unlock"))?;
                    }
                }
                // Whoever has an ordinary lock of the file is in the way as well.
                Err(Errno::EAGAIN) if !wait => {}
                Err(e) => return Err(gave("lock")(e)),
            }
            fs.clone().close(open).await.map_err(gave("close"))?;
            self.groups.is_over(id, self.tick());
            Ok(())
        };
        at.bounded("a lock for a group", work).await
    }
}

/// An actor on a mount.
struct At<'a> {
    run: &'a Run,
    who: Who,
    fs: &'a Arc<Fs>,
}

impl At<'_> {
    async fn hold(&self, rng: &mut Rng) {
        let most = if rng.below(6) == 0 { LONG_US } else { HOLD_US };
        self.run.cluster.sim.sleep(Duration::from_micros(rng.below(most))).await;
    }

    async fn bounded(
        &self,
        what: &str,
        work: impl Future<Output = Result<(), Violation>> + Send,
    ) -> Result<(), Violation> {
        match self
            .run
            .bounded(what, alive(&self.run.cluster.mounts[self.who.mount], self.who.life, work))
            .await?
        {
            Ok(r) => r,
            Err(Gone) => Ok(()),
        }
    }
}
