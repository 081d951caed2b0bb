//! The file system for programs without a mount: gateways, copying programs, tests. Safe for more than one
//! user.
//!
//! A [`Client`] is a mounted file system, a [`User`] one who works in it, an [`OpenFile`] what was opened.
//! Each call names its user, and is checked as a kernel would check it: directories on the way by `walk`, the
//! rest by the servers, by the rules of what is executed here, and by `llite/permission.rs` where something
//! is answered from what is kept. Nothing here keeps pages or names of its own.

mod client;
mod error;
mod file;
pub mod flags;
mod names;
mod source;
mod user;
mod walk;

pub use client::{Client, Identity};
pub use error::{Error, Result};
pub use file::{OpenFile, Range, Seek};
pub use source::Source;
pub use user::{DirEntry, User};
