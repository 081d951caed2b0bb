//! makeroom: an object target has no room for what the sender wants to write there. The metadata target
//! removes files from the trash for good, the oldest first, that have objects there. `ENOSPC`: there are
//! none.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Makeroom {
    /// Index of the object target.
    pub ost: u16,
    /// Bytes that are to be written there.
    pub bytes: u64,
}
message!(Makeroom, Makeroom, ());
