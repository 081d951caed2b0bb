//! Byte ranges of data objects, by location: inline in the table, a slot of a packed container file, or a
//! file of its own (design.md §7).
//!
//! A change goes to the page cache of the object's file first, then its record is submitted: the record
//! carries what to do again after a crash ([`Redo`]), so one flush of the journal makes both durable. Files
//! of large writes are flushed with it, before the journal. Cuts wait for their record's commit, because they
//! cannot be undone. The byte tables and the reasoning are in `docs/formats/objects.md`.

mod age;
mod cache_use;
pub mod fallocate;
mod files;
pub mod location;
mod locks;
mod pending;
pub mod recover;
pub mod redo;
pub mod scrub;
mod slots;
pub mod sums;
pub mod unfinished;

mod change;
mod destroy;
mod fence;
mod list;
mod open;
mod ordered;
mod read;
mod seek;
mod truncate;
mod write;

pub use cache_use::CacheUse;
pub use list::ListPart;
pub use read::Found;
pub use redo::Redo;

use crate::{Db, Lsn, StoreError, Txn};
use files::{FileKey, Files};
use location::{Location, ObjectRecord};
use locks::Locks;
use model::mutex::Mutex;
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp};
use slots::Slots;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use unfinished::LeftOpen;
use world::World;

/// Who a change is for: times, back-pointer, owner.
#[derive(Clone, Debug)]
pub struct ObjectMeta {
    /// The file the object belongs to.
    pub file: Fid,
    /// Owner to charge; taken from writes, and from whatever makes the object.
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// Stamped as mtime and ctime (raised above the stored ctime); `None` leaves the times.
    pub time: Option<Timestamp>,
    /// What the object's data version becomes if it is lower, for a change in several transactions of which
    /// some may be there already; `None`: one more than it is.
    pub data_version: Option<u64>,
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
    slots: Mutex<Slots>,
    left_open: Mutex<LeftOpen>,
    /// What went wrong so far.
    pub counters: Counters,
}

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    /// Blocks whose checksum differed when they were read.
    pub checksum_errors: AtomicU64,
}

impl Objects {
    /// The object's record and what it depends on. ESTALE if it was destroyed.
    fn load(&self, id: ObjectId) -> Result<(Option<ObjectRecord>, Lsn), StoreError> {
        let mut view = self.db.view();
        if let Some(v) = view.get(&location::object_key(id))? {
            return Ok((Some(ObjectRecord::decode(id, &v)?), view.seen()));
        }
        if view.get(&location::tombstone_key(id))?.is_some() {
            return Err(StoreError::Errno(Errno::ESTALE));
        }
        Ok((None, view.seen()))
    }

    /// Whether it was ever written or destroyed here.
    pub fn is_known(&self, id: ObjectId) -> Result<bool, StoreError> {
        match self.load(id) {
            Err(StoreError::Errno(Errno::ESTALE)) => Ok(true),
            r => r.map(|(rec, _)| rec.is_some()),
        }
    }

    /// Of which layout an object is at least: requests by older ones came from before a fence
    /// ([`Objects::fence`]). `ESTALE` if it was destroyed.
    pub fn generation(&self, id: ObjectId) -> Result<u32, StoreError> {
        Ok(self.load(id)?.0.map_or(0, |rec| rec.layout_generation))
    }

    /// As [`Objects::attr`], with [`Objects::generation`]. `ESTALE` if it was destroyed.
    pub fn attr_of_layout(&self, id: ObjectId) -> Result<(ObjectAttr, u32, Lsn), StoreError> {
        let (rec, lsn) = self.load(id)?;
        let mut rec = rec.unwrap_or_else(ObjectRecord::empty);
        self.refresh_blocks(id, &mut rec);
        Ok((rec.attr, rec.layout_generation, lsn))
    }

    /// Attributes and the newest transaction they depend on; an object that was never written is empty.
    pub fn attr(&self, id: ObjectId) -> Result<(ObjectAttr, Lsn), StoreError> {
        let (mut rec, lsn) = match self.load(id) {
            Err(StoreError::Errno(Errno::ESTALE)) => {
                return Ok((ObjectAttr::default(), self.db.last_submitted()));
            }
            other => other?,
        };
        let Some(rec) = &mut rec else { return Ok((ObjectAttr::default(), lsn)) };
        self.refresh_blocks(id, rec);
        Ok((rec.attr, lsn))
    }

    /// Allocated space of a file of its own is the host's business and changes behind our back.
    fn refresh_blocks(&self, id: ObjectId, rec: &mut ObjectRecord) {
        if rec.location == Location::Own
            && let Ok(f) = self.files.get(FileKey::Own(id))
            && let Ok(st) = f.stat()
        {
            rec.attr.blocks = st.blocks;
        }
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
