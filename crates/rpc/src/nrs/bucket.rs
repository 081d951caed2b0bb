//! Token buckets: how often what a rule limits may begin. No clock: whoever asks says what time it is.

use super::engine::ClassKey;
use model::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use wire::Op;
use world::Instant;

/// Buckets that are known at a time. Beyond it those who come share [`SHARED`] for each rule.
pub const BUCKETS_MAX: usize = 1024;
/// Of a rule, when there are too many.
const SHARED: u64 = 16;
/// Requests that may begin at once after a pause. Lustre's `tbf_depth`.
pub const DEPTH: u64 = 3;
/// Highest rate of a rule, requests in a second.
pub const RATE_MAX: u64 = 1_000_000;

/// How often something may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(u64);

impl Rate {
    /// So many in a second: 1 to [`RATE_MAX`], or `ERANGE`.
    pub fn new(per_second: u64) -> Result<Rate, Errno> {
        if (1..=RATE_MAX).contains(&per_second) { Ok(Rate(per_second)) } else { Err(Errno::ERANGE) }
    }

    pub fn per_second(self) -> u64 {
        self.0
    }

    /// From one to the next, rounded up: never more than the rate says.
    fn interval_ns(self) -> u64 {
        1_000_000_000_u64.div_ceil(self.0)
    }
}

/// Whose requests share one bucket of a rule: those that are alike in what the rule asks about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Alike {
    In {
        uid: Option<u32>,
        gid: Option<u32>,
        job: Option<Arc<str>>,
        from: Option<IpAddr>,
        op: Option<Op>,
    },
    /// One of a few that are shared, as there are too many.
    Shared(u64),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BucketKey {
    /// Number of the rule.
    pub rule: u64,
    pub alike: Alike,
}

impl BucketKey {
    /// The one bucket that all share who have none of their own.
    pub fn shared(self) -> BucketKey {
        BucketKey { alike: Alike::Shared(0), ..self }
    }
}

#[derive(Default)]
struct Bucket {
    /// When all that was taken will have come back.
    full_at: u64,
    /// Classes whose next request waits for a token, in their order.
    waiting: VecDeque<ClassKey>,
}

impl Bucket {
    /// When the next one may begin; the `ahead`-th after it.
    fn next_at(&self, rate: Rate, ahead: u64) -> Instant {
        let i = rate.interval_ns();
        Instant((self.full_at.saturating_add(ahead.saturating_mul(i))).saturating_sub((DEPTH - 1) * i))
    }
}

/// All buckets of all rules.
#[derive(Default)]
pub struct Buckets {
    all: BTreeMap<BucketKey, Bucket>,
    /// When the first class that waits at a bucket may be looked at again.
    due: BTreeSet<(Instant, BucketKey)>,
}

impl Buckets {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// How many buckets a rule has.
    pub fn of_rule(&self, rule: u64) -> usize {
        self.all.keys().filter(|k| k.rule == rule).count()
    }

    /// The key as it counts: there is room for one more, or it is one that several share.
    pub fn bounded(&mut self, key: BucketKey, now: Instant) -> BucketKey {
        if self.all.len() < BUCKETS_MAX || self.all.contains_key(&key) {
            return key;
        }
        // One that is full is as good as a new one.
        self.all.retain(|_, b| b.full_at > now.0 || !b.waiting.is_empty());
        if self.all.len() < BUCKETS_MAX {
            return key;
        }
        let Alike::In { uid, gid, job, from, op } = &key.alike else { return key };
        let mut h = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            bytes.iter().for_each(|b| h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        };
        add(&uid.unwrap_or(0).to_le_bytes());
        add(&gid.unwrap_or(0).to_le_bytes());
        add(job.as_deref().unwrap_or_default().as_bytes());
        add(from.map(|a| a.to_string()).unwrap_or_default().as_bytes());
        add(&op.map_or(0, |o| o as u16).to_le_bytes());
        BucketKey { rule: key.rule, alike: Alike::Shared(h % SHARED) }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, key: &BucketKey, rate: Rate, now: Instant) -> bool {
        if !self.all.contains_key(key) {
            self.all.insert(key.clone(), Bucket::default());
        }
        let b = self.all.get_mut(key).expect("it was made");
        if b.next_at(rate, 0) > now {
            return false;
        }
        b.full_at = b.full_at.max(now.0).saturating_add(rate.interval_ns());
        assert!(
            b.full_at.saturating_sub(now.0) <= DEPTH * rate.interval_ns(),
            "no more begins at once than a bucket is deep"
        );
        true
    }

    /// A class waits for the next token.
    pub fn park(&mut self, key: &BucketKey, rate: Rate, class: ClassKey) {
        let b = self.all.get_mut(key).expect("a token was looked for in it");
        if b.waiting.is_empty() {
            self.due.insert((b.next_at(rate, 0), key.clone()));
        }
        b.waiting.push_back(class);
    }

    /// When somebody may go on.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Classes that may be looked at again: as many at each bucket as it has tokens.
    pub fn due(&mut self, now: Instant, rate_of: impl Fn(u64) -> Option<Rate>) -> Vec<ClassKey> {
        let mut out = Vec::new();
        while let Some((at, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, key.clone()));
            let b = self.all.get_mut(&key).expect("who waits keeps a bucket");
            let Some(rate) = rate_of(key.rule) else {
                out.extend(b.waiting.drain(..));
                continue;
            };
            let mut tokens = 0;
            while tokens < DEPTH && !b.waiting.is_empty() && b.next_at(rate, tokens) <= now {
                out.extend(b.waiting.pop_front());
                tokens += 1;
            }
            if !b.waiting.is_empty() {
                // Later than now in any case: this loop ends.
                let next = b.next_at(rate, tokens).max(Instant(now.0 + 1));
                self.due.insert((next, key));
            }
        }
        out
    }

    /// A rule is gone or another one: its buckets begin anew. Who waited at them.
    pub fn forget(&mut self, rule: u64) -> Vec<ClassKey> {
        self.due.retain(|(_, k)| k.rule != rule);
        let mut out = Vec::new();
        self.all.retain(|k, b| {
            let other = k.rule != rule;
            if !other {
                out.extend(b.waiting.drain(..));
            }
            other
        });
        out
    }
}
