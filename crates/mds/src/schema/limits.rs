//! Limits of owners and of whole types (`L`).

use super::key;
use super::value::{decode, encode};
use crate::MdsError;
use model::pool;
use model::quota::{Grace, Limit, Limits};
use model::usage::{QuotaId, QuotaType};
use serde::{Deserialize, Serialize};

/// In the place of the first byte behind the tag: of a whole type, or of one owner.
const OF_TYPE: u8 = 0;
const OF_OWNER: u8 = 1;
const OF_POOL: u8 = 2;

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

/// What is kept of one owner for one pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PoolLimits {
    /// Of space on its OSTs.
    pub limit: Limit,
    /// Since when he has more than the soft limit: seconds since 1970.
    pub over_since: Option<i64>,
}

impl PoolLimits {
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.limit.is_none(), "what says nothing is not kept");
        encode(self)
    }

    pub fn decode(k: &[u8], v: &[u8]) -> Result<PoolLimits, MdsError> {
        decode("limits of a pool", k, v)
    }
}

/// Whose limits a key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitsKey {
    Type(QuotaType),
    Owner(QuotaId),
    /// An owner's on the OSTs of the pool of this name.
    Pool(QuotaId, String),
}

impl LimitsKey {
    pub fn encode(&self) -> Vec<u8> {
        let of_owner =
            |kind, q: &QuotaId| [&[key::LIMITS, kind, q.of.number()], &q.id.to_be_bytes()[..]].concat();
        match self {
            LimitsKey::Type(of) => vec![key::LIMITS, OF_TYPE, of.number()],
            LimitsKey::Owner(q) => of_owner(OF_OWNER, q),
            LimitsKey::Pool(q, pool) => {
                assert!(pool::name_is_valid(pool), "pool '{pool}' was let in by its name");
                [&of_owner(OF_POOL, q), pool.as_bytes()].concat()
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
            [key::LIMITS, OF_POOL, of, a, b, c, d, name @ ..] => {
                let (of, id) = (QuotaType::from_number(*of)?, u32::from_be_bytes([*a, *b, *c, *d]));
                let name = std::str::from_utf8(name).ok().filter(|n| pool::name_is_valid(n))?;
                Some(LimitsKey::Pool(QuotaId { of, id }, name.to_string()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_back() {
        let owner = LimitsKey::Owner(QuotaId { of: QuotaType::Group, id: 0x0102_0304 });
        let of = QuotaId { of: QuotaType::User, id: 7 };
        for k in [LimitsKey::Type(QuotaType::Project), owner.clone(), LimitsKey::Pool(of, "flash".into())] {
            assert_eq!(LimitsKey::decode(&k.encode()), Some(k));
        }
        assert_eq!(owner.encode(), [b'L', 1, 1, 1, 2, 3, 4]);
        for bad in [
            &b"L"[..],
            &[b'L', 0, 4],
            &[b'L', 1, 0, 1],
            &[b'L', 2, 0],
            &[b'L', 2, 0, 0, 0, 0, 7],
            &[b'M', 0, 0],
        ] {
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
