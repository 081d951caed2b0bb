//! components: the components of a file that has some change: more come behind the last one, the last ones
//! go with what lies in them, or get other flags.

use super::lookup::Entry;
use model::Fid;
use model::layout::ComponentChange;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Components {
    pub fid: Fid,
    pub change: ComponentChange,
}
message!(Components, Components, Entry);
