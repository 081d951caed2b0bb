//! notify: what servers tell their clients unasked. One way; losing one is repaired at reconnect.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notify {
    /// A waiting lock was granted, or failed with an errno (EDEADLK).
    LockGranted { id: u64, errno: u16 },
    /// The file system's configuration has this version now.
    ConfigChanged { version: u64 },
    /// The server stops in an orderly way; reconnect when it is back.
    Stopping,
}
