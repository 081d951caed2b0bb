//! A change of an object, and what it leaves to be done.

use super::edit::Edit;
use super::location::{Location, ObjectRecord, Place};
use super::ordered::Relied;
use super::pending::Waiting;
use super::redo::Redo;
use crate::Lsn;
use model::{ObjectId, Timestamp};

/// One change in the making.
pub(super) struct Change {
    pub id: ObjectId,
    /// As it is now.
    pub old: ObjectRecord,
    pub redo: Vec<Redo>,
    /// The metadata target changed the file's owner.
    pub named_by_mdt: bool,
    /// Slot taken for this change, given back if it fails.
    pub taken: Option<Place>,
    /// Own file made for this change, removed if it fails.
    pub created: bool,
    /// What it does to the checksums.
    pub sums: Edit,
    /// Zeros to be written before and behind the data: the rest of blocks that had no checksum.
    pub fill: (u64, u64),
    /// Bytes that go to a file once the record is committed.
    pub put_off: Vec<Waiting>,
    /// Bytes that are flushed before the record is.
    pub relied: Option<Relied>,
    /// Keys that go with the record.
    pub drop_keys: Vec<Vec<u8>>,
    /// Requests by layouts older than this are refused afterwards.
    pub fence: u32,
    /// What the object's mtime and ctime become, also if that is earlier.
    pub times: Option<(Timestamp, Timestamp)>,
    pub after: After,
}

/// What remains to be done once the record is committed.
#[derive(Default)]
pub(super) struct After {
    pub free: Vec<Place>,
    pub cut: Option<(ObjectId, u64)>,
    /// It became shorter within its slot: until that is committed the bytes behind its end belong to a record
    /// that a crash brings back, checksums and all, so nothing may be appended.
    pub shorter: bool,
    /// fallocate(2) that makes zeros: mode, offset, length.
    pub zero: Option<(ObjectId, u32, u64, u64)>,
    pub unlink: Vec<ObjectId>,
    /// The object's record says which checksums are to be dropped.
    pub stale: Option<ObjectId>,
    /// Destroyed objects with checksums to be dropped.
    pub leftovers: Vec<ObjectId>,
}

impl After {
    pub fn is_nothing(&self) -> bool {
        self.free.is_empty() && !self.holds() && self.leftovers.is_empty()
    }

    /// Whether the object stays locked until it is done.
    pub fn holds(&self) -> bool {
        self.cut.is_some()
            || self.shorter
            || self.zero.is_some()
            || !self.unlink.is_empty()
            || self.stale.is_some()
    }
}

impl Change {
    pub fn new(id: ObjectId, old: ObjectRecord) -> Change {
        Change {
            id,
            old,
            redo: Vec::new(),
            named_by_mdt: false,
            taken: None,
            created: false,
            sums: Edit::new(id),
            fill: (0, 0),
            put_off: Vec::new(),
            relied: None,
            drop_keys: Vec::new(),
            fence: 0,
            times: None,
            after: After::default(),
        }
    }

    pub fn size(&self) -> u64 {
        self.old.attr.size
    }

    /// Whether what was prepared fits to the place and the size that the object gets.
    pub fn check(&self, location: &Location, size: u64) {
        assert!(location.holds(size), "{size} bytes of object {} do not fit where they are put", self.id);
        assert!(self.taken.is_none_or(|p| *location == Location::Packed(p)), "a slot that was taken is used");
        let own = *location == Location::Own;
        assert!(own || self.old.location != Location::Own, "an object never leaves a file of its own");
        assert!(own || !self.created, "a file that was made is used");
        assert!(own || self.relied.is_none(), "only bytes in a file of its own are flushed with the record");
        let within = |w: &Waiting| w.off + w.data.len() as u64 <= size;
        assert!(self.put_off.iter().all(within), "no bytes are written behind the object's end");
        let cut = self.after.cut;
        assert!(
            cut.is_none_or(|(id, to)| own && id == self.id && to == size),
            "a cut file has the object's size"
        );
        assert!(own || self.after.zero.is_none(), "only a file of its own is zeroed after the commit");
        assert!(self.after.free.is_empty(), "the slot that a change leaves is freed when it is submitted");
    }

    pub fn is_sparse(&self) -> bool {
        self.old.location == Location::Own && self.old.attr.blocks.saturating_mul(512) < self.size()
    }
}

/// What a change leaves behind: the caller's answer, the position, and the rest of the work.
pub(super) type Done<T> = (T, Lsn, After);
