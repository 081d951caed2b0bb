//! The management service: which targets a file system has, where they answer, and its permanent parameters.
//!
//! `state` holds the configuration as versioned data over the target's [`store::Db`], `ops/VERB.rs` answers one
//! message each, `service` is what the session layer calls. Each change is pushed to every connected node
//! ([`wire::msg::notify::Notify::ConfigChanged`]), which fetches the new version.

mod ops;
mod params;
mod service;
mod state;

pub use service::Mgs;
pub use state::{FsRecord, State, read_configuration};
