//! One reader-writer lock for each object in use: changes of one object do not run beside each other.

use model::mutex::Mutex;
use model::{Map, ObjectId};
use std::sync::Arc;
use world::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

type Shared = Arc<RwLock<()>>;

#[derive(Default)]
pub(crate) struct Locks {
    map: Mutex<Map<ObjectId, Shared>>,
}

/// Holds an object's lock until dropped; forgets it when nobody else wants it.
pub(crate) struct Guard {
    locks: Arc<Locks>,
    id: ObjectId,
    held: Option<Held>,
}

#[allow(dead_code)] // held for their drop only
enum Held {
    Read(OwnedRwLockReadGuard<()>),
    Write(OwnedRwLockWriteGuard<()>),
}

impl Locks {
    fn entry(&self, id: ObjectId) -> Shared {
        self.map.lock().entry(id).or_default().clone()
    }

    pub async fn read(self: &Arc<Self>, id: ObjectId) -> Guard {
        let held = Held::Read(self.entry(id).read_owned().await);
        Guard { locks: self.clone(), id, held: Some(held) }
    }

    pub async fn write(self: &Arc<Self>, id: ObjectId) -> Guard {
        let held = Held::Write(self.entry(id).write_owned().await);
        Guard { locks: self.clone(), id, held: Some(held) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.held = None;
        let mut map = self.locks.map.lock();
        if map.get(&self.id).is_some_and(|l| Arc::strong_count(l) == 1) {
            map.remove(&self.id);
        }
    }
}
