//! Who is at the other end of a session: for all that lets somebody do something, or counts who did it.

use super::{ClientId, Proofs};
use std::net::IpAddr;
use std::sync::Arc;
use wire::Sender;
use wire::proof::{Claimant, Key};

/// Who is at the other end of a session, as far as its newest connection has shown.
///
/// What it may send ([`Principal::role`]) and who its users are here ([`super::Service::nodemap`]) both
/// follow from this value alone. A certificate that a connection shows belongs here too: only these two have
/// to know of it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Its `client_uuid`.
    pub client: ClientId,
    /// From where it speaks.
    pub address: IpAddr,
    /// What its connection has shown.
    proofs: Arc<Proofs>,
}

impl Principal {
    /// Of a connection that has shown nothing yet.
    pub fn new(client: ClientId, address: IpAddr) -> Principal {
        Principal { client, address, proofs: Arc::default() }
    }

    /// The same, with what its connection has shown.
    #[must_use]
    pub fn with_proofs(self, proofs: Proofs) -> Principal {
        Principal { proofs: Arc::new(proofs), ..self }
    }

    pub(crate) fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    /// Whether it has shown that it has `key` as `by`.
    pub fn shows(&self, by: Claimant, key: &Key) -> bool {
        self.proofs.shows(by, key)
    }

    /// What it may send, as the server of a target in a file system with this key.
    pub fn role(&self, server_key: Option<&Key>) -> Sender {
        self.proofs.sender(server_key)
    }
}

/// A session as `lctl` and exports show it.
#[derive(Clone, Debug)]
pub struct Peer {
    pub who: Principal,
    /// As it called itself in its hello.
    pub name: String,
    /// False: it is expected back.
    pub connected: bool,
}
