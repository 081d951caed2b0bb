//! This target's own share of what owners may use: of small files and directories. Those of the object
//! targets are theirs; `shares` moves them.

use super::{Arrival, QuotaTable, Quotas};
use crate::leases::OWNER_RESERVE_BYTES;
use crate::schema::limits::{LimitsKey, OwnerLimits, PoolLimits};
use model::quota::{Enforced, Standing};
use model::usage::{QuotaId, QuotaType, Usage, UsageChange};
use std::collections::{BTreeMap, BTreeSet};
use store::usage::UsageLedger;

/// Bytes that each may use here without asking the object targets for some of theirs. Whoever is limited and
/// is not in it has none: it is not known what the others have.
pub(super) type OwnShares = BTreeMap<QuotaId, u64>;

/// Whose share of this target is used up by a transaction, and by how many bytes it grows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ShareNeeds {
    pub ids: BTreeSet<QuotaId>,
    pub bytes: u64,
    /// Objects that somebody would get, of which nobody knows how large they are.
    pub arrivals: Vec<Arrival>,
}

impl Quotas {
    /// Types of which everybody has a limit on space unless his own say otherwise.
    pub fn limited_types(&self) -> Enforced {
        let (t, enforced) = (self.table.lock(), self.enforced());
        // Of a directory that an object target has not heard of it does not know either which it lies in.
        let nested = |of: QuotaType| of == QuotaType::Directory && t.limits_space_of(of);
        let limited =
            |of: &QuotaType| enforced.has(*of) && (!t.of_type(*of).default.space.is_none() || nested(*of));
        Enforced::of(QuotaType::ALL.into_iter().filter(limited))
    }

    /// How somebody stands altogether, and on the OSTs of which pools, whose space is limited, and that is
    /// enforced.
    pub fn space_of(&self, id: QuotaId) -> Option<(Standing, Vec<(String, Standing)>)> {
        let t = self.table.lock();
        t.is_space_limited(id, self.enforced()).then(|| (t.standings(id).space, t.by_pool(id)))
    }

    /// Whether somebody's space is limited, and that is enforced.
    pub fn is_space_limited(&self, id: QuotaId) -> bool {
        self.table.lock().is_space_limited(id, self.enforced())
    }

    /// Whether anybody has limits by pool.
    pub fn limits_by_pool(&self) -> bool {
        !self.table.lock().pools.is_empty()
    }

    /// Everybody with limits on space of his own, a share here, or a soft limit that is exceeded.
    pub fn with_space(&self) -> BTreeSet<QuotaId> {
        let t = self.table.lock();
        let concerns = |(_, o): &(&QuotaId, &OwnerLimits)| {
            o.space_over.is_some() || o.own.is_some_and(|l| !l.space.is_none())
        };
        let own = t.owners.iter().filter(concerns).map(|(id, _)| *id);
        own.chain(t.own_shares.keys().copied()).chain(t.pools.keys().copied()).collect()
    }

    /// Who exceeds a soft limit on space.
    pub fn over_soft_space(&self) -> Vec<QuotaId> {
        let t = self.table.lock();
        let own = t.owners.iter().filter(|(_, o)| o.space_over.is_some()).map(|(id, _)| *id);
        let over = |(_, all): &(&QuotaId, &BTreeMap<String, PoolLimits>)| {
            all.values().any(|p| p.over_since.is_some())
        };
        let by_pool = t.pools.iter().filter(over).map(|(id, _)| *id);
        own.chain(by_pool).collect::<BTreeSet<QuotaId>>().into_iter().collect()
    }

    /// Whether it is limited by anybody's limits or a default how much space may be used.
    pub fn limits_space(&self) -> bool {
        let (t, enforced) = (self.table.lock(), self.enforced());
        QuotaType::ALL
            .into_iter()
            .any(|of| enforced.has(of) && (!t.of_type(of).default.space.is_none() || t.limits_space_of(of)))
    }

    /// This target may use so many bytes for somebody from now on; `None`: as much as it likes. No
    /// transaction is under way.
    pub fn set_own_share(&self, id: QuotaId, share: Option<u64>) {
        assert!(id.is_limited() || share.is_none(), "only who is limited has a share");
        let mut t = self.table.lock();
        match share {
            Some(share) => drop(t.own_shares.insert(id, share)),
            None => drop(t.own_shares.remove(&id)),
        }
    }

    /// Whose share of this target a change would exceed, which names all whom it concerns.
    pub fn short_of_space(&self, used: &UsageLedger, change: &UsageChange) -> ShareNeeds {
        let mut short = ShareNeeds::default();
        if !self.is_active() {
            return short;
        }
        let (t, enforced) = (self.table.lock(), self.enforced());
        for (id, _, blocks) in change.iter().filter(|(_, _, blocks)| *blocks > 0) {
            let limited = t.is_space_limited(id, enforced);
            if limited && used.get(id).with(0, blocks).bytes() > t.own_share(id) {
                let grows = Usage { inodes: 0, blocks: blocks.unsigned_abs() }.bytes();
                short.bytes = short.bytes.max(grows);
                short.ids.insert(id);
            }
        }
        short
    }

    /// What is to be kept of an owner who exceeds his soft limit on space, that of a pool if one is named,
    /// since then, or does not any more.
    pub fn with_space_over(
        &self,
        id: QuotaId,
        pool: Option<&str>,
        space_over: Option<i64>,
    ) -> (LimitsKey, Option<Vec<u8>>) {
        let t = self.table.lock();
        let Some(pool) = pool else {
            return super::written(id, OwnerLimits { space_over, ..t.of_owner(id) });
        };
        let was = t.pools.get(&id).and_then(|all| all.get(pool));
        let new = was.map(|p| PoolLimits { over_since: space_over, ..*p }.encode());
        (LimitsKey::Pool(id, pool.to_string()), new)
    }

    pub fn own_share(&self, id: QuotaId) -> u64 {
        self.table.lock().own_share(id)
    }
}

impl QuotaTable {
    /// Whether anybody of a type has a limit on space of his own.
    fn limits_space_of(&self, of: QuotaType) -> bool {
        self.owners.iter().any(|(id, o)| id.of == of && o.own.is_some_and(|l| !l.space.is_none()))
            || self.pools.keys().any(|id| id.of == of)
    }

    fn is_space_limited(&self, id: QuotaId, enforced: Enforced) -> bool {
        let limited = || !self.standings(id).space.limit.is_none() || self.pools.contains_key(&id);
        id.is_limited() && enforced.has(id.of) && limited()
    }

    /// How somebody stands on the OSTs of pools.
    pub(super) fn by_pool(&self, id: QuotaId) -> Vec<(String, Standing)> {
        let grace = self.of_type(id.of).space_grace;
        let standing = |p: &PoolLimits| Standing { limit: p.limit, grace, over_since: p.over_since };
        let all = self.pools.get(&id).into_iter().flatten();
        all.map(|(pool, p)| (pool.clone(), standing(p))).collect()
    }

    fn own_share(&self, id: QuotaId) -> u64 {
        self.own_shares.get(&id).copied().unwrap_or(0)
    }

    /// Whether what so many clients may have written to small files and not told fits into somebody's share.
    pub(super) fn has_space_for(
        &self,
        id: QuotaId,
        enforced: Enforced,
        used: &UsageLedger,
        clients: usize,
    ) -> bool {
        let untold = (clients as u64).saturating_mul(OWNER_RESERVE_BYTES);
        let room = || self.own_share(id).saturating_sub(used.get(id).bytes());
        !self.is_space_limited(id, enforced) || room() >= untold
    }
}
