//! A client of etcd v3 for what Nacre keeps there: the MGS's configuration and who serves which target.
//!
//! It speaks the JSON form of the protocol (HTTP/1.1, as `curl` would) over [`world::Stream`], one connection
//! a request. Several members are tried in turn; every wait has an end and may be dropped. [`Lease`] is what
//! makes one process of several the one that may act. Decision 0024.

mod client;
pub mod fake;
mod http;
mod lease;
mod proto;
#[cfg(test)]
mod tests;
mod url;

pub use client::{Compare, Error, Etcd, Op, Outcome};
pub use lease::Lease;
pub use proto::{Event, Kv};
pub use url::{PASSWORD_FROM, Url};
