//! A policy that purges while users work on the same files, in the runs that have a changelog. A rule takes
//! files that nobody has changed for long, unless they are a certain user's. Users give such files to him,
//! touch, rename and write them, often the very one that is being purged.
//!
//! The changelog says in which order the metadata server did all of it: a file that did not fit any more was
//! never deleted, each deletion that was answered is there once, and so is what users were answered, of each
//! file in its order.

use crate::changelog;
use crate::cluster::Cluster;
use crate::exec::{O_EXCL, O_RDWR, STRIPE_BYTES, call, public_dir};
use crate::executor::lock;
use crate::losses::{Part, Witness};
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use client::control::Seen;
use client::{Admin, Call, Fs, Victim};
use model::changelog::{Record, RecordKind, flags};
use model::mutex::Mutex;
use model::{Attr, Cred, Errno, Fid, LayoutSpec, SetAttr, SetTime, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::scan::{Condition, Number, Test};

/// His files are exempt.
const EXEMPT: u32 = 1800;
/// Users delete as this one; the policy is root.
const USER: u32 = 1801;
/// Files go that were not changed since then: seconds since 1970. Clocks are far beyond.
const OLD_S: i64 = 1_000_000;
/// Files at a time.
const FILES: usize = 10;
/// The number of a change that is a write.
const WRITE: u64 = 14;
/// What records are compared in their order.
const COMPARED: [RecordKind; 6] = [
    RecordKind::Create,
    RecordKind::Setattr,
    RecordKind::Mtime,
    RecordKind::Rename,
    RecordKind::Setxattr,
    RecordKind::Unlink,
];

/// Of those, what needs no name.
const CHANGES_INODE: [RecordKind; 3] = [RecordKind::Setattr, RecordKind::Mtime, RecordKind::Setxattr];

/// A change that somebody asked for.
struct Wish {
    kind: RecordKind,
    /// `None`: there was no answer, or an error that does not say that nothing was done.
    answered: Option<Witness>,
    /// It was asked for before the purge of the file was answered, and came to its end later.
    beside_purge: bool,
}

/// A file that was made.
struct Candidate {
    fid: Fid,
    name: Vec<u8>,
    wishes: Vec<Wish>,
    /// It began with an object: times are the object's.
    has_objects: bool,
    /// Users go on with it.
    is_used: bool,
    /// Somebody wrote to it: that is told of when it comes to the metadata server, between other changes.
    is_written: bool,
    purged: Option<Wish>,
}

#[derive(Default)]
struct Ledger {
    files: Vec<Candidate>,
    /// What is being purged now.
    aim: Option<usize>,
}

/// Both sides.
pub(crate) struct Purges {
    users: Users,
    policy: Policy,
    ledger: Arc<Mutex<Ledger>>,
}

pub(crate) struct Users {
    rng: Rng,
    dir: Fid,
    ledger: Arc<Mutex<Ledger>>,
    made: u64,
}

pub(crate) struct Policy {
    rng: Rng,
    dir: Fid,
    ledger: Arc<Mutex<Ledger>>,
}

fn old() -> SetAttr {
    let then = SetTime::At(Timestamp { sec: OLD_S - 1, nsec: 0 });
    SetAttr { mtime: Some(then), ..SetAttr::default() }
}

fn within(of: Number, from: i64, to: i64) -> Test {
    Test { negated: false, condition: Condition::Within(of, from, to) }
}

/// A purge that gave this did nothing.
fn is_refusal(e: Errno) -> bool {
    matches!(e, Errno::ENOENT | Errno::ESTALE | Errno::ECANCELED | Errno::EBUSY | Errno::EEXIST)
}

impl Purges {
    pub(crate) fn new(seed: u64) -> Option<Purges> {
        let ledger = Arc::<Mutex<Ledger>>::default();
        let mut rng = Rng::new(seed ^ 0x0070_7572_6765);
        let users = Users { rng: rng.fork(), dir: Fid::ROOT, ledger: ledger.clone(), made: 0 };
        let policy = Policy { rng: rng.fork(), dir: Fid::ROOT, ledger: ledger.clone() };
        changelog::is_kept(seed).then_some(Purges { users, policy, ledger })
    }

    pub(crate) async fn begin(&mut self, fs: &Arc<Fs>) -> Result<(), Violation> {
        let dir = public_dir(fs, fs.root(), b"purged".to_vec()).await;
        let dir = dir.map_err(|e| format!("a directory for what is purged gave {e}"))?;
        (self.users.dir, self.policy.dir) = (dir, dir);
        Ok(())
    }

    pub(crate) fn parts(&mut self) -> (&mut Users, &mut Policy) {
        (&mut self.users, &mut self.policy)
    }

    /// By the changelog, when everything is quiet.
    pub(crate) fn check(&self, c: &Cluster) -> Result<(), Violation> {
        let db = c.mdt_db().ok_or("the metadata target is down")?;
        let Some(all) = changelog::records(&db, &lock(&c.shown))? else { return Ok(()) };
        let mut of: BTreeMap<Fid, Vec<&Record>> = BTreeMap::new();
        for r in &all {
            of.entry(r.source.as_ref().map_or(r.fid, |s| s.fid)).or_default().push(r);
        }
        let ledger = lock(&self.ledger);
        let fids: BTreeSet<Fid> = ledger.files.iter().map(|f| f.fid).collect();
        if fids.len() != ledger.files.len() {
            return Err("a file was made twice".into());
        }
        for f in &ledger.files {
            let records = of.remove(&f.fid).unwrap_or_default();
            let said = |what: String| {
                let kinds: Vec<_> = records.iter().map(|r| (r.index, r.kind)).collect();
                format!("{} ({}): {what}: {kinds:?}", f.fid, String::from_utf8_lossy(&f.name))
            };
            was_due(f.has_objects, &records).map_err(said)?;
            is_told(c, f, &records).map_err(said)?;
        }
        Ok(())
    }
}

/// The policy did not delete what did not fit any more.
fn was_due(mut has_objects: bool, records: &[&Record]) -> Result<(), String> {
    let (mut given, mut times) = (false, 0);
    for r in records {
        match r.kind {
            RecordKind::Setattr => given |= r.flags & flags::UID != 0,
            // The first one makes it old.
            RecordKind::Mtime => times += u32::from(r.flags & flags::MTIME != 0),
            // Times of a file with objects are theirs: the metadata server looks at them no more.
            RecordKind::Layout => has_objects = true,
            RecordKind::Unlink if r.by.uid == 0 && given => {
                return Err("it was purged when it was an exempt user's".into());
            }
            RecordKind::Unlink if r.by.uid == 0 && times > 1 && !has_objects => {
                return Err("it was purged when it had been touched".into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// What was answered has a record each, in that order, and nothing else has one.
fn is_told(c: &Cluster, f: &Candidate, records: &[&Record]) -> Result<(), String> {
    // Of two that are under way at once either may be first. Mostly a change of a file that was purged before
    // is refused; a server that has just restarted has the file for whoever may have it open, and does it.
    let beside = f.wishes.iter().position(|w| w.beside_purge && CHANGES_INODE.contains(&w.kind));
    let (before, after) = f.wishes.split_at(beside.unwrap_or(f.wishes.len()));
    let purged_last = f.wishes.iter().chain(&f.purged);
    let purged_first = before.iter().chain(&f.purged).chain(after);
    in_order(c, f, records, purged_last).or_else(|e| in_order(c, f, records, purged_first).map_err(|_| e))
}

fn in_order<'a>(
    c: &Cluster,
    f: &Candidate,
    records: &[&Record],
    wishes: impl Iterator<Item = &'a Wish>,
) -> Result<(), String> {
    let compared = |k: RecordKind| COMPARED.contains(&k) && !(f.is_written && k == RecordKind::Mtime);
    let got: Vec<RecordKind> = records.iter().map(|r| r.kind).filter(|k| compared(*k)).collect();
    let wishes = wishes.filter(|w| compared(w.kind));
    // Places of `got` that may have been reached.
    let mut at = BTreeSet::from([0]);
    let mut wanted = Vec::new();
    for w in wishes {
        let certain = w.answered.as_ref().is_some_and(|a| !a.doubtful(c, Part::Names));
        wanted.push((w.kind, certain));
        let on: BTreeSet<usize> =
            at.iter().filter(|n| got.get(**n) == Some(&w.kind)).map(|n| n + 1).collect();
        at = if certain { on } else { &at | &on };
    }
    if at.contains(&got.len()) { Ok(()) } else { Err(format!("{wanted:?} were asked for (certainly?)")) }
}

impl Users {
    /// Until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            c.sim.sleep(Duration::from_micros(self.rng.range(200, 20_000))).await;
            let (m, fs, life) = run.mount(self.rng.index(c.mounts.len()), &mut self.rng).await;
            let used: Vec<usize> = {
                let l = lock(&self.ledger);
                (0..l.files.len()).filter(|i| l.files[*i].is_used).collect()
            };
            let aim = lock(&self.ledger).aim.filter(|i| used.contains(i) && self.rng.below(4) > 0);
            if used.len() < FILES && aim.is_none() {
                let one = alive(&c.mounts[m], life, self.make(&fs));
                let Ok(Some(made)) = run.bounded("making a file to purge", one).await? else { continue };
                let witness = Witness::new(&c, &fs, m, life);
                self.add(made, &witness);
                continue;
            }
            let i = aim.unwrap_or_else(|| *self.rng.pick(&used));
            self.change(&run, i, (m, &fs, life)).await?;
        }
        Ok(())
    }

    /// A file that is old, and whether it has an object. `None`: it may be there or not.
    async fn make(&mut self, fs: &Arc<Fs>) -> Option<(Fid, bool)> {
        self.made += 1;
        let name = format!("f{}", self.made).into_bytes();
        let spec = LayoutSpec { stripe_count: 1, stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
        let has_objects = self.rng.below(6) == 0;
        let spec = has_objects.then_some(spec);
        let made = fs.clone().create(call(), self.dir, name, 0o666, O_RDWR | O_EXCL, spec).await;
        let (a, f) = made.ok()?;
        fs.clone().close(Arc::new(f)).await.ok()?;
        fs.clone().setattr(call(), a.fid, old()).await.ok()?;
        Some((a.fid, has_objects))
    }

    fn add(&mut self, (fid, has_objects): (Fid, bool), witness: &Witness) {
        let wish = |kind| Wish { kind, answered: Some(witness.clone()), beside_purge: false };
        let wishes = vec![wish(RecordKind::Create), wish(RecordKind::Mtime)];
        let name = format!("f{}", self.made).into_bytes();
        let (is_used, is_written, purged) = (true, false, None);
        lock(&self.ledger).files.push(Candidate {
            fid,
            name,
            wishes,
            has_objects,
            is_used,
            is_written,
            purged,
        });
    }

    /// One change of a file.
    async fn change(
        &mut self,
        run: &Arc<Run>,
        i: usize,
        (m, fs, life): (usize, &Arc<Fs>, u64),
    ) -> Result<(), Violation> {
        let c = &run.cluster;
        let (fid, name, was_there) = {
            let l = lock(&self.ledger);
            (l.files[i].fid, l.files[i].name.clone(), l.files[i].purged.is_none())
        };
        let new_name = format!("r{i}-{}", self.rng.below(1_000_000)).into_bytes();
        let what = self.rng.below(16);
        let work = self.one(fs, what, (fid, name, new_name.clone()));
        let done = run.bounded("a change of what is purged", alive(&c.mounts[m], life, work)).await?;
        let mut l = lock(&self.ledger);
        let f = &mut l.files[i];
        f.is_written |= what == WRITE;
        let beside_purge = was_there && f.purged.is_some();
        match (done, kind_of(what)) {
            (Ok(Ok(())), kind) => {
                let answered = Some(Witness::new(c, fs, m, life));
                f.wishes.extend(kind.map(|kind| Wish { kind, answered, beside_purge }));
                f.is_used &= kind != Some(RecordKind::Unlink);
                if kind == Some(RecordKind::Rename) {
                    f.name = new_name;
                }
                c.sim.count("purged_file_changed");
            }
            // Also where the file is gone by the time of the answer a part of it may have been done before.
            (Ok(Err(_)) | Err(Gone), kind) => {
                f.is_used = false;
                f.wishes.extend(kind.map(|kind| Wish { kind, answered: None, beside_purge }));
            }
        }
        Ok(())
    }

    async fn one(
        &mut self,
        fs: &Arc<Fs>,
        what: u64,
        (fid, name, new_name): (Fid, Vec<u8>, Vec<u8>),
    ) -> Result<(), Errno> {
        let set = |set: SetAttr| fs.clone().setattr(call(), fid, set);
        match what {
            0..3 => set(SetAttr { uid: Some(EXEMPT), ..SetAttr::default() }).await.map(drop),
            3..6 => {
                let mtime = Some(SetTime::At(Timestamp { sec: OLD_S * 2, nsec: 0 }));
                set(SetAttr { mtime, ..SetAttr::default() }).await.map(drop)
            }
            6..9 => {
                let mode = Some(0o600 | self.rng.below(0o70) as u32);
                set(SetAttr { mode, ..SetAttr::default() }).await.map(drop)
            }
            9..12 => fs.clone().rename(call(), self.dir, name, self.dir, new_name, 0).await,
            12 => {
                let value = self.rng.below(1 << 30).to_le_bytes().to_vec();
                fs.clone().setxattr(call(), fid, b"user.p".to_vec(), value, 0, false).await
            }
            13 => {
                let by = Call { cred: Cred::new(USER, USER), ..call() };
                fs.clone().unlink(by, self.dir, name).await
            }
            WRITE => fs.clone().write(call(), fid, 0, false, false, vec![1; 100].into()).await.map(drop),
            _ => look(fs, fid).await,
        }
    }
}

/// What record the change of this number has.
fn kind_of(what: u64) -> Option<RecordKind> {
    match what {
        0..3 | 6..9 => Some(RecordKind::Setattr),
        3..6 => Some(RecordKind::Mtime),
        9..12 => Some(RecordKind::Rename),
        12 => Some(RecordKind::Setxattr),
        13 => Some(RecordKind::Unlink),
        _ => None,
    }
}

/// Somebody has it open for a moment.
async fn look(fs: &Arc<Fs>, fid: Fid) -> Result<(), Errno> {
    let f = Arc::new(fs.clone().open(call(), fid, 0).await?);
    let read = fs.clone().read(call(), f.clone(), 0, 10).await.map(drop);
    fs.clone().close(f).await?;
    read
}

impl Policy {
    /// Until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            c.sim.sleep(Duration::from_micros(self.rng.range(500, 30_000))).await;
            let (m, fs, life) = run.mount(self.rng.index(c.mounts.len()), &mut self.rng).await;
            let there: Vec<usize> = {
                let l = lock(&self.ledger);
                let gone = |f: &Candidate| f.purged.is_some();
                (0..l.files.len()).filter(|i| !gone(&l.files[*i])).collect()
            };
            if there.is_empty() {
                continue;
            }
            // Mostly what is new: the others do not fit any more.
            let late = there.len().saturating_sub(FILES);
            let from = if self.rng.below(4) > 0 { late } else { 0 };
            let i = there[from + self.rng.index(there.len() - from)];
            lock(&self.ledger).aim = Some(i);
            let one = alive(&c.mounts[m], life, self.purge(&c, &fs, i));
            let done = run.bounded("a purge", one).await?;
            let mut l = lock(&self.ledger);
            l.aim = None;
            let kind = RecordKind::Unlink;
            match done {
                Ok(Ok(())) => {
                    c.sim.count("file_purged");
                    let answered = Some(Witness::new(&c, &fs, m, life));
                    l.files[i].purged = Some(Wish { kind, answered, beside_purge: false });
                }
                Ok(Err(Errno::ECANCELED)) => c.sim.count("purge_refused"),
                Ok(Err(e)) if is_refusal(e) => {}
                Ok(Err(_)) | Err(Gone) => {
                    l.files[i].purged = Some(Wish { kind, answered: None, beside_purge: false })
                }
            }
        }
        Ok(())
    }

    async fn purge(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>, i: usize) -> Result<(), Errno> {
        let name = lock(&self.ledger).files[i].name.clone();
        let a = fs.clone().lookup(call(), self.dir, name.clone()).await.map_err(|_| Errno::ENOENT)?;
        if a.fid != lock(&self.ledger).files[i].fid {
            return Err(Errno::ENOENT);
        }
        // The rule is looked at here, as a run does. Now and then not: the server must, whoever asks.
        let fits = a.uid != EXEMPT && a.mtime.sec <= OLD_S && a.nlink == 1;
        if !fits && self.rng.below(8) > 0 {
            return Err(Errno::ECANCELED);
        }
        if self.rng.coin() {
            c.sim.sleep(Duration::from_micros(self.rng.below(2_000))).await;
        }
        let victim = Victim {
            parent: self.dir,
            name,
            seen: seen(&a),
            tests: vec![within(Number::Mtime, i64::MIN, OLD_S)],
            unless: vec![vec![within(Number::Uid, i64::from(EXEMPT), i64::from(EXEMPT))]],
        };
        Admin(fs).purge(call(), victim).await
    }
}

fn seen(a: &Attr) -> Seen {
    Seen {
        fid: a.fid,
        uid: a.uid,
        gid: a.gid,
        projid: a.projid,
        size: a.size,
        atime: a.atime,
        mtime: a.mtime,
        ctime: a.ctime,
    }
}
