//! What an inode shows of set-id bits and file capabilities.

use model::perm::{FLAG_APPEND, FLAG_IMMUTABLE};
use model::{FileType, perm};
use wire::msg::lookup::Entry;

/// What an inode shows of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Privileges {
    None,
    /// Set-id bits that go. It may have capabilities, too.
    SetId,
    /// It has extended attributes: whether capabilities are among them has to be asked.
    Perhaps,
}

pub(crate) fn of(e: &Entry) -> Privileges {
    let a = &e.attr;
    match () {
        () if a.kind != FileType::Regular => Privileges::None,
        () if perm::kill_suid_sgid(a.kind, a.mode) != a.mode => Privileges::SetId,
        () if e.plain => Privileges::None,
        () => Privileges::Perhaps,
    }
}

/// Whether a write could be refused or take something away.
pub(crate) fn is_plain(e: &Entry) -> bool {
    of(e) == Privileges::None && e.attr.flags & (FLAG_IMMUTABLE | FLAG_APPEND) == 0
}
