//! Opening a database: table, journal over it, and the files of data objects.

use crate::StoreError;
use crate::core::{Core, Inner, State, overlay_bytes};
use crate::journal::replay::{Damage, Found};
use crate::journal::{Journal, Lsn, Replay, journal_dir, record, segment};
use crate::object::Redo;
use crate::options::DbOptions;
use crate::space::Space;
use crate::table::Table;
use crate::table::redb::RedbTable;
use model::mutex::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use world::World;
use world::sync::{Notify, watch};

/// What one transaction may make the table write anew, on average: a few of its pages.
const TABLE_BYTES_PER_TXN: u64 = 16 << 10;
/// Of a table that is only asked for its position.
const SMALL_CACHE_BYTES: usize = 1 << 20;
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
    let folder = journal_dir(dir);
    for p in [&folder, &crate::table::redb::path(dir)] {
        if !world.disk.exists(p).map_err(StoreError::io("cannot look at", p))? {
            return Err(StoreError::Refused(format!(
                "'{dir}' is not formatted ('{p}' is missing): run mkfs.nacre"
            )));
        }
    }
    let distrust = has_segments(world, &folder)?;
    let table: Arc<dyn Table> = Arc::new(RedbTable::open(world, dir, opt.table_cache_bytes, distrust)?);
    let applied = table.applied()?;
    let replay = read_journal(world, dir, epoch, applied, opt.cut_damaged_journal)?;
    assert!(replay.last_lsn >= applied, "the journal is never cut below what the table holds");
    assert!(epoch > replay.last_epoch, "an older server does not write behind a newer one");
    let overlay_txns = usize::try_from(replay.last_lsn - applied).expect("they are in memory");
    let overlay = replay.newest();
    let overlay_bytes = overlay.iter().map(|(k, e)| overlay_bytes(k, e.value.as_deref())).sum();
    let (next_lsn, next_number) = (replay.last_lsn + 1, replay.next_number);
    let mut journal = Journal::new(world, folder.clone(), epoch, opt.segment_bytes, next_lsn, next_number);
    if overlay_txns == 0 {
        give_up(world, &replay.files)?;
        world.disk.sync_dir(&folder).map_err(StoreError::io("cannot flush the folder", &folder))?;
    } else {
        model::event!(
            INFO,
            JournalReplayed,
            dir,
            "'{dir}': {overlay_txns} transactions replayed from the journal"
        );
        let redone = crate::object::recover::replay(world, dir, &replay.redo)?;
        go_on(world, &mut journal, replay, &redone)?;
    }
    let last = journal.last_lsn();
    assert!(last >= applied, "positions go on behind those of the table");
    let state = State { committed: last, applied, ..State::default() };
    let inner = Inner {
        overlay,
        overlay_bytes,
        overlay_txns,
        journal_bytes: 0,
        frozen: None,
        snapshot: Some(table.snapshot()?),
        journal,
        spare_pending: false,
        oldest: None,
        waiting_bytes: 0,
        waiting_outside: 0,
        wanted: 0,
        authors: std::collections::BTreeMap::new(),
        unsent: crate::author::Unsent::new(),
        // What was replayed goes to the table while others are served.
        checkpoint_wanted: opt.checkpoints && overlay_txns > 0,
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
        flush_ns: AtomicU64::new(0),
    }))
}

/// Who stops in an orderly way has flushed everything, and leaves no segment. Whoever did not may have ended
/// for a failed flush.
fn has_segments(world: &World, folder: &str) -> Result<bool, StoreError> {
    let names = world.disk.list(folder).map_err(StoreError::io("cannot list", folder))?;
    Ok(names.iter().any(|n| matches!(segment::parse_name(n), Some(segment::Name::Log(_)))))
}

pub(crate) fn journal_damage(world: &World, dir: &str) -> Result<Option<Damage>, StoreError> {
    let applied = RedbTable::open(world, dir, SMALL_CACHE_BYTES, true)?.applied()?;
    Ok(Replay::read(world, &journal_dir(dir), applied, true)?.damage)
}

/// What of the journal counts: its records above `applied`, and where it ends.
fn read_journal(world: &World, dir: &str, epoch: u32, applied: Lsn, cut: bool) -> Result<Replay, StoreError> {
    let mut replay = Replay::read(world, &journal_dir(dir), applied, cut)?;
    if epoch <= replay.last_epoch {
        return Err(StoreError::Refused(format!(
            "the journal in '{dir}' was written in epoch {}, this server has only {epoch}: another server took the target over",
            replay.last_epoch
        )));
    }
    if let Some(d) = &replay.damage {
        tracing::warn!(
            "journal segment '{}' is damaged: {}; cut off as told, transactions {} to {} are lost",
            d.path,
            d.why,
            d.from,
            d.to
        );
    }
    if let Some((path, pos)) = &replay.torn {
        tracing::info!("journal segment '{path}' ends with a torn record at byte {pos}: cut off");
    }
    if let Some(lsn) = crate::object::recover::first_without_data(world, dir, &replay.redo, replay.durable)? {
        tracing::info!(
            "the journal in '{dir}' ends before record {lsn} (of {}): the host wrote it, but not all of its data",
            replay.last_lsn
        );
        replay.cut(lsn);
    }
    Ok(replay)
}

fn give_up<'a>(world: &World, files: impl IntoIterator<Item = &'a Found>) -> Result<(), StoreError> {
    let remove = |f: &Found| {
        world.disk.unlink(&f.path).map_err(StoreError::io("cannot remove journal segment", &f.path))
    };
    files.into_iter().try_for_each(remove)
}

/// Files named in one record of [`go_on`].
const REDONE_PER_RECORD: usize = 100_000;

/// The log goes on behind what was replayed: the segments that hold it stay until the table does. Durable
/// when it returns: a record of the new epoch makes the end that was found final before anybody is served,
/// and says that `redone` is so.
fn go_on(world: &World, journal: &mut Journal, replay: Replay, redone: &[Redo]) -> Result<(), StoreError> {
    let last = replay.last_lsn;
    let (kept, rest): (Vec<Found>, Vec<Found>) =
        replay.files.into_iter().partition(|f| f.first_lsn.is_some_and(|first| first <= last));
    // Also for the space that the new segment needs.
    give_up(world, &rest)?;
    let mut kept: Vec<String> = kept.into_iter().map(|f| f.path).collect();
    kept.sort();
    journal.adopt(kept);
    let mut rest = redone;
    loop {
        let (now, later) = rest.split_at(rest.len().min(REDONE_PER_RECORD));
        let mut w = record::begin();
        record::encode_txn(&mut w, &[], now);
        journal.append(w, last)?;
        rest = later;
        if rest.is_empty() {
            return journal.sync_set().run(world);
        }
    }
}
