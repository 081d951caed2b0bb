//! Limits of owners and of whole types (`L`).

use super::key;
use super::value::{decode, encode};
use crate::MdsError;
use model::quota::{Grace, Limits};
use model::usage::{QuotaId, QuotaType};
use serde::{Deserialize, Serialize};

/// In the place of the first byte behind the tag: of a whole type, or of one owner.
const OF_TYPE: u8 = 0;
const OF_OWNER: u8 = 1;

/// What is kept of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OwnerLimits {
    /// `None`: he has those of his type.
    pub own: Option<Limits>,
    /// Since when he has more than the soft limit: seconds since 1970.
    pub space_over: Option<i64>,
    pub inodes_over: Option<i64>,
}

impl OwnerLimits {
    pub fn is_nothing(&self) -> bool {
        *self == OwnerLimits::default()
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.is_nothing(), "what says nothing is not kept");
        encode(self)
    }

    pub fn decode(k: &[u8], v: &[u8]) -> Result<OwnerLimits, MdsError> {
        decode("limits of an owner", k, v)
    }
}

/// What is kept of one type.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TypeLimits {
    /// Of owners who have none of their own.
    pub default: Limits,
    pub space_grace: Grace,
    pub inodes_grace: Grace,
}

impl TypeLimits {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(k: &[u8], v: &[u8]) -> Result<TypeLimits, MdsError> {
        decode("limits of a type", k, v)
    }
}

/// Whose limits a key has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitsKey {
    Type(QuotaType),
    Owner(QuotaId),
}

impl LimitsKey {
    pub fn encode(self) -> Vec<u8> {
        match self {
            LimitsKey::Type(of) => vec![key::LIMITS, OF_TYPE, of.number()],
            LimitsKey::Owner(q) => {
                let mut k = vec![key::LIMITS, OF_OWNER, q.of.number()];
                k.extend_from_slice(&q.id.to_be_bytes());
                k
            }
        }
    }

    pub fn decode(k: &[u8]) -> Option<LimitsKey> {
        match k {
            [key::LIMITS, OF_TYPE, of] => QuotaType::from_number(*of).map(LimitsKey::Type),
            [key::LIMITS, OF_OWNER, of, id @ ..] => {
                let (of, id) = (QuotaType::from_number(*of)?, u32::from_be_bytes(id.try_into().ok()?));
                Some(LimitsKey::Owner(QuotaId { of, id }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::quota::Limit;

    #[test]
    fn keys_and_values_come_back() {
        let owner = LimitsKey::Owner(QuotaId { of: QuotaType::Group, id: 0x0102_0304 });
        for k in [LimitsKey::Type(QuotaType::Project), owner] {
            assert_eq!(LimitsKey::decode(&k.encode()), Some(k));
        }
        assert_eq!(owner.encode(), [b'L', 1, 1, 1, 2, 3, 4]);
        for bad in [&b"L"[..], &[b'L', 0, 3], &[b'L', 1, 0, 1], &[b'L', 2, 0], &[b'M', 0, 0]] {
            assert_eq!(LimitsKey::decode(bad), None, "{bad:?}");
        }
        let inodes = Limit { soft: 3, hard: 1 << 40 };
        let o = OwnerLimits { own: Some(Limits { inodes, ..Limits::default() }), ..OwnerLimits::default() };
        assert_eq!(OwnerLimits::decode(b"k", &o.encode()).unwrap(), o);
        let t = TypeLimits { space_grace: Grace::Notify, ..TypeLimits::default() };
        assert_eq!(TypeLimits::decode(b"k", &t.encode()).unwrap(), t);
        assert!(TypeLimits::decode(b"k", &[9]).is_err());
    }
}
