//! The changelog of a metadata target: a record for each change, in the transaction that makes it, as long
//! as there is a consumer, until all consumers have cleared it (decision 0065).
//!
//! `change` is what operations say, `consumers` who reads and clears, `page` what readers are answered,
//! `keeper` frees records and drops consumers that are away for too long, `check` is a part of `nacre fsck`.
//! Here is what of it is in memory: a transaction looks at it, and changes it, under the lock of the core.

mod change;
pub mod check;
mod consumers;
mod denied;
mod keeper;
mod page;
mod params;

pub use change::{Change, Notes};
pub use consumers::{clear, find, has_consumers, leases_for_audit, order};
pub use denied::{DENIED_NEXT_DEFAULT_S, DeniedOpens};
pub use keeper::keep;
pub use page::page;
pub use params::MDD;

use crate::MdsError;
use crate::schema::changelog::{Consumer, LogEntry, LogState};
use crate::schema::key;
use model::Errno;
use model::changelog::{Mask, Record, RecordKind};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use store::Read;
use world::sync::watch;

/// `changelog_max_idle_time`: 30 days.
pub const MAX_IDLE_TIME_DEFAULT_S: u64 = 2_592_000;
/// `changelog_max_idle_indexes`.
pub const MAX_IDLE_INDEXES_DEFAULT: u64 = 2_097_446_912;
/// `changelog_min_gc_interval`.
pub const MIN_GC_INTERVAL_DEFAULT_S: u64 = 3600;

/// What an administrator may set.
pub struct Limits {
    pub gc: AtomicBool,
    pub max_idle_time_s: AtomicU64,
    pub max_idle_indexes: AtomicU64,
    pub min_gc_interval_s: AtomicU64,
    /// 0: a quarter of the room that there is for it.
    pub max_bytes: AtomicU64,
}

/// What is there.
struct Log {
    state: LogState,
    /// The next record's index.
    next: u64,
    /// Bytes of all records that ever were.
    total: u64,
    /// What is recorded for consumers that say nothing else.
    default_mask: Mask,
}

impl Log {
    fn bytes(&self) -> u64 {
        self.total.saturating_sub(self.state.freed_bytes)
    }

    fn mask(&self) -> Mask {
        let of = |c: &Consumer| c.mask.unwrap_or(self.default_mask);
        self.state.consumers.iter().map(of).fold(Mask::NONE, Mask::with)
    }
}

pub struct Changelog {
    log: Mutex<Log>,
    /// What is recorded now; nothing without a consumer.
    mask: AtomicU32,
    pub limits: Limits,
    pub denied: DeniedOpens,
    /// The log may take so many bytes.
    bound: AtomicU64,
    /// Changes whenever the keeper should look again.
    looks: watch::Sender<u64>,
}

impl Changelog {
    /// As the table has it.
    pub fn load(db: &dyn Read) -> Result<Changelog, MdsError> {
        let k = key::STATE_CHANGELOG;
        let state = db.get(k)?.map(|v| LogState::decode(k, &v)).transpose()?.unwrap_or_default();
        let last = last_index(db, state.first)?;
        let k = key::changelog(last);
        let total = match db.get(&k)? {
            Some(v) if last >= state.first => LogEntry::decode(&k, &v)?.total,
            _ => state.freed_bytes,
        };
        // Of damaged values fsck says so.
        let total = total.max(state.freed_bytes);
        let log = Log { state, next: last + 1, total, default_mask: Mask::DEFAULT };
        let mask = log.mask();
        Ok(Changelog {
            log: Mutex::new(log),
            mask: AtomicU32::new(mask.0),
            limits: Limits {
                gc: AtomicBool::new(true),
                max_idle_time_s: AtomicU64::new(MAX_IDLE_TIME_DEFAULT_S),
                max_idle_indexes: AtomicU64::new(MAX_IDLE_INDEXES_DEFAULT),
                min_gc_interval_s: AtomicU64::new(MIN_GC_INTERVAL_DEFAULT_S),
                max_bytes: AtomicU64::new(0),
            },
            denied: DeniedOpens::default(),
            bound: AtomicU64::new(u64::MAX),
            looks: watch::Sender::new(0),
        })
    }

    /// Whether some consumer wants records of this type.
    pub fn wants(&self, kind: RecordKind) -> bool {
        Mask(self.mask.load(Relaxed)).has(kind)
    }

    /// Some consumer wants to know who looks at what: mounts must ask each time, and are granted no leases.
    pub fn audits(&self) -> bool {
        [RecordKind::Open, RecordKind::Getxattr, RecordKind::DeniedOpen].into_iter().any(|k| self.wants(k))
    }

    pub fn has_consumers(&self) -> bool {
        !self.log.lock().state.consumers.is_empty()
    }

    /// The newest record.
    pub fn last(&self) -> u64 {
        self.log.lock().next - 1
    }

    /// The oldest record that may be there, and the newest.
    pub fn ends(&self) -> (u64, u64) {
        let log = self.log.lock();
        (log.state.first, log.next - 1)
    }

    /// Bytes of the records that are there.
    pub fn bytes(&self) -> u64 {
        self.log.lock().bytes()
    }

    /// What is to be written for the records of a transaction that is about to be submitted. Under the lock
    /// of the core: nobody else gets these indexes.
    pub fn number(&self, mut records: Vec<Record>) -> Vec<(Vec<u8>, Vec<u8>)> {
        if planted::on(Bug::RenameRecordedLate) {
            records.sort_by_key(|r| r.kind == RecordKind::Rename);
        }
        let log = self.log.lock();
        let (mut index, mut total) = (log.next, log.total);
        assert!(index >= log.state.first, "new records are behind those that were freed");
        let mut out = Vec::with_capacity(records.len());
        let mut write = |mut r: Record| {
            r.index = index;
            let v = LogEntry::encode(&r, total);
            total = total.saturating_add(v.len() as u64);
            out.push((key::changelog(index), v));
            index += 1;
        };
        for r in records {
            if planted::on(Bug::ChangelogRecordLost) {
                continue;
            }
            if planted::on(Bug::ChangelogRecordDoubled) {
                write(r.clone());
            }
            write(r);
        }
        assert!(index >= log.next && total >= log.total, "records come behind the newest");
        out
    }

    /// So many records, of so many bytes, were submitted.
    pub fn wrote(&self, records: usize, bytes: u64) {
        if records == 0 {
            return;
        }
        assert!(bytes > 0, "a record has bytes");
        let mut log = self.log.lock();
        assert!(log.next >= log.state.first, "no record is freed before it is written");
        log.next += records as u64;
        log.total = log.total.saturating_add(bytes);
        let over = log.bytes() > self.bound.load(Relaxed);
        drop(log);
        if over {
            self.look_again();
        }
    }

    /// This state was submitted.
    pub fn adopt(&self, state: LogState) {
        let mut log = self.log.lock();
        assert!(state.first >= log.state.first && state.first <= log.next, "records are freed in order");
        assert!(state.freed_bytes <= log.total, "no more is freed than was written");
        log.state = state;
        self.mask.store(log.mask().0, Relaxed);
        drop(log);
        self.look_again();
    }

    /// The keeper is to look again.
    pub fn look_again(&self) {
        self.looks.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// In words.
    pub fn default_mask(&self) -> String {
        self.log.lock().default_mask.to_string()
    }

    /// In words, or changes of what it is.
    pub fn set_default_mask(&self, text: &str) -> Result<(), Errno> {
        let mut log = self.log.lock();
        log.default_mask = Mask::parse(text, log.default_mask)?;
        self.mask.store(log.mask().0, Relaxed);
        Ok(())
    }

    /// What is recorded now, in words.
    pub fn current_mask(&self) -> String {
        Mask(self.mask.load(Relaxed)).to_string()
    }

    /// `changelog_users`.
    pub fn users(&self, now_s: i64) -> String {
        let log = self.log.lock();
        let mut s = format!("current_index: {}\n{:<29} index (idle) mask\n", log.next - 1, "ID");
        for c in &log.state.consumers {
            let idle = now_s.saturating_sub(c.heard).max(0);
            let _ = write!(s, "{:<29} {} ({idle})", c.label(), c.cleared);
            if let Some(m) = c.mask {
                let _ = write!(s, " mask={}", m.to_string().replace(' ', ","));
            }
            s.push('\n');
        }
        s
    }

    fn state(&self) -> LogState {
        self.log.lock().state.clone()
    }
}

/// Whether `changelog_mask` can be that.
pub fn is_mask(text: &str) -> Result<(), Errno> {
    Mask::parse(text, Mask::DEFAULT).map(drop)
}

/// The newest record; `first - 1` if there is none from `first` on. Indexes follow each other without gaps:
/// a few looks find the end of any number of them.
fn last_index(db: &dyn Read, first: u64) -> Result<u64, MdsError> {
    let there = |index: u64| db.get(&key::changelog(index)).map(|v| v.is_some());
    let mut last = first - 1;
    let mut step = 1u64;
    while let Some(next) = last.checked_add(step)
        && there(next)?
    {
        last = next;
        step = step.saturating_mul(2);
    }
    while step > 0 {
        if let Some(next) = last.checked_add(step)
            && there(next)?
        {
            last = next;
        }
        step /= 2;
    }
    // Of a damaged table there may be more behind a gap: what is there is never written over.
    let (mut from, end) = (key::changelog(last + 1), [key::CHANGELOG + 1]);
    loop {
        let page = db.scan(&from, &end, crate::walk::PAGE)?;
        match page.last() {
            None => return Ok(last),
            Some((k, _)) => {
                last = key::parse_changelog(k).unwrap_or(last).max(last);
                from.clone_from(k);
                from.push(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Keys(BTreeMap<Vec<u8>, Vec<u8>>);

    impl Read for Keys {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::StoreError> {
            Ok(self.0.get(key).cloned())
        }

        fn scan(
            &self,
            from: &[u8],
            to: &[u8],
            limit: usize,
        ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, store::StoreError> {
            let some = self.0.range(from.to_vec()..to.to_vec()).take(limit);
            Ok(some.map(|(k, v)| (k.clone(), v.clone())).collect())
        }
    }

    #[test]
    fn the_newest_record_is_found_whatever_their_number() {
        let of = |indexes: Vec<u64>| Keys(indexes.into_iter().map(|i| (key::changelog(i), vec![])).collect());
        for first in [1, 5, 1000] {
            for n in [0, 1, 2, 3, 4, 7, 8, 100, 1023, 1024, 1025] {
                assert_eq!(last_index(&of((first..first + n).collect()), first).unwrap(), first + n - 1);
            }
        }
        let gap = of((1..=20).chain(40..=60).collect());
        assert_eq!(last_index(&gap, 1).unwrap(), 60, "what lies behind a gap is not written over");
    }
}
