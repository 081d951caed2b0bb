//! purge: removes a name that is no directory, if its file is still what it was when it was looked at and the
//! conditions of a rule hold (`nacre policy run`).

use super::scan::Test;
use super::unlink::Changed;
use model::{Fid, Timestamp};
use serde::{Deserialize, Serialize};

/// Groups of conditions in [`Purge::unless`].
pub const EXEMPTIONS_MAX: usize = 64;

/// `ECANCELED` if the name leads to another file, or the file is not what it was, or does not fit any more;
/// `EBUSY` while somebody has it open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Purge {
    pub parent: Fid,
    pub name: Vec<u8>,
    /// The file that was looked at.
    pub fid: Fid,
    /// When it had been changed last. What the metadata server knows of a later change ends it.
    pub seen: Timestamp,
    /// All of them must hold, as far as the metadata server knows it.
    pub tests: Vec<Test>,
    /// It stays if all of one of these groups hold, and the metadata server knows it.
    pub unless: Vec<Vec<Test>>,
}
message!(Purge, Purge, Changed);
