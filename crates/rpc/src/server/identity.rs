//! Who is at the other end: the same client as before, and whether it is more than a client. Decisions 0040
//! and 0041.

use super::Principal;
use model::Errno;
use serde::{Deserialize, Serialize};
use wire::Sender;
use wire::msg::connect::Connect;
use wire::proof::{Challenge, Claim, Claimant, Key};

/// A client says hello to a service.
#[derive(Clone, Debug)]
pub struct Greeting {
    pub connect: Connect,
    /// It has shown nothing but its token yet.
    pub from: Principal,
    /// Number that the connection gets.
    pub session: u64,
    /// The server has a session of this client in memory: what it was told is known there.
    pub known: bool,
    /// Of the token that it showed ([`wire::proof::token`]); `None`: it is too old to have one.
    pub digest: Option<[u8; 32]>,
}

/// The part of a service's durable record of a client that says who it is and when it was told that it is
/// new. Stands behind the record's other fields; records of before version 0.2 end there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Identity {
    /// SHA-256 of the client's token; `None`: it has shown none yet.
    pub digest: Option<[u8; 32]>,
    /// Epoch and session number of the first answer that told it that it is new. Until it shows that it
    /// received that answer, or a later one, it is told again.
    pub new_since: (u32, u64),
}

impl Identity {
    /// Behind the other fields of a record; `None` if it is cut short.
    pub fn decode(rest: &[u8]) -> Option<Identity> {
        if rest.is_empty() {
            return Some(Identity::default());
        }
        postcard::take_from_bytes(rest).ok().map(|(i, _)| i)
    }
}

impl Greeting {
    /// Of a client that comes to a target in its `epoch` for the first time.
    pub fn identity(&self, epoch: u32) -> Identity {
        Identity { digest: self.digest, new_since: (epoch, self.session) }
    }

    /// Whether it is the client that `known` was written for. True: that one had shown no token yet, and this
    /// one has: the record is to be written again with it.
    ///
    /// # Errors
    /// `EACCES` and words: it is somebody else.
    pub fn check(&self, known: &mut Identity) -> Result<bool, (Errno, String)> {
        match (known.digest, self.digest) {
            (Some(a), Some(b)) if a == b => Ok(false),
            (Some(_), _) => Err(stranger(&self.connect.client_name)),
            (None, None) => Ok(false),
            (None, Some(d)) => {
                known.digest = Some(d);
                Ok(true)
            }
        }
    }

    /// The client was told that it is new, or may have been, and does not know: the server restarted before
    /// it showed that it does. Nothing from before that is its own any more.
    pub fn is_unaware(&self, known: &Identity) -> bool {
        let last =
            wire::msg::connect::extra_number(&self.connect.extra, wire::msg::connect::EXTRA_LAST_SESSION);
        !self.known && (self.connect.last_epoch, last) < known.new_since
    }
}

/// Why somebody is not let in under a client's UUID.
pub(crate) fn stranger(name: &str) -> (Errno, String) {
    let name: String = name.chars().take(256).collect();
    (
        Errno::EACCES,
        format!("'{name}' connects under the UUID of another client, and does not know its secret"),
    )
}

/// What a connection has shown.
#[derive(Clone, Debug, Default)]
pub struct Proofs {
    pub(crate) challenge: Challenge,
    pub(crate) claims: Vec<Claim>,
}

impl Proofs {
    /// What somebody with these keys shows.
    pub fn of(challenge: Challenge, keys: &[(Claimant, Key)]) -> Proofs {
        Proofs { challenge, claims: keys.iter().map(|(by, key)| challenge.claim(key, *by)).collect() }
    }

    /// Whether it has shown that it has `key` as `by`.
    pub fn shows(&self, by: Claimant, key: &Key) -> bool {
        self.claims.iter().any(|c| c.by == by && self.challenge.is_met(key, c))
    }

    /// What it may send as the server of a target in a file system with this key.
    pub fn sender(&self, server_key: Option<&Key>) -> Sender {
        match server_key {
            Some(k) if self.shows(Claimant::Server, k) => Sender::Server,
            _ if self.claims.iter().any(|c| matches!(c.by, Claimant::Target(_))) => Sender::Target,
            _ => Sender::Client,
        }
    }
}
