//! Opening: which slots are taken, files that belong to nobody, tombstones that are old enough.

use super::Objects;
use super::age::AgeClock;
use super::allocated::keep_settled;
use super::data::ObjectData;
use super::files::Files;
use super::location::{self, Location, ObjectRecord};
use super::locks::Locks;
use super::slots::Slots;
use super::verify::{Checksums, Counters};
use crate::usage::{Counted, Totals, UsageLedger};
use crate::{Db, Read, StoreError, Txn};
use model::ObjectId;
use model::mutex::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use world::World;

const TOMBSTONE_SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Records looked at in one step.
pub(super) const STEP: usize = 1000;

impl Objects {
    /// Makes the folders of an OST without objects; durable when it returns.
    pub fn create(world: &World, dir: &str) -> Result<(), StoreError> {
        for d in [location::objects_dir(dir), location::packed_dir(dir), location::own_root(dir)] {
            world.disk.mkdir(&d).map_err(StoreError::io("cannot create", &d))?;
        }
        for d in [location::objects_dir(dir), dir.to_string()] {
            world.disk.sync_dir(&d).map_err(StoreError::io("cannot flush the folder", &d))?;
        }
        Ok(())
    }

    /// After [`Db::open`] (which redid what the files of objects lacked).
    pub fn open(db: Arc<Db>) -> Result<Arc<Objects>, StoreError> {
        let (world, dir) = (db.core().world.clone(), db.core().dir.clone());
        for d in [location::packed_dir(&dir), location::own_root(&dir)] {
            if !world.disk.exists(&d).map_err(StoreError::io("cannot look at", &d))? {
                return Err(StoreError::Refused(format!(
                    "'{dir}' holds no OST ('{d}' is missing): run mkfs.nacre --ost"
                )));
            }
        }
        let files = Files::new(&world, &dir);
        let slots = claim_slots(&db, &dir)?;
        let (usage, settled) = UsageLedger::open(&db, || count_usage(&*db))?;
        *db.core().hook.lock() = Some(files.clone());
        *db.core().pre_commit.lock() = Some(files.clone());
        let counters = Arc::<Counters>::default();
        let sums = Arc::new(Checksums::new(&db, &files, &counters));
        let data = ObjectData {
            core: db.core().clone(),
            files: files.clone(),
            slots: Mutex::new(slots),
            sums: sums.clone(),
        };
        let objects = Arc::new(Objects {
            age: AgeClock::new(&world),
            world: world.clone(),
            dir,
            locks: Arc::new(Locks::default()),
            sums,
            data,
            files,
            db,
            usage,
            counters,
        });
        objects.sums.close_all()?;
        let weak = Arc::downgrade(&objects);
        let w = world.clone();
        world.spawn("object housekeeping", async move { housekeeping(w, weak).await });
        let (weak, w) = (Arc::downgrade(&objects), world.clone());
        world.spawn("object blocks", async move { keep_settled(w, weak, !settled).await });
        Ok(objects)
    }

    /// Removes files that a crash left before their object's record was durable. Best effort: what fails is
    /// tried again at the next start.
    async fn remove_strays(self: &Arc<Self>) -> Result<(), StoreError> {
        let me = self.clone();
        let list = move |d: String| me.world.disk.list(&d).map_err(StoreError::io("cannot list", &d));
        let root = location::own_root(&self.dir);
        let (l, r) = (list.clone(), root.clone());
        for sub in self.world.blocking(move || l(r)).await? {
            let (l, d) = (list.clone(), format!("{root}/{sub}"));
            for name in self.world.blocking(move || l(d)).await? {
                if let Some(id) = location::id_of_name(&name) {
                    self.remove_if_stray(id).await?;
                }
            }
        }
        Ok(())
    }

    async fn remove_if_stray(self: &Arc<Self>, id: ObjectId) -> Result<(), StoreError> {
        if self.is_own(id)? {
            return Ok(());
        }
        let guard = self.locks.write(id).await;
        if self.is_own(id)? {
            return Ok(());
        }
        let me = self.clone();
        self.world
            .blocking(move || {
                let _guard = guard;
                let path = location::own_path(&me.dir, id);
                match me.world.disk.unlink(&path) {
                    Ok(()) => {
                        tracing::info!("'{path}' belonged to no object: removed");
                        me.files.mark_dir(location::own_dir(&me.dir, id));
                        Ok(())
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    Err(e) => Err(StoreError::io("cannot remove stray file", &path)(e)),
                }
            })
            .await
    }

    fn is_own(&self, id: ObjectId) -> Result<bool, StoreError> {
        let v = self.db.get(&location::object_key(id))?;
        Ok(v.map(|v| ObjectRecord::decode(id, &v)).transpose()?.is_some_and(|r| r.location == Location::Own))
    }

    /// Forgets tombstones that are old enough.
    pub(super) fn drop_old_tombstones(&self) -> Result<(), StoreError> {
        let Some(limit) = self.age.limit(&self.world) else { return Ok(()) };
        let mut from = vec![location::TAG_TOMBSTONE];
        loop {
            let pairs = self.db.scan(&from, &[location::TAG_TOMBSTONE + 1], STEP)?;
            let mut txn = Txn::new();
            for (k, v) in &pairs {
                if location::decode_tombstone(v).is_some_and(|t| t.sec <= limit) {
                    txn.delete(k.clone());
                }
            }
            if !txn.is_empty() {
                self.db.submit(txn)?;
            }
            match pairs.last() {
                Some((k, _)) if pairs.len() == STEP => {
                    from.clone_from(k);
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }
}

async fn housekeeping(world: World, objects: Weak<Objects>) {
    if let Some(o) = objects.upgrade()
        && let Err(e) = o.remove_strays().await
    {
        tracing::warn!("looking for stray object files: {e}");
    }
    if let Some(o) = objects.upgrade()
        && let Err(e) = o.sums.drop_leftovers().await
    {
        tracing::warn!("dropping checksums of destroyed objects: {e}");
    }
    loop {
        {
            let Some(o) = objects.upgrade() else { return };
            match o.drop_old_tombstones() {
                Ok(()) => {}
                Err(StoreError::Stopped(_)) => return,
                Err(e) => tracing::warn!("dropping old tombstones: {e}"),
            }
        }
        world.sleep(TOMBSTONE_SWEEP_EVERY).await;
    }
}

/// What owners use by the records of all objects.
pub fn count_usage(db: &dyn Read) -> Result<Totals, StoreError> {
    let mut counted = Counted::default();
    let mut from = vec![location::TAG_OBJECT];
    loop {
        let pairs = db.scan(&from, &[location::TAG_OBJECT + 1], STEP)?;
        for (k, v) in &pairs {
            // Of a damaged key other parts complain.
            if let Some(id) = location::id_of_key(k) {
                let (owner, usage) = ObjectRecord::decode(id, v)?.usage();
                counted.add(owner, usage);
            }
        }
        match pairs.last() {
            Some((k, _)) if pairs.len() == STEP => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(counted.into_totals()),
        }
    }
}

fn claim_slots(db: &Db, dir: &str) -> Result<Slots, StoreError> {
    let mut slots = Slots::default();
    let mut from = vec![location::TAG_OBJECT];
    loop {
        let pairs = db.scan(&from, &[location::TAG_OBJECT + 1], STEP)?;
        for (k, v) in &pairs {
            let id = location::id_of_key(k).ok_or_else(|| {
                StoreError::damaged("table", dir, format!("object key {k:02x?} has a wrong length"))
            })?;
            if let Location::Packed(p) = ObjectRecord::decode(id, v)?.location
                && !slots.claim(p)
            {
                let why = format!("its slot {p:?} belongs to another object too; run nacre fsck");
                return Err(StoreError::damaged("object", &id.to_string(), why));
            }
        }
        match pairs.last() {
            Some((k, _)) if pairs.len() == STEP => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(slots),
        }
    }
}
