//! statfs: space and inodes of the metadata target.

use crate::mdt::Mdt;
use model::Errno;
use std::sync::atomic::Ordering;
use wire::msg::statfs::{Statfs, StatfsReply, state};

/// What an inode with its names takes on disk, about (table and journal).
const INODE_BYTES: u64 = 2048;

pub fn run(mdt: &Mdt, _m: Statfs) -> Result<StatfsReply, Errno> {
    let s = mdt.world.disk.space(&mdt.cfg.dir).map_err(Errno::from)?;
    let used = mdt.shared.inodes.load(Ordering::Relaxed);
    let fit = s.available / INODE_BYTES;
    let full = if mdt.db.space_low() { state::NO_SPACE } else { 0 };
    let stopped = if mdt.db.stopped().is_some() { state::READ_ONLY } else { 0 };
    Ok(StatfsReply {
        total: s.total,
        free: s.free,
        available: s.available,
        files: used.saturating_add(fit),
        files_free: fit,
        state: full | stopped,
    })
}
