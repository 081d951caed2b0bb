//! Bytes that go to an object's own file without the journal, flushed with their record.

use super::change::Change;
use super::data::ObjectData;
use super::files::FileKey;
use super::location::{self, Location};
use super::ordered::Relied;
use super::redo::Redo;
use super::sums::{BLOCK_BYTES, pieces};
use crate::StoreError;
use std::sync::Arc;
use wire::frame::crc32c;
use world::DiskFile;

impl ObjectData {
    /// The object's own file, for writes that the journal lacks.
    pub(super) fn file_in_order(&self, c: &Change) -> Result<Arc<dyn DiskFile>, StoreError> {
        let file = self.files.get(FileKey::Own(c.id))?;
        let len = file.stat().map_err(|e| self.own_error(c, e))?.len;
        if len > c.size() {
            // What an unfinished change left: gone for good before anything is built on it.
            self.cut_now(c, &*file)?;
        }
        Ok(file)
    }

    /// Writes to the object's own file, which is flushed with the record.
    pub(super) fn write_in_order(
        &self,
        c: &mut Change,
        off: u64,
        data: &[u8],
    ) -> Result<Location, StoreError> {
        let file = self.file_in_order(c)?;
        let range = self.write_ordered(c, &file, off, data, c.fill)?;
        c.relied = Some(Relied { key: FileKey::Own(c.id), file, dir: None, ranges: vec![range] });
        Ok(Location::Own)
    }

    /// Writes bytes to the object's own file, with zeros before and behind them, and notes what a start looks
    /// for. Returns the range that the record relies on.
    pub(super) fn write_ordered(
        &self,
        c: &mut Change,
        file: &Arc<dyn DiskFile>,
        off: u64,
        data: &[u8],
        fill: (u64, u64),
    ) -> Result<(u64, u64), StoreError> {
        assert!(fill.0 < BLOCK_BYTES && fill.1 < BLOCK_BYTES, "zeros fill up no more than a block");
        let range = (off - fill.0, off + data.len() as u64 + fill.1);
        let zeros = [0; BLOCK_BYTES as usize];
        let done = file
            .write_at(&zeros[..fill.0 as usize], range.0)
            .and_then(|()| self.files.write_bulk(&**file, data, off))
            .and_then(|()| file.write_at(&zeros[..fill.1 as usize], off + data.len() as u64));
        self.written(c, file, done)?;
        self.note_ordered(c, range, &[(off, data)])?;
        Ok(range)
    }

    /// The change's record is to be committed only after these ranges of its file were flushed. `parts`: what
    /// was written where, the last of them the caller's data, of which the change knows the checksums of
    /// whole blocks; zeros elsewhere.
    fn rely_on(
        &self,
        c: &mut Change,
        file: Arc<dyn DiskFile>,
        dir: Option<String>,
        ranges: &[(u64, u64)],
        parts: &[(u64, &[u8])],
    ) -> Result<(), StoreError> {
        for range in ranges {
            self.note_ordered(c, *range, parts)?;
        }
        c.relied = Some(Relied { key: FileKey::Own(c.id), file, dir, ranges: ranges.to_vec() });
        Ok(())
    }

    /// What a start looks for in one of the ranges that a record relies on; see [`ObjectData::rely_on`].
    fn note_ordered(
        &self,
        c: &mut Change,
        (from, to): (u64, u64),
        parts: &[(u64, &[u8])],
    ) -> Result<(), StoreError> {
        let &(off, data) = parts.last().expect("something was written");
        let end = off + data.len() as u64;
        let mut crcs = Vec::with_capacity(((to - from) / BLOCK_BYTES) as usize + 2);
        for (a, b) in pieces(from, to) {
            let known = if b - a == BLOCK_BYTES && off <= a && b <= end {
                self.sums.sum(&mut c.sums, &c.old, a / BLOCK_BYTES)?
            } else {
                None
            };
            crcs.push(known.unwrap_or_else(|| crc_of(a, b, parts)));
        }
        c.redo.push(Redo::Ordered { object: c.id, offset: from, len: to - from, crcs });
        Ok(())
    }

    /// A file of its own for the object's bytes and the written ones, flushed with the record.
    pub(super) fn write_new_own(
        &self,
        c: &mut Change,
        off: u64,
        data: &[u8],
    ) -> Result<Location, StoreError> {
        let (file, content) = self.create_own(c)?;
        self.files.write_bulk(&*file, data, off).map_err(|e| self.own_error(c, e))?;
        let (size, end) = (c.size(), off + data.len() as u64);
        assert!(end > size, "within its size an object keeps its place");
        let all = [(0, if off <= size { end } else { size }), (off, end)];
        let ranges = if off <= size { &all[..1] } else { &all[usize::from(size == 0)..] };
        let dir = location::own_dir(&self.core.dir, c.id);
        self.rely_on(c, file, Some(dir), ranges, &[(0, &content), (off, data)])?;
        Ok(Location::Own)
    }
}

/// crc32c of bytes `from..to` (at most a block), made of `parts`, later ones over earlier ones.
fn crc_of(from: u64, to: u64, parts: &[(u64, &[u8])]) -> u32 {
    let mut piece = [0; BLOCK_BYTES as usize];
    let piece = &mut piece[..(to - from) as usize];
    for (off, data) in parts {
        let (a, b) = (from.max(*off), to.min(off + data.len() as u64));
        if a < b {
            piece[(a - from) as usize..(b - from) as usize]
                .copy_from_slice(&data[(a - off) as usize..(b - off) as usize]);
        }
    }
    crc32c(piece)
}
