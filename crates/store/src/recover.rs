//! Opening a database: table, journal over it, and the files of data objects.

use crate::core::{Core, Inner, State};
use crate::db::{DbOptions, Lsn, Txn, journal_dir};
use crate::journal::{Journal, Replay};
use crate::space::Space;
use crate::table::redb::RedbTable;
use crate::table::{Batch, Entry, Table};
use crate::{StoreError, object};
use std::sync::{Arc, Mutex};
use world::World;
use world::sync::{Notify, watch};

/// What one transaction may make the table write anew, on average: a few of its pages.
const TABLE_BYTES_PER_TXN: u64 = 16 << 10;
const SEGMENT_MIN_BYTES: u64 = 1 << 20;

/// On a small file system journal and checkpoints must be small as well, to live within the headroom.
fn fit(mut opt: DbOptions, world: &World, dir: &str) -> DbOptions {
    if let Ok(space) = world.disk.space(dir) {
        let headroom = crate::space::headroom(space.total);
        let at_most = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        opt.segment_bytes = opt.segment_bytes.min((space.total / 64).max(SEGMENT_MIN_BYTES));
        opt.checkpoint_bytes = opt.checkpoint_bytes.min(at_most(headroom / 4));
        opt.checkpoint_txns = opt.checkpoint_txns.min(at_most(headroom / TABLE_BYTES_PER_TXN));
    }
    opt
}

pub(crate) fn open(world: &World, dir: &str, epoch: u32, opt: DbOptions) -> Result<Arc<Core>, StoreError> {
    let opt = fit(opt, world, dir);
    let world = &opt.lease.guard(world, dir);
    let journal = journal_dir(dir);
    for p in [&journal, &crate::table::redb::path(dir)] {
        if !world.disk.exists(p).map_err(StoreError::io("cannot look at", p))? {
            return Err(StoreError::Refused(format!(
                "'{dir}' is not formatted ('{p}' is missing): run mkfs.nacre"
            )));
        }
    }
    let table: Arc<dyn Table> = Arc::new(RedbTable::open(world, dir, opt.table_cache_bytes)?);
    let applied = table.applied()?;
    let mut replay = Replay::read(world, &journal, applied)?;
    if epoch <= replay.last_epoch {
        return Err(StoreError::Refused(format!(
            "the journal in '{dir}' was written in epoch {}, this server has only {epoch}: another server took the target over",
            replay.last_epoch
        )));
    }
    if let Some((path, pos)) = &replay.torn {
        tracing::info!("journal segment '{path}' ends with a torn record at byte {pos}: cut off");
    }
    let mut records = std::mem::take(&mut replay.records);
    if let Some(lsn) = object::recover::first_without_data(world, dir, &records, replay.durable)? {
        tracing::info!(
            "the journal in '{dir}' ends before record {lsn} (of {}): the host wrote it, but not all of its data",
            replay.last_lsn
        );
        records.retain(|(l, _)| *l < lsn);
        replay.last_lsn = lsn - 1;
    }
    if !records.is_empty() {
        tracing::info!("'{dir}': {} transactions replayed from the journal", records.len());
        object::recover::replay(world, dir, &records)?;
        table.apply(&batch(records), replay.last_lsn)?;
    }
    // Only now may the journal be given up; and the end that was found above is final from here on,
    // because the table's position says so.
    for f in &replay.files {
        world.disk.unlink(f).map_err(StoreError::io("cannot remove journal segment", f))?;
    }
    world.disk.sync_dir(&journal).map_err(StoreError::io("cannot flush the folder", &journal))?;
    let last = replay.last_lsn;
    let state = State { committed: last, applied: last, ..State::default() };
    let inner = Inner {
        overlay: Batch::new(),
        overlay_bytes: 0,
        overlay_txns: 0,
        journal_bytes: 0,
        frozen: None,
        snapshot: Some(table.snapshot()?),
        journal: Journal::new(world, journal, epoch, opt.segment_bytes, last + 1, replay.next_number),
        spare_pending: false,
        oldest: None,
        waiting_bytes: 0,
        waiting_outside: 0,
        wanted: 0,
        authors: std::collections::BTreeMap::new(),
        unsent: crate::author::Unsent::new(),
        checkpoint_wanted: false,
        closing: false,
    };
    Ok(Arc::new(Core {
        world: world.clone(),
        dir: dir.to_string(),
        epoch,
        opt,
        table: Mutex::new(Some(table)),
        inner: Mutex::new(inner),
        state: watch::Sender::new(state),
        wake_committer: Notify::new(),
        wake_checkpointer: Notify::new(),
        space: Space::new(world, dir),
        hook: Mutex::new(None),
        pre_commit: Mutex::new(None),
        sent: Notify::new(),
    }))
}

fn batch(records: Vec<(Lsn, Txn)>) -> Batch {
    let mut b = Batch::new();
    for (lsn, txn) in records {
        for (k, v) in txn.writes {
            b.insert(k, Entry { lsn, value: v.map(Arc::from) });
        }
    }
    b
}
