//! Directories with a quota, in memory: which there are, which lies in which, and which trees are not counted
//! to the right one throughout yet ([`crate::labels`]).

use crate::MdsError;
use crate::schema::directories::DirectoryQuota;
use crate::schema::key;
use crate::walk::walk;
use model::Fid;
use model::mutex::Mutex;
use model::usage::Usage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use store::usage::UsageLedger;

#[derive(Default)]
struct DirectoryTable {
    quotas: BTreeMap<u32, DirectoryQuota>,
    ids: BTreeMap<Fid, u32>,
    /// Trees whose files may be counted to another one than their place says.
    unsettled: BTreeSet<Fid>,
    /// Of these, such as are about to be moved: what they are to be counted to then.
    moving: BTreeMap<Fid, u32>,
    /// By tree, what has left a directory for the place that it is to be moved to. It is held for it: the
    /// move may come to nothing, and then all of it is back.
    held: BTreeMap<Fid, BTreeMap<u32, Usage>>,
}

#[derive(Default)]
pub struct Directories {
    table: Mutex<DirectoryTable>,
    /// How often it was changed which lies in which.
    changes: AtomicU64,
    /// Trees were being moved when the target stopped, and what was held for whom is not known any more.
    settling: AtomicBool,
}

/// A tree is about to be moved.
pub struct Moving {
    directories: Arc<Directories>,
    fid: Fid,
}

impl Moving {
    /// It was: what it has is where it is to be.
    pub fn moved(&self) {
        self.directories.table.lock().held.remove(&self.fid);
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.directories.table.lock().moving.remove(&self.fid);
    }
}

impl Directories {
    /// As the table has them.
    pub fn load(db: &dyn store::Read, usage: &UsageLedger) -> Result<Arc<Directories>, MdsError> {
        let directories = Arc::new(Directories::default());
        let mut nested = Vec::new();
        for tag in [key::DIRECTORY, key::UNSETTLED] {
            walk(db, &[tag], &[tag + 1], |k, v| {
                nested.extend(directories.remember(k, Some(v))?);
                Ok(())
            })?;
        }
        // All at once: each change of the tree sums all of it up.
        usage.change_tree(|tree| nested.iter().for_each(|(id, parent)| tree.set(*id, *parent)));
        directories.changes.store(nested.len() as u64, Relaxed);
        directories.settling.store(directories.is_unsettled(), Relaxed);
        Ok(directories)
    }

    /// What leaves a directory for where this tree is to be moved, or, with `back`, does not after all.
    pub fn hold(&self, tree: Fid, left: &[(u32, Usage)], back: bool) {
        let mut t = self.table.lock();
        let sign = if back { -1 } else { 1 };
        for (id, u) in left.iter().filter(|(id, _)| *id != 0) {
            let held = t.held.entry(tree).or_default().entry(*id).or_default();
            assert!(!back || held.inodes >= u.inodes, "what comes back was held");
            *held = held.with(sign * u.inodes as i64, sign * u.blocks as i64);
        }
    }

    /// A tree is what its place says: nothing is held for it, unless somebody moves it by now.
    pub fn release(&self, tree: Fid) {
        let mut t = self.table.lock();
        if !t.moving.contains_key(&tree) {
            t.held.remove(&tree);
        }
    }

    /// What is held for each directory by others than whoever moves `mover`.
    pub fn held(&self, mover: Option<Fid>, usage: &UsageLedger) -> BTreeMap<u32, Usage> {
        let t = self.table.lock();
        let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
        let others = t.held.iter().filter(|(tree, _)| Some(**tree) != mover);
        for (id, u) in others.flat_map(|(_, held)| held) {
            for around in usage.with_tree(|tree| tree.chain(*id).collect::<Vec<u32>>()) {
                let sum = sums.entry(around).or_default();
                *sum = sum.plus(*u);
            }
        }
        sums
    }

    /// Whether it is not known yet what directories are to have again that trees were being moved out of.
    pub fn is_settling(&self) -> bool {
        self.settling.load(Relaxed)
    }

    /// All trees were looked at once since the start. True if that was waited for.
    pub fn end_settling(&self) -> bool {
        self.settling.swap(false, Relaxed)
    }

    /// What the table has under a key from now on.
    pub fn adopt(&self, k: &[u8], v: Option<&[u8]>, usage: &UsageLedger) -> Result<(), MdsError> {
        if let Some((id, parent)) = self.remember(k, v)? {
            usage.change_tree(|tree| tree.set(id, parent));
            self.changes.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Of a directory: its id, and that of the one around it, if there is one.
    fn remember(&self, k: &[u8], v: Option<&[u8]>) -> Result<Option<(u32, u32)>, MdsError> {
        let mut t = self.table.lock();
        if k[0] == key::UNSETTLED {
            match (key::parse_fid(k), v) {
                (Some(fid), Some(_)) => drop(t.unsettled.insert(fid)),
                (Some(fid), None) => drop(t.unsettled.remove(&fid)),
                (None, _) => tracing::error!("a tree of no known name, under key {k:02x?}: run nacre fsck"),
            }
            return Ok(None);
        }
        let Some(id) = key::parse_directory(k).filter(|id| *id != 0) else {
            tracing::error!("a quota of no known directory, under key {k:02x?}: run nacre fsck");
            return Ok(None);
        };
        let new = v.map(|v| DirectoryQuota::decode(k, v)).transpose()?;
        if let Some(old) = t.quotas.remove(&id).filter(|q| !q.ended) {
            t.ids.remove(&old.fid);
        }
        if let Some(q) = new {
            t.quotas.insert(id, q);
            let other = if q.ended { None } else { t.ids.insert(q.fid, id) };
            assert!(other.is_none(), "a directory has one quota");
        }
        assert!(t.ids.len() <= t.quotas.len(), "a quota in force has its record");
        Ok(Some((id, new.map_or(0, |q| q.parent))))
    }

    /// How often it was changed which lies in which.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The quota of a directory, and its id.
    pub fn of(&self, fid: Fid) -> Option<(u32, DirectoryQuota)> {
        let t = self.table.lock();
        let id = *t.ids.get(&fid)?;
        Some((id, t.quotas[&id]))
    }

    /// The quota of this id, if it is in force.
    pub fn get(&self, id: u32) -> Option<DirectoryQuota> {
        self.table.lock().quotas.get(&id).copied().filter(|q| !q.ended)
    }

    /// Those that a directory had, and whose label files below it may have.
    pub fn ended(&self, fid: Fid) -> Vec<u32> {
        let t = self.table.lock();
        t.quotas.iter().filter(|(_, q)| q.ended && q.fid == fid).map(|(id, _)| *id).collect()
    }

    /// How many there are, those that ended included.
    pub fn count(&self) -> usize {
        self.table.lock().quotas.len()
    }

    /// Those behind `after`, at most `limit`.
    pub fn page(&self, after: u32, limit: usize) -> Vec<(u32, DirectoryQuota)> {
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        let t = self.table.lock();
        let in_force = t.quotas.range(first..).filter(|(_, q)| !q.ended);
        in_force.take(limit).map(|(id, q)| (*id, *q)).collect()
    }

    /// Whether files of some tree may be counted elsewhere than they lie.
    pub fn is_unsettled(&self) -> bool {
        !self.table.lock().unsettled.is_empty()
    }

    /// Whether files below a directory may not be counted to its quota, and nobody sees to that who moves it.
    pub fn lacks_some(&self, fid: Fid, id: u32) -> bool {
        let t = self.table.lock();
        t.unsettled.contains(&fid) && t.moving.get(&fid) != Some(&id)
    }

    /// Such trees that nobody is about to move.
    pub fn unsettled(&self) -> Vec<Fid> {
        let t = self.table.lock();
        t.unsettled.iter().filter(|fid| !t.moving.contains_key(fid)).copied().collect()
    }

    /// Trees that are about to be moved.
    pub fn moving(&self) -> Vec<Fid> {
        self.table.lock().moving.keys().copied().collect()
    }

    pub fn is_moving(&self, fid: Fid) -> bool {
        self.table.lock().moving.contains_key(&fid)
    }

    /// A tree is about to be moved to where its files are counted to another directory. `None`: somebody
    /// moves it already.
    pub fn begin_moving(self: &Arc<Self>, fid: Fid, to: u32) -> Option<Moving> {
        let mut t = self.table.lock();
        if t.moving.contains_key(&fid) {
            return None;
        }
        let other = t.moving.insert(fid, to);
        assert!(other.is_none(), "one at a time moves a tree");
        Some(Moving { directories: self.clone(), fid })
    }
}
