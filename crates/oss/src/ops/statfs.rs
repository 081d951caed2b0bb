//! statfs: space and state of the target, the reserve taken off.

use super::{Cx, Done};
use crate::space::Space;
use model::Errno;
use std::sync::atomic::Ordering::Relaxed;
use store::Seen;
use wire::msg::statfs::state::{DEGRADED, NO_CREATE, NO_INODES, NO_SPACE, READ_ONLY};
use wire::msg::statfs::{Statfs, StatfsReply};

/// Below so many free inodes no file of its own is promised any more.
const FILES_RESERVE: u64 = 32;

pub fn run(cx: &Cx, _m: &Statfs) -> Result<Done, Errno> {
    let ost = &cx.ost;
    let s = ost.space.now()?;
    let available = s.available.saturating_sub(Space::reserve(s.total, ost.settings.reserve()));
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    let state = bit(ost.settings.degraded.load(Relaxed), DEGRADED)
        | bit(ost.writable().is_err(), READ_ONLY)
        | bit(ost.settings.no_create.load(Relaxed), NO_CREATE)
        | bit(available == 0, NO_SPACE)
        // Hosts that make inodes as they go report none at all.
        | bit(s.files > 0 && s.files_free < FILES_RESERVE, NO_INODES);
    let reply = StatfsReply {
        total: s.total,
        free: s.free,
        available,
        files: s.files,
        files_free: s.files_free,
        state,
    };
    Ok(Done::looked(&reply, Seen::default()))
}
