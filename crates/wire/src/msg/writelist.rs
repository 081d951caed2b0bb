//! writelist: bytes into several ranges of an object, from the request's bulk ("list I/O"): records that a
//! process wrote with gaps between them go to the OST in one message.

use super::write::{Write, WriteReply};
use serde::{Deserialize, Serialize};

/// Most ranges in one message.
pub const RANGES_MAX: usize = 256;

/// Bytes of the bulk and where they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteRange {
    /// Object offset.
    pub offset: u64,
    /// Bytes; not 0.
    pub len: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Writelist {
    /// What one [`Write`] would say. `offset` is the first range's, `append` is false; `block_crcs` are those
    /// of the ranges, one after the other, each as if it came alone; `lock` covers everything from the first
    /// range's beginning to the last one's end.
    pub write: Write,
    /// In ascending order, none overlaps another; 1 to [`RANGES_MAX`]. Their bytes follow each other in the
    /// bulk.
    pub ranges: Vec<WriteRange>,
}

// The reply is the last range's. An error: ranges before the one that failed may be written.
message!(Writelist, Writelist, WriteReply);
