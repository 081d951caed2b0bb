//! Maintenance as a target holds it: changes of clients that do not say that they know of it are refused
//! (decision 0079).

use model::Errno;
use model::maintenance::{Maintenance, Mode};
use model::mutex::RwLock;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::Op;
use wire::verb::Sender;
use world::Instant;

/// How long clients that do not know of it may still write back what they were answered to have written.
pub const GRACE: Duration = Duration::from_secs(15);

/// What a target refuses, and since when.
#[derive(Default)]
pub struct Hold {
    /// There is a maintenance: looked at for each request.
    on: AtomicBool,
    state: RwLock<Ordered>,
}

#[derive(Default)]
struct Ordered {
    /// The configuration's.
    what: Maintenance,
    /// When it was heard first.
    heard: Option<Instant>,
    /// Of the last configuration known to have it; 0 for what was set here alone.
    version: u64,
}

impl Hold {
    pub fn maintenance(&self) -> Maintenance {
        self.state.read().what.clone()
    }

    /// The version of the last configuration that is known to have it: who knows a later one, and holds none,
    /// knows better.
    pub fn ordered(&self) -> u64 {
        self.state.read().version
    }

    /// Takes over what is ordered, by the configuration of this version or here alone. Returns whether it is
    /// news.
    pub fn set(&self, m: Maintenance, version: Option<u64>, now: Instant) -> bool {
        let mut state = self.state.write();
        let on = m.mode != Mode::Off;
        state.version = if on { version.unwrap_or(state.version) } else { 0 };
        if state.what == m {
            return false;
        }
        let heard = if state.what.mode == Mode::Off { Some(now) } else { state.heard };
        assert!(heard.is_some(), "a maintenance that goes on began");
        (state.what, state.heard) = (m, heard.filter(|_| on));
        self.on.store(on, Relaxed);
        true
    }

    /// Whether there is a maintenance at all.
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// `EROFS` for a message by which a client that does not know of it would change something. What ends
    /// opens, locks and sessions is none.
    pub fn permits(&self, op: Op, from: IpAddr, now: Instant) -> Result<(), Errno> {
        if !self.is_on() || !is_held(op) {
            return Ok(());
        }
        let state = self.state.read();
        let is_late = state.heard.is_some_and(|heard| now.since(heard) >= GRACE);
        if is_late && !state.what.leaves_alone(&[from]) { Err(Errno::EROFS) } else { Ok(()) }
    }
}

fn is_held(op: Op) -> bool {
    let verb = op.verb();
    let ends = matches!(
        op,
        Op::Disconnect
            | Op::Close
            | Op::Cancel
            | Op::Enqueue
            | Op::Allocseq
            | Op::Batch
            | Op::Reclaim
            | Op::Changelogclear
    );
    verb.sender == Sender::Client && (verb.modifies || op == Op::Own) && !ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::default().plus(Duration::from_secs(seconds))
    }

    fn ordered(text: &str) -> Maintenance {
        Maintenance::parse(text).unwrap()
    }

    #[test]
    fn changes_are_refused_when_clients_had_time_to_write_back() {
        let h = Hold::default();
        let permits = |op, seconds| h.permits(op, "10.0.0.7".parse().unwrap(), at(seconds));
        assert_eq!(permits(Op::Write, 100), Ok(()));
        assert!(h.set(ordered("closed reason=x"), Some(7), at(100)));
        assert!(!h.set(ordered("closed reason=x"), Some(8), at(110)), "that is no news");
        assert!(h.set(ordered("read-only reason=y"), None, at(110)), "it goes on, and began when it began");
        assert_eq!(h.ordered(), 8, "the last that had it");
        assert_eq!(permits(Op::Write, 114), Ok(()));
        for op in [Op::Write, Op::Create, Op::Own, Op::Setattr, Op::Writelist] {
            assert_eq!(permits(op, 115), Err(Errno::EROFS), "{op:?}");
        }
        for op in [Op::Read, Op::Lookup, Op::Close, Op::Cancel, Op::Disconnect, Op::SetParam, Op::Destroy] {
            assert_eq!(permits(op, 115), Ok(()), "{op:?}");
        }
        assert!(h.set(Maintenance::default(), Some(9), at(116)));
        assert_eq!(permits(Op::Write, 200), Ok(()));
    }

    #[test]
    fn who_is_left_alone_changes_what_he_likes() {
        let h = Hold::default();
        h.set(ordered("read-only except=10.0.0.[1-7]@tcp"), Some(1), at(0));
        let permits = |from: &str| h.permits(Op::Write, from.parse().unwrap(), at(100));
        assert_eq!(permits("10.0.0.7"), Ok(()));
        assert_eq!(permits("10.0.0.8"), Err(Errno::EROFS));
    }
}
