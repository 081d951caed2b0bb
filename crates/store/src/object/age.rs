//! How old a tombstone is at least, whatever the wall clock does.
//!
//! A tombstone that goes too early lets a write that is sent again make the object anew, which belongs to no
//! file then (the simulator's seed 11481: the clock was set ahead, and the next server dropped all of them).
//! Wall clocks jump and differ between the hosts of a target; time that passed in this life of the target is
//! certain.

use model::Timestamp;
use std::time::Duration;
use world::{Instant, World};

/// A tombstone's age at which no session can resend an older request any more.
pub(super) const TOMBSTONE_MAX: Duration = Duration::from_secs(3600);

/// Begins with the wall clock's time and goes on by itself: ages of tombstones of this life are exact.
pub(super) struct AgeClock {
    opened: Instant,
    wall: Timestamp,
}

impl AgeClock {
    pub fn new(world: &World) -> AgeClock {
        AgeClock { opened: world.now(), wall: world.wall() }
    }

    fn uptime(&self, world: &World) -> Duration {
        world.now().since(self.opened)
    }

    /// What a tombstone made now says.
    pub fn now(&self, world: &World) -> Timestamp {
        let passed = i64::try_from(self.uptime(world).as_secs()).unwrap_or(i64::MAX);
        Timestamp { sec: self.wall.sec.saturating_add(passed), nsec: self.wall.nsec }
    }

    /// Seconds of the newest tombstone that may go. `None`: those of former lives may be younger than they
    /// look.
    pub fn limit(&self, world: &World) -> Option<i64> {
        let old = i64::try_from(TOMBSTONE_MAX.as_secs()).expect("an hour");
        (self.uptime(world) >= TOMBSTONE_MAX).then(|| self.now(world).sec - old)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObjectMeta, Objects, location};
    use super::*;
    use crate::{Db, DbOptions};
    use bytes::Bytes;
    use model::nodemap::Owner;
    use model::{Errno, Fid, ObjectId};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use world::mem::MemDisk;
    use world::{BoxFuture, Clock};

    /// Seconds that time and the wall clock are ahead of the host's.
    #[derive(Default)]
    struct Ahead {
        time: AtomicU64,
        wall: AtomicU64,
    }

    struct Shifted(Arc<dyn Clock>, Arc<Ahead>);

    impl Clock for Shifted {
        fn now(&self) -> Instant {
            self.0.now().plus(Duration::from_secs(self.1.time.load(SeqCst)))
        }
        fn wall(&self) -> Timestamp {
            let t = self.0.wall();
            Timestamp { sec: t.sec + self.1.wall.load(SeqCst) as i64, ..t }
        }
        fn jumped(&self) -> Instant {
            self.0.jumped()
        }
        fn sleep(&self, d: Duration) -> BoxFuture<()> {
            self.0.sleep(d)
        }
    }

    #[test]
    fn a_tombstone_stays_for_an_hour_whatever_the_wall_clock_says() {
        let (mut world, rt) = world::real::start(1).unwrap();
        let ahead = Arc::new(Ahead::default());
        world.disk = Arc::new(MemDisk::new());
        world.clock = Arc::new(Shifted(world.clock.clone(), ahead.clone()));
        world.disk.mkdir("/t").unwrap();
        Db::create(&world, "/t").unwrap();
        Objects::create(&world, "/t").unwrap();
        let id = ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 };
        let open = |epoch| {
            let db = Db::open(&world, "/t", epoch, DbOptions::default()).unwrap();
            (Objects::open(db.clone()).unwrap(), db)
        };
        let there = |db: &Db| db.get(&location::tombstone_key(id)).unwrap().is_some();
        let (objects, db) = open(1);
        rt.block_on(objects.destroy(vec![id], Box::new(|_, _, _| ()))).unwrap();
        // The clock is set ahead, in this life of the target and before the next, on another host perhaps.
        ahead.wall.store(100_000, SeqCst);
        objects.drop_old_tombstones().unwrap();
        assert!(there(&db));
        drop(objects);
        rt.block_on(db.close()).unwrap();
        drop(db);
        let (objects, db) = open(2);
        objects.drop_old_tombstones().unwrap();
        assert!(there(&db));
        let file = Fid::new(1, 2, 3);
        let late = ObjectMeta {
            file,
            owner: Owner::new(0, 0, 0),
            owner_as_of: None,
            time: None,
            data_version: None,
            label: None,
        };
        let write = objects.write(id, Some(0), Bytes::from_static(b"late"), late, Box::new(|_, _, _| ()));
        assert_eq!(rt.block_on(write).map(drop).unwrap_err().errno(), Errno::ESTALE);
        ahead.time.store(3599, SeqCst);
        objects.drop_old_tombstones().unwrap();
        assert!(there(&db));
        ahead.time.store(3601, SeqCst);
        objects.drop_old_tombstones().unwrap();
        assert!(!there(&db), "not for ever");
    }
}
