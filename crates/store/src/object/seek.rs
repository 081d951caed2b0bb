//! seek: the next data or hole.

use super::Objects;
use super::files::FileKey;
use super::load::load;
use super::location::{Location, ObjectRecord};
use crate::StoreError;
use model::ObjectId;

impl Objects {
    /// Next data (or hole, if `hole`) at or after `off`, and the object's size. The object's end counts as a
    /// hole; `None` if there is no such place, or `off` is not within the object.
    pub fn seek(&self, id: ObjectId, off: u64, hole: bool) -> Result<(Option<u64>, u64), StoreError> {
        let rec = load(&self.db, id)?.0.unwrap_or_else(ObjectRecord::empty);
        let size = rec.attr.size;
        if off >= size {
            return Ok((None, size));
        }
        let at = match &rec.location {
            Location::Inline(b) => data_up_to(b.len() as u64, off, hole),
            Location::Packed(_) => data_up_to(size, off, hole),
            Location::Own => {
                let key = FileKey::Own(id);
                let newer = self.files.newer(id, 0, u64::MAX);
                let file = self.files.get(key)?;
                let look = |off| {
                    let found = if hole { file.seek_hole(off) } else { file.seek_data(off) };
                    found.map_err(StoreError::io("cannot seek in object file", &self.files.path(key)))
                };
                if hole {
                    // A file shorter than its object ends in a hole; bytes on their way to it are no hole.
                    let mut at = off;
                    loop {
                        let found = look(at)?.unwrap_or(at);
                        let ends = newer.iter().map(|(o, d)| (*o, o + d.len() as u64));
                        match ends.filter(|(from, to)| *from <= found && found < *to).map(|(_, to)| to).max()
                        {
                            Some(end) => at = end,
                            None => break Some(found),
                        }
                    }
                } else {
                    let ahead =
                        newer.iter().filter(|(o, d)| o + d.len() as u64 > off).map(|(o, _)| off.max(*o));
                    look(off)?.into_iter().chain(ahead).min()
                }
            }
        };
        let at = if hole { at.map(|a| a.min(size)) } else { at.filter(|a| *a < size) };
        Ok((at, size))
    }
}

/// Data from the beginning to `end`, a hole behind.
fn data_up_to(end: u64, off: u64, hole: bool) -> Option<u64> {
    if hole { Some(off.max(end)) } else { (off < end).then_some(off) }
}
