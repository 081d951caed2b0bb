//! The reply slot of the request at hand: what makes it happen exactly once.
//!
//! The answer of a modifying request is stored in the same transaction as its effect. A batch stores after
//! each of its changes how far it got; sent again after a crash it goes on from there.

use crate::clients::Clients;
use model::limits;
use rpc::ClientId;
use serde::Serialize;
use std::sync::Arc;
use store::object::FinishTxn;
use store::{Author, ReplyRecord, Txn};

/// Status of a reply record that holds the progress of a batch, not an answer.
pub const STATUS_PROGRESS: u16 = rpc::server::STATUS_UNFINISHED;

/// Results of a batch's operations so far: (status, reply body).
pub type Progress = Vec<(u16, Vec<u8>)>;

/// Where the answer of the request at hand goes.
#[derive(Clone)]
pub struct Slot {
    pub clients: Arc<Clients>,
    pub client: ClientId,
    pub slot: u16,
    pub xid: u64,
    pub author: Arc<Author>,
    /// Within a batch: the results of the operations before this one.
    pub progress: Option<Progress>,
}

impl Slot {
    /// Adds the reply record to the transaction that holds the effect.
    pub fn put<R: Serialize>(self, txn: &mut Txn, reply: &R) {
        assert!(self.slot < limits::SLOTS_PER_SESSION, "a reply is kept for a slot of the session");
        let body = wire::encode_message(reply);
        let (status, body) = match self.progress {
            None => (0, body),
            Some(mut done) => {
                assert!(
                    done.len() < limits::BATCH_OPS_MAX,
                    "a batch stands before its end while it is executed"
                );
                done.push((0, body));
                (STATUS_PROGRESS, wire::encode_message(&done))
            }
        };
        // The object's record is among the keys: the change depends on whoever changed it last.
        txn.set_author(&self.author, true);
        // A client that left meanwhile has no slots any more, and will ask for none.
        if self.clients.knows(self.client) {
            txn.put_reply(&self.client.0, self.slot, &ReplyRecord { xid: self.xid, status, body });
        }
    }

    /// A [`FinishTxn`] that stores the answer which `reply` makes of the offset and the attributes.
    pub fn finish<R: Serialize>(
        self,
        reply: impl FnOnce(u64, &model::ObjectAttr) -> R + Send + 'static,
    ) -> FinishTxn {
        Box::new(move |txn, offset, attr| self.put(txn, &reply(offset, attr)))
    }
}

/// The progress of an interrupted batch; `None` if the bytes are none.
pub fn decode_progress(body: &[u8]) -> Option<Progress> {
    postcard::from_bytes(body).ok()
}
