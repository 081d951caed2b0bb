//! allocseq: leases a FID sequence (2^17 ids) to the client.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Allocseq {
    /// Reserved for sequences of other widths; 0.
    pub kind: u16,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocseqReply {
    pub seq: u64,
    /// Ids 1..=width may be used.
    pub width: u32,
}
message!(Allocseq, Allocseq, AllocseqReply);
