//! A cluster in one thread: the real crates on virtual time, a seeded network and disks that forget.
//!
//! `executor` runs tasks in an order that the seed chooses, `clock` jumps to the next timer, `net` carries
//! encoded frames with delays, resets and partitions, `disk` is [`world::mem`] per node, `world` puts them
//! together as the [`world::World`] of one node. The same seed twice gives the same trace hash (`trace`).

mod clock;
mod disk;
mod executor;
mod net;
mod trace;
mod world;

pub use executor::{Handle, Sim, Stuck};
pub use net::NetFaults;
pub use world::Node;
