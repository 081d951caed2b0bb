//! grant: space that an OST promises to a client for data that the client keeps for a while.

use crate::trailing::Trailing;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Bytes of promised space that the client still counts on: unused, or used by data not yet written.
    pub have: u64,
    /// Bytes it would like to have altogether.
    pub want: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantReply {
    /// Bytes it has from now on, altogether: never less than `have`, unless the server forgot.
    pub have: u64,
    /// Whether what somebody may use there is limited ([`super::write::WriteReply::may_keep`]).
    pub limits: Trailing<bool>,
}
message!(Grant, Grant, GrantReply);
