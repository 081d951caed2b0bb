//! The walk: over the table in parts, at the rate that is allowed, until nothing is mended any more; then
//! over the objects. Where it is is written down every few seconds.

use super::mend::{self, Mend};
use super::objects;
use super::outcome::{Action, Mended};
use super::state::{Component, Options, State, Status, json_line};
use crate::MdsError;
use crate::check::{Finding, Rule, Watch, check_part};
use crate::mdt::Mdt;
use crate::schema::{key, value};
use crate::service::count_usage;
use crate::tx::Tx;
use crate::walk::walk;
use model::mutex::MutexGuard;
use model::{Errno, Fid, ObjectId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::{Read, Txn};
use world::{Either, Instant, OpenMode, select};

/// Records of a part, when nothing bounds the rate.
const PART: usize = 20_000;
/// With a bound: parts of a second.
const PARTS_A_SECOND: u64 = 4;
/// How often it is written down where it is.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// Of the log in the target's folder; then it begins anew, and the one before is kept as `lfsck.log.old`.
const LOG_MAX_BYTES: u64 = 64 << 20;
/// Until clients are back.
const PAUSE: Duration = Duration::from_millis(200);
/// Walks over the table, the first included: each but the first looks whether what the last one mended is
/// whole.
const WALKS_MAX: u32 = 5;

/// Why a walk ends before its end.
pub(super) enum Stopped {
    /// It was told to, or the target stops.
    Told,
    Failed(String),
}

impl From<Errno> for Stopped {
    fn from(e: Errno) -> Stopped {
        Stopped::Failed(e.to_string())
    }
}

/// Carries out what is ordered, until the target stops.
pub(crate) async fn keep(mdt: Arc<Mdt>) {
    let lfsck = &mdt.shared.lfsck;
    let mut orders = lfsck.orders();
    while mdt.recovery.recovering() && !mdt.stop.is_begun() {
        if mdt.stop.pause(PAUSE).await {
            return;
        }
    }
    loop {
        orders.mark_unchanged();
        if let Some(walk) = Walk::next(&mdt) {
            walk.run().await;
            continue;
        }
        if let Either::Left(()) = select(mdt.stop.begun(), Box::pin(orders.changed())).await {
            return;
        }
        if lfsck.state().next().is_none() {
            // It was stopped while nobody walked.
            keep_state(&mdt);
        }
    }
}

/// Writes down how it stands.
fn keep_state(mdt: &Mdt) {
    let bytes = {
        let mut s = mdt.shared.lfsck.state();
        s.speed = mdt.shared.lfsck.speed.load(Relaxed);
        s.encode()
    };
    assert!(!bytes.is_empty(), "a state is something");
    let mut txn = Txn::new();
    txn.put(key::STATE_LFSCK, bytes);
    if let Err(e) = mdt.db.submit(txn) {
        tracing::warn!("the position of lfsck is not kept: {e}");
    }
}

/// One component on its way.
pub(super) struct Walk<'a> {
    pub mdt: &'a Arc<Mdt>,
    pub component: Component,
    pub options: Options,
    /// Of which check it is: when another one is ordered it has nothing more to say.
    check: u64,
    saved: Instant,
    worked: Instant,
    /// In a dry run, objects that a file would have by now that nothing is put together for.
    pub claimed: BTreeSet<(u16, ObjectId)>,
}

impl<'a> Walk<'a> {
    /// Of what is to be done next; `None`: nothing is.
    fn next(mdt: &'a Arc<Mdt>) -> Option<Walk<'a>> {
        let (s, check) = mdt.shared.lfsck.state_and_check();
        let (component, options) = (s.next()?, s.options.clone()?);
        let now = mdt.world.now();
        Some(Walk { mdt, component, options, check, saved: now, worked: now, claimed: BTreeSet::new() })
    }

    /// How it stands, to be changed; `Told` if somebody ordered another check meanwhile, whose state it is.
    pub fn state(&self) -> Result<MutexGuard<'a, State>, Stopped> {
        let (s, check) = self.mdt.shared.lfsck.state_and_check();
        assert!(check >= self.check, "checks are counted upwards");
        if check == self.check { Ok(s) } else { Err(Stopped::Told) }
    }

    async fn run(mut self) {
        let label = model::TargetId::mdt(self.mdt.cfg.index).label(&self.mdt.cfg.fsname);
        tracing::info!("{label}: lfsck {} goes on", self.component.word());
        // What was ordered is carried out, whatever happens to the server now.
        self.save();
        let end = match self.component {
            Component::Namespace => self.names().await.map(|()| true),
            Component::Layout => objects::compare(&mut self).await,
        };
        let stopping = self.mdt.stop.is_begun();
        let wall = self.mdt.world.wall().sec;
        if let Ok(mut s) = self.state() {
            let p = s.part(self.component);
            match end {
                Ok(whole) => {
                    p.status = if whole { Status::Completed } else { Status::Partial };
                    p.completed = wall;
                    p.success += u64::from(whole);
                    p.inconsistent = p.counts.values().any(|n| n.left > 0);
                    if self.component == Component::Namespace {
                        s.at.clear();
                    } else {
                        s.objects_from_the_beginning(false);
                    }
                }
                Err(Stopped::Told) if stopping && p.status.is_under_way() => p.status = Status::Paused,
                Err(Stopped::Told) => {}
                Err(Stopped::Failed(why)) => {
                    tracing::error!("{label}: lfsck {} failed: {why}", self.component.word());
                    p.status = Status::Failed;
                }
            }
            let word = s.part(self.component).status.word();
            tracing::info!("{label}: lfsck {} {word}", self.component.word());
        }
        self.save();
        if stopping {
            // Nobody waits for more orders.
            self.mdt.stop.begun().await;
        }
    }

    /// The table, until nothing more is mended.
    async fn names(&mut self) -> Result<(), Stopped> {
        loop {
            let (at, walks) = {
                let mut s = self.state()?;
                let first = s.walks == 0;
                if !s.part(self.component).status.is_under_way() {
                    return Err(Stopped::Told);
                }
                s.part(self.component).status = if first { Status::Phase1 } else { Status::Phase2 };
                (s.at.clone(), s.walks)
            };
            let started = self.mdt.world.now();
            let (looked, next) = self.part(at).await?;
            self.count_looked(usize::from(walks > 0), looked);
            match next {
                Some(next) => self.state()?.at = next,
                None => {
                    self.totals().await?;
                    let mut s = self.state()?;
                    s.walks += 1;
                    s.at.clear();
                    let found = std::mem::take(&mut s.found_in_walk);
                    if found == 0 || self.options.dry_run || s.walks >= WALKS_MAX {
                        return Ok(());
                    }
                }
            }
            self.step(started, looked).await?;
        }
    }

    /// One part from `at` on: how much was looked at, and where to go on.
    async fn part(&mut self, at: Vec<u8>) -> Result<(u64, Option<Vec<u8>>), Stopped> {
        let failed = |e: &dyn std::fmt::Display| Stopped::Failed(e.to_string());
        let still = self.mdt.db.still().map_err(|e| failed(&e))?;
        let most = match self.speed() {
            0 => PART,
            n => (n / PARTS_A_SECOND).clamp(1, PART as u64) as usize,
        };
        let looked = self.mdt.world.blocking(move || {
            let watch = Watch::default();
            check_part(&still, &at, most, &watch).map(|p| (p, watch.looked.load(Relaxed)))
        });
        let (part, looked) = looked.await.map_err(|e| failed(&e))?;
        assert!(part.next.as_ref().is_none_or(|k| !k.is_empty()), "a walk goes on at a key");
        {
            let mut s = self.state()?;
            if s.walks == 0 {
                let p = s.part(self.component);
                p.inodes += part.summary.inodes;
                p.names += part.summary.names;
            }
        }
        let mut last: Option<Vec<u8>> = None;
        for f in part.summary.findings {
            // What is wrong with one record is mended at once.
            if !f.at.is_empty() && last.as_ref() == Some(&f.at) {
                continue;
            }
            last = Some(f.at.clone());
            self.finding(f).await?;
        }
        Ok((looked, part.next))
    }

    /// Looks again at what seems wrong.
    async fn finding(&mut self, f: Finding) -> Result<(), Stopped> {
        if !f.at.is_empty() && !mend::is_well_formed(&f.at) {
            return self.odd_key(f).await;
        }
        let done = self.mend(|m| if f.at.is_empty() { m.target() } else { m.record(&f.at) }).await?;
        let is_quota = f.at.is_empty() && f.rule == Rule::Directory;
        let is_limit = f.at.first() == Some(&key::LIMITS);
        if done.is_empty() && (f.rule == Rule::Changelog || is_quota || is_limit) {
            // A gap in the log is the consumers' business; what somebody may have is an administrator's.
            self.note(Mended { kind: "other", fid: f.fid, action: Action::Left, what: f.what });
        }
        self.note_all(done)
    }

    /// Mends in a transaction; in a dry run it is dropped.
    pub async fn mend(
        &self,
        mut f: impl FnMut(&mut Mend) -> Result<(), Errno> + Send,
    ) -> Result<Vec<Mended>, Stopped> {
        let (mut done, dry, create) = (Vec::new(), self.options.dry_run, self.options.create_files);
        let now = self.mdt.world.wall();
        let work = |tx: &mut Tx| {
            let mut m = Mend::new(tx, now, create);
            let result = f(&mut m);
            done = std::mem::take(&mut m.done);
            result?;
            // What is not submitted changes nothing.
            if dry { Err(Errno::ECANCELED) } else { Ok(Vec::new()) }
        };
        match self.mdt.transactions.transact(None, work).await.result {
            Ok(_) => Ok(done),
            Err(Errno::ECANCELED) if dry => Ok(done),
            Err(Errno::ESHUTDOWN) => Err(Stopped::Told),
            Err(e) => Err(Stopped::Failed(format!("a repair failed: {e}"))),
        }
    }

    pub fn note_all(&mut self, done: Vec<Mended>) -> Result<(), Stopped> {
        let left = done.iter().find(|m| m.action == Action::Left).map(|m| m.what.clone());
        done.into_iter().for_each(|m| self.note(m));
        match left {
            Some(what) if self.options.fail_out => Err(Stopped::Failed(what)),
            _ => Ok(()),
        }
    }

    pub fn note(&mut self, m: Mended) {
        assert!(!m.kind.is_empty() && !m.what.is_empty(), "what is told says what it is");
        if let Ok(mut s) = self.state() {
            s.count(self.component, &m);
            self.mdt.shared.lfsck.remember(&m);
        }
        let how = if self.options.dry_run { "would be" } else { "is" };
        model::event!(
            WARN,
            CheckFound,
            m.fid,
            "lfsck: {}: {}: {} ({how} {:?})",
            m.kind,
            m.fid,
            m.what,
            m.action
        );
        let path = format!("{}/lfsck.log", self.mdt.cfg.dir);
        let line = format!("{} {}\n", self.mdt.world.wall().sec, json_line(&m));
        let append = || -> std::io::Result<()> {
            let disk = &self.mdt.world.disk;
            let mut f = disk.open(&path, OpenMode::CREATE)?;
            if f.stat()?.len > LOG_MAX_BYTES {
                disk.rename(&path, &format!("{path}.old"))?;
                f = disk.open(&path, OpenMode::CREATE)?;
            }
            f.write_at(line.as_bytes(), f.stat()?.len)
        };
        if let Err(e) = append() {
            tracing::debug!("'{path}' is not written: {e}");
        }
    }

    /// A record whose key is none: no transaction of names knows what that is about.
    async fn odd_key(&mut self, f: Finding) -> Result<(), Stopped> {
        assert!(!mend::is_well_formed(&f.at), "a record with a good key is a transaction's");
        let there = self.mdt.db.get(&f.at).map_err(|e| Stopped::Failed(e.to_string()))?;
        let Some(v) = there else { return Ok(()) };
        let mut name = String::new();
        self.mend(|m| {
            name = m.keep_record(Fid::NONE, &f.at, &v)?;
            Ok(())
        })
        .await?;
        if !self.options.dry_run {
            self.beside(|| {
                let mut txn = Txn::new();
                txn.delete(f.at.clone());
                self.mdt.db.submit(txn).map(drop)
            })
            .await?;
        }
        let what = format!("{}: its bytes are in lost+found as '{name}'", f.what);
        self.note_all(vec![Mended { kind: "damaged_key", fid: f.fid, action: Action::Quarantined, what }])
    }

    /// Writes what is no transaction's of names; not while the target is frozen.
    async fn beside(&self, write: impl Fn() -> Result<(), store::StoreError>) -> Result<(), Stopped> {
        loop {
            self.mdt.transactions.thawed().await.map_err(|_| Stopped::Told)?;
            let _alone = self.mdt.core.write();
            if !self.mdt.shared.barrier.holds() {
                return write().map_err(|e| Stopped::Failed(e.to_string()));
            }
        }
    }

    /// What is counted over all inodes.
    async fn totals(&mut self) -> Result<(), Stopped> {
        let done = self.mend(|m| m.target()).await?;
        self.note_all(done)?;
        self.inode_count().await?;
        let (db, dry) = (self.mdt.db.clone(), self.options.dry_run);
        let shared = self.mdt.shared.clone();
        let differs = self.mdt.world.blocking(move || -> Result<Vec<String>, store::StoreError> {
            if dry {
                let still = db.still()?;
                return Ok(store::usage::difference(&still, &count_usage(&still)?)?.into_iter().collect());
            }
            let reply = shared.usage.answer(&db, &wire::msg::quotactl::QuotaAsk::Verify, count_usage)?;
            let line = |(id, was, is): &(model::usage::QuotaId, model::usage::Usage, model::usage::Usage)| {
                format!(
                    "usage of {id} was {} inodes and {} blocks, counted are {} inodes and {} blocks",
                    was.inodes, was.blocks, is.inodes, is.blocks
                )
            };
            Ok(reply.differed.iter().map(line).collect())
        });
        match differs.await {
            Ok(lines) => {
                for what in lines {
                    self.note(Mended { kind: "usage", fid: Fid::NONE, action: Action::Repaired, what });
                }
                Ok(())
            }
            // Somebody else counts and corrects it now.
            Err(e) if e.errno() == Errno::EBUSY => Ok(()),
            Err(e) => Err(Stopped::Failed(format!("usage cannot be counted: {e}"))),
        }
    }

    /// The target's count of inodes.
    async fn inode_count(&mut self) -> Result<(), Stopped> {
        let still = self.mdt.db.still().map_err(|e| Stopped::Failed(e.to_string()))?;
        let counted = self.mdt.world.blocking(move || -> Result<(u64, Option<u64>), MdsError> {
            let stored = still.get(key::STATE_INODES)?;
            let stored = stored.and_then(|v| value::decode_u64(key::STATE_INODES, &v).ok());
            let mut n = 0;
            walk(&still, &[key::INODE], &[key::INODE + 1], |_, _| {
                n += 1;
                Ok(())
            })?;
            Ok((n, stored))
        });
        let (there, stored) = counted.await.map_err(|e| Stopped::Failed(e.to_string()))?;
        if stored == Some(there) {
            return Ok(());
        }
        let what = format!("{} inodes were counted, there are {there}", stored.unwrap_or(0));
        if !self.options.dry_run {
            assert_ne!(stored, Some(there), "what is right is not set right");
            self.beside(|| {
                // Others made and removed some since.
                let now = self.mdt.shared.inodes.load(Relaxed);
                let known = stored.unwrap_or(now);
                let right =
                    now.saturating_add_signed(there.cast_signed().saturating_sub(known.cast_signed()));
                let mut txn = Txn::new();
                txn.put(key::STATE_INODES, value::encode_u64(right));
                self.mdt.db.submit(txn)?;
                self.mdt.shared.inodes.store(right, Relaxed);
                Ok(())
            })
            .await?;
        }
        self.note_all(vec![Mended { kind: "inode_count", fid: Fid::NONE, action: Action::Repaired, what }])
    }

    pub fn speed(&self) -> u64 {
        self.mdt.shared.lfsck.speed.load(Relaxed)
    }

    pub fn count_looked(&self, phase: usize, looked: u64) {
        assert!(phase < 2, "a check has two phases");
        if let Ok(mut s) = self.state() {
            s.part(self.component).checked[phase] += looked;
        }
    }

    /// Behind a part: others have their turn, and it is written down where it is. `Told` if it is to stop.
    pub async fn step(&mut self, started: Instant, looked: u64) -> Result<(), Stopped> {
        let now = self.mdt.world.now();
        let speed = self.speed();
        let took = now.since(started);
        let due = looked.saturating_mul(1_000_000).checked_div(speed).map(Duration::from_micros);
        if let Some(due) = due {
            if due > took && self.mdt.stop.pause(due.saturating_sub(took)).await {
                return Err(Stopped::Told);
            }
        } else {
            self.mdt.world.sleep(Duration::from_micros(1)).await;
        }
        if now.since(self.saved) > SAVE_EVERY {
            self.save();
            self.saved = now;
        }
        let under_way = self.state()?.part(self.component).status.is_under_way();
        if !under_way || self.mdt.stop.is_begun() { Err(Stopped::Told) } else { Ok(()) }
    }

    /// Writes down where it is. If that is lost some records are looked at twice.
    fn save(&mut self) {
        let now = self.mdt.world.now();
        if let Ok(mut s) = self.state() {
            let names = self.component == Component::Namespace;
            let second = s.part(self.component).status == Status::Phase2 || names && s.walks > 1;
            let p = s.part(self.component);
            p.checkpoint = self.mdt.world.wall().sec;
            p.run_ms[usize::from(second)] += now.since(self.worked).as_millis() as u64;
        }
        self.worked = now;
        keep_state(self.mdt);
    }
}
