//! What a client knows of what it did, and what is certain of a dead one's changes after how long.

use client::Fs;
use model::TargetId;
use std::collections::BTreeMap;
use std::time::Duration;

/// After so much virtual time nothing that a dead client sent can still take effect: it is evicted.
pub(crate) const DEAD_CLIENT_PATIENCE: Duration = Duration::from_secs(150);

/// A server that has served for so long since a client died, restarts and failovers not counted, has
/// committed what that client had done there.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// Newest transaction answered, everything durable up to, and how many answers are kept, for each target.
pub type CommitState = BTreeMap<TargetId, (u64, u64, usize)>;

/// What a mount knows of what it did.
#[derive(Clone, Debug)]
pub struct Known {
    pub(crate) commit: CommitState,
    /// Operations that it executed by itself: all, those that were answered, those that are durable.
    pub(crate) pending: (u64, u64, u64),
}

impl Known {
    pub fn of(fs: &Fs) -> Known {
        Known { commit: fs.commit_state(), pending: fs.pending_state() }
    }
}
