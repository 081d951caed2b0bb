//! Which shares the object targets have, as they said last.

use super::ArrivalBook;
use model::usage::QuotaId;
use std::collections::BTreeMap;
use wire::msg::quotashare::ShareState;
use world::sync;

/// Who was given what.
#[derive(Default)]
pub struct ShareBook {
    /// One at a time divides.
    pub dividing: sync::Mutex<()>,
    pub known: model::mutex::Mutex<KnownShares>,
    pub arrivals: ArrivalBook,
    /// One at a time tells which directories lie in which.
    pub telling: sync::Mutex<()>,
    /// Who was told, each with the life of the session and the number of changes of then.
    pub tree_told: model::mutex::Mutex<BTreeMap<u16, (u64, u64)>>,
}

#[derive(Default)]
pub struct KnownShares {
    /// Object targets that know all shares, each with the life of the session in which it was told.
    pub told: BTreeMap<u16, u64>,
    /// [`crate::pools::Pools::changes`] as it was when limits by pool were shared out last.
    pub pools: u64,
    /// What each has of each owner's limits, as it said last: it may have it still when it does not answer.
    pub last: BTreeMap<(QuotaId, u16), ShareState>,
}
