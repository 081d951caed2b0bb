//! Redo after a crash: brings the files of objects to what the journal says, before anything is served.
//!
//! A container's slots are only ever written by journal payloads, so all of them are redone, in order. An own
//! file may hold newer, flushed data: of it only what lies behind the last `Flushed` is redone. Its name is
//! another matter: the record that made the file may be in the page cache only, and the name with it.

use super::location::{container_path, own_dir, own_path, packed_dir};
use super::redo::Redo;
use super::sums::pieces;
use super::zeros::allocate_or_zero;
use crate::journal::Lsn;
use crate::{StoreError, medium};
use model::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use wire::frame::crc32c;
use world::{OpenMode, World};

/// Bytes compared in one piece.
const LOOK_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Work<'a> {
    containers: BTreeMap<(u8, u32), Vec<&'a Redo>>,
    own: BTreeMap<ObjectId, Own<'a>>,
}

#[derive(Default)]
struct Own<'a> {
    redo: Vec<&'a Redo>,
    /// The file's name may not be durable.
    named: bool,
}

impl<'a> Work<'a> {
    fn collect(records: &'a [(Lsn, Vec<Redo>)]) -> Work<'a> {
        let mut w = Work::default();
        for r in records.iter().flat_map(|(_, redo)| redo) {
            match r {
                Redo::WritePacked { place, .. } => {
                    w.containers.entry((place.class, place.container)).or_default().push(r);
                }
                // What was written before is on disk already, or goes with the file.
                Redo::Flushed { object } | Redo::Unlink { object } => {
                    w.own.entry(*object).or_default().redo = vec![r];
                }
                Redo::WriteOwn { object, .. }
                | Redo::Truncate { object, .. }
                | Redo::Allocate { object, .. }
                | Redo::Ordered { object, .. } => {
                    let own = w.own.entry(*object).or_default();
                    own.named |= matches!(r, Redo::Ordered { .. });
                    own.redo.push(r);
                }
            }
        }
        w
    }
}

/// Applies the records' redo entries and makes them durable; returns what keeps a later start from doing so
/// again with files that were changed meanwhile.
pub(crate) fn replay(
    world: &World,
    dir: &str,
    records: &[(Lsn, Vec<Redo>)],
) -> Result<Vec<Redo>, StoreError> {
    let work = Work::collect(records);
    for ((class, container), redo) in &work.containers {
        let path = container_path(dir, *class, *container);
        let file = world
            .disk
            .open(&path, OpenMode::CREATE)
            .map_err(StoreError::io("cannot open container", &path))?;
        for r in redo {
            let Redo::WritePacked { place, offset, data, .. } = r else { unreachable!("collected above") };
            file.write_at(data, place.start() + u64::from(*offset))
                .map_err(StoreError::io("cannot redo a write to container", &path))?;
        }
        file.sync_data().map_err(StoreError::io("cannot flush container", &path))?;
    }
    if !work.containers.is_empty() {
        sync_dir(world, &packed_dir(dir))?;
    }
    let mut dirs = BTreeSet::new();
    for (id, own) in &work.own {
        let removed = replay_own(world, dir, *id, &own.redo)?;
        if own.named || removed {
            dirs.insert(own_dir(dir, *id));
        }
    }
    dirs.iter().try_for_each(|d| sync_dir(world, d))?;
    Ok(work.own.into_keys().map(|object| Redo::Flushed { object }).collect())
}

fn sync_dir(world: &World, dir: &str) -> Result<(), StoreError> {
    world.disk.sync_dir(dir).map_err(StoreError::io("cannot flush the folder", dir))
}

/// True if it removed the file.
fn replay_own(world: &World, dir: &str, id: ObjectId, redo: &[&Redo]) -> Result<bool, StoreError> {
    let path = own_path(dir, id);
    if let [Redo::Unlink { .. }] = redo {
        let there = world.disk.exists(&path).map_err(StoreError::io("cannot look at object file", &path))?;
        if there {
            world.disk.unlink(&path).map_err(StoreError::io("cannot remove object file", &path))?;
        }
        return Ok(there);
    }
    if redo.iter().all(|r| matches!(r, Redo::Flushed { .. })) {
        return Ok(false);
    }
    let file =
        world.disk.open(&path, OpenMode::WRITE).map_err(StoreError::io("cannot open object file", &path))?;
    for r in redo {
        let what = "cannot redo a change of object file";
        match r {
            Redo::WriteOwn { offset, data, .. } => {
                file.write_at(data, *offset).map_err(StoreError::io(what, &path))?;
            }
            Redo::Truncate { size, .. } => file.set_len(*size).map_err(StoreError::io(what, &path))?,
            Redo::Allocate { mode, offset, len, .. } => {
                allocate_or_zero(&*file, *mode, *offset, *len).map_err(StoreError::io(what, &path))?;
            }
            Redo::Flushed { .. } | Redo::Ordered { .. } => {}
            Redo::WritePacked { .. } | Redo::Unlink { .. } => unreachable!("collected elsewhere"),
        }
    }
    file.sync_data().map_err(StoreError::io("cannot flush object file", &path))?;
    Ok(false)
}

/// The first record whose bytes in an own file are not all there. Only such count that are not known to have
/// been durable (above `durable`): of the others later records may have changed bytes again. The bytes of
/// whatever else is done again are in the journal, so that it does not matter where those in the files are.
/// To be called before anything is redone.
pub(crate) fn first_without_data(
    world: &World,
    dir: &str,
    records: &[(Lsn, Vec<Redo>)],
    durable: Lsn,
) -> Result<Option<Lsn>, StoreError> {
    if model::planted::on(model::planted::Bug::DataNotLookedFor) {
        return Ok(None);
    }
    let mut shown = BTreeSet::new();
    for (lsn, redo) in records.iter().filter(|(lsn, _)| *lsn > durable) {
        for r in redo {
            let Redo::Ordered { object, offset, len, crcs } = r else { continue };
            let path = own_path(dir, *object);
            if shown.insert(*object) {
                medium::show_path(world, &path)?;
            }
            if !is_there(world, &path, *offset, *len, crcs)?
                // Not because a bit was read wrongly.
                && !is_there(world, &path, *offset, *len, crcs)?
            {
                tracing::info!(
                    "object {object}: {len} bytes at {offset} of record {lsn} never came to the disk"
                );
                return Ok(Some(*lsn));
            }
        }
    }
    Ok(None)
}

fn is_there(world: &World, path: &str, off: u64, len: u64, crcs: &[u32]) -> Result<bool, StoreError> {
    let file = match world.disk.open(path, OpenMode::READ) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(StoreError::io("cannot open object file", path))?,
    };
    let mut buf = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(LOOK_BYTES)];
    let mut crcs = crcs.iter();
    let (mut at, end) = (off, off + len);
    while at < end {
        // Whole blocks at a time, but for the first.
        let stop = (at / LOOK_BYTES as u64 + 1).saturating_mul(LOOK_BYTES as u64).min(end);
        let part = &mut buf[..(stop - at) as usize];
        if file.read_at(part, at).map_err(StoreError::io("cannot read object file", path))? < part.len() {
            return Ok(false);
        }
        for (a, b) in pieces(at, stop) {
            if crcs.next() != Some(&crc32c(&part[(a - at) as usize..(b - at) as usize])) {
                return Ok(false);
            }
        }
        at = stop;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use model::Fid;
    use std::sync::Arc;
    use world::mem::{CrashMode, MemDisk};
    use world::rng::Rng;

    /// The server is killed when the journal has been written, and the new file's folder has not been
    /// flushed; a later record of the same file says that its bytes are. After the next start nothing says
    /// any more that the file must be there, but the table.
    #[test]
    fn a_replay_makes_a_new_file_s_name_durable_whatever_its_later_records_say() {
        let id = ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 };
        let ordered = Redo::Ordered { object: id, offset: 0, len: 4, crcs: vec![crc32c(b"data")] };
        let write = Redo::WriteOwn { object: id, offset: 0, data: Bytes::from_static(b"data") };
        for later in [vec![], vec![Redo::Flushed { object: id }], vec![Redo::Flushed { object: id }, write]] {
            let disk = MemDisk::new();
            let (mut world, _threads) = world::real::start(1).unwrap();
            world.disk = Arc::new(disk.clone());
            for d in ["/t", "/t/objects", "/t/objects/own", &own_dir("/t", id)] {
                world.disk.mkdir(d).unwrap();
            }
            ["/", "/t", "/t/objects", "/t/objects/own"].iter().for_each(|d| world.disk.sync_dir(d).unwrap());
            let file = world.disk.open(&own_path("/t", id), OpenMode::CREATE_NEW).unwrap();
            file.write_at(b"data", 0).unwrap();
            file.sync_data().unwrap();
            let all = std::iter::once(ordered.clone()).chain(later.clone());
            let records: Vec<(Lsn, Vec<Redo>)> = (1..).zip(all.map(|r| vec![r])).collect();
            replay(&world, "/t", &records).unwrap();
            disk.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
            assert!(world.disk.exists(&own_path("/t", id)).unwrap(), "after {later:?}");
        }
    }
}
