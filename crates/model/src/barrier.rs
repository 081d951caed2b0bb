//! The write barrier of a metadata target: what its states are called, what is asked of it, and what it
//! answers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How long a barrier holds if nobody says it, in seconds.
pub const BARRIER_DEFAULT_S: u32 = 30;
/// How long it may hold, in seconds: modifications wait as long.
pub const BARRIER_MAX_S: u32 = 3600;

/// Where it stands, by Lustre's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BarrierState {
    /// There was none since the target was started.
    Init,
    /// Mounts are asked to tell what they have done by themselves; modifications go on.
    FreezingP1,
    /// Modifications wait, and what was executed before is made durable.
    FreezingP2,
    /// Modifications wait, and what was executed before is durable.
    Frozen,
    /// Modifications go on; that this is so is made durable.
    Thawing,
    Thawed,
    /// It could not be had.
    Failed,
    /// Its time was over before it was thawed: modifications go on.
    Expired,
}

impl BarrierState {
    /// As `lctl barrier_stat` says it.
    pub fn word(self) -> &'static str {
        match self {
            BarrierState::Init => "init",
            BarrierState::FreezingP1 => "freezing_p1",
            BarrierState::FreezingP2 => "freezing_p2",
            BarrierState::Frozen => "frozen",
            BarrierState::Thawing => "thawing",
            BarrierState::Thawed => "thawed",
            BarrierState::Failed => "failed",
            BarrierState::Expired => "expired",
        }
    }

    /// On its way to be frozen.
    pub fn is_freezing(self) -> bool {
        matches!(self, BarrierState::FreezingP1 | BarrierState::FreezingP2)
    }
}

impl fmt::Display for BarrierState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What an administrator asks of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BarrierOrder {
    /// Begin to freeze, for so many seconds counted from now. `EINVAL` for a time that is none, `EALREADY` if
    /// it is frozen, `EBUSY` if that is under way.
    Freeze {
        timeout_s: u32,
    },
    /// `EALREADY` if it is not frozen, `ETIMEDOUT` if it was and its time is over.
    Thaw,
    Stat,
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BarrierStanding {
    pub state: BarrierState,
    /// Seconds until it thaws by itself, rounded up; 0 if it does not hold.
    pub left_s: u64,
    /// Counts barriers since the target was started: another number is another barrier.
    pub round: u64,
    /// Why it failed.
    pub why: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_said_by_the_words_that_scripts_know() {
        let all = [BarrierState::Init, BarrierState::FreezingP1, BarrierState::Frozen, BarrierState::Expired];
        assert_eq!(all.map(BarrierState::word), ["init", "freezing_p1", "frozen", "expired"]);
        assert!(BarrierState::FreezingP2.is_freezing() && !BarrierState::Frozen.is_freezing());
    }
}
