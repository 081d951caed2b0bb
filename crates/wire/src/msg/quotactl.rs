//! quotactl: what users, groups and projects use of one target, and may use.

use crate::trailing::Trailing;
use model::quota::{PoolStanding, Standings};
use model::usage::{QuotaId, QuotaType, Usage, may_see};
use model::{Cred, Errno};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quotactl {
    pub ask: QuotaAsk,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum QuotaAsk {
    /// Of these; everybody may ask about himself and his groups.
    Of(Vec<QuotaId>),
    /// Of everybody of a type who has anything, in the order of their ids, behind this one.
    All { of: QuotaType, after: Option<u32> },
    /// The target compares what it has counted with what there is, and sets it right.
    Verify,
    /// What holds for whole types. Metadata targets only.
    Types,
}

/// Owners in one request.
const IDS_MAX: usize = 1000;

impl QuotaAsk {
    /// `EPERM`: the caller may not know. `EMSGSIZE`: too many at once.
    pub fn check(&self, cred: &Cred) -> Result<(), Errno> {
        match self {
            QuotaAsk::Of(ids) if ids.len() > IDS_MAX => Err(Errno::EMSGSIZE),
            QuotaAsk::Of(ids) if ids.iter().all(|id| may_see(cred, *id)) => Ok(()),
            QuotaAsk::Types => Ok(()),
            _ if cred.is_root() => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }
}

/// What was asked for. Whoever has nothing is left out of `All`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotactlReply {
    pub usage: Vec<(QuotaId, Usage)>,
    /// Ask again, behind this; `None`: that was all.
    pub next: Option<u32>,
    /// What [`QuotaAsk::Verify`] found: whose, what was counted before, what there is.
    pub differed: Vec<(QuotaId, Usage, Usage)>,
    /// The metadata target keeps the limits; of others only what they have of them.
    pub limits: Trailing<LimitsReply>,
}

/// What owners may use.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LimitsReply {
    /// Of everybody asked for who has any.
    pub owners: Vec<(QuotaId, Standings)>,
    /// To [`QuotaAsk::Types`].
    pub types: Vec<TypeLimits>,
    pub shares: Trailing<SharesReply>,
}

/// What owners may have on this target without asking.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SharesReply {
    /// To [`QuotaAsk::Of`]: bytes, of those whose space is limited.
    pub of: Vec<(QuotaId, u64)>,
    /// Of everybody asked for who has limits by pool. In here: it is only there behind shares.
    pub pools: Trailing<Vec<PoolStanding>>,
}

/// What holds for all of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TypeLimits {
    pub of: QuotaType,
    pub enforced: bool,
    /// The limits of who has none of his own, and grace times.
    pub default: Standings,
}
message!(Quotactl, Quotactl, QuotactlReply);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a field that does not decode leaves must not pass for the next one (found by a fuzzer).
    #[test]
    fn nothing_is_there_behind_what_is_missing() {
        let no_limits = postcard::to_stdvec(&QuotactlReply::default()).unwrap();
        // The last one: limits of nobody, a share that does not decode, and what would pass for no pools.
        for tail in [&[1u8, 9, 0][..], &[1, 0], &[2, 0xff, 0xff, 0], &[5], &[0, 0, 1, 9, 0]] {
            let bytes = [&no_limits[..], tail].concat();
            let Ok(r) = postcard::from_bytes::<QuotactlReply>(&bytes) else { continue };
            let again = postcard::from_bytes::<QuotactlReply>(&postcard::to_stdvec(&r).unwrap()).unwrap();
            assert_eq!(r, again, "{tail:?}");
        }
    }
}
