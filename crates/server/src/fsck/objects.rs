//! An object target by itself: records, locations, files, tombstones.

use super::cross::Names;
use super::options::FsckOptions;
use super::report::{Problem, Report};
use super::targets::{Role, Target, for_each};
use model::{Fid, ObjectId, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::object::location::{
    Location, ObjectRecord, Place, TAG_OBJECT, TAG_TOMBSTONE, container_path, id_of_key, id_of_name,
    object_key, own_path, own_root,
};
use store::object::{Objects, count_usage};
use store::usage::{difference, put_totals, stored_totals};
use store::{StoreError, Txn};
use world::OpenMode;

const READ_BYTES: u32 = 4 << 20;
const SUM_BLOCK_BYTES: u32 = limits::SUM_BLOCK_BYTES as u32;

pub async fn check(
    t: &Target,
    names: Option<&Names<'_>>,
    opts: &FsckOptions,
    report: &mut Report<'_>,
) -> Result<(), String> {
    assert_eq!(t.role, Role::Ost, "objects lie on object targets");
    let mut slots: BTreeMap<Place, ObjectId> = BTreeMap::new();
    let mut readable = Vec::new();
    for_each(t, TAG_OBJECT, |k, v| {
        if let Some((id, size)) = check_record(t, names, k, v, &mut slots, report)?
            && opts.read_data
        {
            readable.push((id, size));
        }
        Ok(())
    })?;
    for_each(t, TAG_TOMBSTONE, |k, _| {
        let both = id_of_key(k).filter(|id| t.db.get(&object_key(*id)).is_ok_and(|v| v.is_some()));
        if let Some(id) = both {
            let what = "an object is there and destroyed at once";
            report.problem(Problem::new(&t.label, "undead-object", what).object(id));
        }
        Ok(())
    })?;
    left_over_files(t, opts.repair, report)?;
    usage(t, opts.repair, report).await?;
    if readable.is_empty() {
        return Ok(());
    }
    match t.objects() {
        Ok(objects) => {
            for one in readable {
                check_data(t, &objects, one, report).await;
            }
        }
        Err(e) => report.note(&format!("{}: data cannot be read: {e}", t.label)),
    }
    Ok(())
}

/// What owners use, against what the records say.
async fn usage(t: &Target, repair: bool, report: &mut Report<'_>) -> Result<(), String> {
    let says = |e: StoreError| format!("{}: {e}", t.label);
    // Where a record cannot be read nobody knows what its owner has; that is reported already.
    let Ok(counted) = count_usage(&*t.db) else { return Ok(()) };
    let Some(what) = difference(&*t.db, &counted).map_err(says)? else { return Ok(()) };
    if repair {
        let mut txn = Txn::new();
        put_totals(&stored_totals(&*t.db).map_err(says)?, &counted, &mut txn);
        let lsn = t.db.submit(txn).map_err(says)?;
        t.db.durable(lsn).await.map_err(says)?;
    }
    report.problem(Problem::new(&t.label, "wrong-usage", what).repaired(repair));
    Ok(())
}

/// Checks one record; (object, size) if it can be read.
fn check_record(
    t: &Target,
    names: Option<&Names<'_>>,
    k: &[u8],
    v: &[u8],
    slots: &mut BTreeMap<Place, ObjectId>,
    report: &mut Report<'_>,
) -> Result<Option<(ObjectId, u64)>, String> {
    let Some(id) = id_of_key(k) else {
        report.problem(Problem::new(&t.label, "bad-key", format!("key {k:02x?} names no object")));
        return Ok(None);
    };
    let r = match ObjectRecord::decode(id, v) {
        Ok(r) => r,
        Err(e) => {
            report.problem(Problem::new(&t.label, "bad-record", e.to_string()).object(id));
            return Ok(None);
        }
    };
    report.totals.objects += 1;
    report.totals.object_bytes = report.totals.object_bytes.saturating_add(r.attr.size);
    let size = r.attr.size;
    let path = || names.and_then(|n| n.path(r.file));
    let mut wrong = |kind, what: String| {
        report.problem(Problem::new(&t.label, kind, what).object(id).file(r.file, path()));
    };
    // A record whose size does not fit its place does not decode.
    match &r.location {
        Location::Inline(_) => {}
        Location::Packed(p) => {
            if let Some(other) = slots.insert(*p, id) {
                wrong("shared-slot", format!("objects {other} and {id} lie in the same place {p:?}"));
            }
            let path = container_path(&t.dir, p.class, p.container);
            if !t.world.disk.exists(&path).map_err(|e| format!("cannot look at '{path}': {e}"))? {
                wrong("lost-file", format!("container '{path}' is missing"));
                return Ok(None);
            }
        }
        Location::Own => {
            if let Err(what) = check_own(t, id, size) {
                wrong("lost-file", what);
                return Ok(None);
            }
        }
    }
    Ok(Some((id, size)))
}

/// The object's own file is there and reaches as far as the record says.
fn check_own(t: &Target, id: ObjectId, size: u64) -> Result<(), String> {
    let path = own_path(&t.dir, id);
    let file = t.world.disk.open(&path, OpenMode::READ).map_err(|e| format!("object file '{path}': {e}"))?;
    let len = file.stat().map_err(|e| format!("object file '{path}': {e}"))?.len;
    if len < size {
        return Err(format!("object file '{path}' has {len} bytes, its record says {size}"));
    }
    Ok(())
}

/// Files that no record names. A crash between making a file and its record leaves one: no error.
fn left_over_files(t: &Target, repair: bool, report: &mut Report<'_>) -> Result<(), String> {
    let root = own_root(&t.dir);
    let disk = &t.world.disk;
    let list = |dir: &str| disk.list(dir).map_err(|e| format!("cannot list '{dir}': {e}"));
    let (mut count, mut bytes) = (0u64, 0u64);
    for sub in list(&root)? {
        let dir = format!("{root}/{sub}");
        for name in list(&dir)? {
            let path = format!("{dir}/{name}");
            let used = id_of_name(&name).is_some_and(|id| {
                let record = t.db.get(&object_key(id)).ok().flatten();
                record
                    .is_some_and(|v| ObjectRecord::decode(id, &v).is_ok_and(|r| r.location == Location::Own))
            });
            if used {
                continue;
            }
            let stat = disk.open(&path, OpenMode::READ).and_then(|f| f.stat());
            bytes += stat.map_or(0, |s| s.blocks * 512);
            count += 1;
            if repair {
                disk.unlink(&path).map_err(|e| format!("cannot remove '{path}': {e}"))?;
            }
        }
    }
    if count > 0 {
        let done = if repair { "removed" } else { "--repair removes them" };
        report
            .note(&format!("{}: {count} left-over object files with {bytes} bytes on disk: {done}", t.label));
    }
    Ok(())
}

/// A part of an object, as it was read.
pub(crate) enum Part<'a> {
    Bytes(&'a [u8]),
    /// Not what was written.
    Bad(BadBlock),
}

pub(crate) struct BadBlock {
    /// Where it begins, and how many bytes of it the object has.
    pub at: u64,
    pub len: u64,
    /// Whose it is.
    pub file: Fid,
}

/// Why an object was not read to its end.
pub(crate) struct ReadFailure {
    /// The object ends before its size.
    pub is_short: bool,
    pub what: String,
}

/// Reads an object from its beginning to its end and gives `each` what is there; goes on behind bad blocks.
pub(crate) async fn read_all(
    objects: &Arc<Objects>,
    (id, size): (ObjectId, u64),
    mut each: impl FnMut(Part<'_>) -> Result<(), String>,
) -> Result<(), ReadFailure> {
    let failed = |what| ReadFailure { is_short: false, what };
    // Up to there it is read block by block, because some block is bad.
    let (mut at, mut by_block) = (0, 0);
    while at < size {
        let read = if at < by_block { SUM_BLOCK_BYTES } else { READ_BYTES };
        match objects.read(id, at, read).await {
            Ok(f) if f.data.is_empty() => {
                return Err(ReadFailure {
                    is_short: true,
                    what: format!("{at} of {size} bytes can be read"),
                });
            }
            Ok(f) => {
                assert!(f.data.len() <= read as usize, "no more is read than was asked for");
                each(Part::Bytes(&f.data)).map_err(failed)?;
                at += f.data.len() as u64;
            }
            Err(StoreError::Checksum { .. }) if read > SUM_BLOCK_BYTES => by_block = at + u64::from(read),
            Err(StoreError::Checksum { file, .. }) => {
                let len = u64::from(read).min(size - at);
                each(Part::Bad(BadBlock { at, len, file })).map_err(failed)?;
                at += len;
            }
            Err(e) => return Err(failed(format!("cannot be read at byte {at}: {e}"))),
        }
    }
    Ok(())
}

/// Reads an object and reports what is wrong with its bytes.
async fn check_data(
    t: &Target,
    objects: &Arc<Objects>,
    (id, size): (ObjectId, u64),
    report: &mut Report<'_>,
) {
    let read = read_all(objects, (id, size), |part| {
        if let Part::Bad(b) = part {
            let what = format!("the block at byte {} is not what was written", b.at);
            report.problem(Problem::new(&t.label, "bad-checksum", what).object(id).file(b.file, None));
        }
        Ok(())
    });
    if let Err(e) = read.await {
        let kind = if e.is_short { "short-object" } else { "unreadable-object" };
        report.problem(Problem::new(&t.label, kind, e.what).object(id));
    }
}
