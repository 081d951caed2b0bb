//! Real processes on real mounts. One binary, because linking is slow. Needs root, /dev/fuse and what
//! `scripts/install-test-deps.sh` installs.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod abort;
mod bad_input;
mod bench;
mod coherence;
mod coherence_names;
mod controller;
mod disk_errors;
mod failing_disk;
mod failover;
mod full_backing;
mod ha;
mod ha_page;
mod handles;
mod hostile;
mod kernel;
mod kill;
mod lfs_lctl;
mod long_way;
mod mmap;
mod mmp;
mod mount_helper;
mod pacemaker;
mod pause;
mod posix;
mod programs;
mod promises;
mod recovery_page;
mod replaced;
mod scrub;
mod told;
mod up_down;
mod users;
mod waiting;
mod watch;
