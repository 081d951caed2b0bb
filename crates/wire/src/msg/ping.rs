//! ping: the session is alive.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ping {
    pub nonce: u64,
}
message!(Ping, Ping, ());
