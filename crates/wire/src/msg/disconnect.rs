//! disconnect: the client leaves for good; its opens and locks are dropped.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Disconnect {
    pub reason: u16,
}
message!(Disconnect, Disconnect, ());
