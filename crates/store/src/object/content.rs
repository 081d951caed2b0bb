//! What the host's files hold of objects, unchecked.

use super::files::{FileKey, Files};
use super::location::{Location, ObjectRecord};
use super::pending::lay_over;
use crate::StoreError;
use model::ObjectId;

/// How often a file is looked at that seems to have fewer blocks than before.
const LOOKS_MAX: usize = 8;

impl Files {
    /// Bytes as they are, unchecked; what no file holds reads as zeros. Of an own file also what blocks
    /// without a checksum hold, which does not count.
    pub(super) fn read_raw(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        off: u64,
        buf: &mut [u8],
    ) -> Result<(), StoreError> {
        // Before the file: what goes from there to the file meanwhile is the same.
        let newer = self.newer(id, off, off.saturating_add(buf.len() as u64));
        match &rec.location {
            Location::Inline(b) => {
                let from = usize::try_from(off).map_or(b.len(), |o| o.min(b.len()));
                let have = &b[from..b.len().min(from + buf.len())];
                buf[..have.len()].copy_from_slice(have);
                buf[have.len()..].fill(0);
            }
            Location::Packed(p) => {
                let key = FileKey::Container(p.class, p.container);
                let file = self.get(key)?;
                self.read_padded(&*file, buf, p.start() + off)
                    .map_err(StoreError::io("cannot read container", &self.path(key)))?;
            }
            Location::Own => {
                let key = FileKey::Own(id);
                let file = self.get(key)?;
                self.read_padded(&*file, buf, off)
                    .map_err(StoreError::io("cannot read object file", &self.path(key)))?;
            }
        }
        lay_over(buf, off, &newer);
        Ok(())
    }

    /// Where the object's bytes lie, for messages.
    pub(super) fn place_name(&self, id: ObjectId, rec: &ObjectRecord) -> String {
        match rec.location {
            Location::Inline(_) => crate::table::redb::path(&self.dir),
            Location::Packed(p) => self.path(FileKey::Container(p.class, p.container)),
            Location::Own => self.path(FileKey::Own(id)),
        }
    }

    /// The object's bytes from the beginning, unchecked (their checksums go with them), short if the rest are
    /// zeros. Only for objects that are not in a file of their own.
    pub(super) fn small_content(&self, id: ObjectId, rec: &ObjectRecord) -> Result<Vec<u8>, StoreError> {
        match &rec.location {
            Location::Inline(b) => Ok(b.to_vec()),
            Location::Packed(_) => {
                let mut buf = vec![0; usize::try_from(rec.attr.size).expect("a slot's size")];
                self.read_raw(id, rec, 0, &mut buf)?;
                Ok(buf)
            }
            Location::Own => unreachable!("never moved back"),
        }
    }

    /// Allocated space of a file of its own is the host's business and changes behind our back. ext4 takes
    /// blocks that it had reserved out of one sum before it adds them to the other as real ones: for some
    /// microseconds a file seems to have fewer, so one that has is looked at several times.
    pub(super) fn refresh_blocks(&self, id: ObjectId, rec: &mut ObjectRecord) {
        if rec.location == Location::Own
            && let Ok(f) = self.get(FileKey::Own(id))
        {
            let looks = (0..LOOKS_MAX).map_while(|_| f.stat().ok());
            let mut most = None;
            for st in looks {
                most = most.max(Some(st.blocks));
                if st.blocks >= rec.attr.blocks {
                    break;
                }
            }
            rec.attr.blocks = most.unwrap_or(rec.attr.blocks);
        }
    }
}
