//! Which bytes of an object are in pages of a kernel, as far as is known: a bounded set of ranges.
//!
//! It may say more than there is (the kernel drops pages without a word), never less.

use std::collections::BTreeMap;

/// Ranges kept; the closest two become one beyond.
const RANGES_MAX: usize = 64;

/// Disjoint ranges that do not touch; ends are exclusive.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `start..end`, and perhaps what lies between it and others.
    pub fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // Those that overlap or touch: the last that begins at or before `end`, and so on down.
        while let Some((&s, &e)) = self.0.range(..=end).next_back()
            && e >= start
        {
            self.0.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.0.insert(start, end);
        if self.0.len() > RANGES_MAX {
            self.join_closest();
        }
        assert!(self.0.len() <= RANGES_MAX, "what is noted of a kernel's pages is bounded");
    }

    fn join_closest(&mut self) {
        let next = self.0.iter().skip(1);
        let gaps = self.0.iter().zip(next).map(|((a, ae), (b, be))| (b - ae, *a, *b, *be));
        if let Some((_, a, b, end)) = gaps.min() {
            self.0.remove(&b);
            self.0.insert(a, end);
        }
    }

    /// All of it, in order.
    pub fn all(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(s, e)| (*s, *e)).collect()
    }

    /// All of it, in order; nothing is left.
    pub fn take(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut r = Ranges::default();
        r.add(10, 20);
        r.add(30, 40);
        r.add(5, 5);
        r.add(20, 30);
        assert_eq!(r.take(), [(10, 40)]);
        assert!(r.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_that_was_added_is_missing(
            adds in prop::collection::vec((0u64..5000, 1u64..40), 0..300),
        ) {
            let mut r = Ranges::default();
            for (at, len) in &adds {
                r.add(*at, at + len);
                prop_assert!(r.0.len() <= RANGES_MAX);
            }
            let all: Vec<(u64, u64)> = r.take();
            for w in all.windows(2) {
                prop_assert!(w[0].1 < w[1].0, "in order, apart");
            }
            for (at, len) in &adds {
                prop_assert!(all.iter().any(|(s, e)| s <= at && at + len <= *e), "{at}+{len}");
            }
            // Few ranges are kept as they are.
            let exact: std::collections::BTreeSet<u64> =
                adds.iter().flat_map(|(a, l)| *a..a + l).collect();
            if adds.len() <= RANGES_MAX {
                prop_assert_eq!(all.iter().map(|(s, e)| e - s).sum::<u64>(), exact.len() as u64);
            }
        }
    }
}
