//! Limits on what owners may use, of which this target keeps all (decision 0068). Those on inodes it enforces
//! by itself; of those on space each target has a share (`space`, decision 0069). What owners use is
//! [`store::usage`]'s.
//!
//! A transaction that gives somebody more than he may have is refused where it is made (`verbs`); it writes
//! since when a soft limit is exceeded. Operations that clients execute by themselves come when their
//! applications were answered, and are refused nothing: so nobody has a directory for himself whose owner is
//! *near* a limit, which is when all that all clients may have executed and not told might take him beyond.

mod arrivals;
mod book;
mod directories;
mod division;
mod space;

pub use arrivals::{Admission, Admitted, Arrival, ArrivalBook, ArrivalOf};
pub use book::ShareBook;
pub use directories::{Directories, Moving};
pub use division::{Bound, Division, ShareHolder, Want};
pub use space::ShareNeeds;

use crate::MdsError;
use crate::schema::key;
use crate::schema::limits::{LimitsKey, OwnerLimits, PoolLimits, TypeLimits};
use crate::walk::walk;
use model::Errno;
use model::limits::OWNER_PENDING_MAX_OPS;
use model::mutex::Mutex;
use model::nodemap::Owner;
use model::quota::{Enforced, LimitOrder, Limits, PoolStanding, Standing, Standings, Verdict};
use model::usage::{QuotaId, QuotaType, Usage, UsageChange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use store::usage::UsageLedger;
use wire::msg::quotactl;

#[derive(Default)]
struct QuotaTable {
    owners: BTreeMap<QuotaId, OwnerLimits>,
    types: BTreeMap<QuotaType, TypeLimits>,
    /// What some of them may have on the OSTs of a pool, by its name.
    pools: BTreeMap<QuotaId, BTreeMap<String, PoolLimits>>,
    /// How many of them have limits of their own, by type.
    limited: [usize; QuotaType::ALL.len()],
    /// Nobody has a directory of theirs for himself.
    near: BTreeSet<QuotaId>,
    own_shares: space::OwnShares,
}

impl QuotaTable {
    fn of_type(&self, of: QuotaType) -> TypeLimits {
        self.types.get(&of).copied().unwrap_or_default()
    }

    fn of_owner(&self, id: QuotaId) -> OwnerLimits {
        self.owners.get(&id).copied().unwrap_or_default()
    }

    fn standings(&self, id: QuotaId) -> Standings {
        let (t, o) = (self.of_type(id.of), self.of_owner(id));
        let limits = o.own.unwrap_or(if id.is_limited() { t.default } else { Limits::default() });
        let standing = |limit, grace, over_since| Standing { limit, grace, over_since };
        Standings {
            space: standing(limits.space, t.space_grace, o.space_over),
            inodes: standing(limits.inodes, t.inodes_grace, o.inodes_over),
            by_default: o.own.is_none(),
            ..Standings::default()
        }
    }

    /// What is kept of an owner from now on.
    fn set_owner(&mut self, id: QuotaId, new: Option<OwnerLimits>) {
        let limited = |o: Option<OwnerLimits>| {
            usize::from(id.is_limited() && o.and_then(|o| o.own).is_some_and(|l| !l.is_none()))
        };
        let old = match new {
            Some(o) => self.owners.insert(id, o),
            None => self.owners.remove(&id),
        };
        let count = &mut self.limited[usize::from(id.of.number())];
        assert!(limited(old) <= *count, "whoever has limits was counted");
        *count = count.saturating_sub(limited(old)).saturating_add(limited(new));
    }

    /// What is kept of an owner for a pool from now on.
    fn set_pool(&mut self, id: QuotaId, pool: String, new: Option<PoolLimits>) {
        let of_owner = self.pools.entry(id).or_default();
        match new {
            Some(p) => drop(of_owner.insert(pool, p)),
            None => drop(of_owner.remove(&pool)),
        }
        if of_owner.is_empty() {
            self.pools.remove(&id);
        }
    }

    /// What is to be kept of an owner who gets limits of his own, or those of his type.
    fn with_own(
        &self,
        of: QuotaId,
        own: Option<Limits>,
        used: &UsageLedger,
        now: i64,
    ) -> (LimitsKey, Option<Vec<u8>>) {
        let limit = own.unwrap_or(self.of_type(of.of).default).inodes;
        let standing = Standing { limit, ..self.standings(of).inodes };
        let inodes_over = standing.over_since_with(used.get(of).inodes, now);
        written(of, OwnerLimits { own, inodes_over, ..self.of_owner(of) })
    }

    /// Whether anybody of a type may have so much only.
    fn limits_any(&self, of: QuotaType) -> bool {
        !self.of_type(of).default.is_none()
            || self.limited[usize::from(of.number())] > 0
            || self.pools.keys().any(|id| id.of == of)
    }
}

pub struct Quotas {
    table: Mutex<QuotaTable>,
    /// Types whose limits are enforced.
    enforced: AtomicU8,
    /// Somebody is limited, and that is enforced.
    active: AtomicBool,
}

impl Quotas {
    /// As the table has it.
    pub fn load(db: &dyn store::Read) -> Result<Quotas, MdsError> {
        let quotas = Quotas {
            table: Mutex::default(),
            enforced: AtomicU8::new(Enforced::ALL.bits()),
            active: AtomicBool::new(false),
        };
        walk(db, &[key::LIMITS], &[key::LIMITS + 1], |k, v| quotas.adopt(k, Some(v)))?;
        Ok(quotas)
    }

    /// What the table has under a key from now on.
    pub fn adopt(&self, k: &[u8], v: Option<&[u8]>) -> Result<(), MdsError> {
        let mut t = self.table.lock();
        match (LimitsKey::decode(k), v) {
            (Some(LimitsKey::Owner(id)), Some(v)) => t.set_owner(id, Some(OwnerLimits::decode(k, v)?)),
            (Some(LimitsKey::Owner(id)), None) => t.set_owner(id, None),
            (Some(LimitsKey::Type(of)), Some(v)) => drop(t.types.insert(of, TypeLimits::decode(k, v)?)),
            (Some(LimitsKey::Type(of)), None) => drop(t.types.remove(&of)),
            (Some(LimitsKey::Pool(id, pool)), v) => {
                let new = v.map(|v| PoolLimits::decode(k, v)).transpose()?;
                t.set_pool(id, pool, new);
            }
            (None, _) => tracing::error!("limits of nobody known, under key {k:02x?}: run nacre fsck"),
        }
        self.look_anew(&t);
        Ok(())
    }

    fn look_anew(&self, t: &QuotaTable) {
        let enforced = self.enforced();
        let any = QuotaType::ALL.into_iter().any(|of| enforced.has(of) && t.limits_any(of));
        self.active.store(any, Relaxed);
    }

    pub fn enforced(&self) -> Enforced {
        Enforced::from_bits(self.enforced.load(Relaxed))
    }

    pub fn set_enforced(&self, enforced: Enforced) {
        self.enforced.store(enforced.bits(), Relaxed);
        self.look_anew(&self.table.lock());
    }

    /// Whether anybody is limited.
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Of each who is limited and would get more inodes: how he stands, and what he would have.
    fn growing<'a>(
        &'a self,
        t: &'a QuotaTable,
        used: &'a UsageLedger,
        change: &'a UsageChange,
    ) -> impl Iterator<Item = (QuotaId, Standing, u64)> + 'a {
        let enforced = self.enforced();
        change
            .iter()
            .filter(move |(id, inodes, _)| *inodes > 0 && id.is_limited() && enforced.has(id.of))
            .map(|(id, inodes, blocks)| {
                (id, t.standings(id).inodes, used.get(id).with(inodes, blocks).inodes)
            })
            .filter(|(_, s, _)| !s.limit.is_none())
    }

    /// Whether a directory would get more that may not have as much as it likes. `change` names all whom it
    /// concerns.
    pub fn limits_directory(&self, change: &UsageChange) -> bool {
        let t = self.table.lock();
        let grows = |(id, inodes, blocks): (QuotaId, i64, i64)| {
            id.of == QuotaType::Directory && (inodes > 0 || blocks > 0) && t.of_owner(id).own.is_some()
        };
        self.enforced().has(QuotaType::Directory) && change.iter().any(grows)
    }

    /// `EDQUOT` if somebody would have more than he may. `change` names all whom it concerns; `held`: what
    /// directories are to have besides what they have.
    pub fn check(
        &self,
        used: &UsageLedger,
        change: &UsageChange,
        held: &BTreeMap<u32, Usage>,
        now: i64,
    ) -> Result<(), Errno> {
        if !self.is_active() {
            return Ok(());
        }
        let t = self.table.lock();
        let held =
            |id: QuotaId| held.get(&id.id).filter(|_| id.of == QuotaType::Directory).map_or(0, |u| u.inodes);
        let exceeds = |(id, s, n): (QuotaId, Standing, u64)| {
            s.may_have(n.saturating_add(held(id)), now) == Verdict::Exceeds
        };
        let exceeds = self.growing(&t, used, change).any(exceeds);
        if exceeds { Err(Errno::EDQUOT) } else { Ok(()) }
    }

    /// Whether each of these directories may have so much more besides what `change` brings, as far as this
    /// target knows what they have. `change` names all whom it concerns.
    pub fn has_room_for(
        &self,
        used: &UsageLedger,
        change: &UsageChange,
        (directories, more): (&[u32], Usage),
        now: i64,
    ) -> bool {
        let (t, of) = (self.table.lock(), QuotaType::Directory);
        let enforced = self.enforced().has(of);
        let fits = |id| {
            let brought = change.iter().find(|(of, ..)| *of == id);
            let (_, inodes, blocks) = brought.unwrap_or((id, 0, 0));
            let (s, has) = (t.standings(id), used.get(id).with(inodes, blocks).plus(more));
            let fits = |s: Standing, n| s.limit.is_none() || s.may_have(n, now) != Verdict::Exceeds;
            fits(s.inodes, has.inodes) && fits(s.space, has.bytes())
        };
        !enforced || directories.iter().all(|id| fits(QuotaId { of, id: *id }))
    }

    /// Who comes near a limit by a change, now that so many clients have directories for themselves.
    pub fn near(&self, used: &UsageLedger, change: &UsageChange, clients: usize) -> Vec<QuotaId> {
        if !self.is_active() || clients == 0 {
            return Vec::new();
        }
        let (mut t, change) = (self.table.lock(), &used.concerns(change));
        let untold = untold_by(clients);
        let rooms: Vec<(QuotaId, u64)> =
            self.growing(&t, used, change).map(|(id, s, n)| (id, s.room(n))).collect();
        for (id, _) in rooms.iter().filter(|(_, room)| *room >= 2 * untold) {
            t.near.remove(id);
        }
        let near = |(id, room): &(QuotaId, u64)| *room < untold && !t.near.contains(id);
        let mut ids: Vec<QuotaId> = rooms.into_iter().filter(near).map(|(id, _)| id).collect();
        let enforced = self.enforced();
        for (id, _, _) in change.iter() {
            let known = t.near.contains(&id) || ids.contains(&id);
            if !known && !t.has_space_for(id, enforced, used, clients) {
                ids.push(id);
            }
        }
        ids
    }

    /// Nobody has a directory of theirs for himself.
    pub fn are_near(&self, ids: &[QuotaId]) {
        assert!(ids.iter().all(|id| id.is_limited()), "only who is limited comes near");
        self.table.lock().near.extend(ids);
    }

    /// Whether one more client may have a directory of `owner` for himself.
    pub fn may_have_alone(&self, owner: &Owner, used: &UsageLedger, clients: usize) -> bool {
        if !self.is_active() {
            return true;
        }
        let mut t = self.table.lock();
        let enforced = self.enforced();
        let clients = clients.saturating_add(1);
        let ids = used.quota_ids(*owner);
        if !ids.iter().all(|id| t.has_space_for(*id, enforced, used, clients)) {
            return false;
        }
        ids.into_iter().filter(|id| id.is_limited() && enforced.has(id.of)).all(|id| {
            let room = t.standings(id).inodes.room(used.get(id).inodes);
            let may = room >= untold_by(clients);
            if may {
                t.near.remove(&id);
            }
            may
        })
    }

    /// What a change makes of the times since when soft limits are exceeded: what is to be written with it.
    pub fn over_since(
        &self,
        used: &UsageLedger,
        change: &UsageChange,
        now: impl Fn() -> i64,
    ) -> Vec<(LimitsKey, Option<Vec<u8>>)> {
        if !self.is_active() {
            return Vec::new();
        }
        let (t, now, change) = (self.table.lock(), now(), used.concerns(change));
        let mut out = Vec::new();
        for (id, inodes, blocks) in change.iter() {
            let (s, n) = (t.standings(id).inodes, used.get(id).with(inodes, blocks).inodes);
            let over = s.over_since_with(n, now);
            assert!(over.is_none() || s.limit.soft > 0, "only a soft limit has a grace time");
            if over != s.over_since {
                out.push(written(id, OwnerLimits { inodes_over: over, ..t.of_owner(id) }));
            }
        }
        out
    }

    /// What an order makes of the table.
    pub fn ordered(&self, order: &LimitOrder, used: &UsageLedger, now: i64) -> (LimitsKey, Option<Vec<u8>>) {
        let t = self.table.lock();
        match *order {
            LimitOrder::Own { of, space, inodes } => {
                assert!(of.is_limited(), "limits of root are refused before");
                let was = t.standings(of);
                let limits =
                    Limits { space: space.apply(was.space.limit), inodes: inodes.apply(was.inodes.limit) };
                t.with_own(of, Some(limits), used, now)
            }
            LimitOrder::UseDefault { of } => t.with_own(of, None, used, now),
            LimitOrder::Default { of, space, inodes } => {
                let mut new = t.of_type(of);
                new.default = Limits {
                    space: space.apply(new.default.space),
                    inodes: inodes.apply(new.default.inodes),
                };
                (LimitsKey::Type(of), Some(new.encode()))
            }
            LimitOrder::Grace { of, space, inodes } => {
                let mut new = t.of_type(of);
                new.space_grace = space.unwrap_or(new.space_grace);
                new.inodes_grace = inodes.unwrap_or(new.inodes_grace);
                (LimitsKey::Type(of), Some(new.encode()))
            }
            LimitOrder::Pool { of, ref pool, space } => {
                assert!(of.is_limited(), "limits of root are refused before");
                let was = t.pools.get(&of).and_then(|all| all.get(pool)).copied().unwrap_or_default();
                let limit = space.apply(was.limit);
                let new = PoolLimits { limit, over_since: was.over_since.filter(|_| limit.soft > 0) };
                (LimitsKey::Pool(of, pool.clone()), (!limit.is_none()).then(|| new.encode()))
            }
        }
    }

    /// How each of these stands who has limits.
    pub fn standings(&self, ids: impl Iterator<Item = QuotaId>, now: i64) -> Vec<(QuotaId, Standings)> {
        let t = self.table.lock();
        let of = |id| {
            let s = t.standings(id);
            let (space_grace_left, inodes_grace_left) = (s.space.grace_left(now), s.inodes.grace_left(now));
            (id, Standings { space_grace_left, inodes_grace_left, ..s })
        };
        let limited = |s: &Standings| !s.space.limit.is_none() || !s.inodes.limit.is_none() || !s.by_default;
        ids.map(of).filter(|(_, s)| limited(s)).collect()
    }

    /// Everybody of a type with limits of his own, from one id to another.
    pub fn owners(&self, of: QuotaType, ids: std::ops::RangeInclusive<u32>) -> Vec<QuotaId> {
        let range = QuotaId { of, id: *ids.start() }..=QuotaId { of, id: *ids.end() };
        let t = self.table.lock();
        let by_pool = t.pools.range(range.clone()).map(|(id, _)| *id);
        let own = t.owners.range(range).filter(|(_, o)| o.own.is_some()).map(|(id, _)| *id);
        own.chain(by_pool).collect()
    }

    /// How each of these stands who has limits by pool.
    pub fn pool_standings(&self, ids: impl Iterator<Item = QuotaId>, now: i64) -> Vec<PoolStanding> {
        let t = self.table.lock();
        let of = |of| {
            let pools = t.by_pool(of).into_iter();
            pools.map(move |(pool, space)| PoolStanding {
                of,
                pool,
                space,
                grace_left: space.grace_left(now),
            })
        };
        ids.flat_map(of).collect()
    }

    /// Pools of which somebody may have so much only.
    pub fn pools_of(&self, id: QuotaId) -> Vec<String> {
        self.table.lock().pools.get(&id).into_iter().flat_map(|all| all.keys().cloned()).collect()
    }

    /// What holds for whole types.
    pub fn types(&self) -> Vec<quotactl::TypeLimits> {
        let (t, enforced) = (self.table.lock(), self.enforced());
        let of_type = |of| {
            let TypeLimits { default, space_grace, inodes_grace } = t.of_type(of);
            let standing = |limit, grace| Standing { limit, grace, over_since: None };
            let (space, inodes) =
                (standing(default.space, space_grace), standing(default.inodes, inodes_grace));
            let default = Standings { space, inodes, by_default: true, ..Standings::default() };
            quotactl::TypeLimits { of, enforced: enforced.has(of), default }
        };
        QuotaType::ALL.into_iter().map(of_type).collect()
    }
}

fn written(id: QuotaId, o: OwnerLimits) -> (LimitsKey, Option<Vec<u8>>) {
    (LimitsKey::Owner(id), (!o.is_nothing()).then(|| o.encode()))
}

/// Inodes that so many clients may have made and not told of.
fn untold_by(clients: usize) -> u64 {
    let untold = (clients as u64).saturating_mul(OWNER_PENDING_MAX_OPS as u64);
    assert!(untold >= clients as u64, "each may have made one");
    untold
}
