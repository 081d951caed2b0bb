//! What lies under which key of a metadata target's table. Byte tables: `docs/formats/mdt.md`.

pub mod changelog;
pub mod directories;
pub mod inode;
pub mod key;
pub mod limits;
pub mod value;

pub use inode::Inode;
pub use value::{DentryValue, Lease, OrphanKind};
