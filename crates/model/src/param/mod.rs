//! Parameters and statistics, the tree that `lctl get_param` walks: how one is declared, read, set, found by
//! a glob, and which there are.

mod decl;
mod glob;
mod registry;
mod table;
pub mod testing;
mod value;

pub use decl::{Decl, Kind, ParamInfo, Preset, Setting};
pub use glob::{directories, glob_match};
pub use registry::{Declared, FOREIGN, Foreign, Refusal, Registry, Scope, foreign};
pub use table::{Item, Param, Table, Tree};
pub use value::{Field, Value};

use crate::Errno;

/// A pattern that selects the whole tree, whatever the number of parts of a name: no word of a command line
/// can be that.
pub const EVERYTHING: &str = "\0";

/// Longest pattern or value taken from outside.
pub const PARAM_TEXT_MAX_BYTES: usize = 4096;

/// Whether a value of a target's `ack` says `durable`; `EINVAL` if it is neither that nor `exec`.
pub fn ack_is_durable(text: &str) -> Result<bool, Errno> {
    match text.trim() {
        "exec" => Ok(false),
        "durable" => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}
