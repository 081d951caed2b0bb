//! A consumer of the changelog in some runs: done again in their order, the records of a metadata target must
//! come to the names that it has in the end, whatever crashed meanwhile. A record that is missing, or there
//! twice, comes to others.
//!
//! A reader clears for itself and, not as far, for a slow one: what it was shown
//! once it is shown again, and nothing that it did not clear goes.

use crate::cluster::Cluster;
use crate::exec::call;
use crate::executor::lock;
use crate::run::{Run, Violation, Worker};
use ::world::rng::Rng;
use client::{Admin, Fs};
use mds::MdsError;
use mds::schema::changelog::LogEntry;
use mds::schema::{DentryValue, key};
use model::changelog::{Order, Record, RecordKind};
use model::{Errno, Fid, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::changelog::Changelog;

/// One seed in so many has a consumer.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 15;
/// Records or names that are read at a time.
const PAGE: usize = 1000;
/// The consumers by their names, and as everybody calls them.
const NAMES: [&str; 2] = ["reader", "slow"];
const READER: &str = "cl1-reader";
const SLOW: &str = "cl2-slow";
/// So long the last records may be asked for without an answer, when everything is up.
const LAST_PATIENCE: Duration = Duration::from_secs(120);

/// What a name of a directory stands for.
type Names = BTreeMap<(Fid, Vec<u8>), Fid>;

/// What a consumer was shown, by index.
pub(crate) type Shown = BTreeMap<u64, Record>;

/// Whether this seed has consumers.
pub(crate) fn is_kept(seed: u64) -> bool {
    seed % ONE_IN == THIS_ONE
}

/// Registers consumers, if this seed has them. Before the first name is made.
pub async fn begin(c: &Cluster, seed: u64) -> Result<(), Violation> {
    if is_kept(seed) {
        for name in NAMES {
            register(c, name).await?;
        }
    }
    Ok(())
}

async fn register(c: &Cluster, name: &str) -> Result<(), Violation> {
    for _ in 0..600 {
        if let Some(mdt) = c.mdt() {
            let order = Order::Register { name: name.into(), mask: None };
            match mds::changelog_order(&mdt, &order).await {
                Ok(_) => {
                    c.sim.count("changelog");
                    return Ok(());
                }
                Err((Errno::EEXIST, _)) => return Ok(()),
                Err((Errno::ESHUTDOWN | Errno::EIO, _)) => {}
                Err((e, why)) => return Err(format!("a consumer cannot be registered: {e}: {why}")),
            }
        }
        c.sim.sleep(Duration::from_millis(500)).await;
    }
    Err("no consumer could be registered within five minutes".into())
}

/// All records that ever were, in their order: those that are there, and before them what was shown and is
/// freed. `None`: nobody asked for any.
pub(crate) fn records(db: &store::Db, shown: &Shown) -> Result<Option<Vec<Record>>, Violation> {
    let told = |e: MdsError| format!("the changelog cannot be checked: {e}");
    if db.get(key::STATE_CHANGELOG).map_err(|e| told(e.into()))?.is_none() {
        return Ok(None);
    }
    let mut there = Vec::new();
    each(db, key::CHANGELOG, |k, v| {
        there.push(LogEntry::decode(k, v)?.record);
        Ok(())
    })
    .map_err(told)?;
    let first = there.first().map_or(u64::MAX, |r| r.index);
    let mut all: Vec<Record> = shown.range(..first).map(|(_, r)| r.clone()).collect();
    if let Some(r) = there.iter().find(|r| shown.get(&r.index).is_some_and(|s| s != *r)) {
        return Err(format!("record {} of the changelog is {r:?}, and was shown as another one", r.index));
    }
    all.append(&mut there);
    match all.iter().zip(1..).find(|(r, due)| r.index != *due) {
        Some((r, due)) => Err(format!("record {due} of the changelog is not there, but record {}", r.index)),
        None => Ok(Some(all)),
    }
}

/// Whether the records come to the names that are there.
pub fn agrees(db: &store::Db, shown: &Shown) -> Result<(), Violation> {
    let told = |e: MdsError| format!("the changelog cannot be checked: {e}");
    let Some(all) = records(db, shown)? else { return Ok(()) };
    let mut names = Names::new();
    for record in &all {
        let done = apply(&mut names, record);
        done.map_err(|what| format!("record {} of the changelog ({record:?}): {what}", record.index))?;
    }
    let mut there = Names::new();
    each(db, key::DENTRY, |k, v| {
        // What a check puts into lost+found is no user's operation: no record tells of it, as in Lustre.
        if let Some((dir, _, name)) = key::parse_dentry(k).filter(|(dir, ..)| *dir != Fid::LOST_FOUND) {
            there.insert((dir, name.to_vec()), DentryValue::decode(k, v)?.fid);
        }
        Ok(())
    })
    .map_err(told)?;
    match names.iter().find(|(k, v)| there.get(k) != Some(v)) {
        Some(((dir, name), fid)) => {
            return Err(format!("by the changelog {dir} has {:?} ({fid})", String::from_utf8_lossy(name)));
        }
        None => assert!(names.len() <= there.len(), "each of them is there"),
    }
    match there.iter().find(|(k, _)| !names.contains_key(k)) {
        Some(((dir, name), fid)) => {
            Err(format!("the changelog does not know {:?} ({fid}) in {dir}", String::from_utf8_lossy(name)))
        }
        None => Ok(()),
    }
}

fn each(
    db: &store::Db,
    tag: u8,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<(), MdsError>,
) -> Result<(), MdsError> {
    let mut from = vec![tag];
    loop {
        let page = db.scan(&from, &[tag + 1], PAGE)?;
        for (k, v) in &page {
            f(k, v)?;
        }
        match page.last() {
            Some((k, _)) if page.len() == PAGE => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}

/// What a record says, done. What it says must be possible.
fn apply(names: &mut Names, r: &Record) -> Result<(), &'static str> {
    let place = (r.parent, r.name.clone());
    match r.kind {
        RecordKind::Create
        | RecordKind::Mkdir
        | RecordKind::Symlink
        | RecordKind::Mknod
        | RecordKind::Hardlink => match names.insert(place, r.fid) {
            None => Ok(()),
            Some(_) => Err("that name was there"),
        },
        RecordKind::Unlink | RecordKind::Rmdir => match names.remove(&place) {
            Some(fid) if fid == r.fid => Ok(()),
            _ => Err("that name was not there, or another file's"),
        },
        RecordKind::Rename => {
            let from = r.source.as_ref().ok_or("a rename from nowhere")?;
            let old = (from.parent, from.name.clone());
            // Of an exchange the first record has taken the name already.
            if names.get(&old) == Some(&from.fid) {
                names.remove(&old);
            }
            match names.insert(place, from.fid) {
                Some(over) if r.fid != Fid::NONE && over != r.fid => Err("it took another file's name"),
                None if r.fid != Fid::NONE => Err("the name that it took was not there"),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Who reads and clears while everybody works.
pub(crate) struct LogReader {
    rng: Rng,
    /// Both consumers' last record that was certainly cleared.
    cleared: [u64; 2],
}

impl Worker for LogReader {
    const PAUSE_US: (u64, u64) = (1_000, 400_000);
    const STEP: &'static str = "what a consumer asks";
    const LOST: &'static str = "consumer_lost_its_mount";

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    async fn step(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        if self.rng.below(4) == 0 { self.clear(c, fs).await } else { self.read(c, fs).await.map(drop) }
    }
}

impl LogReader {
    pub(crate) fn new(seed: u64) -> Option<LogReader> {
        is_kept(seed).then(|| LogReader { rng: Rng::new(seed ^ 0x7265_6164_6572), cleared: [0; 2] })
    }

    /// Reads on, or once more what was shown. Whether there is no more.
    async fn read(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<bool, Violation> {
        let last = lock(&c.shown).keys().next_back().copied().unwrap_or(0);
        let again = last > 0 && self.rng.below(4) == 0;
        let start = if again { self.rng.range(1, last) } else { last + 1 };
        let told = self.rng.coin();
        let consumer = READER.to_string();
        let ask = Changelog { start, end: 0, consumer, mask: model::changelog::Mask::NONE, told };
        let page = match Admin(fs).changelog(call(), TargetId::mdt(0), ask).await {
            Ok(page) => page,
            Err(Errno::ENOENT) => return Err("a consumer of the changelog is gone".into()),
            // Servers are away.
            Err(_) => return Ok(false),
        };
        let mut shown = lock(&c.shown);
        let mut before = None;
        for r in page.records {
            match (before, shown.get(&r.index)) {
                (Some(b), _) if r.index != b + 1 => {
                    return Err(format!("record {} of the changelog follows record {b}", r.index));
                }
                (_, Some(s)) if *s != r => {
                    return Err(format!("record {} was shown as {s:?} first, and as {r:?} later", r.index));
                }
                (_, None) if r.index != shown.len() as u64 + 1 => {
                    return Err(format!("{} records were shown, and now record {}", shown.len(), r.index));
                }
                _ => {}
            }
            before = Some(r.index);
            shown.entry(r.index).or_insert(r);
        }
        Ok(page.end && !again)
    }

    async fn clear(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        let last = lock(&c.shown).keys().next_back().copied().unwrap_or(0);
        // What the slow one needs must stay.
        let (who, label, upto) = match self.rng.below(3) {
            0 => (0, SLOW, last / 2),
            _ => (1, READER, last),
        };
        if upto <= self.cleared[who] {
            return Ok(());
        }
        let end = self.rng.range(self.cleared[who] + 1, upto);
        match Admin(fs).changelog_clear(call(), TargetId::mdt(0), label.into(), end).await {
            Ok(()) => {
                self.cleared[who] = end;
                c.sim.count("changelog_cleared");
            }
            Err(e @ (Errno::ENOENT | Errno::EINVAL)) => {
                return Err(format!("{label} was shown record {end}, and clearing it gave {e}"));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// When nobody else does anything, and everything is up: it is shown all the rest.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        let start = c.sim.now();
        while c.sim.now() - start < LAST_PATIENCE.as_nanos() as u64 {
            let Some((fs, _)) = c.mounts.iter().find_map(|m| m.get()) else { return Ok(()) };
            if run.bounded("the last records", self.read(&c, &fs)).await?? {
                return Ok(());
            }
            drop(fs);
            c.sim.sleep(Duration::from_millis(200)).await;
        }
        Err(format!("{LAST_PATIENCE:?} without faults, and a consumer is not shown the last records"))
    }
}
