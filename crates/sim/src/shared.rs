//! What several actors do to the same files: names made and removed, blocks written and read, records
//! appended, a lock held. Checked by linearizability, by counting, and by who holds what.

use crate::bulk::Bulk;
use crate::exec::{COMPOSITE, O_EXCL, O_RDWR, STRIPE_BYTES, call, file, read_at};
use crate::executor::lock;
use crate::history::{Act, Event, Verdict, linearizable};
use crate::locks::Locks;
use crate::losses::{Part, Witness};
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use bytes::Bytes;
use client::Fs;
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::enqueue::LockMode;

const NAMES: usize = 4;
const BLOCKS: usize = 5;
/// Across the border of two stripes.
const BLOCK_AT: u64 = STRIPE_BYTES - 3000;
/// Of the last one: it stays with its inode.
const SMALL_BLOCK_AT: u64 = 3000;
const BLOCK_BYTES: usize = 6000;
const RECORD_BYTES: usize = 48;
/// Records that the log without a layout of its own begins with: a few more and it outgrows the MDT.
const FILLED_RECORDS: u64 = 65536 / RECORD_BYTES as u64 - 12;
/// Who wrote those.
const FILLER: u64 = u64::MAX;
/// Answers that are shown when they contradict each other.
const SHOWN: usize = 12;
/// Counters of the histories that were searched, and of those of which that is all that can be said.
pub const HISTORIES: &str = "history";
pub const UNDECIDED: &str = "history_undecided";
/// The file of a create that was never answered.
const UNKNOWN: u64 = u64::MAX;

/// What everybody fights for in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Often {
    /// A little of everything, between operations of one's own.
    All,
    /// Names of one directory.
    Names,
    /// The data of one file that lies with its inode.
    Small,
}

/// What is done to a block.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write { flush: bool },
}

/// A small thing with a history.
#[derive(Default)]
struct Register(Mutex<Vec<Noted>>);

/// An answer, or that there was none.
struct Noted {
    event: Event,
    witness: Witness,
    /// A write that its client may have for itself: it was not flushed since, and nobody else saw it. It dies
    /// with its client, as a whole or in part.
    kept: bool,
    /// Its client had died when somebody began to write the whole thing anew, and was answered in this
    /// moment: nothing is left of it.
    overwritten: Option<u64>,
}

impl Noted {
    fn new(event: Event, witness: Witness) -> Noted {
        Noted { event, witness, kept: false, overwritten: None }
    }

    fn is_lost(&self, run: &Run) -> bool {
        self.kept && self.witness.dead(&run.cluster)
    }
}

impl Register {
    /// Writes that may be lost already.
    fn lost(&self, run: &Run) -> Vec<usize> {
        let all = lock(&self.0);
        all.iter().enumerate().filter(|(_, n)| n.is_lost(run)).map(|(i, _)| i).collect()
    }

    /// `over`: writes that were lost already when this one began. What somebody else read, or was flushed, is
    /// not kept any more.
    fn note(&self, run: &Run, new: Noted, over: &[usize]) {
        let mut all = lock(&self.0);
        let flushed = matches!(new.event.act, Act::Write { .. }) && !new.kept;
        let read = matches!(new.event.act, Act::Read { .. });
        for n in all.iter_mut().filter(|n| n.event.returned <= new.event.called) {
            let seen = read && !n.witness.same_client(&new.witness);
            n.kept &= !(flushed || seen) || n.witness.dead(&run.cluster);
        }
        if new.event.answered() {
            for i in over {
                all[*i].overwritten.get_or_insert(new.event.returned);
            }
        }
        all.push(new);
    }
}

/// A record of an append file: who, and his how manieth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Record {
    actor: u64,
    number: u64,
}

#[derive(Default)]
struct AppendLog {
    fid: Option<Fid>,
    /// Acknowledged, with their offsets, and whether they were flushed; and unanswered.
    acked: BTreeMap<Record, (u64, Witness, bool)>,
    /// Durable before anybody else came, with their offsets.
    filled: BTreeMap<Record, u64>,
    maybe: BTreeSet<Record>,
}

pub struct Shared {
    dir: Fid,
    names: Vec<Register>,
    block_files: Vec<Fid>,
    blocks: Vec<Register>,
    logs: Vec<Mutex<AppendLog>>,
    lock_file: Fid,
    locks: Locks,
    bulk: Bulk,
    /// (mount, life) of the holder.
    holder: Mutex<Option<(usize, u64)>>,
    clock: AtomicU64,
    often: Often,
}

fn record(r: Record) -> Vec<u8> {
    let mut v = Vec::with_capacity(RECORD_BYTES);
    while v.len() < RECORD_BYTES {
        v.extend_from_slice(&r.actor.to_le_bytes());
        v.extend_from_slice(&r.number.to_le_bytes());
    }
    v
}

/// Objects that the file of a block is asked to have; `many`: on all OSTs, or a composite layout.
fn block_stripes(i: usize, many: i32) -> i32 {
    [1, many, many, 0, 0][i]
}

fn block_at(i: usize) -> u64 {
    if i + 1 == BLOCKS { SMALL_BLOCK_AT } else { BLOCK_AT }
}

/// Where the data of a block or a log lies; those of no layout of their own come last, `small` of them.
fn data_part(i: usize, count: usize, small: usize) -> Part {
    if i + small >= count { Part::SmallData } else { Part::Data }
}

/// The first records of a log, written at once; with their offsets.
async fn fill(fs: &Arc<Fs>, fid: Fid) -> Result<BTreeMap<Record, u64>, Errno> {
    let records = (0..FILLED_RECORDS).map(|number| Record { actor: FILLER, number });
    let bytes: Vec<u8> = records.clone().flat_map(record).collect();
    fs.clone().write(call(), fid, 0, true, false, Bytes::from(bytes)).await?;
    fs.clone().fsync(call(), fid).await?;
    Ok(records.map(|r| (r, r.number * RECORD_BYTES as u64)).collect())
}

impl Shared {
    /// `many`: what [`file`] is asked for where a file is to lie on several objects.
    pub async fn new(fs: &Arc<Fs>, (osts, many): (i32, i32), often: Often) -> Result<Shared, Errno> {
        let dir = fs.clone().mkdir(call(), fs.root(), b"shared".to_vec(), 0o777).await?.fid;
        let mut block_files = Vec::new();
        for i in 0..BLOCKS {
            let stripes = block_stripes(i, many);
            block_files.push(file(fs, dir, &format!("block{i}"), stripes).await?);
        }
        let mut logs = Vec::new();
        for (i, stripes) in [1, many, 0].into_iter().enumerate() {
            let fid = file(fs, dir, &format!("log{i}"), stripes).await?;
            let mut log = AppendLog { fid: Some(fid), ..AppendLog::default() };
            // The next records come where it outgrows its inode, or its first component.
            if stripes == 0 || stripes >= COMPOSITE as i32 {
                log.filled = fill(fs, fid).await?;
            }
            logs.push(Mutex::new(log));
        }
        Ok(Shared {
            lock_file: file(fs, dir, "lock", 1).await?,
            locks: Locks::new(fs, dir, osts).await?,
            bulk: Bulk::new(fs, dir, osts).await?,
            dir,
            names: (0..NAMES).map(|_| Register::default()).collect(),
            block_files,
            blocks: (0..BLOCKS).map(|_| Register::default()).collect(),
            logs,
            holder: Mutex::new(None),
            clock: AtomicU64::new(1),
            often,
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    pub async fn step(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        match rng.below(14) {
            _ if self.often == Often::Names && rng.below(10) > 0 => self.name_op(run, actor, rng).await,
            _ if self.often == Often::Small && rng.below(10) > 0 => self.block_op(run, actor, rng).await,
            0..4 => self.name_op(run, actor, rng).await,
            4..7 => self.block_op(run, actor, rng).await,
            7..9 => self.append_op(run, actor, rng).await,
            9 => self.lock_op(run, actor, rng).await,
            10 => self.locks.group(run, actor, rng).await,
            11 => self.locks.range(run, actor, rng).await,
            12 => self.bulk.step(run, actor, rng).await,
            _ => crate::users::episode(run, self.dir, actor, rng).await,
        }
    }

    async fn name_op(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let (mount, fs, life) = run.mount(actor, rng).await;
        let i = rng.index(NAMES);
        let name = format!("name{i}").into_bytes();
        let called = self.tick();
        let m = &run.cluster.mounts[mount];
        let kind = rng.below(4);
        run.cluster
            .sim
            .log(|| format!("actor {actor} mount {mount} shared name{i} kind {kind}, moment {called}"));
        let work = async {
            match kind {
                0 => match fs.clone().create(call(), self.dir, name, 0o600, O_RDWR | O_EXCL, None).await {
                    Ok((a, f)) => {
                        fs.clone().close(Arc::new(f)).await?;
                        Ok(Act::Create { value: a.fid.ino(), done: Some(true) })
                    }
                    Err(Errno::EEXIST) => Ok(Act::Create { value: 0, done: Some(false) }),
                    Err(e) => Err(e),
                },
                1 => match fs.clone().unlink(call(), self.dir, name).await {
                    Ok(()) => Ok(Act::Remove { done: Some(true) }),
                    Err(Errno::ENOENT) => Ok(Act::Remove { done: Some(false) }),
                    Err(e) => Err(e),
                },
                _ => match fs.clone().lookup(call(), self.dir, name).await {
                    Ok(a) => Ok(Act::Read { saw: Some(a.fid.ino()) }),
                    Err(Errno::ENOENT) => Ok(Act::Read { saw: None }),
                    Err(e) => Err(e),
                },
            }
        };
        let done = run.bounded("shared name", alive(m, life, work)).await?;
        let event = match done {
            Ok(Ok(act)) => Event { act, called, returned: self.tick() },
            Ok(Err(e)) => return Err(format!("shared name{i} kind {kind} on mount {mount} gave {e}")),
            Err(Gone) if kind == 0 => {
                Event { act: Act::Create { value: UNKNOWN, done: None }, called, returned: u64::MAX }
            }
            Err(Gone) if kind == 1 => Event { act: Act::Remove { done: None }, called, returned: u64::MAX },
            Err(Gone) => return Ok(()),
        };
        let witness = Witness::new(&run.cluster, &fs, mount, life);
        self.names[i].note(run, Noted::new(event, witness), &[]);
        Ok(())
    }

    async fn block_op(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let at = run.mount(actor, rng).await;
        let small = self.often == Often::Small || rng.below(3) == 0;
        let i = if small { BLOCKS - 1 } else { rng.index(BLOCKS) };
        let write = rng.coin();
        // What a mount keeps of a small file, it finds when it looks again.
        let times = if write || i + 1 < BLOCKS { 1 } else { 3 };
        let how = match (write, rng.coin()) {
            (false, _) => Access::Read,
            (true, flush) => Access::Write { flush },
        };
        for _ in 0..times {
            self.block_once(run, actor, &at, i, how).await?;
        }
        Ok(())
    }

    async fn block_once(
        &self,
        run: &Run,
        actor: usize,
        (mount, fs, life): &(usize, Arc<Fs>, u64),
        i: usize,
        how: Access,
    ) -> Result<(), Violation> {
        let (mount, life) = (*mount, *life);
        let over = self.blocks[i].lost(run);
        let fid = self.block_files[i];
        let called = self.tick();
        let m = &run.cluster.mounts[mount];
        run.cluster
            .sim
            .log(|| format!("actor {actor} mount {mount} shared block{i} {how:?}, moment {called}"));
        let event = |act, returned| Event { act, called, returned };
        let (act, kept) = if let Access::Write { flush } = how {
            run.cluster.writes(fid, mount, life);
            let data = called.to_le_bytes().repeat(BLOCK_BYTES / 8);
            let work = async {
                let at = fs.clone().write(call(), fid, block_at(i), false, false, Bytes::from(data)).await?;
                // Its client may die: then nothing may be missing that others know of.
                if flush { fs.clone().fsync(call(), fid).await.map(|()| at) } else { Ok(at) }
            };
            let act = Act::Write { value: called };
            match run.bounded("shared write", alive(m, life, work)).await? {
                Ok(Ok(_)) => (act, !flush),
                Ok(Err(e)) => return Err(format!("write of shared block{i} on mount {mount} gave {e}")),
                Err(Gone) => {
                    let witness = Witness::new(&run.cluster, fs, mount, life);
                    let lost = Noted { kept: true, ..Noted::new(event(act, u64::MAX), witness) };
                    self.blocks[i].note(run, lost, &[]);
                    return Ok(());
                }
            }
        } else {
            let work = read_block(fs, fid, block_at(i));
            match run.bounded("shared read", alive(m, life, work)).await? {
                Ok(Ok(data)) => match block_value(&data) {
                    Some(saw) => (Act::Read { saw }, false),
                    None if self.may_be_torn(run, i, called, &data) => {
                        run.cluster.sim.count("torn_by_a_death");
                        return Ok(());
                    }
                    None => {
                        return Err(format!(
                            "read of shared block{i} on mount {mount} is torn: {} bytes",
                            data.len()
                        ));
                    }
                },
                Ok(Err(e)) => return Err(format!("read of shared block{i} on mount {mount} gave {e}")),
                Err(Gone) => return Ok(()),
            }
        };
        let witness = Witness::new(&run.cluster, fs, mount, life);
        let new = Noted { kept, ..Noted::new(event(act, self.tick()), witness) };
        let over = if act.is_write() { over } else { Vec::new() };
        self.blocks[i].note(run, new, &over);
        Ok(())
    }

    /// A block over several objects of which a part was lost with its writer, and that nobody has written
    /// anew since. What lies in one object is of one write all the same.
    fn may_be_torn(&self, run: &Run, i: usize, called: u64, data: &[u8]) -> bool {
        let striped = (1..BLOCKS - 2).contains(&i) || run.cluster.may_be_striped(self.block_files[i]);
        let torn = |n: &Noted| n.is_lost(run) && n.overwritten.is_none_or(|at| at > called);
        striped && whole_in_each_stripe(block_at(i), data) && lock(&self.blocks[i].0).iter().any(torn)
    }

    async fn append_op(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let (mount, fs, life) = run.mount(actor, rng).await;
        let i = rng.index(self.logs.len());
        let fid = lock(&self.logs[i]).fid.expect("made at the start");
        let r = Record { actor: actor as u64, number: self.tick() };
        let flush = rng.coin();
        run.cluster.writes(fid, mount, life);
        run.cluster.sim.log(|| format!("actor {actor} mount {mount} append to log{i} {r:?} flush {flush}"));
        let work = async {
            let at = fs.clone().write(call(), fid, 0, true, false, Bytes::from(record(r))).await?;
            if flush { fs.clone().fsync(call(), fid).await.map(|()| at) } else { Ok(at) }
        };
        let done = run.bounded("append", alive(&run.cluster.mounts[mount], life, work)).await?;
        let witness = Witness::new(&run.cluster, &fs, mount, life);
        let mut log = lock(&self.logs[i]);
        match done {
            Ok(Ok(at)) => drop(log.acked.insert(r, (at, witness, flush))),
            Ok(Err(e)) => return Err(format!("append to log{i} on mount {mount} gave {e}")),
            Err(Gone) => drop(log.maybe.insert(r)),
        }
        Ok(())
    }

    async fn lock_op(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let (mount, fs, life) = run.mount(actor, rng).await;
        let m = &run.cluster.mounts[mount];
        let owner = 1000 + actor as u64;
        let hold = Duration::from_micros(rng.below(3000));
        run.cluster.sim.log(|| format!("actor {actor} mount {mount} lock"));
        let work = async {
            client::Locks(&fs).flock(self.lock_file, owner, actor as u32, LockMode::Write, true).await?;
            if let Some((other, l)) = lock(&self.holder).replace((mount, life))
                && *run.cluster.mounts[other].life.borrow() == l
            {
                return Ok(Err(format!("mounts {other} and {mount} hold the same lock")));
            }
            run.cluster.sim.sleep(hold).await;
            *lock(&self.holder) = None;
            client::Locks(&fs).funlock(self.lock_file, owner).await?;
            Ok(Ok(()))
        };
        match run.bounded("lock", alive(m, life, work)).await? {
            Ok(Ok(r)) => r,
            Ok(Err::<_, Errno>(e)) => Err(format!("lock on mount {mount} gave {e}")),
            Err(Gone) => Ok(()),
        }
    }

    /// At the end, with every mount quiet.
    pub async fn verify(&self, run: &Run, fs: &Arc<Fs>) -> Result<(), Violation> {
        for (what, all) in [("name", &self.names), ("block", &self.blocks)] {
            for (i, r) in all.iter().enumerate() {
                let part = if what == "name" { Part::Names } else { data_part(i, BLOCKS, 2) };
                let events = what_stands(run, part, &lock(&r.0));
                run.cluster.sim.count(HISTORIES);
                match fits(&events) {
                    Verdict::Fits => {}
                    Verdict::Undecided => run.cluster.sim.count(UNDECIDED),
                    Verdict::Wrong => {
                        let why = contradiction(&events);
                        return Err(format!("the answers about shared {what}{i} fit no order: {why}"));
                    }
                }
            }
        }
        self.bulk.verify(run, fs).await?;
        for (i, log) in self.logs.iter().enumerate() {
            self.verify_log(run, fs, i, log).await?;
        }
        Ok(())
    }

    async fn verify_log(
        &self,
        run: &Run,
        fs: &Arc<Fs>,
        i: usize,
        log: &Mutex<AppendLog>,
    ) -> Result<(), Violation> {
        let (fid, acked, maybe) = {
            let l = lock(log);
            let (mut acked, mut maybe) = (l.filled.clone(), l.maybe.clone());
            for (r, (at, w, flushed)) in &l.acked {
                let kept = !flushed && w.dead(&run.cluster);
                if kept || run.may_be_lost(w, data_part(i, self.logs.len(), 1)) {
                    maybe.insert(*r);
                } else {
                    acked.insert(*r, *at);
                }
            }
            (l.fid.expect("made at the start"), acked, maybe)
        };
        let gave = |e: Errno| format!("log{i} cannot be read in the end: {e}");
        let file = Arc::new(fs.clone().open(call(), fid, 0).await.map_err(gave)?);
        let mut data = Vec::new();
        loop {
            let part =
                fs.clone().read(call(), file.clone(), data.len() as u64, 1 << 20).await.map_err(gave)?;
            if part.is_empty() {
                break;
            }
            data.extend_from_slice(&part);
        }
        fs.clone().close(file).await.map_err(gave)?;
        let mut seen = BTreeMap::new();
        for (n, chunk) in data.chunks(RECORD_BYTES).enumerate() {
            let at = (n * RECORD_BYTES) as u64;
            let word =
                |k: usize| chunk.get(k..k + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
            let r = Record { actor: word(0), number: word(8) };
            let hole = chunk.iter().all(|b| *b == 0);
            if hole || chunk != record(r) {
                // What a dying client wrote over several objects may be there in part, or be missing below
                // what is there.
                if maybe.is_empty() {
                    return Err(format!("log{i} holds a torn record at {at}"));
                }
                continue;
            }
            if !acked.contains_key(&r) && !maybe.contains(&r) {
                return Err(format!("log{i} holds {r:?} at {at}, which nobody wrote"));
            }
            if let Some(first) = seen.insert(r, at) {
                return Err(format!("log{i} holds {r:?} twice, at {first} and {at}"));
            }
        }
        for (r, at) in &acked {
            if seen.get(r) != Some(at) {
                return Err(format!("log{i}: {r:?} was acknowledged at {at} and is at {:?}", seen.get(r)));
            }
        }
        Ok(())
    }
}

/// The answers without those that may be lost: changes may have happened or not, what their client saw counts
/// for nothing. Of a client that died with a write of its own nothing counts either that it saw of that
/// write.
fn what_stands(run: &Run, part: Part, all: &[Noted]) -> Vec<Event> {
    let lost: Vec<&Noted> = all.iter().filter(|n| n.is_lost(run)).collect();
    let saw_lost = |n: &Noted| {
        let Act::Read { saw: Some(value) } = n.event.act else { return false };
        lost.iter().any(|l| l.event.act == Act::Write { value } && l.witness.same_client(&n.witness))
    };
    let of = |n: &Noted| {
        if saw_lost(n) {
            return None;
        }
        if !n.is_lost(run) && !run.may_be_lost(&n.witness, part) {
            return Some(n.event);
        }
        let saw = matches!(
            n.event.act,
            Act::Read { .. } | Act::Create { done: Some(false), .. } | Act::Remove { done: Some(false) }
        );
        (!saw).then_some(Event { returned: u64::MAX, ..n.event })
    };
    all.iter().filter_map(of).collect()
}

/// The last answers before the first moment after which there is no order any more.
fn contradiction(events: &[Event]) -> String {
    let mut moments: Vec<u64> = events.iter().filter(|e| e.answered()).map(|e| e.returned).collect();
    moments.sort_unstable();
    // What had no answer by then may have had any.
    let until = |t: u64| -> Vec<Event> {
        let begun = events.iter().filter(|e| e.called <= t);
        begun.map(|e| Event { returned: if e.returned > t { u64::MAX } else { e.returned }, ..*e }).collect()
    };
    let first = moments.partition_point(|t| fits(&until(*t)) != Verdict::Wrong);
    let mut last = until(moments.get(first).copied().unwrap_or(u64::MAX));
    last.sort_by_key(|e| (e.returned, e.called));
    let answered = last.iter().take_while(|e| e.answered()).count();
    let shown = &last[answered.saturating_sub(SHOWN)..];
    shown.iter().map(|e| format!("\n    {e}")).collect()
}

/// Whether the answers fit an order, for some choice of which file each unanswered create would have made.
fn fits(events: &[Event]) -> Verdict {
    let made: BTreeSet<u64> = events
        .iter()
        .filter_map(|e| match e.act {
            Act::Create { value, done: Some(true) } | Act::Write { value } => Some(value),
            _ => None,
        })
        .collect();
    let mut strangers = Vec::new();
    for e in events {
        if let Act::Read { saw: Some(v) } = e.act
            && !made.contains(&v)
            && !strangers.contains(&v)
        {
            strangers.push(v);
        }
    }
    let open: Vec<usize> = (0..events.len())
        .filter(|i| matches!(events[*i].act, Act::Create { value: UNKNOWN, done: None }))
        .collect();
    let mut events = events.to_vec();
    for (n, i) in open.iter().enumerate() {
        // Nobody ever sees such a value.
        events[*i].act = Act::Create { value: UNKNOWN - 1 - n as u64, done: None };
    }
    assign(&mut events, &open, &strangers)
}

fn assign(events: &mut [Event], open: &[usize], strangers: &[u64]) -> Verdict {
    let Some((first, rest)) = strangers.split_first() else { return linearizable(None, events) };
    let mut verdict = Verdict::Wrong;
    for (n, &i) in open.iter().enumerate() {
        let before = events[i].act;
        events[i].act = Act::Create { value: *first, done: None };
        let mut others = open.to_vec();
        others.remove(n);
        match assign(events, &others, rest) {
            Verdict::Wrong => {}
            Verdict::Fits => return Verdict::Fits,
            Verdict::Undecided => verdict = Verdict::Undecided,
        }
        events[i].act = before;
    }
    verdict
}

async fn read_block(fs: &Arc<Fs>, fid: Fid, at: u64) -> Result<Vec<u8>, Errno> {
    read_at(fs, fid, at, BLOCK_BYTES).await
}

/// Nothing is torn, or missing at the end, but where one stripe ends and the next begins.
fn whole_in_each_stripe(at: u64, data: &[u8]) -> bool {
    let first = ((STRIPE_BYTES - at % STRIPE_BYTES) as usize).min(data.len());
    let (head, rest) = data.split_at(first);
    let parts = std::iter::once(head).chain(rest.chunks(STRIPE_BYTES as usize));
    let ends = data.len() == BLOCK_BYTES || (at + data.len() as u64).is_multiple_of(STRIPE_BYTES);
    ends && parts.into_iter().all(|p| p.chunks(8).all(|c| c == &p[..8]))
}

/// The value a block holds; `None`: it is torn.
fn block_value(data: &[u8]) -> Option<Option<u64>> {
    if data.is_empty() {
        return Some(None);
    }
    let first: [u8; 8] = data.get(..8)?.try_into().ok()?;
    let whole = data.len() == BLOCK_BYTES && data.chunks(8).all(|c| c == first);
    whole.then_some(Some(u64::from_le_bytes(first)))
}
