//! Sessions over `wire` and `world`: connect, slots and xids, resend, exactly once, recovery.
//!
//! `import` is the client's end of a session with one target, `server` the target's. A request goes out
//! in `call`, is sent again in `replay`, is recognised in `server/slots`. What a session promises is in
//! `docs/semantics.md`, its state machine in `docs/decisions/0003-sessions.md`.

pub mod at_work;
mod client_id;
pub mod credits;
pub mod import;
mod link;
mod look_up;
pub mod maintenance;
mod networks;
pub mod nrs;
mod probe;
pub mod server;
pub mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

/// How long a client uses what a target leased to it after it sent the last request that the target answered.
/// Shorter than any time after which a target may act as if the client were gone: its eviction, the time out
/// of a lock callback, the end of a recovery window.
pub fn lease_life(ping_interval: Duration) -> Duration {
    // A session that is idle pings after one interval; it is looked at every quarter.
    const LIFE_HALVES: u32 = 5;
    const { assert!(LIFE_HALVES > 2 && LIFE_HALVES < 2 * server::EVICT_INTERVALS - 2) };
    ping_interval * LIFE_HALVES / 2
}

pub use import::{AT_MAX_DEFAULT_S, AT_MIN_DEFAULT_S, STUCK_DEFAULT_S, WAITING_MAX, Waiting, WaitsFor};
pub use import::{AdaptiveLimits, Import, ImportConfig, ImportHooks, ImportState, NoHooks, Response, Terms};
pub use look_up::{LookedUp, look_up};
pub use networks::Networks;
pub use probe::probe;
pub use server::{
    ClientId, ConnectOutcome, Departure, Greeting, Host, Identity, Incoming, Outgoing, Peer, Peers,
    Principal, Proofs, Replay, Server, Service, StoredReply,
};
