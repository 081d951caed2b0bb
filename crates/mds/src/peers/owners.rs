//! After an upgrade: objects that were written before OSTs were told of owners are counted to whoever wrote
//! them last. Each file's owner is told once, a few files at a time.

use crate::MdsError;
use crate::mdt::Mdt;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::Fid;
use std::sync::Arc;
use std::time::Duration;

/// Inodes that are looked at in one step.
const INODES_AT_ONCE: usize = 200;
/// Records that may wait for an OST before more are written, and the pause until that is looked at again.
const WAITING_MAX: usize = 1000;
const PAUSE: Duration = Duration::from_millis(500);

/// The work of one life of the target.
pub(crate) struct OwnersTold(pub Arc<Mdt>);

impl OwnersTold {
    /// Goes on where it was when the target was stopped; ends when all are told.
    pub(crate) async fn tell_all(self) {
        let mdt = &self.0;
        if matches!(self.told(), Ok(Some(None))) {
            return;
        }
        while mdt.recovery.recovering() || mdt.shared.osts.list().is_empty() {
            if mdt.stop.pause(PAUSE).await {
                return;
            }
        }
        loop {
            match self.tell_some().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => {
                    tracing::warn!("owners of files are told to OSTs later: {e}");
                    if mdt.stop.pause(PAUSE).await {
                        return;
                    }
                }
            }
            let busy = || {
                mdt.shared.osts.list().iter().any(|(o, _)| mdt.count_outbox(*o, WAITING_MAX) == WAITING_MAX)
            };
            while busy() {
                if mdt.stop.pause(PAUSE).await {
                    return;
                }
            }
            if mdt.stop.is_begun() {
                return;
            }
        }
    }

    /// Up to which file; `Some(None)`: all, `None`: nobody was told of any.
    fn told(&self) -> Result<Option<Option<Fid>>, MdsError> {
        let k = key::STATE_OWNERS;
        self.0.db.get(k)?.map(|v| value::decode_owners_told(k, &v)).transpose()
    }

    /// One step. False: all are told.
    async fn tell_some(&self) -> Result<bool, MdsError> {
        let from = match self.told()? {
            Some(None) => return Ok(false),
            Some(Some(fid)) => key::behind(&key::inode(fid)),
            None => vec![key::INODE],
        };
        let page = self.0.db.scan(&from, &[key::INODE + 1], INODES_AT_ONCE)?;
        let last = page.last().and_then(|(k, _)| key::parse_fid(k)).filter(|_| page.len() == INODES_AT_ONCE);
        let mut files: Vec<(Fid, Inode)> = Vec::new();
        for (k, v) in &page {
            // Of what is damaged fsck says so.
            let decoded = key::parse_fid(k).and_then(|fid| Some((fid, Inode::decode(fid, v).ok()?)));
            files.extend(decoded.filter(|(_, inode)| inode.objects().next().is_some()));
        }
        // What changes meanwhile is told by itself, as of a later moment.
        let work = |tx: &mut Tx| {
            files.iter().for_each(|(fid, inode)| tx.tell_owner(*fid, inode));
            tx.put(key::STATE_OWNERS.to_vec(), value::encode_owners_told(last));
            Ok(Vec::new())
        };
        self.0.transactions.transact(None, work).await.result.map_err(store::StoreError::Errno)?;
        Ok(last.is_some())
    }
}
