//! How a limit on space is divided among the targets.

use model::planted::{self, Bug};
use model::quota::Standing;
use model::usage::QuotaId;
use std::collections::BTreeMap;
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

/// How one owner stands while what is left is divided anew.
pub struct Division {
    pub of: QuotaId,
    pub standing: Standing,
    pub holders: BTreeMap<ShareHolder, ShareState>,
}

impl Division {
    pub fn used(&self) -> u64 {
        self.holders.values().fold(0, |sum, s| sum.saturating_add(s.used))
    }

    /// What all may have together.
    pub fn bound(&self, want: Option<Want>, now: i64) -> u64 {
        let more = want.map_or(0, |w| w.bytes);
        self.standing.bound(self.used(), more, now).min(NO_BOUND_BYTES)
    }

    /// What each is to have.
    pub fn parts(&self, want: Option<Want>, now: i64) -> BTreeMap<ShareHolder, u64> {
        let free = self.bound(want, now).saturating_sub(self.used());
        // Half for whoever wants something, so that he need not ask often.
        let wanted = want.map_or(0, |w| w.bytes.max(free / 2).min(free));
        let twice = planted::on(Bug::ShareGivenTwice);
        let rest = if twice { free } else { free.saturating_sub(wanted) };
        let part = rest / (self.holders.len() as u64).max(1) / BLOCK_BYTES * BLOCK_BYTES;
        let of = |(h, s): (&ShareHolder, &ShareState)| {
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
        let taken = self.holders.values().fold(0u64, |sum, s| sum.saturating_add(has(s)));
        let mut left = self.bound(want, now).saturating_sub(taken);
        let mut parts: Vec<(ShareHolder, u64)> = self.parts(want, now).into_iter().collect();
        parts.sort_by_key(|(h, _)| want.is_none_or(|w| w.holder != *h));
        let mut given = BTreeMap::new();
        for (h, part) in parts {
            let has = has(&self.holders[&h]);
            let more = part.saturating_sub(has);
            let more = if planted::on(Bug::ShareGivenTwice) { more } else { more.min(left) };
            if more > 0 {
                left = left.saturating_sub(more);
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

    fn division(hard: u64, states: &[(u64, u64)]) -> Division {
        let holders = [ShareHolder::Mdt, ShareHolder::Ost(0), ShareHolder::Ost(1), ShareHolder::Ost(2)];
        let state = |(used, share): &(u64, u64)| ShareState { used: used * MIB, share: Some(share * MIB) };
        Division {
            of: QuotaId { of: QuotaType::User, id: 7 },
            standing: Standing {
                limit: Limit { soft: 0, hard: hard * MIB },
                grace: Grace::default(),
                over_since: None,
            },
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
}
