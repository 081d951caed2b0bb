//! batch: many small operations in one message and one transaction, in order.
//!
//! The first that fails stops the rest, unless the batch is an owner's.

use super::lookup::Grant;
use model::{Cred, Fid, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchOp {
    pub opcode: u16,
    /// The message as it would stand in a body of its own, without context.
    pub body: Vec<u8>,
    /// On whose behalf: index into [`Batch::creds`]. Without any the sender of the message is meant.
    pub cred: u16,
    /// When the application made the call; [`Timestamp::ZERO`]: when the message was sent.
    pub time: Timestamp,
    /// Bytes of the message's bulk that belong to this operation, behind those of the ones before it.
    pub bulk: u32,
}

impl BatchOp {
    /// An operation of the message's sender, without data.
    pub fn plain(opcode: u16, body: Vec<u8>) -> BatchOp {
        BatchOp { opcode, body, cred: 0, time: Timestamp::ZERO, bulk: 0 }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// At most [`model::limits::BATCH_OPS_MAX`].
    pub ops: Vec<BatchOp>,
    /// The sender has executed them already, under exclusive leases ([`super::own`]), and answered its
    /// applications: one that fails does not stop the others, what they answer is not sent, and space was
    /// promised.
    pub owned: bool,
    /// Whose operations they are.
    pub creds: Vec<Cred>,
}

impl Batch {
    /// Operations of the sender itself, which wait for their answers.
    pub fn plain(ops: Vec<BatchOp>) -> Batch {
        Batch { ops, owned: false, creds: Vec::new() }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchReply {
    /// (status, reply body) of each operation that ran. An owner's get no bodies.
    pub results: Vec<(u16, Vec<u8>)>,
    /// Leases on the inodes that an owner's operations made.
    pub grants: Vec<(Fid, Grant)>,
}
message!(Batch, Batch, BatchReply);
