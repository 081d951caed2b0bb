//! batch: many small operations in one message and one transaction. They run in order; the first that fails
//! stops the rest.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchOp {
    pub opcode: u16,
    /// The message as it would stand in a body of its own, without context.
    pub body: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// At most [`model::limits::BATCH_OPS_MAX`].
    pub ops: Vec<BatchOp>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchReply {
    /// (status, reply body) of each operation that ran.
    pub results: Vec<(u16, Vec<u8>)>,
}
message!(Batch, Batch, BatchReply, modifies = true);
