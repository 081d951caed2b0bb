//! Real processes under test: a file system made with `nacre up` or by hand, programs on its mounts, faults.
//!
//! These tests stand outside the program, as a user does: they use the standard library directly.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod cluster;
pub mod exerciser;
pub mod hosts;
pub mod load;
pub mod rng;
