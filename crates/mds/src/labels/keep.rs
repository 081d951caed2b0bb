//! Trees that are not counted to the right directory throughout are looked through in the background: after a
//! directory got a quota or lost it, after trees were moved, after a crash in the middle of that. Object
//! targets hear which directories lie in which.

use super::relabel::{By, relabel};
use crate::mdt::Mdt;
use crate::schema::key;
use crate::tx::Tx;
use model::{Errno, Fid};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_millis(200);

/// Until the target stops.
pub async fn keep(mdt: Arc<Mdt>) {
    while !mdt.stop.pause(LOOK).await {
        if mdt.recovery.recovering() {
            continue;
        }
        mdt.transactions.tell_tree().await;
        let mut all = true;
        for fid in mdt.shared.directories.unsettled() {
            if mdt.stop.is_begun() {
                return;
            }
            if let Err(e) = settle(&mdt, fid).await {
                tracing::warn!("files below {fid} are counted to their directory later: {e}");
                all = false;
            }
        }
        if all && mdt.shared.directories.end_settling() {
            mdt.shared.growing.look_again();
        }
    }
}

/// Makes one tree what its place says.
async fn settle(mdt: &Mdt, fid: Fid) -> Result<(), Errno> {
    let mut to = None;
    let look = |tx: &mut Tx| {
        to = label_of_place(tx, fid)?;
        Ok(Vec::new())
    };
    mdt.transactions.transact(None, look).await.result?;
    if let Some(to) = to {
        relabel(&mdt.transactions, fid, to, By::Server).await?;
    }
    let end = |tx: &mut Tx| {
        // Unless it was moved meanwhile.
        if label_of_place(tx, fid)? == to && !mdt.shared.directories.is_moving(fid) {
            tx.delete(key::unsettled(fid));
            for id in mdt.shared.directories.ended(fid) {
                tx.delete(key::directory(id));
            }
        }
        Ok(Vec::new())
    };
    mdt.transactions.transact(None, end).await.result?;
    mdt.shared.directories.release(fid);
    Ok(())
}

/// What a directory is counted to by where it lies; `None`: there is no such directory.
fn label_of_place(tx: &mut Tx, fid: Fid) -> Result<Option<u32>, Errno> {
    let Some(i) = tx.try_inode(fid)?.filter(|i| i.is_dir() && i.nlink > 0) else { return Ok(None) };
    if let Some((id, _)) = tx.shared.directories.of(fid) {
        return Ok(Some(id));
    }
    if fid == Fid::ROOT {
        return Ok(Some(0));
    }
    Ok(Some(tx.promised(i.parent)?.directory))
}
