//! Sessions over `wire` and `world`: connect, slots and xids, resend, exactly once, recovery.
//!
//! `import` is the client's end of a session with one target, `server` the target's. What a session
//! promises is in `docs/semantics.md`; its state machine in `docs/decisions/`.

pub mod import;
pub mod server;

pub use import::{Import, ImportConfig, ImportHooks, ImportState, Response};
pub use server::{ClientId, ConnectOutcome, Departure, Incoming, Outgoing, Peers, Server, Service, StoredReply};
