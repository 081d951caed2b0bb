//! An object server is emptied as `nacre drain` does it: it is given no new objects, for good, all files that
//! have objects there are moved to others while actors use them and servers crash, and in the end nothing
//! lies there any more. Then it takes objects again, or another one takes its place.

use crate::check;
use crate::cluster::Cluster;
use crate::exec::{STRIPE_BYTES, call, file, read_at};
use crate::executor::lock;
use crate::pools;
use crate::run::{Run, Violation, Work, alive, until_first_error};
use crate::scenario::settle;
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use ::world::{Either, select};
use client::{Admin, Fs};
use mgs::registration::Order;
use model::{Errno, Fid, LayoutSpec, ObjectId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// One in so many seeds has one.
const ONE_IN: u64 = 4;
/// Files that are moved at a time.
const AT_ONCE: usize = 4;
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A question that gets no answer, because its server is gone, is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// New files that may have no object there, until it is known again.
const TRIES: u32 = 60;
/// Passes over what lies there when nobody uses it any more.
const PASSES_MAX: usize = 40;

pub(crate) struct Drain {
    rng: Rng,
    ost: u16,
    /// It begins when so many operations were done.
    at: u64,
    /// Objects that it had when the metadata server gave it no more; `None`: not yet.
    had: Option<BTreeSet<ObjectId>>,
}

impl Drain {
    pub(crate) fn new(seed: u64, osts: u16, ops: u64) -> Option<Drain> {
        let mut rng = Rng::new(seed ^ 0x0064_7261_696e);
        let drains = rng.below(ONE_IN) == 0;
        let (ost, at) = (rng.below(u64::from(osts)) as u16, rng.below(ops * 3 / 4));
        drains.then_some(Drain { rng, ost, at, had: None })
    }

    fn creates(&self) -> String {
        format!("osp.sim-OST{:04x}-osc-*.max_create_count", self.ost)
    }

    /// While actors work: until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while run.ops.load(Relaxed) < self.at && !over.load(Relaxed) {
            c.sim.sleep(LOOK_AGAIN).await;
        }
        if over.load(Relaxed) || !self.close(&c, &over).await {
            return Ok(());
        }
        let before = boots(&c);
        while !over.load(Relaxed) {
            self.pass(&run).await?;
            self.no_new_objects(&c)?;
            let pause = self.rng.range(1_000, 1_000_000);
            c.sim.sleep(Duration::from_micros(pause)).await;
        }
        if boots(&c) != before {
            c.sim.count("crash_while_drained");
        }
        Ok(())
    }

    /// No new objects from now on. False: the run was over before that was certain.
    async fn close(&mut self, c: &Arc<Cluster>, over: &AtomicBool) -> bool {
        set_permanent(c, &self.creates(), "0", false).await;
        c.sim.count("ost_closed");
        while !over.load(Relaxed) {
            if self.is_closed(c) {
                self.had = objects_expected(c, self.ost);
                return self.had.is_some();
            }
            c.sim.sleep(LOOK_AGAIN).await;
        }
        false
    }

    /// The metadata server serves everybody, and does not choose it.
    fn is_closed(&self, c: &Cluster) -> bool {
        let Some(mdt) = c.mdt() else { return false };
        let all = |pattern: &str, says: &dyn Fn(&str) -> bool| {
            let values = mdt.get_params(pattern);
            !values.is_empty() && values.iter().all(|(_, v)| says(v))
        };
        all(&self.creates(), &|v| v.trim() == "0")
            && all("mdt.*.recovery_status", &|v| !v.contains("RECOVERING") && !v.contains("WAITING"))
    }

    /// What it has it had before.
    fn no_new_objects(&self, c: &Cluster) -> Result<(), Violation> {
        let (Some(had), Some(has)) = (&self.had, objects_expected(c, self.ost)) else { return Ok(()) };
        match has.difference(had).next() {
            None => Ok(()),
            Some(new) => {
                Err(format!("OST {} is to have no new objects, and a file was given {new} there", self.ost))
            }
        }
    }

    /// Moves all files that have objects there. How many it found.
    async fn pass(&mut self, run: &Arc<Run>) -> Result<usize, Violation> {
        let (mut after, mut found) = (None, 0);
        loop {
            let (m, fs, life) = run.mount(self.ost.into(), &mut self.rng).await;
            let here = &run.cluster.mounts[m];
            let page = alive(here, life, Admin(&fs).ostfiles(call(), self.ost, after));
            // Its client died, or cannot say: the next pass finds the rest.
            let Ok(Ok(page)) = run.bounded("files of an OST", page).await? else { return Ok(found + 1) };
            let files: BTreeSet<Fid> = page.files.iter().map(|(fid, _)| *fid).collect();
            found += files.len();
            for some in files.into_iter().collect::<Vec<_>>().chunks(AT_ONCE) {
                let moves = some.iter().map(|fid| -> Work<'_> {
                    let (fs, run, fid) = (fs.clone(), run.clone(), *fid);
                    Box::pin(async move {
                        let one = alive(here, life, move_away(&run.cluster, fs, fid));
                        run.bounded("moving a file away", one).await?.unwrap_or(Ok(()))
                    })
                });
                until_first_error(moves.collect()).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// When nobody uses the files any more: nothing is left there.
    pub(crate) async fn complete(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        if self.had.is_none() {
            return Ok(());
        }
        let mut passes = 0;
        while self.pass(run).await? > 0 {
            passes += 1;
            if passes >= PASSES_MAX {
                return Err(format!("OST {} is not empty after {passes} passes", self.ost));
            }
            c.sim.sleep(Duration::from_secs(1)).await;
        }
        settle(&c).await?;
        self.no_new_objects(&c)?;
        check::everything(&c, &lock(&run.lost))?;
        let left = objects_expected(&c, self.ost).unwrap_or_default();
        if let Some(object) = left.first() {
            return Err(format!("OST {} was drained, and a file has {object} there", self.ost));
        }
        c.sim.count("ost_drained");
        Ok(())
    }

    /// It takes objects again, or another one takes its place.
    pub(crate) async fn end(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = &run.cluster;
        if self.had.is_some() && self.rng.coin() {
            self.replace(c).await?;
        }
        set_permanent(c, &self.creates(), "20000", false).await;
        while self.is_closed(c) || c.mdt().is_none() {
            c.sim.sleep(LOOK_AGAIN).await;
        }
        set_permanent(c, &self.creates(), "", true).await;
        self.is_used(run).await?;
        // Its objects go before anybody looks at what lies there.
        settle(c).await
    }

    /// Its host is lost with all that it had, which was nothing, and a new one is formatted in its place.
    async fn replace(&mut self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let label = format!("sim-OST{:04x}", self.ost);
        let server = usize::from(self.ost) + 1;
        let mgs = c.mgs().ok_or("the MGS is down")?;
        let open = mgs.administer(&label, &Order::Open).await;
        open.map_err(|(e, why)| format!("{label} cannot be replaced: {e}: {why}"))?;
        c.crash(server, Some(CrashMode::LoseAll));
        c.servers[server].replace().map_err(|e| format!("{label} cannot be formatted anew: {e:#}"))?;
        c.boot(server);
        c.sim.count("ost_replaced");
        Ok(())
    }

    /// New files have objects there, and keep their bytes.
    async fn is_used(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = &run.cluster;
        let (_, fs, _) = run.mount(self.ost.into(), &mut self.rng).await;
        let osts = c.servers.len() as i32 - 1;
        let gave = |what: &str, e: Errno| format!("{what} on OST {} after it was emptied gave {e}", self.ost);
        let bytes: Vec<u8> = (0..STRIPE_BYTES * osts as u64).map(|i| 1 + (i % 253) as u8).collect();
        for n in 0..TRIES {
            let name = format!("emptied{n}");
            let fid = file(&fs, fs.root(), &name, osts).await.map_err(|e| gave("create", e))?;
            let l = Admin(&fs).getlayout(call(), fid).await.map_err(|e| gave("getlayout", e))?;
            let there = l.is_some_and(|l| l.objects().any(|o| o.ost == self.ost));
            let wrote = fs.clone().write(call(), fid, 0, false, false, bytes.clone().into()).await;
            if wrote == Err(Errno::EIO) {
                // The metadata server laid it out for the one before, of which it has not heard otherwise
                // yet.
                let gone = fs.clone().unlink(call(), fs.root(), name.into_bytes()).await;
                gone.map_err(|e| gave("unlink", e))?;
                c.sim.sleep(Duration::from_secs(1)).await;
                continue;
            }
            wrote.map_err(|e| gave("write", e))?;
            fs.clone().fsync(call(), fid).await.map_err(|e| gave("fsync", e))?;
            let seen = read_at(&fs, fid, 0, bytes.len()).await.map_err(|e| gave("read", e))?;
            let gone = fs.clone().unlink(call(), fs.root(), name.into_bytes()).await;
            gone.map_err(|e| gave("unlink", e))?;
            if seen != bytes {
                return Err(format!("a file on OST {} that was emptied holds other bytes", self.ost));
            }
            if there {
                return Ok(());
            }
            // It may not have said yet that it is there.
            c.sim.sleep(Duration::from_secs(1)).await;
        }
        Err(format!("OST {} takes objects again, and no file is given any there", self.ost))
    }
}

/// How often servers were started.
fn boots(c: &Cluster) -> u64 {
    c.servers.iter().flat_map(|s| &s.hosts).map(|h| h.boots.load(Relaxed)).sum()
}

/// Objects that files have on an OST, as the metadata server knows; `None`: it is down.
fn objects_expected(c: &Cluster, ost: u16) -> Option<BTreeSet<ObjectId>> {
    let db = c.mdt_db()?;
    let mut all = BTreeSet::new();
    let each = |on: u16, object, _| {
        if on == ost {
            all.insert(object);
        }
        Ok(())
    };
    mds::check::expected_objects(&db, each).ok()?;
    Some(all)
}

/// `lctl set_param -P` on the host of the MGS, as often as it takes.
/// Until it is so.
pub(crate) async fn set_permanent(c: &Arc<Cluster>, name: &str, value: &str, delete: bool) {
    loop {
        if let Some(mgs) = c.mgs() {
            let (name, value) = (name.to_string(), value.to_string());
            let set = Box::pin(async move { mgs.set_permanent(&name, &value, delete).await });
            // A deletion that was answered by nobody may have happened.
            if let Either::Left(Ok(()) | Err(Errno::ENOENT)) = select(set, c.sim.sleep(ASK_AGAIN)).await {
                return;
            }
        }
        c.sim.sleep(LOOK_AGAIN).await;
    }
}

/// The file goes to objects like those that it has.
async fn move_away(c: &Arc<Cluster>, fs: Arc<Fs>, fid: Fid) -> Result<(), Violation> {
    let Ok(Some(l)) = Admin(&fs).getlayout(call(), fid).await else { return Ok(()) };
    let first = l.components.first();
    let spec = LayoutSpec {
        stripe_count: first.map_or(1, |c| c.stripes().max(1)) as i32,
        stripe_size: first.map_or(STRIPE_BYTES, |c| u64::from(c.stripe_size).max(STRIPE_BYTES)),
        pool: first.map(|c| c.pool.clone()).unwrap_or_default(),
        ..LayoutSpec::default()
    };
    if spec.stripe_count > 1 {
        c.stripes(fid);
    }
    match Admin(&fs).migrate(call(), fid, spec).await {
        Ok(l) => {
            pools::check(&l)?;
            c.sim.count("file_drained");
        }
        // Removed meanwhile, or it has its data with the inode again.
        Err(Errno::ENOENT | Errno::ESTALE | Errno::ENODATA) => {}
        // Not now: servers are away, or lost, or the mount ends.
        Err(
            Errno::EBUSY | Errno::EIO | Errno::ETIMEDOUT | Errno::ENOSPC | Errno::ESHUTDOWN | Errno::ENOTCONN,
        ) => c.sim.count("file_not_drained"),
        Err(e) => return Err(format!("moving {fid} away gave {e}")),
    }
    Ok(())
}
