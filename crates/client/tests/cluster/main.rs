//! Several mounts of a file system whose MGS, MDT and three OSTs run in this process, over sockets of the
//! loopback network and disks in memory.

mod atimes;
mod cache;
mod changelog;
mod components;
mod data;
mod exerciser;
mod group;
mod harness;
mod interrupt;
mod jobs;
mod lfsck;
mod library;
mod limits;
mod locks;
mod migrate;
mod mounts;
mod movements;
mod names;
mod pending;
mod pools;
mod purge;
mod rebalance;
mod rebuild;
mod restart;
mod rules;
mod scans;
mod small;
mod space;
mod swap;
mod told;
mod trash;
mod usage;
mod users;
