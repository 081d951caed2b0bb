//! A cluster in one thread: the real crates on virtual time, a seeded network and disks that forget.
//!
//! `executor` runs tasks in an order that the seed chooses, `clock` jumps to the next timer, `net` carries
//! encoded frames with delays, resets and partitions, `disk` is [`::world::mem`] per node, `world` puts them
//! together as the [`::world::World`] of one node. The same seed twice gives the same trace hash (`trace`).
//!
//! `cluster` builds a file system of the real crates on such nodes, `workload` has actors work on it
//! (`generate` throws the dice, `exec` does the operations, `shared` is what actors do to the same files),
//! `oracle` says what each answer must be, `losses` and `known` what a dead client may take along, `history`
//! whether concurrent answers fit together, `scenario` adds the faults (`nemesis`) and `check` looks at the
//! tables in the end. `run` is what all of them share. `hostile` has peers that lie, and an honest client
//! beside them.

mod barrier;
mod bulk;
mod changelog;
pub mod check;
mod clock;
pub mod cluster;
mod components;
mod directories;
mod disk;
mod drain;
mod drill;
mod errors;
pub mod exec;
mod executor;
mod failover;
pub mod faults;
pub mod generate;
pub mod golden;
mod guest;
pub mod history;
pub mod hostile;
pub mod known;
mod lfsck;
mod limits;
mod locks;
pub mod losses;
pub mod maintained;
mod maintenance;
pub mod minimise;
mod mover;
mod nemesis;
mod net;
pub mod oracle;
pub mod points;
mod pools;
mod purge;
mod rot;
pub mod run;
mod said;
pub mod scenario;
pub mod server;
pub mod shared;
mod space;
mod told;
mod trace;
mod trash;
mod uneven;
mod users;
pub mod workload;
mod world;

pub use executor::{Handle, Sim, Stuck, worlds};
pub use net::NetFaults;
pub use world::{Node, Rest, Stop};
