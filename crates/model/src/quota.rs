//! Limits on what owners may use, as quotactl(2) has them: a hard limit nobody gets beyond; a soft one may be
//! exceeded for as long as its grace time lasts.

use crate::usage::{QuotaId, QuotaType, Usage};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A week.
pub const GRACE_DEFAULT_S: u64 = 604_800;

/// Of one resource: bytes, or inodes. 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

impl Limit {
    pub fn is_none(self) -> bool {
        self == Limit::default()
    }
}

/// How long a soft limit may be exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Grace {
    Seconds(u64),
    /// For ever: whoever looks is told, nobody is refused anything.
    Notify,
}

impl Default for Grace {
    fn default() -> Grace {
        Grace::Seconds(GRACE_DEFAULT_S)
    }
}

/// Whether somebody may have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fits,
    /// Beyond the soft limit, in its grace time.
    InGrace,
    /// `EDQUOT`.
    Exceeds,
}

/// How somebody stands with one of his limits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Standing {
    pub limit: Limit,
    pub grace: Grace,
    /// When the soft limit was exceeded: seconds since 1970.
    pub over_since: Option<i64>,
}

impl Standing {
    /// Whether he may have `used` in all.
    pub fn may_have(&self, used: u64, now: i64) -> Verdict {
        let Limit { soft, hard } = self.limit;
        if hard > 0 && used > hard {
            Verdict::Exceeds
        } else if soft == 0 || used <= soft {
            Verdict::Fits
        } else if self.grace_left(now) == Some(0) {
            Verdict::Exceeds
        } else {
            Verdict::InGrace
        }
    }

    /// Seconds until nothing more may be had; `None`: the soft limit is not exceeded, or may be for ever.
    pub fn grace_left(&self, now: i64) -> Option<u64> {
        let Grace::Seconds(grace) = self.grace else { return None };
        let since = self.over_since?;
        let end = since.saturating_add(i64::try_from(grace).unwrap_or(i64::MAX));
        Some(u64::try_from(end.saturating_sub(now)).unwrap_or(0))
    }

    /// What he may have at most, once he has `used` and wants so much `more`.
    pub fn bound(&self, used: u64, more: u64, now: i64) -> u64 {
        let Limit { soft, hard } = self.limit;
        let hard = if hard == 0 { u64::MAX } else { hard };
        let soft = if soft == 0 || self.grace == Grace::Notify { u64::MAX } else { soft };
        let wanted = used.saturating_add(more);
        let since = Standing { over_since: self.over_since.or(Some(now)), ..*self };
        if wanted <= soft || since.grace_left(now) == Some(0) { soft.min(hard) } else { hard }
    }

    /// Since when the soft limit is exceeded, now that he has `used`.
    pub fn over_since_with(&self, used: u64, now: i64) -> Option<i64> {
        let over = self.limit.soft > 0 && used > self.limit.soft;
        over.then(|| self.over_since.unwrap_or(now))
    }

    /// What he may have more without a look at the clock.
    pub fn room(&self, used: u64) -> u64 {
        let Limit { soft, hard } = self.limit;
        let soft = if self.grace == Grace::Notify { 0 } else { soft };
        let bounds = [soft, hard].into_iter().filter(|l| *l > 0);
        bounds.min().map_or(u64::MAX, |l| l.saturating_sub(used))
    }
}

/// Of both resources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// In bytes.
    pub space: Limit,
    pub inodes: Limit,
}

impl Limits {
    pub fn is_none(self) -> bool {
        self.space.is_none() && self.inodes.is_none()
    }
}

/// How somebody stands with all of his limits, for whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Standings {
    pub space: Standing,
    pub inodes: Standing,
    /// As [`Standing::grace_left`], by the clock of who answers.
    pub space_grace_left: Option<u64>,
    pub inodes_grace_left: Option<u64>,
    /// They are those of everybody for whom nothing else is set.
    pub by_default: bool,
}

/// What is changed of limits. What is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LimitChange {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

impl LimitChange {
    pub fn apply(self, l: Limit) -> Limit {
        Limit { soft: self.soft.unwrap_or(l.soft), hard: self.hard.unwrap_or(l.hard) }
    }

    pub fn is_nothing(self) -> bool {
        self == LimitChange::default()
    }
}

/// How somebody stands with what he may have on the OSTs of a pool, for whoever asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolStanding {
    pub of: QuotaId,
    pub pool: String,
    pub space: Standing,
    /// As [`Standing::grace_left`], by the clock of who answers.
    pub grace_left: Option<u64>,
}

/// What an administrator may set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LimitOrder {
    /// Somebody's own limits.
    Own {
        of: QuotaId,
        space: LimitChange,
        inodes: LimitChange,
    },
    /// Those of everybody of a type who has none of his own.
    Default {
        of: QuotaType,
        space: LimitChange,
        inodes: LimitChange,
    },
    /// Somebody has none of his own any more.
    UseDefault {
        of: QuotaId,
    },
    Grace {
        of: QuotaType,
        space: Option<Grace>,
        inodes: Option<Grace>,
    },
    /// What somebody may have on the OSTs of a pool, besides what he may have altogether. Both 0: as much as
    /// that.
    Pool {
        of: QuotaId,
        pool: String,
        space: LimitChange,
    },
}

/// For which types limits are enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enforced(u8);

impl Enforced {
    pub const NONE: Enforced = Enforced(0);
    pub const ALL: Enforced = Enforced(0b1111);

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> Enforced {
        Enforced(bits & Enforced::ALL.0)
    }

    pub fn has(self, of: QuotaType) -> bool {
        self.0 & 1 << of.number() != 0
    }

    pub fn of(types: impl Iterator<Item = QuotaType>) -> Enforced {
        Enforced(types.fold(0, |bits, of| bits | 1 << of.number()))
    }

    /// `none`, or some of the letters u, g, p and d.
    pub fn parse(text: &str) -> Option<Enforced> {
        if text == "none" {
            return Some(Enforced::NONE);
        }
        let of = |c| QuotaType::ALL.into_iter().find(|t| t.name().starts_with(c));
        let bits: Option<u8> = text.chars().try_fold(0, |bits, c| Some(bits | 1 << of(c)?.number()));
        bits.filter(|b| *b != 0).map(Enforced)
    }
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let letters: String = QuotaType::ALL
            .into_iter()
            .filter(|t| self.has(*t))
            .filter_map(|t| t.name().chars().next())
            .collect();
        f.write_str(if letters.is_empty() { "none" } else { &letters })
    }
}

impl QuotaId {
    /// Whether limits hold for it: root, its group and what belongs to no project or directory have none.
    pub fn is_limited(self) -> bool {
        self.id != 0
    }
}

impl Usage {
    /// Less than nothing is nothing.
    pub fn with(self, inodes: i64, blocks: i64) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add_signed(inodes),
            blocks: self.blocks.saturating_add_signed(blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_limit_holds_when_its_grace_is_over() {
        let mut s = Standing { limit: Limit { soft: 10, hard: 20 }, ..Standing::default() };
        assert_eq!((s.may_have(10, 0), s.may_have(11, 0)), (Verdict::Fits, Verdict::InGrace));
        assert_eq!((s.may_have(20, 0), s.may_have(21, 0)), (Verdict::InGrace, Verdict::Exceeds));
        s.over_since = s.over_since_with(11, 1000);
        assert_eq!((s.over_since, s.over_since_with(12, 2000)), (Some(1000), Some(1000)), "since the first");
        let end = 1000 + GRACE_DEFAULT_S as i64;
        assert_eq!((s.grace_left(1000), s.grace_left(end - 1)), (Some(GRACE_DEFAULT_S), Some(1)));
        assert_eq!((s.may_have(12, end - 1), s.may_have(12, end)), (Verdict::InGrace, Verdict::Exceeds));
        assert_eq!(s.may_have(9, end), Verdict::Fits, "who takes less away may go on");
        assert_eq!(s.over_since_with(10, end), None, "a new grace time begins with the next excess");
        s.grace = Grace::Notify;
        assert_eq!((s.may_have(12, end), s.grace_left(end)), (Verdict::InGrace, None));
        assert_eq!(s.may_have(21, end), Verdict::Exceeds);
        assert_eq!((s.room(12), Standing::default().room(5)), (8, u64::MAX));
        s.grace = Grace::default();
        assert_eq!((s.room(4), s.room(12)), (6, 0));
        s.over_since = None;
        assert_eq!((s.bound(4, 6, 1000), s.bound(4, 7, 1000)), (10, 20));
        s.over_since = Some(1000);
        assert_eq!((s.bound(12, 1, end - 1), s.bound(12, 1, end), s.bound(4, 6, end)), (20, 10, 10));
        s.limit.hard = 0;
        assert_eq!(s.bound(12, 1, 1000), u64::MAX);
    }

    #[test]
    fn types_are_enforced_by_their_letters() {
        for (text, shown) in [("ugp", "ugp"), ("dg", "gd"), ("u", "u"), ("none", "none")] {
            assert_eq!(Enforced::parse(text).unwrap().to_string(), shown);
        }
        assert!(["", "x", "ux", "3"].iter().all(|t| Enforced::parse(t).is_none()));
        assert!(Enforced::parse("g").unwrap().has(QuotaType::Group));
        assert_eq!(Enforced::from_bits(0xff), Enforced::ALL);
    }

    #[test]
    fn changes_leave_the_rest() {
        let was = Limit { soft: 1, hard: 2 };
        assert_eq!(LimitChange { soft: Some(0), hard: None }.apply(was), Limit { soft: 0, hard: 2 });
        assert!(LimitChange::default().is_nothing() && LimitChange::default().apply(was) == was);
        assert!(!QuotaId { of: QuotaType::Group, id: 0 }.is_limited());
    }
}
