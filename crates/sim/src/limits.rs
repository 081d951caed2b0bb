//! A user near his limit on space, in some runs: all targets together never let him have more than that, what
//! they may let him have without asking never comes to more once everybody has been told, and what he is
//! refused does not fit. At last, when no faults happen by themselves any more, he uses all of it to the last
//! block; object servers lose power then, and his limit changes while one of them is away.

use crate::cluster::Cluster;
use crate::exec::{O_RDWR, STRIPE_BYTES, call};
use crate::run::{Gone, Run, Violation, alive};
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use client::{Admin, Call, Fs};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use model::{Cred, Errno, Fid, LayoutSpec, SetAttr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::quotactl::QuotaAsk;

/// One seed in so many has him.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 14;
const UID: u32 = 1700;
const HIM: QuotaId = QuotaId { of: QuotaType::User, id: UID };
/// So little that no mount may keep anything of it: nothing is accepted that does not fit.
const LIMIT_BYTES: u64 = 1 << 20;
const PIECE_BYTES: u64 = 16 << 10;
/// Files that he has at a time, and where his writes end.
const FILES: u64 = 6;
const FILE_MAX_BYTES: u64 = 512 << 10;
/// A file that outgrows its inode is in both places for a moment.
const GROWN_BYTES: u64 = 64 << 10;
/// What is left of a limit of somebody who may have nothing more: a piece does not fit.
const LEFT_MAX_BYTES: u64 = 2 * PIECE_BYTES;
/// How long it may take, without faults, until all targets have heard of something.
const HEARD: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// So long he tries to have more while object servers come back.
const TRIES_ON: Duration = Duration::from_secs(10);

pub(crate) struct QuotaUser {
    rng: Rng,
    dir: Fid,
    osts: u16,
    /// Files are moved meanwhile: then they count twice, until the old objects are gone.
    moved: bool,
}

/// What all targets said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Standing {
    used: u64,
    /// What they may let him have without asking; `None`: one has not been told.
    shares: Option<u64>,
}

fn by_him() -> Call {
    Call { cred: Cred::new(UID, UID), ..call() }
}

/// How he stands, if all targets say so.
async fn standing(fs: &Arc<Fs>, targets: usize) -> Option<Standing> {
    let (said, _) = Admin(fs).quotactl(call(), QuotaAsk::Of(vec![HIM])).await.ok()?;
    if said.len() != targets {
        return None;
    }
    let mut all = Standing { used: 0, shares: Some(0) };
    for (_, r) in said {
        let r = r.ok()?;
        all.used += r.usage.first()?.1.bytes();
        let shares = r.limits.0.and_then(|l| l.shares.0).unwrap_or_default();
        let share = shares.iter().find(|(id, _)| *id == HIM).map(|(_, share)| *share);
        all.shares = all.shares.zip(share).map(|(sum, share)| sum.saturating_add(share));
    }
    Some(all)
}

async fn set_limit(fs: &Arc<Fs>, hard: u64) -> Result<(), Errno> {
    let space = LimitChange { soft: Some(0), hard: Some(hard) };
    Admin(fs).setquota(call(), LimitOrder::Own { of: HIM, space, inodes: LimitChange::default() }).await
}

/// His file of this number, which is made if it is not there. `wide`: on all object servers.
async fn file(fs: &Arc<Fs>, dir: Fid, number: u64, osts: Option<u16>) -> Result<Fid, Errno> {
    let name = format!("f{number}").into_bytes();
    match fs.clone().lookup(by_him(), dir, name.clone()).await {
        Err(Errno::ENOENT) => {}
        found => return found.map(|a| a.fid),
    }
    let spec = |osts| LayoutSpec {
        stripe_count: i32::from(osts),
        stripe_size: STRIPE_BYTES,
        ..LayoutSpec::default()
    };
    let (a, f) = fs.clone().create(by_him(), dir, name, 0o600, O_RDWR, osts.map(spec)).await?;
    fs.clone().close(Arc::new(f)).await?;
    Ok(a.fid)
}

async fn write(fs: &Arc<Fs>, fid: Fid, off: u64, len: u64) -> Result<(), Errno> {
    let data = vec![1; len as usize].into();
    fs.clone().write(by_him(), fid, off, false, false, data).await.map(drop)
}

impl QuotaUser {
    pub(crate) fn new(seed: u64, osts: u16, moved: bool) -> Option<QuotaUser> {
        let rng = Rng::new(seed ^ 0x006c_696d_6974);
        (seed % ONE_IN == THIS_ONE).then_some(QuotaUser { rng, dir: Fid::ROOT, osts, moved })
    }

    /// Before anybody writes anything: a mount that has written where nobody was limited hears of it later.
    pub(crate) async fn begin(&mut self, fs: &Arc<Fs>) -> Result<(), Violation> {
        let gave = |what: &str, e| format!("{what} for a limited user gave {e}");
        let made = fs.clone().mkdir(call(), fs.root(), b"limited".to_vec(), 0o777).await;
        self.dir = made.map_err(|e| gave("mkdir", e))?.fid;
        let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        fs.clone().setattr(call(), self.dir, all).await.map_err(|e| gave("chmod", e))?;
        set_limit(fs, LIMIT_BYTES).await.map_err(|e| gave("setquota", e))
    }

    /// While actors work: until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            c.sim.sleep(Duration::from_micros(self.rng.range(1_000, 60_000))).await;
            let (m, fs, life) = run.mount(self.rng.index(c.mounts.len()), &mut self.rng).await;
            let one = alive(&c.mounts[m], life, self.step(&c, &fs));
            match run.bounded("what a limited user does", one).await? {
                Ok(done) => done?,
                Err(Gone) => c.sim.count("limited_user_lost_his_mount"),
            }
        }
        Ok(())
    }

    async fn step(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        let number = self.rng.below(FILES);
        let name = format!("f{number}").into_bytes();
        // Errors are those of servers that are away, but for two.
        let done = match self.rng.below(12) {
            0 => fs.clone().unlink(by_him(), self.dir, name).await.map(drop),
            1 => self.cut(fs, number).await,
            2 => set_limit(fs, LIMIT_BYTES / self.rng.range(1, 4)).await,
            what => self.write_somewhere(fs, number, what == 3).await,
        };
        match done {
            Err(Errno::EDQUOT) => c.sim.count("over_limit"),
            Err(Errno::ESHARE) => return Err("a user was told of a share that is used up".into()),
            _ => {}
        }
        let (targets, most) = (c.servers.len(), LIMIT_BYTES + GROWN_BYTES);
        if self.rng.below(4) == 0
            && !self.moved
            && let Some(s) = standing(fs, targets).await
            && s.used > most
            // What went to another target between two answers is in both, once.
            && let Some(s) = standing(fs, targets).await
            && s.used > most
        {
            return Err(format!("who may have {LIMIT_BYTES} bytes has {}", s.used));
        }
        Ok(())
    }

    async fn cut(&mut self, fs: &Arc<Fs>, number: u64) -> Result<(), Errno> {
        let fid = file(fs, self.dir, number, None).await?;
        let size = self.rng.below(4) * PIECE_BYTES;
        fs.clone().setattr(by_him(), fid, SetAttr { size: Some(size), ..SetAttr::default() }).await.map(drop)
    }

    async fn write_somewhere(&mut self, fs: &Arc<Fs>, number: u64, allocates: bool) -> Result<(), Errno> {
        // Half of them begin with their inodes.
        let osts = self.rng.coin().then_some(self.rng.range(1, u64::from(self.osts) + 1) as u16);
        let fid = file(fs, self.dir, number, osts).await?;
        let len = self.rng.range(1, 5) * PIECE_BYTES / 2;
        let off = self.rng.below(FILE_MAX_BYTES / PIECE_BYTES) * PIECE_BYTES;
        if allocates {
            return fs.clone().fallocate(by_him(), fid, 0, off, len).await;
        }
        write(fs, fid, off, len).await?;
        if self.rng.coin() { fs.clone().fsync(call(), fid).await } else { Ok(()) }
    }

    /// When nobody else does anything, and everything is up.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        run.bounded("the last of a limited user", self.use_it_all(&run.cluster)).await?
    }

    async fn use_it_all(&mut self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let Some((fs, _)) = c.mounts.iter().find_map(|m| m.get()) else { return Ok(()) };
        let other = c.mounts.iter().rev().find_map(|m| m.get()).map_or_else(|| fs.clone(), |(fs, _)| fs);
        self.order(c, &fs, LIMIT_BYTES).await?;
        for number in 0..FILES {
            self.remove(c, &fs, number).await?;
        }
        self.until(c, &fs, "what was removed is counted", |s| s.used == 0).await?;
        let wide = self.made(c, &fs, 0, Some(self.osts)).await?;
        let narrow = self.made(c, &other, 1, Some(1)).await?;
        let small = self.made(c, &other, 2, None).await?;
        let half = LIMIT_BYTES / 2;
        let mut ends = [0; 2];
        for (end, (fs, fid, most)) in ends.iter_mut().zip([(&other, narrow, half), (&fs, wide, u64::MAX)]) {
            *end = self.fill(c, fs, fid, most).await?;
        }
        // He has all of it: the last pieces went where there was room for them.
        let used = self.full(c, &fs).await?;
        if write(&other, small, 0, PIECE_BYTES * 2).await.is_ok() && used + PIECE_BYTES * 2 > LIMIT_BYTES {
            return Err(format!("who had {used} of {LIMIT_BYTES} bytes was given {} more", PIECE_BYTES * 2));
        }
        c.sim.count("limit_reached");

        self.power_fails(c, (&fs, wide, ends[1])).await?;
        self.remove(c, &other, 1).await?;
        self.until(c, &fs, "what was removed is counted", |s| s.used <= LIMIT_BYTES - half).await?;
        self.limit_changes_unheard(c, &fs).await?;
        // What is free again may be had, wherever it was.
        self.order(c, &fs, LIMIT_BYTES).await?;
        self.fill(c, &fs, wide, u64::MAX).await?;
        self.full(c, &fs).await?;
        self.order(c, &fs, 0).await
    }

    /// Object servers lose power, and hold to his limit from their start on.
    async fn power_fails(
        &mut self,
        c: &Arc<Cluster>,
        (fs, fid, end): (&Arc<Fs>, Fid, u64),
    ) -> Result<(), Violation> {
        for ost in 1..c.servers.len() {
            c.crash(ost, Some(CrashMode::LoseAll));
            c.boot(ost);
        }
        let start = c.sim.now();
        let mut off = end;
        while c.sim.now() - start < TRIES_ON.as_nanos() as u64 {
            if write(fs, fid, off, PIECE_BYTES).await.is_ok() {
                off += PIECE_BYTES;
            }
            c.sim.sleep(Duration::from_millis(20)).await;
        }
        self.full(c, fs).await.map(drop)
    }

    /// His limit is lowered while an object server is away that has more of it than he uses there.
    async fn limit_changes_unheard(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        let Some(before) = standing(fs, c.servers.len()).await else {
            return Err("not all targets say how a limited user stands".into());
        };
        let away = 1 + self.rng.index(c.servers.len() - 1);
        c.crash(away, None);
        let limit = before.used + PIECE_BYTES;
        self.order(c, fs, limit).await?;
        c.boot(away);
        let told = |s: &Standing| s.shares.is_some_and(|all| all <= limit.max(s.used));
        self.until(c, fs, "all targets have heard of a lower limit", told).await?;
        c.sim.count("limit_lowered_unheard");
        Ok(())
    }

    /// Writes to a file until he may have no more, or it is so long. How long it is.
    async fn fill(&self, c: &Arc<Cluster>, fs: &Arc<Fs>, fid: Fid, most: u64) -> Result<u64, Violation> {
        let (start, mut off) = (c.sim.now(), 0);
        while off < most {
            match write(fs, fid, off, PIECE_BYTES).await {
                Ok(()) => off += PIECE_BYTES,
                Err(Errno::EDQUOT) => break,
                Err(e) => self.patiently(c, start, &format!("a write within a limit gave {e}")).await?,
            }
            if off > 2 * LIMIT_BYTES {
                return Err(format!("who may have {LIMIT_BYTES} bytes wrote {off} to one file"));
            }
        }
        let _ = fs.clone().fsync(call(), fid).await;
        Ok(off)
    }

    /// He has all that he may have, and no more; how much.
    async fn full(&self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<u64, Violation> {
        let mut was = None;
        let start = c.sim.now();
        loop {
            // Blocks of a file of its own are counted a little later.
            c.sim.sleep(Duration::from_secs(5)).await;
            let now = standing(fs, c.servers.len()).await;
            if let Some(s) = now.filter(|_| now == was) {
                let shares = s.shares.unwrap_or(u64::MAX);
                return match s.used {
                    used if used > LIMIT_BYTES => Err(format!("he has {used} bytes of {LIMIT_BYTES}")),
                    used if used + LEFT_MAX_BYTES < LIMIT_BYTES => {
                        Err(format!("he may have {LIMIT_BYTES} bytes and was refused more with {used}"))
                    }
                    used if shares > LIMIT_BYTES => {
                        Err(format!("{shares} bytes are given out of {LIMIT_BYTES}, {used} are used"))
                    }
                    used => Ok(used),
                };
            }
            was = now;
            self.patiently(c, start, "not all targets say how a limited user stands").await?;
        }
    }

    async fn until(
        &self,
        c: &Arc<Cluster>,
        fs: &Arc<Fs>,
        what: &str,
        is: impl Fn(&Standing) -> bool,
    ) -> Result<(), Violation> {
        let start = c.sim.now();
        loop {
            let now = standing(fs, c.servers.len()).await;
            if now.as_ref().is_some_and(&is) {
                return Ok(());
            }
            self.patiently(c, start, &format!("it does not come to this that {what}: {now:?}")).await?;
        }
    }

    async fn order(&self, c: &Arc<Cluster>, fs: &Arc<Fs>, hard: u64) -> Result<(), Violation> {
        let start = c.sim.now();
        while let Err(e) = set_limit(fs, hard).await {
            self.patiently(c, start, &format!("a limit of {hard} could not be set: {e}")).await?;
        }
        Ok(())
    }

    async fn made(
        &self,
        c: &Arc<Cluster>,
        fs: &Arc<Fs>,
        number: u64,
        osts: Option<u16>,
    ) -> Result<Fid, Violation> {
        let start = c.sim.now();
        loop {
            match file(fs, self.dir, number, osts).await {
                Ok(fid) => return Ok(fid),
                Err(e) => self.patiently(c, start, &format!("a file could not be made: {e}")).await?,
            }
        }
    }

    async fn remove(&self, c: &Arc<Cluster>, fs: &Arc<Fs>, number: u64) -> Result<(), Violation> {
        let (start, name) = (c.sim.now(), format!("f{number}").into_bytes());
        loop {
            match fs.clone().unlink(by_him(), self.dir, name.clone()).await {
                Ok(_) | Err(Errno::ENOENT) => return Ok(()),
                Err(e) => self.patiently(c, start, &format!("a file could not be removed: {e}")).await?,
            }
        }
    }

    /// Waits a little; `what` is wrong once that was so for too long.
    async fn patiently(&self, c: &Arc<Cluster>, start: u64, what: &str) -> Result<(), Violation> {
        if c.sim.now() - start > HEARD.as_nanos() as u64 {
            return Err(format!("{HEARD:?} without faults: {what}"));
        }
        c.sim.sleep(LOOK_AGAIN).await;
        Ok(())
    }
}
