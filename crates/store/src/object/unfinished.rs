//! What of checksums is finished later: of changes that a crash or a failure cut short, and of objects that
//! are gone.

use super::edit::Edit;
use super::files::FileKey;
use super::load::load;
use super::location::{self, Location, ObjectRecord};
use super::sums::{BLOCK_BYTES, TAG_SUMS, ZERO_BLOCK_CRC, id_of_sums_key, sums_key};
use super::verify::Checksums;
use crate::bytes::{Reader, Writer};
use crate::{StoreError, Txn};
use model::{ObjectId, limits};
use wire::checksum::ChecksumType;

/// Key tag of open records.
pub const TAG_OPEN: u8 = b'O';
/// Key tag of destroyed objects whose checksums are still to be dropped.
pub const TAG_LEFTOVER: u8 = b'L';
const OPEN_VERSION: u8 = 1;
/// Groups of checksums that go in the same transaction as the change; more of them go later.
const DROP_AT_ONCE: usize = 256;
/// Groups dropped by one transaction later.
const DROP_STEP: usize = 1000;

/// Key that says: this destroyed object's checksums are to be dropped.
pub(super) fn leftover_key(id: ObjectId) -> Vec<u8> {
    let mut k = location::object_key(id);
    k[0] = TAG_LEFTOVER;
    k
}

pub(crate) fn encode_open(crcs: &[u32]) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(8 + 4 * crcs.len()));
    w.u8(OPEN_VERSION);
    w.raw(&[0; 3]);
    w.u32(crcs.len() as u32);
    crcs.iter().for_each(|c| w.u32(*c));
    w.0
}

pub(crate) fn decode_open(v: &[u8]) -> Option<Vec<u32>> {
    let mut r = Reader(v);
    if r.u8()? != OPEN_VERSION {
        return None;
    }
    r.raw(3)?;
    let n = r.u32()?;
    if n as usize > limits::RPC_BULK_MAX_BYTES {
        return None;
    }
    (0..n).map(|_| r.u32()).collect()
}

impl Checksums {
    /// After a start: large writes over bytes that were there, cut short by a crash when an earlier Nacre
    /// wrote here. It had said before which blocks they are.
    pub(super) fn close_all(&self) -> Result<(), StoreError> {
        for (k, v) in self.db.scan(&[TAG_OPEN], &[TAG_OPEN + 1], usize::MAX)? {
            self.close_one(&k, &v)?;
        }
        Ok(())
    }

    /// Gives the blocks of an open record the checksums of what they hold, old, new or torn.
    fn close_one(&self, key: &[u8], v: &[u8]) -> Result<(), StoreError> {
        let bad =
            |what: &str| StoreError::damaged("open record", self.db.dir(), format!("{what} {key:02x?}"));
        let (id, first) = id_of_sums_key(key).ok_or_else(|| bad("key"))?;
        let crcs = decode_open(v).ok_or_else(|| bad("value of"))?;
        let mut txn = Txn::new();
        txn.delete(key.to_vec());
        let found = self.db.get(&location::object_key(id))?;
        let Some(rec) = found.map(|v| ObjectRecord::decode(id, &v)).transpose()? else {
            return self.db.submit(txn).map(drop);
        };
        if rec.location != Location::Own {
            return Err(bad("object not in a file of its own:"));
        }
        let key = FileKey::Own(id);
        let path = self.files.path(key);
        let file = self.files.get(key)?;
        // What is read may be in the page cache only; it counts from now on.
        file.sync_data().map_err(StoreError::io("cannot flush object file", &path))?;
        let mut edit = Edit::new(id);
        let (mut new, mut torn) = (0, 0);
        for (b, crc) in (first..).zip(crcs) {
            let n = rec.attr.size.saturating_sub(b * BLOCK_BYTES).min(BLOCK_BYTES) as usize;
            if n == 0 {
                break;
            }
            let mut bytes = vec![0; n];
            self.files.read_raw(id, &rec, b * BLOCK_BYTES, &mut bytes)?;
            let got = ChecksumType::Crc32c.padded(&bytes);
            let was = self.sum(&mut edit, &rec, b)?;
            if was == Some(got) || (was.is_none() && rec.summed && got == ZERO_BLOCK_CRC) {
                continue;
            }
            if got == crc {
                new += 1
            } else {
                torn += 1
            }
            self.set_sum(&mut edit, &rec, b, Some(got))?;
        }
        tracing::info!("object {id}: unfinished write at block {first}: {new} blocks new, {torn} torn");
        self.store(&mut edit, &rec, &mut rec.clone(), &mut txn)?;
        self.db.submit(txn).map(drop)
    }

    /// Deletes groups of checksums from..to, if they are few; else says which are to be dropped later.
    pub(super) fn drop_groups(
        &self,
        id: ObjectId,
        from: u64,
        to: u64,
        txn: &mut Txn,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let mut end = sums_key(id, to);
        if to == u64::MAX {
            end.push(0);
        }
        let found = self.db.scan(&sums_key(id, from), &end, DROP_AT_ONCE + 1)?;
        if found.len() > DROP_AT_ONCE {
            return Ok(Some((from, to)));
        }
        assert!(found.iter().all(|(k, _)| k[0] == TAG_SUMS), "only checksums are dropped");
        found.into_iter().for_each(|(k, _)| txn.delete(k));
        Ok(None)
    }

    /// Drops checksums that a change left to be dropped: of a living object, whose lock is held, and of
    /// destroyed ones.
    pub(super) async fn drop_stale(
        &self,
        stale: Option<ObjectId>,
        leftovers: &[ObjectId],
    ) -> Result<(), StoreError> {
        if let Some(id) = stale
            && let Some(rec) = load(&self.db, id)?.0
            && let Some((from, to)) = rec.stale
        {
            self.drop_range(id, from, to).await?;
            let mut txn = Txn::new();
            txn.put(location::object_key(id), ObjectRecord { stale: None, ..rec }.encode());
            self.db.submit(txn)?;
        }
        for id in leftovers {
            self.drop_range(*id, 0, u64::MAX).await?;
            let mut txn = Txn::new();
            txn.delete(leftover_key(*id));
            self.db.submit(txn)?;
        }
        Ok(())
    }

    async fn drop_range(&self, id: ObjectId, from: u64, to: u64) -> Result<(), StoreError> {
        let mut end = sums_key(id, to);
        if to == u64::MAX {
            end.push(0);
        }
        loop {
            let found = self.db.scan(&sums_key(id, from), &end, DROP_STEP)?;
            if found.is_empty() {
                return Ok(());
            }
            assert!(found.iter().all(|(k, _)| k[0] == TAG_SUMS), "only checksums are dropped");
            let mut txn = Txn::new();
            found.into_iter().for_each(|(k, _)| txn.delete(k));
            let lsn = self.db.submit(txn)?;
            self.db.durable(lsn).await?;
        }
    }

    /// After a start: checksums of destroyed objects.
    pub(super) async fn drop_leftovers(&self) -> Result<(), StoreError> {
        let found = self.db.scan(&[TAG_LEFTOVER], &[TAG_LEFTOVER + 1], usize::MAX)?;
        let ids: Vec<ObjectId> = found.iter().filter_map(|(k, _)| location::id_of_key(k)).collect();
        self.drop_stale(None, &ids).await
    }
}
