//! Distributed locks, both ends, as stepped state machines without I/O.
//!
//! `table` is the server's: flock, POSIX byte ranges with deadlock detection, extents held for one operation.
//! `extent` is an object target's: ranges that clients cache. `client` is the bookkeeping of a mount: what it
//! holds, what it waits for, what it must reclaim. `posix` holds the range arithmetic that both share,
//! `granted` finds what a range meets among many. What the kinds promise is in `docs/semantics.md`.

pub mod client;
pub mod extent;
mod granted;
pub mod ibits;
mod posix;
pub mod table;

pub use client::{LockClient, Stray, Waiter};
pub use ibits::{Leases, Mode};
pub use table::{Client, Event, Listed, LockTable, Step};
