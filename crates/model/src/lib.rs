//! Rules without I/O: identities, attributes, layouts, permissions, errors, limits.
//!
//! Everything here is a pure function of its arguments, so that server, client, simulator and tests
//! share one meaning of each concept.

pub mod acl;
pub mod attr;
pub mod barrier;
pub mod changelog;
pub mod counters;
pub mod cred;
pub mod debug;
pub mod domain;
pub mod errno;
pub mod estimate;
pub mod events;
pub mod exports;
pub mod fid;
pub mod histogram;
pub mod history;
pub mod inode_rules;
pub mod jobs;
pub mod layout;
pub mod limits;
pub mod maintenance;
pub mod metrics;
pub mod mutex;
pub mod nid;
pub mod nodemap;
pub mod param;
pub mod perm;
pub mod planted;
pub mod pool;
pub mod quota;
pub mod rebalance;
pub mod snapshot;
pub mod span;
pub mod squash;
pub mod target;
pub mod time;
pub mod usage;

pub use attr::{Attr, FileType, ObjectAttr, SetAttr, SetTime};
pub use cred::Cred;
pub use errno::Errno;
pub use fid::{Fid, ObjectId, TargetMark};
pub use layout::{Layout, LayoutSpec};
pub use nid::{HostNid, Nid};
pub use pool::Pool;
pub use target::{TargetId, TargetKind};
pub use time::Timestamp;

/// Hash map with a fixed hasher: the same run twice walks it in the same order.
pub type Map<K, V> = rustc_hash::FxHashMap<K, V>;
/// Hash set with a fixed hasher.
pub type Set<K> = rustc_hash::FxHashSet<K>;

/// Bytes as two hexadecimal digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
