//! Which metadata target a file lives on: by its FID's sequence.

use model::Fid;
use model::mutex::Mutex;
use std::collections::BTreeMap;

/// Sequence ranges and the MDT each belongs to. A sequence that is in no range belongs to the target that
/// serves the root: true as long as the configuration announces no location database.
pub(crate) struct Locate {
    /// First sequence → (last sequence, MDT index).
    ranges: Mutex<BTreeMap<u64, (u64, u16)>>,
}

/// Where the root directory lies.
pub(crate) const ROOT_MDT: u16 = 0;

impl Locate {
    pub(crate) fn new() -> Locate {
        Locate { ranges: Mutex::new(BTreeMap::new()) }
    }

    /// `first..=last` belong to `mdt`.
    pub(crate) fn learn(&self, first: u64, last: u64, mdt: u16) {
        if mdt == ROOT_MDT {
            return; // what is in no range is there anyway
        }
        self.ranges.lock().insert(first, (last, mdt));
    }

    pub(crate) fn mdt_of(&self, fid: Fid) -> u16 {
        let ranges = self.ranges.lock();
        match ranges.range(..=fid.seq).next_back() {
            Some((_, &(last, mdt))) if fid.seq <= last => mdt,
            _ => ROOT_MDT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_belong_to_their_range() {
        let l = Locate::new();
        l.learn(100, 199, 2);
        l.learn(200, 200, 1);
        for (seq, mdt) in [(99, 0), (100, 2), (199, 2), (200, 1), (201, 0)] {
            assert_eq!(l.mdt_of(Fid::new(seq, 1, 0)), mdt, "{seq}");
        }
        assert_eq!(l.mdt_of(Fid::ROOT), 0);
    }
}
