//! Data that comes to its inode from objects, or stays there in another room.

use super::Attempt;
use crate::data;
use crate::schema::Inode;
use crate::schema::inode::DataState;
use crate::tx::Tx;
use bytes::Bytes;
use model::{Errno, Fid, ObjectAttr};

/// The bytes of a file, and what its objects were like when nobody could change them any more.
pub(super) struct FileData {
    pub size: u64,
    /// (offset, bytes), holes left out.
    pub runs: Vec<(u64, Bytes)>,
    pub attrs: Vec<ObjectAttr>,
}

impl FileData {
    pub fn versions(&self) -> Vec<u64> {
        self.attrs.iter().map(|a| a.data_version).collect()
    }
}

/// The file's layout is that of the attempt, which has no objects. The inode is written.
pub(super) fn lay_out(tx: &mut Tx, fid: Fid, i: &mut Inode, a: &Attempt) {
    assert!(a.target.data_room().is_some_and(|room| i.data.size <= room), "{fid}: its data has room there");
    i.default_layout = a.later.clone().map(|s| s.inherit(&tx.shared.settings.builtin_layout()));
    assert!(i.default_layout.is_some(), "{fid}: it is said what a file with its inode grows into");
    super::lay_out(tx, fid, i, a.target.clone());
}

/// The data lies with the inode from now on. A move is no change of a file: the inode has the times that its
/// user saw, of which the objects had the latest.
pub(super) fn bring_in(tx: &mut Tx, fid: Fid, i: &mut Inode, a: &Attempt, d: &FileData) -> Result<(), Errno> {
    if i.data != DataState::default() {
        tracing::error!("{fid} has data on objects, and some with its inode: nacre fsck tells more");
        return Err(Errno::EIO);
    }
    let mut seen = i.attr(fid);
    d.attrs.iter().for_each(|o| seen.merge_object(o));
    for (off, bytes) in &d.runs {
        data::write(tx, fid, i, *off, bytes, seen.ctime)?;
    }
    data::cut(tx, fid, i, d.size)?;
    assert_eq!(i.data.size, d.size, "{fid} is as long as it was");
    (i.mtime, i.mtime_stamp, i.ctime) = (seen.mtime, seen.mtime_stamp, seen.ctime);
    // What was seen of the objects' data is never seen again with other bytes.
    i.data.version = i.data.version.max(d.attrs.iter().map(|o| o.data_version).max().unwrap_or(0));
    lay_out(tx, fid, i, a);
    Ok(())
}
