//! Latencies of many operations in little memory: a bucket for each sixteenth of a power of two.

use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 4;
const BUCKETS: usize = 64 << SUB_BITS;

/// Counts of nanoseconds, exact to about 6 %.
pub struct Histogram {
    counts: Vec<u64>,
    pub max: u64,
    pub sum: u64,
    pub n: u64,
}

/// The buckets that are not empty, for the way between processes.
#[derive(Serialize, Deserialize, Debug, Default, Clone)]
pub struct Sparse {
    pub buckets: Vec<(u16, u64)>,
    pub max: u64,
    pub sum: u64,
}

fn bucket(ns: u64) -> usize {
    let bits = 64 - ns.leading_zeros();
    if bits <= SUB_BITS {
        return ns as usize;
    }
    let shift = bits - SUB_BITS - 1;
    (((shift + 1) as usize) << SUB_BITS) + ((ns >> shift) as usize & ((1 << SUB_BITS) - 1))
}

/// The smallest value of a bucket.
fn value(bucket: usize) -> u64 {
    let (high, low) = (bucket >> SUB_BITS, (bucket & ((1 << SUB_BITS) - 1)) as u64);
    if high == 0 { low } else { ((1 << SUB_BITS) + low) << (high - 1) }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], max: 0, sum: 0, n: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.n += 1;
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }

    pub fn sparse(&self) -> Sparse {
        let full = self.counts.iter().enumerate().filter(|(_, c)| **c > 0);
        Sparse { buckets: full.map(|(b, c)| (b as u16, *c)).collect(), max: self.max, sum: self.sum }
    }

    pub fn merge(&mut self, other: &Sparse) {
        for (b, c) in &other.buckets {
            if let Some(slot) = self.counts.get_mut(usize::from(*b)) {
                *slot += c;
                self.n += c;
            }
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The value below which this share (0 to 1) of all lies, in nanoseconds; 0 of nothing.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (share * self.n as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (b, c) in self.counts.iter().enumerate() {
            seen += c;
            if seen >= wanted {
                return value(b).min(self.max);
            }
        }
        self.max
    }

    /// Mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_what_is_near(ns in any::<u64>()) {
            let b = bucket(ns);
            prop_assert!(b < BUCKETS);
            prop_assert!(value(b) <= ns);
            prop_assert!(ns - value(b) <= ns >> SUB_BITS);
        }
    }

    #[test]
    fn quantiles_survive_the_way() {
        let mut h = Histogram::default();
        for i in 1..=1000 {
            h.add(i * 1000);
        }
        let mut other = Histogram::default();
        other.merge(&h.sparse());
        assert_eq!((other.n, other.max), (1000, 1_000_000));
        assert!((450_000..=500_000).contains(&other.quantile(0.5)));
        assert!((930_000..=990_000).contains(&other.quantile(0.99)));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
