//! The management service: which targets a file system has, where they answer, and its permanent parameters.
//!
//! `state` holds the configuration as versioned data over a [`Book`] (the target's [`store::Db`], or etcd's
//! keys: `etcd`), `ops/VERB.rs` answers one message each, `registration` says who is let in, `service` is
//! what the session layer calls, `clients` what it remembers of its clients, `mounts` how these stand with a
//! maintenance. Each change is pushed to every connected node
//! ([`wire::msg::notify::Notify::ConfigChanged`]), which fetches the new version.

mod book;
mod clients;
pub mod etcd;
#[cfg(test)]
mod etcd_tests;
pub mod history;
pub mod mounts;
mod ops;
mod params;
pub mod pools;
pub mod registration;
pub mod restore;
mod service;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use book::Book;
pub use params::declare;
pub use service::Mgs;
pub use state::{FsRecord, MgsState, load_config, read_configuration};
