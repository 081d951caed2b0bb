//! What a request's transaction is made for, and what it came to.

use bytes::Bytes;
use model::Errno;
use model::changelog::Origin;
use rpc::ClientId;
use std::sync::Arc;
use store::{Author, Lsn, Seen};

/// Whose transaction it is, and where its reply is to be stored.
#[derive(Clone, Debug)]
pub struct ReplyTo {
    pub client: ClientId,
    pub slot: u16,
    pub xid: u64,
    pub author: Arc<Author>,
    /// The request is done again after a restart.
    pub replay: bool,
    /// Root of the client's host is not root here. What its mount keeps it shows to its own root: so it is
    /// granted nothing to keep, and asks each time.
    pub squashed: bool,
    /// Who asked, as the changelog says it.
    pub origin: Arc<Origin>,
}

/// What an operation came to, before it is durable.
pub struct Done {
    pub result: Result<Vec<u8>, Errno>,
    /// Data that was read.
    pub bulk: Bytes,
    /// Of the transaction it made; 0 if it changed nothing.
    pub transno: u64,
    /// The newest transaction that it made or saw.
    pub wait: Lsn,
    /// What the answer depends on.
    pub seen: Seen,
    /// The answer waits until all of it is durable, whatever the target's `ack` says.
    pub durable: bool,
}

impl Done {
    pub fn error(e: Errno) -> Done {
        Done::looked(Err(e), Seen::default())
    }

    /// An answer that changed nothing.
    pub fn looked(result: Result<Vec<u8>, Errno>, seen: Seen) -> Done {
        Done { result, bulk: Bytes::new(), transno: 0, wait: seen.newest, seen, durable: false }
    }
}
