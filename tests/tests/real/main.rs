//! Real processes on real mounts. One binary, because linking is slow. Needs root, /dev/fuse and what
//! `scripts/install-test-deps.sh` installs.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod abort;
mod coherence;
mod kill;
mod long_way;
mod posix;
mod programs;
