//! quotashare: what an object target may let owners use by itself, of what they may use altogether. Metadata
//! targets send it, which keep the limits.

use crate::trailing::Trailing;
use model::quota::Enforced;
use model::usage::QuotaId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quotashare {
    pub orders: Vec<ShareOrder>,
    /// The types of which everybody without a share has none, rather than as much as he likes; `None`: they
    /// stay what they are.
    pub limited: Option<Enforced>,
    /// Which directories with a quota lie in which others (each with its parent), all of them; left out: that
    /// stays what it was.
    pub tree: Trailing<Vec<(u32, u32)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShareOrder {
    pub of: QuotaId,
    pub change: ShareChange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ShareChange {
    Look,
    /// Bytes; no less than there is of the owner already.
    Set(u64),
    /// He has no share of his own.
    Remove,
}

/// How an owner stands, after the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShareState {
    /// Bytes that he uses, with what is being written.
    pub used: u64,
    pub share: Option<u64>,
}

/// Orders in one request.
pub const ORDERS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotashareReply {
    /// In the order of the request.
    pub states: Vec<ShareState>,
}
message!(Quotashare, Quotashare, QuotashareReply);
