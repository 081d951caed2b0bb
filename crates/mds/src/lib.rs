//! Metadata target: names, attributes, layouts, opens, file locks (design.md §6).
//!
//! `service` is the target as the session layer sees it; it hands each request to `dispatch`, which runs
//! `ops/VERB.rs` (those of `verbs` in a transaction, `tx`, over the table that `schema` describes);
//! `transact` submits it, and answers when it is durable. `leases` is what clients keep of what they were
//! shown, `callbacks` takes it back. `alloc` chooses OSTs, of those that `pools` leaves in; `data` keeps
//! small files' bytes, `relayout` moves them to objects, `peers` is the other targets, `recovery` brings
//! clients back after a restart, `changelog` tells others what was changed, `check` looks at everything and
//! changes nothing.

mod alloc;
mod ancestors;
mod barrier;
mod callbacks;
mod changelog;
pub mod check;
mod core;
mod data;
mod dispatch;
mod done;
mod error;
mod freeze;
mod growing;
mod jobs;
mod labels;
mod layouts;
mod leases;
mod lfsck;
mod locks;
mod maintenance;
mod mdt;
mod namehash;
mod names;
mod opens;
mod ops;
mod orphans;
mod osts;
mod params;
mod passed_over;
mod peers;
pub mod pools;
mod probes;
mod quotas;
mod rebalance;
mod recovery;
mod relayout;
mod replayed;
mod scan;
pub mod schema;
mod service;
mod settings;
mod shared;
mod shares;
mod spread;
mod stats;
mod stop;
mod transact;
mod trash;
mod tx;
mod verbs;
mod walk;
mod ways;

pub use changelog::{has_consumers as has_changelog, order as changelog_order};
pub use error::MdsError;
pub use freeze::order as barrier_order;
pub use mdt::{Mdt, MdtConfig};
pub use ops::setquota::{enforce as enforce_limits, enforced as enforced_limits};
pub use params::{declare, space};
pub use relayout::WITHOUT_DATA as GROWN_WITHOUT_DATA;
pub use service::{count_usage, format_successor};

#[cfg(test)]
mod tests;
