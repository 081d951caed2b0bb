//! Bytes on disk: one ordered journal, an ordered table that is its checkpoint, objects by location.
//!
//! `journal/` is the truth, `table/` what it was applied to, `object/` the byte ranges of files, `format`
//! the superblock. A target's folder: `superblock`, `journal/`, `table.redb`, `objects/`.

mod author;
mod bytes;
mod checkpoint;
mod core;
pub mod db;
pub mod error;
pub mod format;
pub mod fuzz;
pub mod journal;
pub mod lease;
mod medium;
pub mod mmp;
pub mod object;
mod options;
mod probe;
mod recover;
pub mod snapshot;
mod space;
mod still;
pub mod table;
mod txn;
pub mod usage;

pub use author::{Author, Seen};
pub use db::{Db, View};
pub use error::StoreError;
pub use journal::Lsn;
pub use journal::replay::Damage;
pub use lease::Lease;
pub use options::DbOptions;
pub use still::{FrozenView, Read};
pub use txn::{ReplyRecord, StoredReply, Txn};
