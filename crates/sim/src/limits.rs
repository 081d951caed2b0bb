//! A user near his limit on space, in some runs: all targets together never let him have more than that, what
//! they may let him have without asking never comes to more once everybody has been told, and what he is
//! refused does not fit. At last, when no faults happen by themselves any more, he uses all of it to the last
//! block; object servers lose power then, and his limit changes while one of them is away. In half of these
//! runs he has a limit by pool as well.

use crate::cluster::Cluster;
use crate::exec::{O_RDWR, STRIPE_BYTES, call, public_dir};
use crate::pools;
use crate::run::{Run, Violation, Worker};
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use client::{Admin, Call, Fs};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use model::{Cred, Errno, Fid, LayoutSpec, SetAttr, TargetKind};
use std::sync::Arc;
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
/// One of two of these runs has a limit by pool: the same seeds find what they found before.
const POOLED_ONE_IN: u64 = 40;
/// What he may have in the pool then.
const POOL_BYTES: u64 = LIMIT_BYTES / 4;
/// What is left of it when a piece does not fit: it may lie on two OSTs.
const LEFT_IN_POOL_MAX_BYTES: u64 = 4 * PIECE_BYTES;
/// Files that he has at a time, and where his writes end.
const FILES: u64 = 6;
const FILE_MAX_BYTES: u64 = 512 << 10;
/// A limit of which mounts keep some, and the steps in which it is used up before any answer about it is old.
const KEPT_LIMIT_BYTES: u64 = 8 << 20;
const STEP_BYTES: u64 = 512 << 10;
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
    /// He has a limit by pool.
    pub(crate) pooled: bool,
}

/// What all targets said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Standing {
    used: u64,
    /// What they may let him have without asking; `None`: one has not been told.
    shares: Option<u64>,
    /// Both on the OSTs of the pool.
    used_in_pool: u64,
    shares_in_pool: Option<u64>,
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
    let mut all = Standing { used: 0, shares: Some(0), used_in_pool: 0, shares_in_pool: Some(0) };
    for (state, r) in said {
        let r = r.ok()?;
        let used = r.usage.first()?.1.bytes();
        all.used += used;
        let shares = r.limits.0.and_then(|l| l.shares.0).unwrap_or_default().of;
        let share = shares.iter().find(|(id, _)| *id == HIM).map(|(_, share)| *share);
        all.shares = all.shares.zip(share).map(|(sum, share)| sum.saturating_add(share));
        if state.target.kind == TargetKind::Ost && pools::MEMBERS.contains(&state.target.index) {
            all.used_in_pool += used;
            let known = all.shares_in_pool.zip(share);
            all.shares_in_pool = known.map(|(sum, share)| sum.saturating_add(share));
        }
    }
    Some(all)
}

async fn set_limit(fs: &Arc<Fs>, hard: u64) -> Result<(), Errno> {
    let space = LimitChange { soft: Some(0), hard: Some(hard) };
    Admin(fs).setquota(call(), LimitOrder::Own { of: HIM, space, inodes: LimitChange::default() }).await
}

async fn set_limit_in_pool(fs: &Arc<Fs>, hard: u64) -> Result<(), Errno> {
    let space = LimitChange { soft: Some(0), hard: Some(hard) };
    Admin(fs).setquota(call(), LimitOrder::Pool { of: HIM, pool: pools::POOL.into(), space }).await
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
    write_by(fs, by_him(), fid, off, len).await
}

async fn write_by(fs: &Arc<Fs>, call: Call, fid: Fid, off: u64, len: u64) -> Result<(), Errno> {
    let data = vec![1; len as usize].into();
    fs.clone().write(call, fid, off, false, false, data).await.map(drop)
}

impl Worker for QuotaUser {
    const PAUSE_US: (u64, u64) = (1_000, 60_000);
    const STEP: &'static str = "what a limited user does";
    const LOST: &'static str = "limited_user_lost_his_mount";

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
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
        let in_pool = if self.pooled { POOL_BYTES + GROWN_BYTES } else { u64::MAX };
        let exceeds = |s: &Standing| s.used > LIMIT_BYTES + GROWN_BYTES || s.used_in_pool > in_pool;
        if self.rng.below(4) == 0
            && !self.moved
            && let Some(s) = standing(fs, c.servers.len()).await
            && exceeds(&s)
            // What went to another target between two answers is in both, once.
            && let Some(s) = standing(fs, c.servers.len()).await
            && exceeds(&s)
        {
            return Err(format!("who may have {LIMIT_BYTES} bytes, {in_pool} in the pool, has more: {s:?}"));
        }
        Ok(())
    }
}

impl QuotaUser {
    pub(crate) fn new(seed: u64, osts: u16, moved: bool) -> Option<QuotaUser> {
        let rng = Rng::new(seed ^ 0x006c_696d_6974);
        let pooled = seed % POOLED_ONE_IN == THIS_ONE;
        (seed % ONE_IN == THIS_ONE).then_some(QuotaUser { rng, dir: Fid::ROOT, osts, moved, pooled })
    }

    /// Before anybody writes anything: a mount that has written where nobody was limited hears of it later.
    pub(crate) async fn begin(&mut self, fs: &Arc<Fs>) -> Result<(), Violation> {
        let gave = |what: &str, e| format!("{what} for a limited user gave {e}");
        let made = public_dir(fs, fs.root(), b"limited".to_vec()).await;
        self.dir = made.map_err(|e| gave("a directory", e))?;
        if self.pooled {
            set_limit_in_pool(fs, POOL_BYTES).await.map_err(|e| gave("setquota of a pool", e))?;
        }
        set_limit(fs, LIMIT_BYTES).await.map_err(|e| gave("setquota", e))
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
        self.remove_all(c, &fs).await?;
        if self.pooled {
            self.use_the_pool(c, &fs).await?;
        }
        let wide = self.made(c, &fs, 0, Some(self.osts)).await?;
        let narrow = self.made(c, &other, 1, Some(1)).await?;
        let small = self.made(c, &other, 2, None).await?;
        let half = LIMIT_BYTES / 2;
        let mut ends = [0; 2];
        for (end, (fs, fid, most)) in ends.iter_mut().zip([(&other, narrow, half), (&fs, wide, u64::MAX)]) {
            *end = self.fill(c, fs, fid, most).await?;
        }
        // He has all of it: the last pieces went where there was room for them.
        let used = self.full(c, &fs, LIMIT_BYTES).await?;
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
        self.full(c, &fs, LIMIT_BYTES).await?;
        self.one_waits(c, &fs, &other).await?;
        self.order(c, &fs, 0).await
    }

    /// A mount that was told how much it may keep waits while another one uses up the rest: it is refused
    /// what it writes then, through its cache or around it.
    async fn one_waits(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>, other: &Arc<Fs>) -> Result<(), Violation> {
        if Arc::ptr_eq(fs, other) {
            return Ok(());
        }
        self.remove_all(c, fs).await?;
        self.order(c, fs, KEPT_LIMIT_BYTES).await?;
        let (waits, goes_on) = (self.on_one_ost(c, fs, 0).await?, self.on_one_ost(c, other, 1).await?);
        let (Some(waits), Some(goes_on)) = (waits, goes_on) else { return Ok(()) };
        let start = c.sim.now();
        while let Err(e) = write(fs, waits, 0, STEP_BYTES).await {
            if e == Errno::ENOSPC {
                return Ok(());
            }
            self.patiently(c, start, &format!("a write within a limit gave {e}")).await?;
        }
        let (mut off, mut step) = (0, STEP_BYTES);
        let around = Call { direct: true, ..by_him() };
        while step >= PIECE_BYTES {
            match write_by(other, around.clone(), goes_on, off, step).await {
                Ok(()) => off += step,
                Err(Errno::EDQUOT) => step /= 2,
                Err(Errno::ENOSPC) => return Ok(()),
                Err(e) => self.patiently(c, start, &format!("a write within a limit gave {e}")).await?,
            }
        }
        let by = if self.rng.coin() { around } else { by_him() };
        match write_by(fs, by, waits, STEP_BYTES, STEP_BYTES / 2).await {
            Ok(()) => c.sim.count("kept_beside_a_limit"),
            Err(_) => c.sim.count("not_kept_beside_a_limit"),
        }
        let _ = fs.clone().fsync(call(), waits).await;
        self.full(c, fs, KEPT_LIMIT_BYTES).await.map(drop)
    }

    /// His file of this number, anew, with one object on the first OST; `None` if that takes none.
    async fn on_one_ost(
        &self,
        c: &Arc<Cluster>,
        fs: &Arc<Fs>,
        number: u64,
    ) -> Result<Option<Fid>, Violation> {
        let (start, name) = (c.sim.now(), format!("f{number}").into_bytes());
        let spec = LayoutSpec { stripe_count: 1, osts: vec![0], ..LayoutSpec::default() };
        loop {
            match fs.clone().create(by_him(), self.dir, name.clone(), 0o600, O_RDWR, Some(spec.clone())).await
            {
                Ok((a, f)) => {
                    let _ = fs.clone().close(Arc::new(f)).await;
                    return Ok(Some(a.fid));
                }
                Err(Errno::ENOSPC) => return Ok(None),
                Err(e) => self.patiently(c, start, &format!("a file could not be made: {e}")).await?,
            }
        }
    }

    async fn remove_all(&self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        for number in 0..FILES {
            self.remove(c, fs, number).await?;
        }
        self.until(c, fs, "what was removed is counted", |s| s.used == 0).await
    }

    /// He has all that he may have on the OSTs of the pool, and no more, also when these lose power. It is
    /// his limit no longer afterwards.
    async fn use_the_pool(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        let wide = self.made(c, fs, 0, Some(self.osts)).await?;
        let end = self.fill(c, fs, wide, u64::MAX).await?;
        let given_out = |s: &Standing| s.shares_in_pool.is_some_and(|all| all <= POOL_BYTES);
        let full = |s: &Standing| {
            let used = s.used_in_pool;
            given_out(s) && used <= POOL_BYTES && used + LEFT_IN_POOL_MAX_BYTES >= POOL_BYTES
        };
        self.until(c, fs, "he has what he may have in the pool", full).await?;
        self.lose_power_while_writing(c, (fs, wide, end)).await?;
        self.until(c, fs, "he has no more than that after a restart", full).await?;
        c.sim.count("limit_of_pool_reached");
        let start = c.sim.now();
        while let Err(e) = set_limit_in_pool(fs, 0).await {
            self.patiently(c, start, &format!("a limit by pool could not be taken away: {e}")).await?;
        }
        self.remove_all(c, fs).await
    }

    /// Object servers lose power, and hold to his limit from their start on.
    async fn power_fails(
        &mut self,
        c: &Arc<Cluster>,
        (fs, fid, end): (&Arc<Fs>, Fid, u64),
    ) -> Result<(), Violation> {
        self.lose_power_while_writing(c, (fs, fid, end)).await?;
        self.full(c, fs, LIMIT_BYTES).await.map(drop)
    }

    async fn lose_power_while_writing(
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
        Ok(())
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
    async fn full(&self, c: &Arc<Cluster>, fs: &Arc<Fs>, limit: u64) -> Result<u64, Violation> {
        let mut was = None;
        let start = c.sim.now();
        loop {
            // Blocks of a file of its own are counted a little later.
            c.sim.sleep(Duration::from_secs(5)).await;
            let now = standing(fs, c.servers.len()).await;
            if let Some(s) = now.filter(|_| now == was) {
                let shares = s.shares.unwrap_or(u64::MAX);
                return match s.used {
                    used if used > limit => Err(format!("he has {used} bytes of {limit}")),
                    used if used + LEFT_MAX_BYTES < limit => {
                        Err(format!("he may have {limit} bytes and was refused more with {used}"))
                    }
                    used if shares > limit => {
                        Err(format!("{shares} bytes are given out of {limit}, {used} are used"))
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
