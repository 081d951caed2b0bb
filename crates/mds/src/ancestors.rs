//! Is one directory above another? A rename must know, and all other operations of the target wait while it
//! finds out. Few steps up are taken in the transaction. A long way is looked up before, outside of the
//! core's lock (`ways`).

use crate::MdsError;
use crate::schema::{Inode, key};
use crate::shared::Shared;
use crate::tx::Tx;
use crate::ways::{Way, Ways};
use model::{Errno, Fid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::Db;

/// Steps that a transaction takes itself.
pub const STEPS_MAX: usize = 1024;
/// A way is looked up so often before the answer is EBUSY: each time a directory on it was moved meanwhile.
pub const TRIES_MAX: usize = 16;

fn looped(dir: Fid) -> MdsError {
    MdsError::Damaged { what: "parents of directory", key: dir.to_string(), why: "they form a loop".into() }
}

/// Whether `ancestor` is `dir` or above it. `EDEEP`: a way from `dir` has to be looked up first.
pub fn leads_through(tx: &mut Tx, dir: Fid, ancestor: Fid) -> Result<bool, Errno> {
    if let Some(way) = tx.ways.of(dir)
        && way.is_good(&tx.shared.moves)
        && !tx.ways.moved.iter().any(|d| way.dirs().contains(d))
    {
        // An owner of a directory on the way may have moved it and not told.
        tx.look_at_inodes(way.dirs());
        return Ok(way.dirs().contains(&ancestor));
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
            tx.ways.want(dir);
            return Err(Errno::EDEEP);
        }
        match tx.try_inode(at)? {
            Some(i) => at = i.parent,
            // The way up from a removed directory ends somewhere.
            None => return Ok(false),
        }
    }
}

/// Looks up the way that is wanted. `ENOENT` if its directory is not there (any more).
pub async fn climb(db: &Arc<Db>, shared: &Shared, ways: &mut Ways) -> Result<(), Errno> {
    let dir = ways.take_wanted().expect("a way is wanted");
    let moves = shared.moves.count();
    let mut view = db.view();
    let mut dirs = BTreeSet::new();
    let mut at = dir;
    while dirs.insert(at) && at != Fid::ROOT {
        let found = view.get(&key::inode(at)).map_err(|e| e.errno())?.ok_or(Errno::ENOENT)?;
        at = Inode::decode(at, &found)?.parent;
        if dirs.len() % STEPS_MAX == 0 {
            // Others have their turn.
            shared.world.sleep(Duration::from_micros(1)).await;
        }
    }
    if at != Fid::ROOT {
        return Err(looped(dir).into());
    }
    // A crash must not take back what the rename relies on.
    db.durable(view.seen()).await.map_err(|e| e.errno())?;
    ways.learn(dir, Way::new(dir, dirs, moves));
    Ok(())
}
