//! Which process touches which bytes and names: IOR's file layout and mdtest's tree, and orders to go through
//! them. Plain arithmetic, so that any process can compute any other's share.

use serde::{Deserialize, Serialize};

/// IOR's layout: `segments` times one `block` of every process after the other, each moved in `transfer`s. A
/// file per process holds its own blocks only.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    pub procs: u64,
    /// Bytes, a multiple of `transfer`.
    pub block: u64,
    pub transfer: u64,
    pub segments: u64,
    pub shared: bool,
}

impl FileLayout {
    /// Transfers of one process.
    pub fn transfers(&self) -> u64 {
        self.block / self.transfer * self.segments
    }

    /// Where the n-th transfer of a process begins in its file.
    pub fn offset(&self, rank: u64, n: u64) -> u64 {
        let per_block = self.block / self.transfer;
        let (segment, within) = (n / per_block, n % per_block * self.transfer);
        if self.shared {
            (segment * self.procs + rank) * self.block + within
        } else {
            segment * self.block + within
        }
    }

    /// Bytes of all processes.
    pub fn total(&self) -> u64 {
        self.block * self.segments * self.procs
    }
}

/// In which order the transfers of a process are gone through.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Walk {
    #[default]
    Forward,
    Backward,
    /// So many further each time; behind the end again from the first that was passed over.
    Stride(u64),
    /// Every other one is read where the rest are written.
    Mixed,
}

impl Walk {
    /// The transfer that comes n-th of `count`.
    pub fn at(self, n: u64, count: u64) -> u64 {
        assert!(n < count);
        match self {
            Walk::Forward | Walk::Mixed => n,
            Walk::Backward => count - 1 - n,
            Walk::Stride(step) => {
                let step = step.clamp(1, count);
                // the first columns have a row more than the rest
                let (rows, longer) = (count / step, count % step);
                let (column, row) = match n {
                    n if n < longer * (rows + 1) => (n / (rows + 1), n % (rows + 1)),
                    n => (longer + (n - longer * (rows + 1)) / rows, (n - longer * (rows + 1)) % rows),
                };
                row * step + column
            }
        }
    }

    /// Whether the n-th is read although the others are written.
    pub fn reads(self, n: u64) -> bool {
        self == Walk::Mixed && mix(n).is_multiple_of(2)
    }
}

/// A permutation of `0..count` that needs no memory: a Feistel network over the next power of four, walked
/// until it lands inside.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    count: u64,
    half_bits: u32,
    seed: u64,
}

pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Shuffle {
    pub fn new(count: u64, seed: u64) -> Shuffle {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Shuffle { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    fn once(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut l, mut r) = (x >> self.half_bits, x & mask);
        for round in 0..4u64 {
            (l, r) = (r, l ^ (mix(r ^ self.seed.rotate_left(round as u32 * 16) ^ round) & mask));
        }
        (l << self.half_bits) | r
    }

    /// The place that comes n-th.
    pub fn at(&self, n: u64) -> u64 {
        assert!(n < self.count);
        let mut x = self.once(n);
        while x >= self.count {
            x = self.once(x);
        }
        x
    }
}

/// mdtest's tree: folders of `branch` folders, `depth` levels deep, items spread over them.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLayout {
    pub depth: u32,
    pub branch: u64,
    /// Items only in the folders of the lowest level.
    pub leaves_only: bool,
    /// Items of one process in one tree.
    pub items: u64,
}

impl TreeLayout {
    /// Folders, the root included; `None` when they are beyond counting.
    pub fn folders(&self) -> Option<u64> {
        (0..=self.depth).try_fold(0u64, |sum, level| sum.checked_add(self.branch.checked_pow(level)?))
    }

    fn first_leaf(&self) -> u64 {
        (0..self.depth).map(|l| self.branch.pow(l)).sum()
    }

    /// Path of a folder below the root, by its number: level by level from the root, 0.
    pub fn folder(&self, number: u64) -> String {
        let mut parts = Vec::new();
        let mut n = number;
        while n > 0 {
            parts.push(format!("mdtest_tree.{n}"));
            n = (n - 1) / self.branch;
        }
        parts.reverse();
        parts.join("/")
    }

    /// The folder that holds the n-th item.
    pub fn folder_of(&self, item: u64) -> u64 {
        let all = self.folders().expect("checked when the options were read");
        let first = if self.leaves_only { self.first_leaf() } else { 0 };
        let holders = all - first;
        first + (item / self.items.div_ceil(holders).max(1)).min(holders - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_walk_visits_all_once() {
        for walk in
            [Walk::Forward, Walk::Backward, Walk::Stride(17), Walk::Stride(1), Walk::Stride(0), Walk::Mixed]
        {
            for count in [1, 2, 16, 17, 18, 100, 289] {
                let mut seen: Vec<u64> = (0..count).map(|n| walk.at(n, count)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{walk:?} of {count}");
            }
        }
        assert_eq!((0..4).map(|n| Walk::Stride(3).at(n, 7)).collect::<Vec<_>>(), [0, 3, 6, 1]);
        let reads = (0..1000).filter(|n| Walk::Mixed.reads(*n)).count();
        assert!((400..600).contains(&reads), "{reads} of 1000");
        assert!(!(0..1000).any(|n| Walk::Forward.reads(n)));
    }

    proptest! {
        #[test]
        fn every_byte_has_one_writer(
            procs in 1u64..6, per_block in 1u64..5, transfer in 1u64..50_000, segments in 1u64..6, shared: bool,
        ) {
            let l = FileLayout { procs, block: per_block * transfer, transfer, segments, shared };
            prop_assert_eq!(l.transfers(), per_block * segments);
            let mut all: Vec<(u64, u64)> = Vec::new();
            for rank in 0..procs {
                for n in 0..l.transfers() {
                    let o = l.offset(rank, n);
                    if shared {
                        // IOR's rule: rank r's block of segment s begins at (s*N+r)*block
                        let s = n / per_block;
                        prop_assert_eq!(o, (s * procs + rank) * l.block + (n % per_block) * transfer);
                    }
                    all.push((if shared { 0 } else { rank }, o));
                }
            }
            all.sort_unstable();
            let mut next = (0, 0);
            for (file, o) in all {
                if file != next.0 {
                    prop_assert_eq!(next.1, l.block * segments);
                    next = (file, 0);
                }
                prop_assert_eq!((file, o), next);
                next.1 += transfer;
            }
            let end = if shared { l.total() } else { l.block * segments };
            prop_assert_eq!(next.1, end);
        }

        #[test]
        fn a_shuffle_visits_all_once(count in 1u64..3000, seed: u64) {
            let s = Shuffle::new(count, seed);
            let seen: BTreeSet<u64> = (0..count).map(|n| s.at(n)).collect();
            prop_assert_eq!(seen.len() as u64, count);
            prop_assert!(seen.last().is_some_and(|l| *l < count));
        }

        #[test]
        fn items_fill_the_tree(depth in 0u32..4, branch in 1u64..4, leaves_only: bool, items in 1u64..500) {
            let t = TreeLayout { depth, branch, leaves_only, items };
            let all = t.folders().unwrap();
            let names: BTreeSet<String> = (0..all).map(|f| t.folder(f)).collect();
            prop_assert_eq!(names.len() as u64, all);
            for f in 1..all {
                let name = t.folder(f);
                let parent = name.rsplit_once('/').map_or("", |(p, _)| p);
                prop_assert_eq!(parent, t.folder((f - 1) / branch));
            }
            for i in 0..items {
                let f = t.folder_of(i);
                prop_assert!(f < all);
                let level = if f == 0 { 0 } else { t.folder(f).matches('/').count() as u32 + 1 };
                prop_assert!(!leaves_only || level == depth);
            }
        }
    }

    #[test]
    fn a_shuffle_is_no_order() {
        let s = Shuffle::new(1000, 7);
        let kept = (1..1000).filter(|n| s.at(*n) == s.at(n - 1) + 1).count();
        assert!(kept < 20, "{kept} neighbours stayed neighbours");
        assert!(TreeLayout { depth: 60, branch: 10, leaves_only: false, items: 1 }.folders().is_none());
    }
}
