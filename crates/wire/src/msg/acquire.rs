//! acquire: object targets' shares of an owner's limits are used up, and the sender wants to write more
//! there. The metadata target moves shares. `EDQUOT`: the owner has what he may have.

use model::nodemap::Owner;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acquire {
    /// Of the file.
    pub owner: Owner,
    /// Index of the object target.
    pub ost: u16,
    /// Bytes that are to be written there.
    pub bytes: u64,
}
message!(Acquire, Acquire, ());
