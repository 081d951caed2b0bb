//! An operator freezes the metadata target now and then, in some runs: while it is frozen nothing in its
//! table of files changes, whatever actors and servers do, also when it was started again in between. A
//! snapshot that is taken then has the same files.

use crate::cluster::Cluster;
use crate::executor::lock;
use crate::run::{Run, Violation};
use ::world::pause::DiskPause;
use ::world::rng::Rng;
use ::world::{Either, World, select};
use mds::schema::key;
use model::barrier::{BarrierOrder, BarrierState};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::snapshot::{self, Making};
use store::{Db, DbOptions};

/// One seed in so many has one.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 18;
/// What a modification of files changes.
const FILES: [u8; 5] = [key::INODE, key::DENTRY, key::BACKPTR, key::XATTR, key::DATA];
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// For an answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Freezer {
    rng: Rng,
}

impl Freezer {
    pub(crate) fn new(seed: u64) -> Option<Freezer> {
        let rng = Rng::new(seed ^ 0x6672_6565_7a65);
        (seed % ONE_IN == THIS_ONE).then_some(Freezer { rng })
    }

    /// While actors work: until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            let w = c.servers[0].host().node.world();
            let shot = Shot::begin(&c, &w);
            let pause = self.rng.range(100_000, 3_000_000);
            c.sim.sleep(Duration::from_micros(pause)).await;
            let timeout_s = self.rng.range(1, 6) as u32;
            if ask(&c, BarrierOrder::Freeze { timeout_s }).await.is_some() {
                self.hold(&c, shot).await?;
            }
        }
        // Nothing waits for its end when all is looked at.
        let _ = ask(&c, BarrierOrder::Thaw).await;
        Ok(())
    }

    /// One barrier, until it is over.
    async fn hold(&mut self, c: &Arc<Cluster>, mut shot: Option<Shot<'_>>) -> Result<(), Violation> {
        let mut before = None;
        let looks = self.rng.range(5, 60);
        for _ in 0..looks {
            match ask(c, BarrierOrder::Stat).await {
                // Its server is away.
                None => {}
                Some(s) if s.is_freezing() => {}
                Some(BarrierState::Frozen) => {
                    let Some(now) = files(c) else { continue };
                    let first = *before.get_or_insert(now);
                    if first != now {
                        return Err("a file was modified while the metadata target was frozen".into());
                    }
                    c.sim.count("frozen");
                    if let Some(s) = shot.take() {
                        s.end(c).await?;
                    }
                }
                Some(_) => return Ok(()),
            }
            let pause = LOOK_AGAIN * self.rng.range(1, 12) as u32;
            c.sim.sleep(pause).await;
        }
        if self.rng.below(3) > 0 {
            let _ = ask(c, BarrierOrder::Thaw).await;
        }
        Ok(())
    }
}

/// `None`: there is no server, or it refuses, or it dies meanwhile and says nothing more.
async fn ask(c: &Arc<Cluster>, order: BarrierOrder) -> Option<BarrierState> {
    let mdt = c.mdt()?;
    let answer = Box::pin(mds::barrier_order(&mdt, order));
    match select(answer, c.sim.sleep(PATIENCE)).await {
        Either::Left(answer) => answer.ok().map(|s| s.state),
        Either::Right(()) => None,
    }
}

/// A snapshot of the metadata target: begun while everything goes on, ended at a barrier.
struct Shot<'a> {
    making: Making,
    world: &'a World,
    pause: Arc<DiskPause>,
    /// Of the server whose files it clones.
    epoch: u32,
}

/// Nothing takes time there.
const AT_ONCE: Duration = Duration::from_secs(60);
const SHOT: &str = "sim";

impl<'a> Shot<'a> {
    /// `None`: there is no server, or its disk fails.
    fn begin(c: &Cluster, world: &'a World) -> Option<Shot<'a>> {
        let (pause, epoch) = Shot::server(c)?;
        let dir = c.servers[0].dir();
        // What a crash left.
        snapshot::tidy(world, dir).ok()?;
        snapshot::destroy(world, dir, SHOT, &mut |_| true).ok()?;
        let mut making = Making::begin(world, dir, SHOT).ok()?;
        pause.track(AT_ONCE).then_some(())?;
        making.copy_all(&mut |_| true).ok()?;
        Some(Shot { making, world, pause, epoch })
    }

    fn server(c: &Cluster) -> Option<(Arc<DiskPause>, u32)> {
        let host = c.servers[0].host();
        let running = lock(&host.running);
        let r = running.as_ref().filter(|_| !host.node.is_paused())?;
        Some((r.pause.clone(), r.db.epoch()))
    }

    /// It has the files that the target has now.
    async fn end(mut self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let (w, dir) = (self.world, c.servers[0].dir());
        if Shot::server(c).is_none_or(|(_, epoch)| epoch != self.epoch) || c.servers[0].expects_errors() {
            return Ok(());
        }
        assert!(self.pause.close(AT_ONCE), "nothing is under way in one thread");
        let changed = self.pause.take_changed();
        let cloned = changed.map(|changed| self.making.copy_changed(&changed, &mut |_| true));
        let now = files(c);
        assert!(self.pause.open(), "it was closed until now");
        self.pause.forget();
        let (Some(Ok(())), Some(now)) = (cloned, now) else { return Ok(()) };
        if self.making.keep(b"{}").is_err() {
            return Ok(());
        }
        let copy = Db::open(w, &snapshot::place(dir, SHOT), self.epoch + 1, DbOptions::default());
        let db = copy.map_err(|e| format!("a snapshot cannot be opened: {e}"))?;
        let then = files_of(&db);
        let closed = Box::pin(db.close());
        // Its host may be stopped meanwhile.
        let _ = select(closed, c.sim.sleep(PATIENCE)).await;
        if then != Some(now) {
            return Err("a snapshot has other files than its target had at that moment".into());
        }
        c.sim.count("snapshot");
        Ok(())
    }
}

/// What the metadata target has of files.
fn files(c: &Cluster) -> Option<u64> {
    let db = lock(&c.servers[0].host().running).as_ref()?.db.clone();
    files_of(&db)
}

fn files_of(db: &Db) -> Option<u64> {
    let mut sum = DefaultHasher::new();
    for tag in FILES {
        db.scan(&[tag], &[tag + 1], usize::MAX).ok()?.hash(&mut sum);
    }
    Some(sum.finish())
}
