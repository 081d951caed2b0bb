//! withdraw: a client gives up a movement that it asked for ([`super::migrate`]), which waits or copies.

use serde::{Deserialize, Serialize};

/// Answered with whether there was such a movement: perhaps it has not arrived yet, or is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Withdraw {
    /// The client's number of the movement.
    pub ticket: u64,
}
message!(Withdraw, Withdraw, bool);
