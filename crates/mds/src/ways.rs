//! Ways up from directories to the root, and whether they still lead there: a long way is looked up outside
//! of the core's lock, and is good for as long as none of the directories on it was moved. The last moves are
//! remembered.

use model::Fid;
use model::mutex::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Moves of directories that are remembered.
const MOVES_MAX: usize = 4096;

/// Directories that got another parent, the last ones, and how many there were.
#[derive(Default)]
pub struct Moves(Mutex<Moved>);

#[derive(Default)]
struct Moved {
    count: u64,
    last: VecDeque<Fid>,
}

impl Moves {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Under the lock of the core, when the transaction that moves them is submitted: whoever finds an older
    /// count has found the older parents, or will find that they were moved.
    pub fn record(&self, dirs: Vec<Fid>) {
        let mut g = self.0.lock();
        for d in dirs {
            g.count += 1;
            g.last.push_back(d);
        }
        let old = g.last.len().saturating_sub(MOVES_MAX);
        g.last.drain(..old);
        assert!(g.last.len() as u64 <= g.count, "moves that are remembered are the last of those counted");
    }
}

/// A directory and everything above it, as it was.
#[derive(Debug)]
pub struct Way {
    dirs: BTreeSet<Fid>,
    /// Moves before that.
    moves: u64,
}

impl Way {
    /// `dirs` as they were found, after `moves` moves. They lead from `dir` to the root.
    pub fn new(dir: Fid, dirs: BTreeSet<Fid>, moves: u64) -> Way {
        assert!(
            dirs.contains(&dir) && dirs.contains(&Fid::ROOT),
            "a way leads from its directory to the root"
        );
        Way { dirs, moves }
    }

    pub fn dirs(&self) -> &BTreeSet<Fid> {
        &self.dirs
    }

    /// Whether it still leads where it did. Under the lock of the core.
    pub fn is_good(&self, moves: &Moves) -> bool {
        let g = moves.0.lock();
        assert!(self.moves <= g.count, "a way was found before now");
        let since = usize::try_from(g.count - self.moves).unwrap_or(usize::MAX);
        since <= g.last.len() && g.last.iter().rev().take(since).all(|d| !self.dirs.contains(d))
    }
}

/// What a transaction knows of long ways.
#[derive(Clone, Default)]
pub struct Ways {
    known: BTreeMap<Fid, Arc<Way>>,
    /// Of this directory a way is wanted.
    wanted: Option<Fid>,
    /// Directories that the transaction itself moves.
    pub moved: Vec<Fid>,
}

impl Ways {
    /// What is known of the way up from a directory.
    pub fn of(&self, dir: Fid) -> Option<Arc<Way>> {
        self.known.get(&dir).cloned()
    }

    /// The transaction cannot go on without the way up from `dir`.
    pub fn want(&mut self, dir: Fid) {
        self.wanted = Some(dir);
    }

    /// The directory whose way is to be looked up, once.
    pub fn take_wanted(&mut self) -> Option<Fid> {
        self.wanted.take()
    }

    /// The way up from `dir` was looked up.
    pub fn learn(&mut self, dir: Fid, way: Way) {
        self.known.insert(dir, Arc::new(way));
    }

    /// What was found out for a transaction that is to run again.
    pub fn again(&self) -> Ways {
        Ways { known: self.known.clone(), ..Ways::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_good_until_a_directory_on_it_is_moved() {
        let fid = |n| Fid::new(9, n, 0);
        let moves = Moves::default();
        moves.record(vec![fid(1)]);
        let way = || Way { dirs: [fid(1), fid(2)].into(), moves: moves.count() };
        let first = way();
        assert!(first.is_good(&moves), "it was moved before");
        moves.record(vec![fid(3), fid(4)]);
        assert!(first.is_good(&moves), "others");
        moves.record(vec![fid(2)]);
        assert!(!first.is_good(&moves));
        let second = way();
        moves.record((0..MOVES_MAX as u32).map(|n| fid(n + 10)).collect());
        assert!(second.is_good(&moves));
        moves.record(vec![fid(3)]);
        assert!(!second.is_good(&moves), "more moves than are remembered");
    }
}
