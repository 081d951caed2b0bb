//! Real processes under test: a file system made with `nacre up` or by hand, programs on its mounts, faults.
//!
//! These tests stand outside the program, as a user does: they use the standard library directly.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod cluster;
pub mod controllers;
pub mod disks;
pub mod exerciser;
pub mod harm;
pub mod hosts;
pub mod load;
pub mod logs;
pub mod machines;
pub mod page;
pub mod peer;
pub mod programs;
pub mod rng;
pub mod sshd;
pub mod thrash;
pub mod users;

/// A number of the environment, such as `NACRE_SEED`: how a longer run, or another one, is asked for.
pub fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
