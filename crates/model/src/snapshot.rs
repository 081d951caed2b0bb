//! Snapshots of all targets of a file system: what its administrator has the server of each target do, and
//! what that answers (decisions 0084 and 0089).

use crate::Nid;
use serde::{Deserialize, Serialize};

/// How long an order is waited for before it is said that it is under way, in milliseconds.
pub const BRIEF_MS: u64 = 30;
/// Who makes a snapshot and is not heard for so long, in seconds, has given it up.
pub const SILENCE_MAX_S: u64 = 15;
/// Ports that are looked at in one order, at most.
pub const PORTS_MAX: u16 = 100;
/// A target stands still for no longer, in milliseconds.
pub const HOLD_MAX_MS: u32 = 5000;
const _: () =
    assert!(HOLD_MAX_MS as u64 / 1000 < SILENCE_MAX_S, "who stands still is not believed to be gone");

/// What the server of a target is to do about that target. What takes long is answered with
/// [`SnapshotAnswer::Running`]; [`SnapshotOrder::Look`] asks how it goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SnapshotOrder {
    /// Those that there are: [`SnapshotAnswer::Listing`].
    List,
    /// Clones everything into a new one, and notes what changes meanwhile. What an interrupted one left
    /// goes first.
    Begin { name: String },
    /// Clones again what changed since: [`SnapshotAnswer::Changed`].
    Again,
    /// Stands still after `lead_ms`, clones what changed, and goes on after `hold_ms` whatever happens:
    /// [`SnapshotAnswer::Cut`].
    Cut { lead_ms: u32, hold_ms: u32 },
    /// What was cloned is made durable with this record. It counts for nothing yet.
    Keep { record: Vec<u8> },
    /// It counts from now on.
    Name,
    /// It is not wanted any more, and nothing of it is left.
    Drop,
    /// How what was begun goes on.
    Look,
    /// Another record, and another name.
    Modify { name: String, record: Vec<u8>, new: String },
    /// Removes it, or what is left of one that was removed.
    Destroy { name: String },
    /// How many bytes it has for itself: [`SnapshotAnswer::Size`].
    Size { name: String },
    /// Which of so many ports are free at its addresses: [`SnapshotAnswer::Ports`].
    Ports { first: u16, count: u16, nids: Vec<Nid> },
    /// Serves this and all other targets of the server with a snapshot of this name, as a file system of its
    /// own that nobody changes.
    Mount { name: String, at: MountAt },
    /// Ends that.
    Umount { name: String },
}

/// Where a snapshot is to be served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountAt {
    /// Of its MGS.
    pub mgs: Vec<Nid>,
    /// Of this server; none: where it serves the targets themselves.
    pub nids: Vec<Nid>,
    /// Everywhere.
    pub port: u16,
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SnapshotAnswer {
    Done,
    /// It goes on; so many files so far.
    Running {
        files: u64,
    },
    /// So many files changed and were cloned again; `None`: more than is noted.
    Changed(Option<u64>),
    /// It stood still.
    Cut(Still),
    Listing(Listing),
    Ports(Vec<u16>),
    /// Bytes that no other file shares; `None`: the file system of the host does not tell.
    Size(Option<u64>),
    /// It could not be done: an errno, and words.
    Failed {
        errno: i32,
        why: String,
    },
}

/// For how long a target stood still, by its host's own clock, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Still {
    /// From the order until it stood.
    pub after_us: u64,
    /// From then until it was let go.
    pub held_us: u64,
    /// From then until it answered.
    pub since_us: u64,
    /// Files that changed and were cloned meanwhile.
    pub files: u64,
}

/// What a server has of snapshots of one of its targets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// Of the process: targets with the same number are served by the same one.
    pub server: u64,
    /// Where it serves.
    pub nids: Vec<Nid>,
    /// The target's folder.
    pub folder: String,
    pub snapshots: Vec<Listed>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// In the target's folder.
    pub name: String,
    /// What its maker wrote.
    pub record: Vec<u8>,
    /// The process that serves it.
    pub pid: Option<u32>,
    /// That one has made all its targets known.
    pub up: bool,
}

/// Whether there was a moment at which all stood still, as far as can be known without a common clock. Each
/// is what a target said, and when, in microseconds of the clock of who asked, it was asked and had answered.
///
/// A target stood from `answered - since - held` at the latest until `asked + after + held` at the earliest.
pub fn stood_together(all: &[(u64, Still, u64)]) -> bool {
    let stood =
        all.iter().map(|(_, s, answered)| answered.saturating_sub(s.since_us).saturating_sub(s.held_us));
    let left = all.iter().map(|(asked, s, _)| asked.saturating_add(s.after_us).saturating_add(s.held_us));
    match (stood.max(), left.min()) {
        (Some(stood), Some(left)) => stood <= left,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn still(after_us: u64, held_us: u64) -> Still {
        Still { after_us, held_us, since_us: 10, files: 0 }
    }

    #[test]
    fn who_stood_one_after_the_other_did_not_stand_together() {
        assert!(stood_together(&[(0, still(20, 100), 135), (5, still(30, 100), 150)]));
        assert!(!stood_together(&[(0, still(20, 100), 135), (5, still(130, 100), 250)]));
        assert!(!stood_together(&[]));
    }

    proptest! {
        /// Whatever the network did: what is believed is so.
        #[test]
        fn what_is_believed_to_be_one_moment_is_one(
            all in prop::collection::vec((0..500u64, 0..300u64, 0..300u64, 1..400u64, 0..50u64, 0..500u64), 1..5)
        ) {
            let mut seen = Vec::new();
            let (mut from, mut to) = (0, u64::MAX);
            for (asked, there, after, held, since, back) in all {
                let stood = asked + there + after;
                (from, to) = (from.max(stood), to.min(stood + held));
                let s = Still { after_us: after, held_us: held, since_us: since, files: 0 };
                seen.push((asked, s, stood + held + since + back));
            }
            prop_assert!(!stood_together(&seen) || from <= to);
        }
    }
}
