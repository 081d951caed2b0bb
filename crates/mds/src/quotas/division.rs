//! How a limit on space is divided among the targets.

use model::planted::{self, Bug};
use model::quota::Standing;
use model::usage::QuotaId;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::quotashare::ShareState;

/// Shares are whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// What is never exceeded by those of all targets: of who has no hard limit.
const NO_BOUND_BYTES: u64 = 1 << 60;

/// Who uses up shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ShareHolder {
    /// This target.
    Mdt,
    Ost(u16),
}

/// Somebody wants so many bytes more at one target.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    pub holder: ShareHolder,
    pub bytes: u64,
}

/// What targets may let an owner have together.
pub struct Bound {
    /// On the OSTs of this pool; `None`: on all targets.
    pub pool: Option<(String, BTreeSet<u16>)>,
    pub standing: Standing,
}

impl Bound {
    fn holds(&self, h: ShareHolder) -> bool {
        match (&self.pool, h) {
            (None, _) => true,
            (Some((_, osts)), ShareHolder::Ost(index)) => osts.contains(&index),
            (Some(_), ShareHolder::Mdt) => false,
        }
    }
}

/// How one owner stands while what is left is divided anew.
pub struct Division {
    pub of: QuotaId,
    /// The first one is that of all targets. A target may be held by several.
    pub bounds: Vec<Bound>,
    pub holders: BTreeMap<ShareHolder, ShareState>,
}

impl Division {
    fn within<'a>(&'a self, b: &'a Bound) -> impl Iterator<Item = &'a ShareState> {
        self.holders.iter().filter(|(h, _)| b.holds(**h)).map(|(_, s)| s)
    }

    /// What is used of a bound, with what is wanted there.
    pub fn used_with(&self, b: &Bound, want: Option<Want>) -> u64 {
        self.used(b).saturating_add(Self::wanted_within(b, want))
    }

    fn wanted_within(b: &Bound, want: Option<Want>) -> u64 {
        want.filter(|w| b.holds(w.holder)).map_or(0, |w| w.bytes)
    }

    fn used(&self, b: &Bound) -> u64 {
        self.within(b).fold(0, |sum, s| sum.saturating_add(s.used))
    }

    /// What all that it holds may have together.
    fn most(&self, b: &Bound, want: Option<Want>, now: i64) -> u64 {
        b.standing.bound(self.used(b), Self::wanted_within(b, want), now).min(NO_BOUND_BYTES)
    }

    fn free(&self, b: &Bound, want: Option<Want>, now: i64) -> u64 {
        self.most(b, want, now).saturating_sub(self.used(b))
    }

    /// What each is to have.
    pub fn parts(&self, want: Option<Want>, now: i64) -> BTreeMap<ShareHolder, u64> {
        assert!(self.bounds.first().is_some_and(|b| b.pool.is_none()), "each target is held by one");
        // Half for whoever wants something, so that he need not ask often.
        let wanted_of = |w: Want| {
            let around = self.bounds.iter().filter(|b| b.holds(w.holder)).map(|b| self.free(b, want, now));
            around.map(|free| w.bytes.max(free / 2).min(free)).min().unwrap_or(0)
        };
        let wanted = want.map_or(0, wanted_of);
        let twice = planted::on(Bug::ShareGivenTwice);
        let part = |b: &Bound| {
            let taken = want.is_some_and(|w| b.holds(w.holder)) && !twice;
            let rest = self.free(b, want, now).saturating_sub(if taken { wanted } else { 0 });
            rest / (self.within(b).count() as u64).max(1) / BLOCK_BYTES * BLOCK_BYTES
        };
        let parts: Vec<(&Bound, u64)> = self.bounds.iter().map(|b| (b, part(b))).collect();
        let of = |(h, s): (&ShareHolder, &ShareState)| {
            let part = parts.iter().filter(|(b, _)| b.holds(*h)).map(|(_, part)| *part).min().unwrap_or(0);
            let wanted = if want.is_some_and(|w| w.holder == *h) { wanted } else { 0 };
            (*h, s.used.saturating_add(part).saturating_add(wanted))
        };
        self.holders.iter().map(of).collect()
    }

    /// Who has more than he is to have gives it up: what each is told.
    pub fn given_up(&self, parts: &BTreeMap<ShareHolder, u64>) -> BTreeMap<ShareHolder, u64> {
        let more = |(h, part): (&ShareHolder, &u64)| {
            let has = self.holders[h].share.unwrap_or(u64::MAX);
            (has > *part).then_some((*h, *part))
        };
        parts.iter().filter_map(more).collect()
    }

    /// Who gets more of what nobody has, whoever wants something first: what each is told.
    pub fn given(&self, want: Option<Want>, now: i64) -> BTreeMap<ShareHolder, u64> {
        let has = |s: &ShareState| s.share.unwrap_or(s.used).max(s.used);
        let left = |b: &Bound| {
            let taken = self.within(b).fold(0u64, |sum, s| sum.saturating_add(has(s)));
            self.most(b, want, now).saturating_sub(taken)
        };
        let mut left: Vec<(&Bound, u64)> = self.bounds.iter().map(|b| (b, left(b))).collect();
        let mut parts: Vec<(ShareHolder, u64)> = self.parts(want, now).into_iter().collect();
        parts.sort_by_key(|(h, _)| want.is_none_or(|w| w.holder != *h));
        let mut given = BTreeMap::new();
        for (h, part) in parts {
            let has = has(&self.holders[&h]);
            let more = part.saturating_sub(has);
            let around = || left.iter().filter(|(b, _)| b.holds(h)).map(|(_, left)| *left);
            let twice = planted::on(Bug::ShareGivenTwice);
            let more = if twice { more } else { more.min(around().min().unwrap_or(0)) };
            if more > 0 {
                for (_, left) in left.iter_mut().filter(|(b, _)| b.holds(h)) {
                    *left = left.saturating_sub(more);
                }
                given.insert(h, has.saturating_add(more));
            }
        }
        given
    }

    /// Whether whoever wants something has room for it.
    pub fn has_room_for(&self, w: Want) -> bool {
        let state = self.holders.get(&w.holder);
        state.is_some_and(|s| s.used.saturating_add(w.bytes) <= s.share.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::quota::{Grace, Limit};
    use model::usage::QuotaType;

    const MIB: u64 = 1 << 20;

    fn standing(hard: u64) -> Standing {
        let limit = Limit { soft: 0, hard: hard * MIB };
        Standing { limit, grace: Grace::default(), over_since: None }
    }

    fn in_pool(name: &str, osts: &[u16], hard: u64) -> Bound {
        Bound { pool: Some((name.into(), osts.iter().copied().collect())), standing: standing(hard) }
    }

    fn division(hard: u64, states: &[(u64, u64)]) -> Division {
        let holders = [ShareHolder::Mdt, ShareHolder::Ost(0), ShareHolder::Ost(1), ShareHolder::Ost(2)];
        let state = |(used, share): &(u64, u64)| ShareState { used: used * MIB, share: Some(share * MIB) };
        Division {
            of: QuotaId { of: QuotaType::User, id: 7 },
            bounds: vec![Bound { pool: None, standing: standing(hard) }],
            holders: holders.into_iter().zip(states.iter().map(state)).collect(),
        }
    }

    fn obey(d: &mut Division, told: impl Fn(&Division) -> BTreeMap<ShareHolder, u64>) {
        for (h, bytes) in &told(d) {
            let s = d.holders.get_mut(h).unwrap();
            s.share = Some((*bytes).max(s.used));
        }
    }

    fn sum(d: &Division) -> u64 {
        d.holders.values().map(|s| s.share.unwrap()).sum::<u64>() / MIB
    }

    #[test]
    fn whoever_wants_something_gets_what_others_do_not_need() {
        let mut d = division(100, &[(4, 25), (10, 25), (25, 25), (0, 25)]);
        let want = Want { holder: ShareHolder::Ost(1), bytes: 50 * MIB };
        assert!(!d.has_room_for(want));
        obey(&mut d, |d| d.given_up(&d.parts(Some(want), 0)));
        assert!(sum(&d) <= 100);
        obey(&mut d, |d| d.given(Some(want), 0));
        assert!(d.has_room_for(want) && sum(&d) <= 100, "{:?}", d.holders);
        let too_much = Want { bytes: 62 * MIB, ..want };
        obey(&mut d, |d| d.given_up(&d.parts(Some(too_much), 0)));
        obey(&mut d, |d| d.given(Some(too_much), 0));
        assert!(!d.has_room_for(too_much) && sum(&d) <= 100);
    }

    #[test]
    fn beyond_a_limit_everybody_keeps_what_he_uses() {
        let mut d = division(20, &[(0, 0), (10, 30), (15, 15), (0, 5)]);
        obey(&mut d, |d| d.given_up(&d.parts(None, 0)));
        assert!(d.given(None, 0).is_empty());
        assert_eq!(d.holders.values().map(|s| s.share.unwrap() / MIB).collect::<Vec<_>>(), [0, 10, 15, 0]);
    }

    #[test]
    fn who_was_not_limited_yet_is() {
        let mut d = division(100, &[(0, 0), (10, 0), (0, 0), (0, 0)]);
        d.holders.get_mut(&ShareHolder::Ost(0)).unwrap().share = None;
        obey(&mut d, |d| d.given_up(&d.parts(None, 0)));
        obey(&mut d, |d| d.given(None, 0));
        assert!(sum(&d) > 99 && sum(&d) <= 100, "{:?}", d.holders);
    }

    fn sum_of(d: &Division, osts: &[u16]) -> u64 {
        osts.iter().map(|i| d.holders[&ShareHolder::Ost(*i)].share.unwrap()).sum::<u64>() / MIB
    }

    #[test]
    fn the_smallest_bound_of_a_target_holds() {
        let mut d = division(100, &[(0, 0), (10, 50), (0, 0), (0, 50)]);
        d.bounds.push(in_pool("flash", &[0, 1], 30));
        d.bounds.push(in_pool("one", &[1], 5));
        let want = |ost, mib| Some(Want { holder: ShareHolder::Ost(ost), bytes: mib * MIB });
        let obey_want = |d: &mut Division, want: Option<Want>| {
            obey(d, |d| d.given_up(&d.parts(want, 0)));
            obey(d, |d| d.given(want, 0));
            assert!(sum(d) <= 100 && sum_of(d, &[0, 1]) <= 30 && sum_of(d, &[1]) <= 5, "{:?}", d.holders);
            want.is_none_or(|w| d.has_room_for(w))
        };
        assert!(obey_want(&mut d, None));
        assert!(obey_want(&mut d, want(0, 20)), "all that the pool has left: {:?}", d.holders);
        assert!(!obey_want(&mut d, want(0, 21)));
        assert!(!obey_want(&mut d, want(1, 6)) && obey_want(&mut d, want(1, 5)));
        assert!(obey_want(&mut d, want(2, 90)), "the pool's bound is not that of others");
        assert!(!obey_want(&mut d, want(2, 91)));
    }

    #[test]
    fn whom_a_pool_alone_limits_has_what_he_likes_elsewhere() {
        let mut d = division(0, &[(0, 0), (10, 0), (0, 0), (0, 0)]);
        d.bounds.push(in_pool("flash", &[0, 1], 30));
        obey(&mut d, |d| d.given_up(&d.parts(None, 0)));
        obey(&mut d, |d| d.given(None, 0));
        assert!(sum_of(&d, &[0, 1]) <= 30, "{:?}", d.holders);
        assert!(sum_of(&d, &[2]) > 1 << 30, "{:?}", d.holders);
    }
}
