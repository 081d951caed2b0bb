//! Showing that one has a key without saying it: HMAC-SHA-256 over what is one connection's own. Decision
//! 0040.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub const KEY_BYTES: usize = 32;
/// Random, or made from something random.
pub type Key = [u8; KEY_BYTES];
/// Claims in one message, at most.
pub const CLAIMS_MAX: usize = 64;
/// Claims on one connection, at most: a server of more targets is several.
pub const CLAIMS_KEPT_MAX: usize = 1024;

/// What somebody says to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Claimant {
    /// The server of the target with this UUID.
    Target([u8; 16]),
    /// A server of the target's file system.
    Server,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub by: Claimant,
    /// [`Challenge::mac`] with the claimant's key.
    pub mac: [u8; 32],
}

/// What is one connection's own, of which the server chose the nonce. A proof made for one is none for
/// another, nor for another target or client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Challenge {
    pub nonce: [u8; 32],
    pub session: u64,
    /// Number of the target that is connected to.
    pub target: u32,
    pub client: [u8; 16],
}

fn hmac(key: &Key) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl Challenge {
    fn keyed(&self, key: &Key, by: Claimant) -> Hmac<Sha256> {
        let mut h = hmac(key);
        h.update(b"nacre proof 1");
        h.update(&self.nonce);
        h.update(&self.session.to_le_bytes());
        h.update(&self.target.to_le_bytes());
        h.update(&self.client);
        match by {
            Claimant::Target(uuid) => {
                h.update(&[1]);
                h.update(&uuid);
            }
            Claimant::Server => h.update(&[2]),
        }
        h
    }

    pub fn claim(&self, key: &Key, by: Claimant) -> Claim {
        Claim { by, mac: self.keyed(key, by).finalize().into_bytes().into() }
    }

    /// Whether `claim` was made for this challenge with `key`; takes as long whether or not it was.
    pub fn is_met(&self, key: &Key, claim: &Claim) -> bool {
        self.keyed(key, claim.by).verify_slice(&claim.mac).is_ok()
    }
}

/// What a connection has claimed by now: a server of many targets says it in parts, and what it says again
/// counts in the place of the former. `None`: that is more than a message, or a connection, may claim.
pub fn add_claims(known: &[Claim], new: Vec<Claim>) -> Option<Vec<Claim>> {
    if new.len() > CLAIMS_MAX {
        return None;
    }
    let stays = |k: &&Claim| !new.iter().any(|n| n.by == k.by);
    let mut all: Vec<Claim> = known.iter().filter(stays).cloned().collect();
    all.extend(new);
    assert!(all.len() <= known.len() + CLAIMS_MAX, "one message adds so many at most");
    (all.len() <= CLAIMS_KEPT_MAX).then_some(all)
}

/// What a client shows `target` of `fsname` so that nobody else can speak in its name: made from its secret,
/// so that no target can use it with another.
pub fn token(secret: &Key, fsname: &str, target: u32) -> Key {
    let mut h = hmac(secret);
    h.update(b"nacre token 1");
    h.update(&target.to_le_bytes());
    h.update(fsname.as_bytes());
    h.finalize().into_bytes().into()
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_connection_one_key_and_one_claim() {
        let c = Challenge { nonce: [7; 32], session: 3, target: 0x30001, client: [9; 16] };
        let claim = c.claim(&[1; 32], Claimant::Server);
        assert!(c.is_met(&[1; 32], &claim));
        assert!(!c.is_met(&[2; 32], &claim));
        for other in [
            Challenge { nonce: [8; 32], ..c },
            Challenge { session: 4, ..c },
            Challenge { target: 0x30002, ..c },
            Challenge { client: [8; 16], ..c },
        ] {
            assert!(!other.is_met(&[1; 32], &claim));
        }
        assert!(!c.is_met(&[1; 32], &Claim { by: Claimant::Target([0; 16]), ..claim.clone() }));
        let mut bent = claim;
        bent.mac[31] ^= 1;
        assert!(!c.is_met(&[1; 32], &bent));
    }

    /// RFC 4231, test case 2, and FIPS 180-4's "abc": the library does what its name says.
    #[test]
    fn known_answers() {
        let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let mut h = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        h.update(b"what do ya want for nothing?");
        let mac: [u8; 32] = h.finalize().into_bytes().into();
        assert_eq!(hex(&mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_eq!(hex(&digest(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_ne!(token(&[1; 32], "fs", 1), token(&[1; 32], "fs", 2));
        assert_ne!(token(&[1; 32], "fs", 1), token(&[1; 32], "other", 1));
    }
}
