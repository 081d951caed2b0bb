//! Node ids: the kernel's names for inodes. The kernel counts how often it was told one and forgets it by
//! that count, so the table is as large as the kernel's inode cache and no larger.

use crate::abi::ROOT_ID;
use model::{Errno, Fid, Map};
use std::sync::{Mutex, PoisonError};

struct Node {
    fid: Fid,
    lookups: u64,
}

struct Inner {
    by_id: Map<u64, Node>,
    by_fid: Map<Fid, u64>,
    next: u64,
}

/// Node id ↔ FID. Ids are never reused, so a generation is not needed.
pub struct Nodes {
    inner: Mutex<Inner>,
}

impl Nodes {
    pub fn new(root: Fid) -> Nodes {
        let mut by_id = Map::default();
        by_id.insert(ROOT_ID, Node { fid: root, lookups: 1 });
        let mut by_fid = Map::default();
        by_fid.insert(root, ROOT_ID);
        Nodes { inner: Mutex::new(Inner { by_id, by_fid, next: ROOT_ID + 1 }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to be told of `fid` once more.
    pub fn remember(&self, fid: Fid) -> u64 {
        let mut t = self.lock();
        let id = match t.by_fid.get(&fid) {
            Some(id) => *id,
            None => {
                let id = t.next;
                t.next += 1;
                t.by_fid.insert(fid, id);
                t.by_id.insert(id, Node { fid, lookups: 0 });
                id
            }
        };
        if id != ROOT_ID {
            t.by_id.get_mut(&id).expect("both tables hold the same nodes").lookups += 1;
        }
        id
    }

    /// The kernel forgot `count` of the times it was told `id`.
    pub fn forget(&self, id: u64, count: u64) {
        if id == ROOT_ID {
            return;
        }
        let mut t = self.lock();
        let Some(n) = t.by_id.get_mut(&id) else {
            tracing::warn!(id, count, "the kernel forgets a node it does not know");
            return;
        };
        n.lookups = n.lookups.saturating_sub(count);
        if n.lookups == 0 {
            let fid = n.fid;
            t.by_id.remove(&id);
            t.by_fid.remove(&fid);
        }
    }

    /// `ESTALE` for an id that the kernel should not know any more.
    pub fn fid(&self, id: u64) -> Result<Fid, Errno> {
        self.lock().by_id.get(&id).map(|n| n.fid).ok_or(Errno::ESTALE)
    }

    /// The kernel's name for a file, if it knows it or is about to be told.
    pub fn id(&self, fid: Fid) -> Option<u64> {
        self.lock().by_fid.get(&fid).copied()
    }

    /// Everything that the kernel knows, or is about to be told.
    pub fn all(&self) -> Vec<(u64, Fid)> {
        self.lock().by_id.iter().map(|(id, n)| (*id, n.fid)).collect()
    }

    pub fn count(&self) -> usize {
        self.lock().by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_lives_as_long_as_the_kernel_counts() {
        let n = Nodes::new(Fid::ROOT);
        let f = Fid::new(0x2_0000_0401, 1, 0);
        let id = n.remember(f);
        assert_eq!(n.remember(f), id);
        n.forget(id, 1);
        assert_eq!(n.fid(id), Ok(f));
        n.forget(id, 1);
        assert_eq!(n.fid(id), Err(Errno::ESTALE));
        assert_ne!(n.remember(f), id, "ids are never used again");
        n.forget(ROOT_ID, 1000);
        assert_eq!(n.fid(ROOT_ID), Ok(Fid::ROOT));
        assert_eq!(n.remember(Fid::ROOT), ROOT_ID);
        assert_eq!(n.count(), 2);
        n.forget(99, 1);
    }
}
