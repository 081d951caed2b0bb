//! Metadata target: names, attributes, layouts, opens, file locks (design.md §6).
//!
//! `service` is the target as the session layer sees it; it hands each request to `dispatch`, which runs
//! `ops/VERB.rs` in a transaction (`tx`) over the table that `schema` describes, and answers when the
//! transaction is durable. `leases` lets clients keep what they were shown. `alloc` chooses OSTs, `data` keeps
//! small files' bytes, `growth` moves them to objects, `outbox` tells OSTs to destroy, `recovery` brings clients
//! back after a restart, `check` looks at everything and changes nothing.

mod alloc;
mod ancestors;
pub mod check;
mod core;
mod data;
mod dispatch;
mod error;
mod growth;
mod leases;
mod locks;
mod namehash;
mod names;
mod opens;
mod ops;
mod orphans;
mod osts;
mod outbox;
mod params;
mod recovery;
mod replayed;
pub mod schema;
mod service;
mod shared;
mod stats;
mod tx;

pub use error::MdsError;
pub use growth::WITHOUT_DATA as GROWN_WITHOUT_DATA;
pub use params::{LOD, MDT};
pub use service::{Mdt, MdtConfig};

#[cfg(test)]
mod tests;
