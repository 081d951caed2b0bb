//! Data that comes to its inode from objects, or stays there in another room.

use super::{Attempt, replace};
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
fn lay_out(tx: &mut Tx, fid: Fid, i: &mut Inode, a: &Attempt) {
    let later = i.layout.as_ref().is_some_and(|old| old.generation < a.target.generation);
    assert!(later, "{fid} gets a layout that is not newer than its own");
    assert!(a.target.data_room().is_some_and(|room| i.data.size <= room), "{fid}: its data has room there");
    replace(i, a.target.clone());
    i.default_layout = a.later.clone().map(|s| s.inherit(&tx.shared.settings.builtin_layout()));
    assert!(i.default_layout.is_some(), "{fid}: it is said what a file with its inode grows into");
    tx.change_layout(fid);
    tx.index_objects(fid, i);
    tx.put_inode(fid, i);
}

/// The data stays where it is.
pub(super) fn stay(tx: &mut Tx, fid: Fid, i: &mut Inode, a: &Attempt) {
    lay_out(tx, fid, i, a);
}

/// The data lies with the inode from now on. A move is no change of a file: the inode has the times that its
/// user saw, of which the objects had the latest.
pub(super) fn bring_in(tx: &mut Tx, fid: Fid, i: &mut Inode, a: &Attempt, d: &FileData) -> Result<(), Errno> {
    if i.data != DataState::default() {
        tracing::error!("{fid} has data on objects, and some with its inode: nacre fsck tells more");
        return Err(Errno::EIO);
    }
    let (mut mtime, mut stamp, mut ctime) = (i.mtime, i.mtime_stamp, i.ctime);
    for o in &d.attrs {
        if o.ctime > stamp {
            (mtime, stamp) = (o.mtime, o.ctime);
        }
        ctime = ctime.max(o.ctime);
    }
    for (off, bytes) in &d.runs {
        data::write(tx, fid, i, *off, bytes, ctime)?;
    }
    data::cut(tx, fid, i, d.size)?;
    assert_eq!(i.data.size, d.size, "{fid} is as long as it was");
    (i.mtime, i.mtime_stamp, i.ctime) = (mtime, stamp, ctime);
    // What was seen of the objects' data is never seen again with other bytes.
    i.data.version = i.data.version.max(d.attrs.iter().map(|o| o.data_version).max().unwrap_or(0));
    lay_out(tx, fid, i, a);
    Ok(())
}
