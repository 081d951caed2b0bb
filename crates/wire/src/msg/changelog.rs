//! changelog: records of a metadata target's changelog, in their order (`lfs changelog`).

use model::changelog::{Mask, Record};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changelog {
    /// Records from this one on; below the oldest that is kept: from that.
    pub start: u64,
    /// The last one that is wanted; 0: all.
    pub end: u64,
    /// Only what this consumer asked for and has not cleared: its label; empty: whatever there is.
    pub consumer: String,
    /// Only these types; [`Mask::NONE`]: all of them, or the consumer's.
    pub mask: Mask,
    /// What mounts have done and not told yet is waited for.
    pub told: bool,
}

/// Some of them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ChangelogReply {
    pub records: Vec<Record>,
    /// Records below this one were looked at: go on with it.
    pub next: u64,
    /// There was no more at that moment, or up to the last one that was wanted.
    pub end: bool,
}
message!(Changelog, Changelog, ChangelogReply);
