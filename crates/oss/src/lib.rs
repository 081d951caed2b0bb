//! An object storage target: the bytes of files (design.md §7).
//!
//! `service` is what a session sees; `ops/VERB.rs` executes one message each, over `store::object`;
//! `clients` keeps the durable client records, `space` foresees a full disk, `params` and `stats` are what
//! `lctl` shows. After a restart known clients come back first ([`rpc::server::recovery`]).

mod brw;
mod clients;
mod echo;
mod jobs;
mod ledger;
mod lfsck;
mod locks;
mod ops;
mod params;
mod probes;
pub mod scrub;
mod service;
mod shares;
mod slot;
mod space;
mod stats;

pub use clients::ClientRecord;
pub use echo::{EchoLoad, EchoObjects, EchoState};
pub use params::{CACHES, TABLE, declare};
pub use service::{Birth, Ost, OstConfig};
pub use space::{DiskBook, DiskBooks};

/// Entry points for the fuzzers: decoders of bytes that come from a disk.
pub mod fuzz {
    /// A client record as it lies in the table.
    pub fn client_record(bytes: &[u8]) {
        let _ = crate::clients::ClientRecord::decode(bytes);
    }

    /// What a batch that was interrupted by a crash left in its reply slot.
    pub fn batch_progress(bytes: &[u8]) {
        let _ = crate::slot::decode_progress(bytes);
    }
}
