//! The journal: one totally ordered log of transactions in segment files. Byte tables and the rules of the
//! torn tail: `docs/formats/journal.md`.
//!
//! `record` is the bytes of one record, `segment` the files, `append` the writing end, `replay` the reading
//! end after a restart. A durable record implies that every earlier one is durable.

pub mod append;
pub mod record;
pub mod replay;
pub mod segment;

pub(crate) use append::Journal;
pub use record::{RECORD_HEADER_BYTES, RECORD_MAX_BYTES};
pub use replay::Replay;

/// Position of a transaction in the journal, counted from 1, never reused within an epoch.
pub type Lsn = u64;

/// Where the segments of a target are.
pub(crate) fn journal_dir(dir: &str) -> String {
    format!("{dir}/journal")
}
