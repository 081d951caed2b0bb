//! Byte ranges of data objects, by location: inline in the table, a slot of a packed container file, or a
//! file of its own (design.md §7).

pub mod fallocate;
pub mod location;
pub mod recover;
pub mod redo;

pub use redo::Redo;

use crate::{Db, Lsn, StoreError, Txn};
use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use std::sync::Arc;
use world::World;

/// Who a change is for: times, back-pointer, owner.
#[derive(Clone, Debug)]
pub struct ObjectMeta {
    /// The file the object belongs to.
    pub file: Fid,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// Stamped as mtime and ctime (raised above the stored ctime); `None` leaves the times.
    pub time: Option<Timestamp>,
    pub layout_generation: u32,
}

/// All objects of one OST. Calls that change something add to `txn`, submit it and return its position;
/// the caller waits for [`Db::durable`]. A change of one object must not run beside another of the same
/// object: they are serialised inside.
pub struct Objects {
    _todo: (),
}

impl Objects {
    pub fn create(_world: &World, _dir: &str) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// After [`Db::open`]: replays payloads of the journal that the files may lack.
    pub fn open(_world: &World, _dir: &str, _db: Arc<Db>) -> Result<Arc<Objects>, StoreError> {
        unimplemented!()
    }

    /// Attributes and the newest transaction they depend on; an object that was never written is empty.
    pub fn attr(&self, _id: ObjectId) -> Result<(ObjectAttr, Lsn), StoreError> {
        unimplemented!()
    }

    /// Bytes (short at the object's end), the object's size, and what they depend on.
    pub fn read(self: &Arc<Self>, _id: ObjectId, _off: u64, _len: u32) -> world::BoxFuture<Result<(Vec<u8>, u64, Lsn), StoreError>> {
        unimplemented!()
    }

    /// Writes; `off` `None` appends at the object's end. Returns the offset written, the new attributes
    /// and the transaction to wait for. A payload above 64 KiB is flushed before its record is submitted.
    pub fn write(
        self: &Arc<Self>,
        _id: ObjectId,
        _off: Option<u64>,
        _data: bytes::Bytes,
        _meta: ObjectMeta,
        _finish: FinishTxn,
    ) -> world::BoxFuture<Result<(u64, ObjectAttr, Lsn), StoreError>> {
        unimplemented!()
    }

    pub fn truncate(
        self: &Arc<Self>,
        _id: ObjectId,
        _size: u64,
        _meta: ObjectMeta,
        _finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        unimplemented!()
    }

    /// `mode` as in fallocate(2): keep size 1, punch 2, zero 0x10.
    pub fn fallocate(
        self: &Arc<Self>,
        _id: ObjectId,
        _mode: u32,
        _off: u64,
        _len: u64,
        _meta: ObjectMeta,
        _finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        unimplemented!()
    }

    /// Next data (or hole, if `hole`) at or after `off`, and the object's size.
    pub fn seek(&self, _id: ObjectId, _off: u64, _hole: bool) -> Result<(Option<u64>, u64), StoreError> {
        unimplemented!()
    }

    /// Removes objects, leaving tombstones: later writes to them give ESTALE.
    pub fn destroy(
        self: &Arc<Self>,
        _ids: Vec<ObjectId>,
        _finish: FinishTxn,
    ) -> world::BoxFuture<Result<Lsn, StoreError>> {
        unimplemented!()
    }

    /// Every object with its file, for fsck: (object, file, attributes).
    pub fn list(&self, _after: Option<ObjectId>, _limit: usize) -> Result<Vec<(ObjectId, Fid, ObjectAttr)>, StoreError> {
        unimplemented!()
    }
}

/// Adds the caller's part (the reply slot) to the transaction just before it is submitted; it gets the
/// offset written and the attributes the object has afterwards.
pub type FinishTxn = Box<dyn FnOnce(&mut Txn, u64, &ObjectAttr) + Send>;
