//! What looks after the changelog in the background: records that all consumers cleared are freed, some at a
//! time, and consumers that are away for too long, or for which the log would take too much room, are
//! consumers no more.

use super::consumers::{self, drop_idle};
use super::{Changelog, Log};
use crate::mdt::Mdt;
use crate::schema::changelog::{Consumer, LogEntry};
use crate::schema::key;
use crate::tx::Tx;
use model::{Errno, TargetId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use world::{Either, Instant, select};

/// Records that one transaction frees.
const FREED_AT_ONCE: usize = 500;
/// Between two looks while there are consumers: how much room there is.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// After a failure.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Part of the room that there is which the log may take: one in so many.
const ROOM_PART: u64 = 4;
/// A consumer is warned of when it has used up so many quarters of its time.
const WARNED_AT_QUARTERS: u64 = 3;

/// Looks after it until the target stops.
pub async fn keep(mdt: Arc<Mdt>) {
    let mut looks = mdt.shared.changelog.looks.subscribe();
    let mut keeper = Keeper { mdt: &mdt, warned: BTreeSet::new(), last_gc: mdt.world.now() };
    loop {
        let rest = keeper.look().await;
        let again = async {
            match rest {
                Some(rest) => {
                    select(looks.changed(), mdt.world.sleep(rest)).await;
                }
                // The sender lives as long as the target.
                None => {
                    let _ = looks.changed().await;
                }
            }
        };
        if let Either::Left(()) = select(mdt.stop.begun(), Box::pin(again)).await {
            return;
        }
    }
}

struct Keeper<'a> {
    mdt: &'a Arc<Mdt>,
    /// Consumers whose absence was warned of.
    warned: BTreeSet<u32>,
    /// When it was looked last who is away. Who could not come because this target was down has some time.
    last_gc: Instant,
}

impl Keeper<'_> {
    fn changelog(&self) -> &Changelog {
        &self.mdt.shared.changelog
    }

    /// Does what is to be done. After how long it is to be looked again; `None`: when something changes.
    async fn look(&mut self) -> Option<Duration> {
        if let Err(e) = self.keep().await {
            if e != Errno::ESHUTDOWN {
                tracing::error!("{}: the changelog cannot be looked after: {e}", self.label());
            }
            return Some(TRY_AGAIN);
        }
        let log = self.changelog().log.lock();
        (!log.state.consumers.is_empty()).then_some(LOOK_AGAIN)
    }

    async fn keep(&mut self) -> Result<(), Errno> {
        self.free().await?;
        self.keep_bounds().await?;
        self.free().await
    }

    fn label(&self) -> String {
        TargetId::mdt(self.mdt.cfg.index).label(&self.mdt.cfg.fsname)
    }

    /// Frees what all consumers cleared.
    async fn free(&self) -> Result<(), Errno> {
        while self.changelog().log.lock().is_freeable() {
            let done = self.mdt.transactions.transact(None, free_some).await;
            done.result?;
            // Not more in memory than the journal has taken.
            self.mdt.db.durable(done.wait).await.map_err(|e| e.errno())?;
            if self.mdt.stop.is_begun() {
                return Err(Errno::ESHUTDOWN);
            }
        }
        Ok(())
    }

    /// Drops consumers that are away for too long; and if the log takes too much room, those that need the
    /// oldest records.
    async fn keep_bounds(&mut self) -> Result<(), Errno> {
        if self.changelog().log.lock().state.consumers.is_empty() {
            self.warned.clear();
            return Ok(());
        }
        if self.is_gc_due() {
            self.drop_absent().await?;
        }
        self.measure_room();
        let mut freed = u64::MAX;
        loop {
            let (bytes, oldest) = {
                let log = self.changelog().log.lock();
                (log.bytes(), log.state.consumers.iter().min_by_key(|c| (c.cleared, c.heard)).cloned())
            };
            let bound = self.changelog().bound.load(Relaxed);
            let Some(c) = oldest.filter(|_| bytes > bound && bytes < freed) else { return Ok(()) };
            let why = format!("the changelog takes {bytes} bytes, and may take {bound}");
            self.drop_consumer(&c, &why).await?;
            freed = bytes;
            self.free().await?;
        }
    }

    /// How much the log may take.
    fn measure_room(&self) {
        let set = self.changelog().limits.max_bytes.load(Relaxed);
        let bound = match self.mdt.world.disk.space(&self.mdt.cfg.dir) {
            _ if set > 0 => set,
            Ok(s) => s.available.saturating_add(self.changelog().bytes()) / ROOM_PART,
            Err(_) => return,
        };
        self.changelog().bound.store(bound, Relaxed);
    }

    fn is_gc_due(&mut self) -> bool {
        let limits = &self.changelog().limits;
        let interval = Duration::from_secs(limits.min_gc_interval_s.load(Relaxed));
        let now = self.mdt.world.now();
        let due = now.since(self.last_gc) >= interval;
        if !limits.gc.load(Relaxed) || !due {
            return false;
        }
        self.last_gc = now;
        true
    }

    async fn drop_absent(&mut self) -> Result<(), Errno> {
        let limits = &self.changelog().limits;
        let max_time = limits.max_idle_time_s.load(Relaxed);
        let max_indexes = limits.max_idle_indexes.load(Relaxed);
        let now = self.mdt.world.wall().sec;
        let last = self.changelog().last();
        let consumers = self.changelog().state().consumers;
        self.warned.retain(|id| consumers.iter().any(|c| c.id == *id));
        for c in consumers {
            let behind = last.saturating_sub(c.cleared);
            let idle = u64::try_from(now.saturating_sub(c.heard)).unwrap_or(0);
            // Who needs nothing that there is, is not away.
            if behind == 0 {
                self.warned.remove(&c.id);
                continue;
            }
            let said = format!("{behind} records wait for it, and it cleared none for {idle} s");
            if idle > max_time || behind > max_indexes {
                self.drop_consumer(&c, &said).await?;
            } else if is_near(idle, max_time) || is_near(behind, max_indexes) {
                if self.warned.insert(c.id) {
                    tracing::warn!(
                        "{}: changelog consumer {} will be dropped soon: {said}; run it, or deregister it",
                        self.label(),
                        c.label()
                    );
                }
            } else {
                self.warned.remove(&c.id);
            }
        }
        Ok(())
    }

    async fn drop_consumer(&self, c: &Consumer, why: &str) -> Result<(), Errno> {
        let mut dropped = false;
        let work = |tx: &mut Tx| {
            dropped = drop_idle(tx, c)?;
            Ok(Vec::new())
        };
        self.mdt.transactions.transact(None, work).await.result?;
        if dropped {
            model::event!(
                WARN,
                ConsumerDropped,
                self.label(),
                "{}: changelog consumer {} is dropped: {why}; what it did not read is lost to it: register it anew and have it look at the whole file system",
                self.label(),
                c.label()
            );
        }
        Ok(())
    }
}

fn is_near(n: u64, max: u64) -> bool {
    n > max / 4 * WARNED_AT_QUARTERS
}

impl Log {
    /// Some records are needed by nobody.
    fn is_freeable(&self) -> bool {
        self.state.first <= self.state.cleared_by_all(self.next - 1) && self.state.first < self.next
    }
}

/// Frees the oldest records, as many as one transaction may.
fn free_some(tx: &mut Tx) -> Result<Vec<u8>, Errno> {
    let newest = tx.shared.changelog.last();
    let mut s = consumers::state(tx)?;
    let upto = s.cleared_by_all(newest).min(newest);
    if s.first > upto {
        return Ok(Vec::new());
    }
    let some = tx.scan(&key::changelog(s.first), &key::changelog(upto + 1), FREED_AT_ONCE)?;
    let whole = some.len() < FREED_AT_ONCE;
    for (k, v) in some {
        // What is damaged goes as well: nobody needs it.
        if let Ok(e) = LogEntry::decode(&k, &v) {
            s.freed_bytes = s.freed_bytes.max(e.total);
        }
        s.first = key::parse_changelog(&k).map_or(s.first, |index| index + 1);
        tx.delete(k);
    }
    if whole {
        s.first = upto + 1;
    }
    assert!(s.first <= upto + 1, "what some consumer needs is not freed");
    consumers::put(tx, &s);
    Ok(Vec::new())
}
