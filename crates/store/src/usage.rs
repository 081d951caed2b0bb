//! What owners use of a target, kept in the transactions that change it: so it is right after any crash.
//!
//! A key for each user, group, project and directory that has anything here, and one that says since when
//! that is kept. What lies in a directory with a quota is in the key of the innermost one; what those around
//! it have is summed up in memory, so that one of them moves with all that it has in one step.
//! A target that an older program wrote to in between is counted anew (`docs/formats/table.md`).

use crate::bytes::{Reader, Writer};
use crate::{Db, Lsn, Read, StoreError, Txn};
use model::Errno;
use model::mutex::Mutex;
use model::nodemap::Owner;
use model::planted::{self, Bug};
use model::usage::{DirectoryTree, QuotaId, QuotaType, Usage, UsageChange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::msg::quotactl::{QuotaAsk, QuotactlReply};

/// Key tag of usage.
pub const TAG_USAGE: u8 = b'Q';
/// In the place of a quota type: the target's epoch in which usage was kept last.
const KEPT: u8 = 0xff;
const USAGE_VERSION: u8 = 1;
/// Owners in one answer.
const ANSWER_MAX: usize = 1000;

/// Everybody's usage.
pub type Totals = BTreeMap<QuotaId, Usage>;

/// Totals in the making.
#[derive(Default)]
pub struct Counted(Totals);

impl Counted {
    pub fn add(&mut self, owner: Owner, usage: Usage) {
        if !usage.is_nothing() {
            owner.quota_ids().for_each(|id| {
                let sum = self.0.entry(id).or_default();
                *sum = sum.plus(usage);
            });
        }
    }

    pub fn into_totals(self) -> Totals {
        self.0
    }
}

/// What is known in memory.
#[derive(Default)]
struct Book {
    /// As the table has them.
    totals: Totals,
    tree: DirectoryTree,
    /// Of directories that have others in them: everything below. They may have less in the table, or
    /// nothing.
    sums: BTreeMap<u32, Usage>,
}

impl Book {
    fn total(&self, id: QuotaId) -> Usage {
        self.totals.get(&id).copied().unwrap_or_default()
    }

    /// What somebody has, with what lies in directories below.
    fn get(&self, id: QuotaId) -> Usage {
        let sum = self.sums.get(&id.id).filter(|_| id.of == QuotaType::Directory);
        sum.copied().unwrap_or_else(|| self.total(id))
    }

    fn sum_up(&mut self) {
        let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
        let own = |id| self.total(QuotaId { of: QuotaType::Directory, id });
        for (_, parent) in self.tree.iter() {
            sums.entry(parent).or_insert_with(|| own(parent));
        }
        for (id, _) in self.tree.iter() {
            for outer in self.tree.chain(id).skip(1) {
                let sum = sums.entry(outer).or_default();
                *sum = sum.plus(own(id));
            }
        }
        self.sums = sums;
    }

    /// What a transaction changes is added to the sums.
    fn add_to_sums(&mut self, change: &UsageChange) {
        if self.sums.is_empty() {
            return;
        }
        for (id, inodes, blocks) in change.around(&self.tree).iter() {
            if let Some(sum) = self.sums.get_mut(&id.id).filter(|_| id.of == QuotaType::Directory) {
                *sum = sum.with(inodes, blocks);
            }
        }
    }
}

/// The totals of a target that serves. They are in memory as well, as limits ask for them at each write:
/// about a hundred bytes for each owner.
pub struct UsageLedger {
    dir: String,
    book: Mutex<Book>,
    /// Somebody has it verified.
    counting: AtomicBool,
}

/// A verification under way.
struct Counting<'a>(&'a AtomicBool);

impl Counting<'_> {
    fn begin(busy: &AtomicBool) -> Option<Counting<'_>> {
        (!busy.swap(true, Ordering::AcqRel)).then_some(Counting(busy))
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl UsageLedger {
    /// What the table says, or, if nobody kept that while the target was open last, what `count` finds.
    /// Also whether everything was settled when it was closed ([`UsageLedger::note_settled`]).
    pub fn open(
        db: &Db,
        count: impl FnOnce() -> Result<Totals, StoreError>,
    ) -> Result<(UsageLedger, bool), StoreError> {
        let stored = stored_totals(db)?;
        let kept = db.get(&kept_key())?.and_then(|v| Kept::decode(&v));
        let mut txn = Txn::new();
        let kept = kept.filter(|k| k.epoch.checked_add(1) == Some(db.epoch()));
        let totals = if kept.is_some() {
            stored
        } else {
            let counted = count()?;
            tracing::info!("'{}': usage was counted: {} owners", db.dir(), counted.len());
            put_totals(&stored, &counted, &mut txn);
            counted
        };
        txn.put(kept_key(), Kept { epoch: db.epoch(), settled: false }.encode());
        match db.submit(txn) {
            // On a full disk the target serves all the same, and counts again at its next start.
            Err(StoreError::Errno(Errno::ENOSPC)) => {
                tracing::warn!("'{}': no room to note that usage is kept", db.dir());
            }
            done => drop(done?),
        }
        let ledger = UsageLedger {
            dir: db.dir().to_string(),
            book: Mutex::new(Book { totals, ..Book::default() }),
            counting: AtomicBool::new(false),
        };
        Ok((ledger, kept.is_some_and(|k| k.settled)))
    }

    /// What is counted is what there is: to be said last, when nothing changes any more.
    pub fn note_settled(&self, db: &Db) -> Result<(), StoreError> {
        let mut txn = Txn::new();
        txn.put(kept_key(), Kept { epoch: db.epoch(), settled: true }.encode());
        db.submit(txn).map(drop)
    }

    /// Submits a transaction with what it does to usage.
    pub fn submit(&self, db: &Db, mut txn: Txn, delta: &UsageChange) -> Result<Lsn, StoreError> {
        if delta.is_nothing() {
            return db.submit(txn);
        }
        // Over both: the values that are written are in the order of the transactions.
        let mut book = self.book.lock();
        let totals = &mut book.totals;
        let mut was = Vec::new();
        for (id, inodes, blocks) in delta.iter() {
            let old = totals.get(&id).copied().unwrap_or_default();
            let new = Usage {
                inodes: self.add(id, "inodes", old.inodes, inodes),
                blocks: self.add(id, "blocks", old.blocks, blocks),
            };
            was.push((id, old));
            if new.is_nothing() {
                totals.remove(&id);
                txn.delete(usage_key(id));
            } else {
                totals.insert(id, new);
                let late = planted::on(Bug::UsageWrittenLate);
                txn.put(usage_key(id), encode_usage(if late { old } else { new }));
            }
        }
        let done = db.submit(txn);
        if done.is_ok() {
            book.add_to_sums(delta);
        } else {
            for (id, old) in was {
                if old.is_nothing() {
                    book.totals.remove(&id)
                } else {
                    book.totals.insert(id, old)
                };
            }
        }
        done
    }

    fn add(&self, id: QuotaId, what: &str, old: u64, more: i64) -> u64 {
        old.checked_add_signed(more).unwrap_or_else(|| {
            tracing::error!(
                "'{}': {old} {what} of {id} and {more} more are no usage: run nacre quota verify",
                self.dir
            );
            0
        })
    }

    /// What somebody has; a directory with all that lies below it.
    pub fn get(&self, id: QuotaId) -> Usage {
        self.book.lock().get(id)
    }

    /// Which directories with a quota lie in which, from now on.
    pub fn change_tree(&self, change: impl FnOnce(&mut DirectoryTree)) {
        let mut book = self.book.lock();
        change(&mut book.tree);
        book.sum_up();
    }

    /// Looks at which directories with a quota lie in which.
    pub fn with_tree<T>(&self, look: impl FnOnce(&DirectoryTree) -> T) -> T {
        look(&self.book.lock().tree)
    }

    /// What a change does to everybody whom it concerns, the directories around those that it names as well.
    pub fn concerns(&self, change: &UsageChange) -> UsageChange {
        self.with_tree(|tree| change.around(tree))
    }

    /// To whom something of an owner is counted.
    pub fn quota_ids(&self, owner: Owner) -> Vec<QuotaId> {
        self.with_tree(|tree| tree.quota_ids(owner))
    }

    /// Those of a type who have anything, behind `after`, at most `limit`.
    pub fn page(&self, of: QuotaType, after: Option<u32>, limit: usize) -> Vec<(u32, Usage)> {
        let Some(first) = after.map_or(Some(0), |id| id.checked_add(1)) else { return Vec::new() };
        let range = QuotaId { of, id: first }..=QuotaId { of, id: u32::MAX };
        let book = self.book.lock();
        if of != QuotaType::Directory {
            return book.totals.range(range).take(limit).map(|(q, u)| (q.id, *u)).collect();
        }
        // Some have nothing but what others in them have.
        let mut ids: BTreeSet<u32> = book.totals.range(range).take(limit).map(|(q, _)| q.id).collect();
        ids.extend(book.sums.range(first..).filter(|(_, u)| !u.is_nothing()).take(limit).map(|(id, _)| *id));
        ids.into_iter().take(limit).map(|id| (id, book.get(QuotaId { of, id }))).collect()
    }

    /// Sets right what is not as it was counted: `stored` and `counted` are of one moment. What differed:
    /// (whose, stored, counted).
    pub fn correct(
        &self,
        db: &Db,
        stored: &Totals,
        counted: &Totals,
    ) -> Result<Vec<(QuotaId, Usage, Usage)>, StoreError> {
        let differs = differences(stored, counted);
        let mut delta = UsageChange::default();
        for (id, was, is) in &differs {
            delta.corrected(*id, *was, *is);
        }
        if !delta.is_nothing() {
            self.submit(db, Txn::new(), &delta)?;
        }
        Ok(differs)
    }

    /// What [`wire::msg::quotactl`] asks. `count` counts what there is.
    pub fn answer(
        &self,
        db: &Db,
        ask: &QuotaAsk,
        count: impl FnOnce(&dyn Read) -> Result<Totals, StoreError>,
    ) -> Result<QuotactlReply, StoreError> {
        let mut reply = QuotactlReply::default();
        match ask {
            QuotaAsk::Of(ids) => reply.usage = ids.iter().map(|id| (*id, self.get(*id))).collect(),
            QuotaAsk::All { of, after } => {
                let page = self.page(*of, *after, ANSWER_MAX);
                reply.next = page.last().filter(|_| page.len() == ANSWER_MAX).map(|(id, _)| *id);
                reply.usage = page.into_iter().map(|(id, u)| (QuotaId { of: *of, id }, u)).collect();
            }
            QuotaAsk::Types => {}
            QuotaAsk::Verify => {
                let _one = Counting::begin(&self.counting).ok_or(StoreError::Errno(Errno::EBUSY))?;
                // Both of one moment, while others go on.
                let still = db.still()?;
                reply.differed = self.correct(db, &stored_totals(&still)?, &count(&still)?)?;
            }
        }
        Ok(reply)
    }
}

/// What a table says of everybody's usage.
pub fn stored_totals(db: &dyn Read) -> Result<Totals, StoreError> {
    let mut totals = Totals::new();
    for (k, v) in db.scan(&[TAG_USAGE], &[TAG_USAGE, KEPT], usize::MAX)? {
        let found = id_of_key(&k).zip(decode_usage(&v)).ok_or_else(|| {
            StoreError::damaged(
                "usage",
                &format!("key {k:02x?}"),
                "it does not decode: run nacre quota verify",
            )
        })?;
        totals.insert(found.0, found.1);
    }
    Ok(totals)
}

/// Whether a table says of usage anything at all: an older program did not.
pub fn is_kept(db: &dyn Read) -> Result<bool, StoreError> {
    Ok(db.get(&kept_key())?.is_some())
}

/// Where what a table says of usage is not what was counted, in words; `None`: it is.
pub fn difference(db: &dyn Read, counted: &Totals) -> Result<Option<String>, StoreError> {
    if !is_kept(db)? {
        return Ok(None);
    }
    let stored = stored_totals(db)?;
    Ok(differences(&stored, counted).first().map(|(id, s, c)| {
        format!(
            "usage of {id} is {} inodes and {} blocks, counted are {} inodes and {} blocks",
            s.inodes, s.blocks, c.inodes, c.blocks
        )
    }))
}

/// Makes a table say what was counted.
pub fn put_totals(stored: &Totals, counted: &Totals, txn: &mut Txn) {
    stored.keys().filter(|id| !counted.contains_key(id)).for_each(|id| txn.delete(usage_key(*id)));
    let new = counted.iter().filter(|(id, u)| stored.get(id) != Some(u));
    new.for_each(|(id, u)| txn.put(usage_key(*id), encode_usage(*u)));
}

fn differences(stored: &Totals, counted: &Totals) -> Vec<(QuotaId, Usage, Usage)> {
    let ids: BTreeSet<QuotaId> = stored.keys().chain(counted.keys()).copied().collect();
    let of = |t: &Totals, id: &QuotaId| t.get(id).copied().unwrap_or_default();
    let all = ids.into_iter().map(|id| (id, of(stored, &id), of(counted, &id)));
    all.filter(|(_, s, c)| s != c).collect()
}

pub fn usage_key(id: QuotaId) -> Vec<u8> {
    let mut k = vec![TAG_USAGE, id.of.number()];
    k.extend_from_slice(&id.id.to_be_bytes());
    k
}

fn id_of_key(k: &[u8]) -> Option<QuotaId> {
    let rest = k.strip_prefix(&[TAG_USAGE])?;
    let (of, id) = rest.split_first()?;
    Some(QuotaId { of: QuotaType::from_number(*of)?, id: u32::from_be_bytes(id.try_into().ok()?) })
}

fn kept_key() -> Vec<u8> {
    vec![TAG_USAGE, KEPT]
}

/// Since when usage is kept.
struct Kept {
    /// The target's epoch in which it was kept last.
    epoch: u32,
    /// It was closed in order, and its objects had the blocks that their records say.
    settled: bool,
}

impl Kept {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(6));
        w.u8(USAGE_VERSION);
        w.u32(self.epoch);
        w.u8(u8::from(self.settled));
        w.0
    }

    fn decode(v: &[u8]) -> Option<Kept> {
        let mut r = Reader(v);
        if r.u8()? != USAGE_VERSION {
            return None;
        }
        Some(Kept { epoch: r.u32()?, settled: r.u8()? == 1 })
    }
}

fn encode_usage(u: Usage) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(17));
    w.u8(USAGE_VERSION);
    w.u64(u.inodes);
    w.u64(u.blocks);
    w.0
}

/// The value of a usage key; `None` if it does not decode.
pub fn decode_usage(v: &[u8]) -> Option<Usage> {
    let mut r = Reader(v);
    if r.u8()? != USAGE_VERSION {
        return None;
    }
    Some(Usage { inodes: r.u64()?, blocks: r.u64()? })
}
