//! This target's own share of what owners may use: of small files and directories. Those of the object
//! targets are theirs; `shares` moves them.

use super::{QuotaTable, Quotas};
use crate::leases::OWNER_RESERVE_BYTES;
use crate::schema::limits::OwnerLimits;
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
}

impl Quotas {
    /// Types of which everybody has a limit on space unless his own say otherwise.
    pub fn limited_types(&self) -> Enforced {
        let (t, enforced) = (self.table.lock(), self.enforced());
        let limited = |of: &QuotaType| enforced.has(*of) && !t.of_type(*of).default.space.is_none();
        Enforced::of(QuotaType::ALL.into_iter().filter(limited))
    }

    /// How somebody stands whose space is limited, and that is enforced.
    pub fn space_of(&self, id: QuotaId) -> Option<Standing> {
        self.table.lock().space_of(id, self.enforced())
    }

    /// Everybody with limits on space of his own, a share here, or a soft limit that is exceeded.
    pub fn with_space(&self) -> BTreeSet<QuotaId> {
        let t = self.table.lock();
        let concerns = |(_, o): &(&QuotaId, &OwnerLimits)| {
            o.space_over.is_some() || o.own.is_some_and(|l| !l.space.is_none())
        };
        t.owners.iter().filter(concerns).map(|(id, _)| *id).chain(t.own_shares.keys().copied()).collect()
    }

    /// Who exceeds a soft limit on space.
    pub fn over_soft_space(&self) -> Vec<QuotaId> {
        let t = self.table.lock();
        t.owners.iter().filter(|(_, o)| o.space_over.is_some()).map(|(id, _)| *id).collect()
    }

    /// Whether it is limited by anybody's limits or a default how much space may be used.
    pub fn limits_space(&self) -> bool {
        let (t, enforced) = (self.table.lock(), self.enforced());
        QuotaType::ALL.into_iter().any(|of| {
            let own =
                || t.owners.iter().any(|(id, o)| id.of == of && o.own.is_some_and(|l| !l.space.is_none()));
            enforced.has(of) && (!t.of_type(of).default.space.is_none() || own())
        })
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

    /// Whose share of this target a change would exceed.
    pub fn short_of_space(&self, used: &UsageLedger, change: &UsageChange) -> ShareNeeds {
        let mut short = ShareNeeds::default();
        if !self.is_active() {
            return short;
        }
        let (t, enforced) = (self.table.lock(), self.enforced());
        for (id, _, blocks) in change.iter().filter(|(_, _, blocks)| *blocks > 0) {
            let limited = t.space_of(id, enforced).is_some();
            if limited && used.get(id).with(0, blocks).bytes() > t.own_share(id) {
                let grows = Usage { inodes: 0, blocks: blocks.unsigned_abs() }.bytes();
                short.bytes = short.bytes.max(grows);
                short.ids.insert(id);
            }
        }
        short
    }

    /// What is to be kept of an owner who exceeds his soft limit on space since then, or does not any more.
    pub fn with_space_over(&self, id: QuotaId, space_over: Option<i64>) -> Option<Vec<u8>> {
        super::written(id, OwnerLimits { space_over, ..self.table.lock().of_owner(id) }).1
    }

    pub fn own_share(&self, id: QuotaId) -> u64 {
        self.table.lock().own_share(id)
    }
}

impl QuotaTable {
    fn space_of(&self, id: QuotaId, enforced: Enforced) -> Option<Standing> {
        let standing = self.standings(id).space;
        let limited = id.is_limited() && enforced.has(id.of) && !standing.limit.is_none();
        limited.then_some(standing)
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
        self.space_of(id, enforced).is_none() || room() >= untold
    }
}
