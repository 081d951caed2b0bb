//! One checkpoint into the table: a single redb transaction with the position it brings the table to.

use super::Batch;
use super::redb::{KEYS, META, META_APPLIED, RedbTable, checksum, failed};
use crate::StoreError;
use crate::journal::Lsn;

pub(super) fn commit(t: &RedbTable, batch: &Batch, applied: Lsn) -> Result<(), StoreError> {
    let what = "cannot write table";
    let mut tx = t.db().begin_write().map_err(failed(what, &t.path))?;
    // The allocator's state is saved with each commit: opening after a crash does not walk the whole table.
    tx.set_quick_repair(true);
    {
        let mut keys = tx.open_table(KEYS).map_err(failed(what, &t.path))?;
        let mut stored = Vec::new();
        for (k, e) in batch {
            match &e.value {
                Some(v) => {
                    stored.clear();
                    stored.extend_from_slice(&checksum(k, v));
                    stored.extend_from_slice(v);
                    keys.insert(k.as_slice(), stored.as_slice()).map_err(failed(what, &t.path))?;
                }
                None => {
                    keys.remove(k.as_slice()).map_err(failed(what, &t.path))?;
                }
            }
        }
        let mut meta = tx.open_table(META).map_err(failed(what, &t.path))?;
        meta.insert(META_APPLIED, applied).map_err(failed(what, &t.path))?;
    }
    tx.commit().map_err(failed(what, &t.path))
}
