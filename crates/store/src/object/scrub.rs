//! Scrubbing: every block that is stored is read and compared, object after object.

use super::Objects;
use super::load::load;
use super::location::{self, Location, ObjectRecord};
use super::sums::{BLOCK_BYTES, GROUP_BLOCKS, Group, id_of_sums_key, sums_key};
use crate::StoreError;
use model::{Fid, ObjectId};
use std::sync::Arc;

/// Where a walk over all objects is: everything before is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    /// `None` at the beginning.
    pub object: Option<ObjectId>,
    /// In this object.
    pub offset: u64,
}

/// Something that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bad {
    pub object: ObjectId,
    /// The file it belongs to.
    pub file: Fid,
    /// In the object: of the block, or where reading failed.
    pub offset: u64,
    /// The host's file.
    pub path: String,
    /// A checksum that differs, or what the host said.
    pub why: String,
}

/// What one step did.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Where to go on; `None`: everything was looked at.
    pub next: Option<Cursor>,
    /// Read.
    pub bytes: u64,
    /// Objects whose end was reached.
    pub objects: u64,
    pub bad: Vec<Bad>,
}

/// The next id in the order of keys.
fn successor(id: ObjectId) -> Option<ObjectId> {
    let mut b = id.to_bytes();
    let i = b.iter().rposition(|x| *x != u8::MAX)?;
    b[i] += 1;
    b[i + 1..].fill(0);
    Some(ObjectId::from_bytes(&b))
}

impl Objects {
    /// Reads and compares at most `max_bytes` (rounded up to a block) from the cursor on. Objects may come,
    /// change and go meanwhile.
    pub fn scrub(self: &Arc<Self>, at: Cursor, max_bytes: u32) -> world::BoxFuture<Result<Step, StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            let from = at.object.map_or(vec![location::TAG_OBJECT], location::object_key);
            let found = me.db.scan(&from, &[location::TAG_OBJECT + 1], 1)?;
            let Some(id) = found.first().and_then(|(k, _)| location::id_of_key(k)) else {
                return Ok(Step::default());
            };
            let offset = if at.object == Some(id) { at.offset } else { 0 };
            let guard = me.locks.read(id).await;
            let rec = match load(&me.db, id) {
                Ok((Some(rec), _)) => rec,
                // Gone meanwhile.
                Ok((None, _)) | Err(StoreError::Errno(_)) => return Ok(me.past(id, Step::default())),
                Err(e) => return Err(e),
            };
            let world = me.world.clone();
            world
                .blocking(move || {
                    let _guard = guard;
                    me.scrub_object(id, &rec, offset, u64::from(max_bytes))
                })
                .await
        })
    }

    /// The host's file and the place in it where byte `off` of an object lies; `None` if it lies in the table
    /// or there is no such object.
    pub fn place(&self, id: ObjectId, off: u64) -> Result<Option<(String, u64)>, StoreError> {
        let Some(rec) = load(&self.db, id)?.0 else { return Ok(None) };
        let path = self.files.place_name(id, &rec);
        Ok(match rec.location {
            Location::Inline(_) => None,
            Location::Packed(p) => Some((path, p.start() + off)),
            Location::Own => Some((path, off)),
        })
    }

    /// The step ends with this object.
    fn past(&self, id: ObjectId, mut s: Step) -> Step {
        s.objects += 1;
        s.next = successor(id).map(|object| Cursor { object: Some(object), offset: 0 });
        s
    }

    fn scrub_object(&self, id: ObjectId, rec: &ObjectRecord, off: u64, max: u64) -> Result<Step, StoreError> {
        let mut s = Step::default();
        let bad = |offset, why| Bad {
            object: id,
            file: rec.file,
            offset,
            path: self.files.place_name(id, rec),
            why,
        };
        let start = match self.stored_from(id, rec, off) {
            Ok(Some(at)) => at / BLOCK_BYTES * BLOCK_BYTES,
            Ok(None) => return Ok(self.past(id, s)),
            Err(e) => {
                s.bad.push(bad(off, e.to_string()));
                return Ok(self.past(id, s));
            }
        };
        let stop = start.saturating_add(max.next_multiple_of(BLOCK_BYTES)).min(rec.attr.size);
        let mut buf = vec![0; usize::try_from(stop - start).expect("bounded by the caller")];
        match self.files.read_raw(id, rec, start, &mut buf) {
            Ok(()) => {
                s.bytes = stop - start;
                let (_, differ) = self.sums.compare(id, rec, start / BLOCK_BYTES, &mut buf)?;
                for d in &differ {
                    let e = self.sums.found(id, rec, d);
                    s.bad.push(bad(d.block * BLOCK_BYTES, e.to_string()));
                }
            }
            Err(e) if max > BLOCK_BYTES => {
                // Which block it is.
                tracing::warn!("object {id}: {e}");
                return self.scrub_object(id, rec, start, BLOCK_BYTES);
            }
            Err(e) => s.bad.push(bad(start, e.to_string())),
        }
        if stop >= rec.attr.size {
            return Ok(self.past(id, s));
        }
        s.next = Some(Cursor { object: Some(id), offset: stop });
        Ok(s)
    }

    /// The first place from `off` on that is stored, or that has a checksum.
    fn stored_from(&self, id: ObjectId, rec: &ObjectRecord, off: u64) -> Result<Option<u64>, StoreError> {
        if off >= rec.attr.size {
            return Ok(None);
        }
        if rec.location != Location::Own {
            return Ok(Some(off));
        }
        let data = self.seek(id, off, false)?.0;
        let first = off / BLOCK_BYTES;
        let keys = self.db.scan(&sums_key(id, first / GROUP_BLOCKS), &sums_key(id, u64::MAX), 2)?;
        let mut summed = None;
        for (k, v) in keys {
            if let (Some((_, g)), Some(group)) = (id_of_sums_key(&k), Group::decode(&v))
                && let Some(b) = (g * GROUP_BLOCKS..)
                    .take(GROUP_BLOCKS as usize)
                    .find(|b| *b >= first && group.get((b % GROUP_BLOCKS) as usize).is_some())
            {
                summed = Some(b * BLOCK_BYTES);
                break;
            }
        }
        Ok(data.into_iter().chain(summed.map(|at| at.max(off))).min().filter(|at| *at < rec.attr.size))
    }
}
