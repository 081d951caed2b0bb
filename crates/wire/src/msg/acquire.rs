//! acquire: object targets' shares of an owner's limits are used up, and the sender wants to write more
//! there. The metadata target moves shares. `EDQUOT`: the owner has what he may have.

use crate::trailing::Trailing;
use model::nodemap::Owner;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acquire {
    /// Of the file.
    owner: Owner,
    /// Index of the object target.
    pub ost: u16,
    /// Bytes that are to be written there.
    pub bytes: u64,
    /// What the owner does not say of itself.
    directory: Trailing<u32>,
}

impl Acquire {
    pub fn new(owner: Owner, ost: u16, bytes: u64) -> Acquire {
        Acquire { owner, ost, bytes, directory: Trailing(Some(owner.directory).filter(|d| *d != 0)) }
    }

    pub fn owner(&self) -> Owner {
        Owner { directory: self.directory.0.unwrap_or(0), ..self.owner }
    }
}
message!(Acquire, Acquire, ());
