//! Is one directory above another? A rename must know, and all other operations of the target wait while it finds out. Few
//! steps up are taken in the transaction. A long way is looked up before, outside of the core's lock, and is good for as long
//! as none of the directories on it was moved; what was moved is remembered for a while.

use crate::MdsError;
use crate::schema::{Inode, key};
use crate::service::Mdt;
use crate::shared::lock;
use crate::tx::Tx;
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Steps that a transaction takes itself.
const STEPS_MAX: usize = 1024;
/// Moves of directories that are remembered.
const MOVES_MAX: usize = 4096;
/// A way is looked up so often before the answer is EBUSY: each time a directory on it was moved meanwhile.
pub const TRIES_MAX: usize = 16;

/// Directories that got another parent, the last ones, and how many there were.
#[derive(Default)]
pub struct Moves(Mutex<Moved>);

#[derive(Default)]
struct Moved {
    count: u64,
    last: VecDeque<Fid>,
}

impl Moves {
    fn count(&self) -> u64 {
        lock(&self.0).count
    }

    /// Under the lock of the core, when the transaction that moves them is submitted: whoever finds an older count has
    /// found the older parents, or will find that they were moved.
    pub fn record(&self, dirs: Vec<Fid>) {
        let mut g = lock(&self.0);
        for d in dirs {
            g.count += 1;
            g.last.push_back(d);
        }
        let old = g.last.len().saturating_sub(MOVES_MAX);
        g.last.drain(..old);
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
    /// Whether it still leads where it did. Under the lock of the core.
    fn is_good(&self, moves: &Moves) -> bool {
        let g = lock(&moves.0);
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
    /// What was found out for a transaction that is to run again.
    pub fn again(&self) -> Ways {
        Ways { known: self.known.clone(), ..Ways::default() }
    }
}

fn looped(dir: Fid) -> MdsError {
    MdsError::Damaged { what: "parents of directory", key: dir.to_string(), why: "they form a loop".into() }
}

/// Whether `ancestor` is `dir` or above it. `EDEEP`: a way from `dir` has to be looked up first.
pub fn leads_through(tx: &mut Tx, dir: Fid, ancestor: Fid) -> Result<bool, Errno> {
    if let Some(way) = tx.ways.known.get(&dir).cloned()
        && way.is_good(&tx.shared.moves)
        && !tx.ways.moved.iter().any(|d| way.dirs.contains(d))
    {
        // An owner of a directory on the way may have moved it and not told.
        tx.look_at_inodes(&way.dirs);
        return Ok(way.dirs.contains(&ancestor));
    }
    // Its clients' programs have been answered.
    let must = tx.is_replay() || tx.is_owned();
    let mut seen = BTreeSet::new();
    let mut at = dir;
    loop {
        if at == ancestor {
            return Ok(true);
        }
        if at == Fid::ROOT {
            return Ok(false);
        }
        if !seen.insert(at) {
            return Err(looped(dir).into());
        }
        if seen.len() > STEPS_MAX && !must {
            tx.ways.wanted = Some(dir);
            return Err(Errno::EDEEP);
        }
        match tx.try_inode(at)? {
            Some(i) => at = i.parent,
            // The way up from a removed directory ends somewhere.
            None => return Ok(false),
        }
    }
}

impl Mdt {
    /// Looks up the way that is wanted. `ENOENT` if its directory is not there (any more).
    pub(crate) async fn climb(&self, ways: &mut Ways) -> Result<(), Errno> {
        let dir = ways.wanted.take().expect("a way is wanted");
        let moves = self.shared.moves.count();
        let mut view = self.db.view();
        let mut dirs = BTreeSet::new();
        let mut at = dir;
        while dirs.insert(at) && at != Fid::ROOT {
            let found = view.get(&key::inode(at)).map_err(|e| e.errno())?.ok_or(Errno::ENOENT)?;
            at = Inode::decode(at, &found)?.parent;
            if dirs.len() % STEPS_MAX == 0 {
                // Others have their turn.
                self.world.sleep(Duration::from_micros(1)).await;
            }
        }
        if at != Fid::ROOT {
            return Err(looped(dir).into());
        }
        assert!(
            dirs.contains(&dir) && dirs.contains(&Fid::ROOT),
            "a way leads from its directory to the root"
        );
        // A crash must not take back what the rename relies on.
        self.db.durable(view.seen()).await.map_err(|e| e.errno())?;
        ways.known.insert(dir, Arc::new(Way { dirs, moves }));
        Ok(())
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
