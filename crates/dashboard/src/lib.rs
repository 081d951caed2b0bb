//! The console in the browser: `nacre dashboard`, a process of its own beside the MGS, so that a page's fault
//! harms no server.
//!
//! What it shows is what the commands say with `--json` and what the daemons count already ([`source`]). A
//! page is made from the same document that its JSON address gives ([`subject`]).

mod act;
mod app;
mod audit;
mod connection;
mod history;
mod listen;
mod pages;
mod program;
mod session;
mod source;
mod statics;
mod subject;
mod token;
mod value;

#[cfg(test)]
mod tests;

pub use listen::{LISTEN_DEFAULT, address};
pub use program::main;
pub use token::{Role, Tokens};
