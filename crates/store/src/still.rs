//! What a database held at one moment, while it goes on changing: for whoever looks at all of it (`nacre fsck
//! --online`).

use crate::error::StoreError;
use crate::table::{Batch, Entry, Pair, Snapshot};
use std::ops::Bound;
use std::sync::Arc;

/// Something to read keys from.
pub trait Read {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Keys `from..to` in order, at most `limit`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError>;
}

impl<T: Read + ?Sized> Read for Arc<T> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        (**self).scan(from, to, limit)
    }
}

/// A database as it was. Holds a copy of what had no checkpoint then (bounded by the limits of that), and the
/// table's pages of that time: the table does not use them again before this is dropped.
pub struct FrozenView {
    recent: Batch,
    snapshot: Arc<dyn Snapshot>,
}

impl FrozenView {
    pub(crate) fn new(recent: Batch, snapshot: Arc<dyn Snapshot>) -> FrozenView {
        FrozenView { recent, snapshot }
    }
}

impl Read for FrozenView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.recent.get(key) {
            Some(e) => Ok(e.value.as_ref().map(|v| v.to_vec())),
            None => self.snapshot.get(key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        merge(
            self.recent.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))),
            &*self.snapshot,
            (from, to),
            limit,
        )
    }
}

/// The first live pairs of a range: what the table says, and what is newer than it, in order.
pub(crate) fn merge<'a>(
    recent: impl Iterator<Item = (&'a Vec<u8>, &'a Entry)>,
    snapshot: &dyn Snapshot,
    (from, to): (&[u8], &[u8]),
    limit: usize,
) -> Result<Vec<Pair>, StoreError> {
    let mut out: Vec<Pair> = Vec::new();
    let mut next = recent.peekable();
    snapshot.scan(from, to, &mut |k, v| {
        while let Some((rk, e)) = next.next_if(|(rk, _)| rk.as_slice() < k) {
            if let Some(rv) = e.value.as_ref().filter(|_| out.len() < limit) {
                out.push((rk.clone(), rv.to_vec()));
            }
        }
        let newer = next.peek().is_some_and(|(rk, _)| rk.as_slice() == k);
        if !newer && out.len() < limit {
            out.push((k.to_vec(), v.to_vec()));
        }
        out.len() < limit
    })?;
    for (rk, e) in next {
        if out.len() == limit {
            break;
        }
        if let Some(rv) = &e.value {
            out.push((rk.clone(), rv.to_vec()));
        }
    }
    assert!(out.len() <= limit, "no more pairs than were asked for");
    Ok(out)
}
