//! The trash, in some runs: files are removed from a directory whose trash is kept, restored and removed for
//! good while servers fail. What was durable once has its name or lies in the trash, with its size, until
//! somebody removes it for good; the rules of [`mds::check`] look at the records.

use crate::cluster::Cluster;
use crate::exec::{O_RDWR, STRIPE_BYTES, call, public_dir};
use crate::run::{Run, Violation, Worker};
use ::world::rng::Rng;
use client::{Admin, Call, Fs};
use model::{Cred, Errno, Fid, LayoutSpec, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::trashtake::{Takeout, Trashtake};

/// One seed in so many has it.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 10;
const UID: u32 = 1901;
/// Files at a time.
const FILES: usize = 6;
/// What was under way when its client died may be done a moment later: so often it is looked again.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A file that was made, with a size that is durable.
#[derive(Clone)]
struct Kept {
    fid: Fid,
    name: Vec<u8>,
    size: u64,
}

pub(crate) struct TrashUser {
    rng: Rng,
    dir: Fid,
    made: u64,
    files: Vec<Kept>,
}

fn by_user() -> Call {
    Call { cred: Cred::new(UID, UID), ..call() }
}

/// Where a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Named,
    InTrash,
    Nowhere,
}

impl Worker for TrashUser {
    const PAUSE_US: (u64, u64) = (1_000, 60_000);
    const STEP: &'static str = "what is done in a directory whose trash is kept";
    const LOST: &'static str = "trash_lost_its_mount";

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    async fn step(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        if self.files.len() < FILES {
            let made = self.make(fs).await;
            c.sim.log(|| format!("trash: made {:?}", made.as_ref().map(|k| k.fid)));
            self.files.extend(made.ok());
            return Ok(());
        }
        let i = self.rng.index(self.files.len());
        let k = self.files[i].clone();
        match self.look(c, fs, &k).await? {
            Some(Found::Named) => {
                let done = fs.clone().unlink(by_user(), self.dir, k.name).await;
                c.sim.log(|| format!("trash: {} removed: {done:?}", k.fid));
                done.unwrap_or_else(|_| c.sim.count("trash_unanswered"));
            }
            Some(Found::InTrash) if self.rng.below(3) == 0 => {
                // Whatever becomes of it, nobody knows that it must be there.
                self.files.swap_remove(i);
                let done = take(fs, k.fid, Takeout::Gone).await;
                c.sim.log(|| format!("trash: {} removed for good: {done:?}", k.fid));
            }
            Some(Found::InTrash) => {
                let done = take(fs, k.fid, Takeout::Back).await;
                c.sim.log(|| format!("trash: {} restored: {done:?}", k.fid));
                if done.is_ok() {
                    c.sim.count("restored_from_trash");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

async fn take(fs: &Arc<Fs>, fid: Fid, how: Takeout) -> Result<(), Errno> {
    let r = Admin(fs).trashtake(by_user(), Trashtake { files: vec![(fid, how)] }).await?;
    match r.results.first() {
        Some(0) => Ok(()),
        Some(e) => Err(Errno(i32::from(*e))),
        None => Err(Errno::EPROTO),
    }
}

impl TrashUser {
    pub(crate) fn new(seed: u64) -> Option<TrashUser> {
        let rng = Rng::new(seed ^ 0x0074_7261_7368);
        let none = TrashUser { rng, dir: Fid::ROOT, made: 0, files: Vec::new() };
        (seed % ONE_IN == THIS_ONE).then_some(none)
    }

    pub(crate) async fn begin(&mut self, fs: &Arc<Fs>) -> Result<(), Violation> {
        let gave = |e| format!("a directory whose trash is kept gave {e}");
        self.dir = public_dir(fs, fs.root(), b"kept".to_vec()).await.map_err(gave)?;
        Admin(fs).trashdir(call(), self.dir, true).await.map_err(gave)?;
        fs.clone().sync().await.map_err(gave)
    }

    async fn make(&mut self, fs: &Arc<Fs>) -> Result<Kept, Errno> {
        self.made += 1;
        let name = format!("k{}", self.made).into_bytes();
        let spec = LayoutSpec { stripe_count: 2, stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
        let spec = self.rng.coin().then_some(spec);
        let (a, f) = fs.clone().create(by_user(), self.dir, name.clone(), 0o600, O_RDWR, spec).await?;
        let size = self.rng.range(1, 40_000);
        let written =
            fs.clone().write(by_user(), a.fid, 0, false, false, vec![1; size as usize].into()).await;
        let durable = fs.clone().fsync(by_user(), a.fid).await;
        fs.clone().close(Arc::new(f)).await?;
        written.and(durable)?;
        fs.clone().sync().await?;
        Ok(Kept { fid: a.fid, name, size })
    }

    /// Where a file is; `None`: that cannot be said now.
    async fn look(&self, c: &Arc<Cluster>, fs: &Arc<Fs>, k: &Kept) -> Result<Option<Found>, Violation> {
        for _ in 0..LOOKS {
            match self.find(fs, k).await {
                Ok(Found::Nowhere) => c.sim.sleep(LOOK_AGAIN).await,
                Ok(found) => return self.is_whole(fs, k, found).await.map(Some),
                Err(_) => return Ok(None),
            }
        }
        let name = String::from_utf8_lossy(&k.name);
        Err(format!("{} ({name}) was removed where the trash is kept, and is gone for good", k.fid))
    }

    async fn find(&self, fs: &Arc<Fs>, k: &Kept) -> Result<Found, Errno> {
        match fs.clone().lookup(by_user(), self.dir, k.name.clone()).await {
            Ok(a) if a.fid == k.fid => return Ok(Found::Named),
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        let mut after: Option<(Timestamp, Fid)> = None;
        loop {
            let (page, _) = Admin(fs).trashlist(by_user(), self.dir, after).await?;
            if page.files.iter().any(|t| t.attr.fid == k.fid) {
                return Ok(Found::InTrash);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(Found::Nowhere),
            }
        }
    }

    async fn is_whole(&self, fs: &Arc<Fs>, k: &Kept, found: Found) -> Result<Found, Violation> {
        match fs.clone().getattr(by_user(), k.fid).await {
            Ok(a) if a.size != k.size => {
                Err(format!("{} ({found:?}) has {} bytes, it had {}", k.fid, a.size, k.size))
            }
            _ => Ok(found),
        }
    }

    /// When nobody else does anything, and everything is up.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = &run.cluster;
        let Some((fs, _)) = c.mounts.iter().find_map(|m| m.get()) else { return Ok(()) };
        for k in self.files.clone() {
            let found = run.bounded("the last of the trash", self.look(c, &fs, &k)).await??;
            if found.is_some() {
                c.sim.count("trash_compared");
            }
        }
        Ok(())
    }
}
