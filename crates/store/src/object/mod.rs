//! Byte ranges of data objects, by location: inline in the table, a slot of a packed container file, or a
//! file of its own (design.md §7).
//!
//! A change goes to the page cache of the object's file first, then its record is submitted: the record
//! carries what to do again after a crash ([`Redo`]), so one flush of the journal makes both durable. Files
//! of large writes are flushed with it, before the journal. Cuts wait for their record's commit, because they
//! cannot be undone. The byte tables and the reasoning are in `docs/formats/objects.md`.
//!
//! Below the verbs (`write`, `read`, …) are `submit`, what all changes share; `data` and `in_order`, where
//! their bytes go; `verify`, `edit` and `unfinished`, the checksums; `files`, with `content`, `pending` and
//! `ordered`, the host's files; `location`, `sums` and `redo`, what table and journal have of objects.

mod age;
mod allocated;
mod cache_use;
mod content;
mod edit;
mod files;
mod load;
pub mod location;
mod locks;
mod pending;
pub mod recover;
pub mod redo;
pub mod scrub;
mod slots;
pub mod sums;
pub mod unfinished;
mod unsettled;
mod verify;
mod zeros;

mod change;
mod data;
mod destroy;
mod fallocate;
mod fence;
mod in_order;
mod list;
mod open;
mod ordered;
mod owner;
mod read;
mod seek;
mod submit;
mod truncate;
mod write;

pub use cache_use::CacheUse;
pub use list::ListPart;
pub use open::count_usage;
pub use read::Found;
pub use redo::Redo;
pub use verify::Counters;

use crate::usage::UsageLedger;
use crate::{Db, Lsn, StoreError, Txn, View};
use data::ObjectData;
use files::Files;
use load::load;
use location::ObjectRecord;
use locks::Locks;
use model::nodemap::Owner;
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp};
use std::sync::Arc;
use verify::Checksums;
use world::World;

/// Who a change is for: times, back-pointer, owner.
#[derive(Clone, Debug)]
pub struct ObjectMeta {
    /// The file the object belongs to.
    pub file: Fid,
    /// To whom the object is counted if this change makes it, or knows the file's owner.
    pub owner: Owner,
    /// The inode's ctime when that was the owner. `None`: it is only who asks.
    pub owner_as_of: Option<Timestamp>,
    /// Stamped as mtime and ctime (raised above the stored ctime); `None` leaves the times.
    pub time: Option<Timestamp>,
    /// What the object's data version becomes if it is lower, for a change in several transactions of which
    /// some may be there already; `None`: one more than it is.
    pub data_version: Option<u64>,
    /// What the object is to remember of its component ([`model::layout::ObjectLabel`], encoded).
    pub label: Option<Vec<u8>>,
}

/// Adds the caller's part (the reply slot) to the transaction just before it is submitted; it gets the
/// offset written and the attributes the object has afterwards.
pub type FinishTxn = Box<dyn FnOnce(&mut Txn, u64, &ObjectAttr) + Send>;

/// All objects of one OST. Calls that change something add to `txn`, submit it and return its position;
/// the caller waits for [`Db::durable`]. A change of one object must not run beside another of the same
/// object: they are serialised inside. A call whose future is dropped is either done or not begun.
pub struct Objects {
    pub(crate) world: World,
    pub(crate) dir: String,
    pub(crate) db: Arc<Db>,
    age: age::AgeClock,
    locks: Arc<Locks>,
    files: Arc<Files>,
    sums: Arc<Checksums>,
    data: ObjectData,
    /// What owners use here.
    usage: UsageLedger,
    /// What went wrong so far.
    pub counters: Arc<Counters>,
}

impl Objects {
    /// What owners use of this target.
    pub fn usage(&self) -> &UsageLedger {
        &self.usage
    }

    /// Where what owners use is not what the records of objects say, in words.
    pub fn usage_difference(&self) -> Result<Option<String>, StoreError> {
        // Records are set right meanwhile: both of one moment.
        let still = self.db.still()?;
        crate::usage::difference(&still, &count_usage(&still)?)
    }

    /// To whom an object is counted; `None` if it was never written.
    pub fn owner(&self, id: ObjectId) -> Result<Option<Owner>, StoreError> {
        Ok(load(&self.db, id)?.0.map(|rec| rec.owner))
    }

    /// Whether it was ever written or destroyed here.
    pub fn is_known(&self, id: ObjectId) -> Result<bool, StoreError> {
        match load(&self.db, id) {
            Err(StoreError::Errno(Errno::ESTALE)) => Ok(true),
            r => r.map(|(rec, _)| rec.is_some()),
        }
    }

    /// Of which layout an object is at least: requests by older ones came from before a fence
    /// ([`Objects::fence`]). `ESTALE` if it was destroyed.
    pub fn generation(&self, id: ObjectId) -> Result<u32, StoreError> {
        Ok(load(&self.db, id)?.0.map_or(0, |rec| rec.layout_generation))
    }

    /// As [`Objects::attr`], with [`Objects::generation`]. `ESTALE` if it was destroyed.
    pub fn attr_of_layout(&self, id: ObjectId) -> Result<(ObjectAttr, u32, Lsn), StoreError> {
        let (rec, lsn) = load(&self.db, id)?;
        let mut rec = rec.unwrap_or_else(ObjectRecord::empty);
        self.look_at_blocks(id, &mut rec);
        Ok((rec.attr, rec.layout_generation, lsn))
    }

    /// As [`Objects::attr_of_layout`] for one of many objects: `view` remembers what all of them depend on.
    /// Without `space` blocks are as they were written down, and no file of an object is looked at.
    pub fn attr_in(
        &self,
        view: &mut View,
        id: ObjectId,
        space: bool,
    ) -> Result<(ObjectAttr, u32), StoreError> {
        let mut rec = load::load_by(view, id)?.unwrap_or_else(ObjectRecord::empty);
        if space {
            self.look_at_blocks(id, &mut rec);
        }
        Ok((rec.attr, rec.layout_generation))
    }

    /// Attributes and the newest transaction they depend on; an object that was never written is empty.
    pub fn attr(&self, id: ObjectId) -> Result<(ObjectAttr, Lsn), StoreError> {
        let (mut rec, lsn) = match load(&self.db, id) {
            Err(StoreError::Errno(Errno::ESTALE)) => {
                return Ok((ObjectAttr::default(), self.db.last_submitted()));
            }
            other => other?,
        };
        let Some(rec) = &mut rec else { return Ok((ObjectAttr::default(), lsn)) };
        self.look_at_blocks(id, rec);
        Ok((rec.attr, lsn))
    }

    /// Whether data in bulk goes through the host's page cache.
    pub fn cache_use(&self) -> &CacheUse {
        &self.files.cache_use
    }

    /// Every object with its file, for fsck: (object, file, attributes).
    pub fn list(
        &self,
        after: Option<ObjectId>,
        limit: usize,
    ) -> Result<Vec<(ObjectId, Fid, ObjectAttr)>, StoreError> {
        let from = match after {
            Some(id) => {
                let mut k = location::object_key(id);
                k.push(0);
                k
            }
            None => vec![location::TAG_OBJECT],
        };
        let pairs = self.db.scan(&from, &[location::TAG_OBJECT + 1], limit)?;
        pairs
            .into_iter()
            .map(|(k, v)| {
                let id = location::id_of_key(&k).ok_or_else(|| {
                    StoreError::damaged("object", &self.dir, format!("key {k:02x?} has a wrong length"))
                })?;
                let rec = ObjectRecord::decode(id, &v)?;
                Ok((id, rec.file, rec.attr))
            })
            .collect()
    }
}
