//! Sessions over `wire` and `world`: connect, slots and xids, resend, exactly once, recovery.
//!
//! `import` is the client's end of a session with one target, `server` the target's. A request goes out
//! in `call`, is sent again in `replay`, is recognised in `server/slots`. What a session promises is in
//! `docs/semantics.md`, its state machine in `docs/decisions/0003-sessions.md`.

mod call;
pub mod import;
mod link;
mod replay;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use import::{Import, ImportConfig, ImportHooks, ImportState, NoHooks, Response};
pub use server::{
    ClientId, ConnectOutcome, Departure, Incoming, Outgoing, Peers, Server, Service, StoredReply,
};
