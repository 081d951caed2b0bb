//! Directories with a quota, in some runs: files and trees are made in them and moved between them while
//! quotas come and go and servers fail. What lies below each must be what is counted, in the end; the rules
//! of [`mds::check`] look at each file's label, those of [`crate::check`] at each object's owner. One of them
//! may have few files, and never has more.

use crate::cluster::Cluster;
use crate::exec::{O_RDWR, STRIPE_BYTES, call, list, public_dir};
use crate::run::{Run, Violation, Worker};
use ::world::rng::Rng;
use client::{Admin, Call, Fs};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Cred, Errno, Fid, FileType, LayoutSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::quotactl::QuotaAsk;
use wire::msg::quotadir::Quotadir;

/// One seed in so many has them.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 6;
const UID: u32 = 1701;
/// Directories at the top, of which the first has few files.
const TOPS: u64 = 3;
/// Names in each directory.
const NAMES: u64 = 5;
/// Inodes below the limited one.
const LIMIT_INODES: u64 = 6;
/// How long it may take, without faults, until all is counted where it lies.
const SETTLED: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(crate) struct QuotaTrees {
    rng: Rng,
    tops: Vec<Fid>,
    limited: u32,
}

fn by_user() -> Call {
    Call { cred: Cred::new(UID, UID), ..call() }
}

fn id_of(id: u32) -> QuotaId {
    QuotaId { of: QuotaType::Directory, id }
}

impl Worker for QuotaTrees {
    const PAUSE_US: (u64, u64) = (1_000, 60_000);
    const STEP: &'static str = "what is done in directories with a quota";
    const LOST: &'static str = "counted_trees_lost_their_mount";

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    async fn step(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Violation> {
        let done = self.one(c, fs).await;
        c.sim.log(|| format!("counted directories: {done:?}"));
        match done {
            Err(e @ (Errno::ESHARE | Errno::ERELABEL)) => {
                return Err(format!("a user was told {e}, which is the servers' business"));
            }
            Err(Errno::EDQUOT) => c.sim.count("over_limit_of_directory"),
            Err(Errno::EXDEV) => c.sim.count("link_between_quotas"),
            // Servers are away, or names are not what they were.
            _ => {}
        }
        if self.rng.below(4) == 0
            && let Some(u) = counted(fs, 0, self.limited).await
            && u.inodes > LIMIT_INODES
        {
            return Err(format!("a directory that may have {LIMIT_INODES} inodes has {}", u.inodes));
        }
        Ok(())
    }
}

impl QuotaTrees {
    pub(crate) fn new(seed: u64) -> Option<QuotaTrees> {
        let rng = Rng::new(seed ^ 0x0074_7265_6573);
        let none = QuotaTrees { rng, tops: Vec::new(), limited: 0 };
        (seed % ONE_IN == THIS_ONE).then_some(none)
    }

    pub(crate) async fn begin(&mut self, fs: &Arc<Fs>) -> Result<(), Violation> {
        let gave = |what: &str, e| format!("{what} for directories with a quota gave {e}");
        let top = public_dir(fs, fs.root(), b"counted".to_vec()).await;
        let top = top.map_err(|e| gave("a directory", e))?;
        for n in 0..TOPS {
            let made = public_dir(fs, top, name(n)).await;
            self.tops.push(made.map_err(|e| gave("a directory", e))?);
        }
        let added = Admin(fs).quotadir(call(), Quotadir::Add(self.tops[0])).await;
        self.limited = added.map_err(|e| gave("quotadir", e))?.directories[0].id;
        let inodes = LimitChange { soft: None, hard: Some(LIMIT_INODES) };
        let order = LimitOrder::Own { of: id_of(self.limited), space: LimitChange::default(), inodes };
        Admin(fs).setquota(call(), order).await.map_err(|e| gave("setquota", e))
    }

    /// One of the tops, or what is a directory in one of them.
    async fn somewhere(&mut self, fs: &Arc<Fs>) -> Result<Fid, Errno> {
        let top = self.tops[self.rng.index(self.tops.len())];
        if self.rng.below(3) > 0 {
            return Ok(top);
        }
        let a = fs.clone().lookup(by_user(), top, name(self.rng.below(NAMES))).await?;
        Ok(if a.kind == FileType::Directory { a.fid } else { top })
    }

    async fn one(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<(), Errno> {
        let dir = self.somewhere(fs).await?;
        let (this, other) = (name(self.rng.below(NAMES)), name(self.rng.below(NAMES)));
        let what = self.rng.below(20);
        c.sim.log(|| format!("counted directories: {what} of {dir}"));
        match what {
            0..7 => self.make(fs, dir, this).await,
            7..9 => fs.clone().mkdir(by_user(), dir, this, 0o755).await.map(drop),
            9..13 => {
                let to = self.somewhere(fs).await?;
                let r = fs.clone().rename(by_user(), dir, this, to, other, 0).await;
                c.sim.log(|| format!("counted directories: it went to {to}: {r:?}"));
                r.map(|_| c.sim.count("moved_between_quotas"))
            }
            13 => {
                let to = self.somewhere(fs).await?;
                let a = fs.clone().lookup(by_user(), dir, this).await?;
                fs.clone().link(by_user(), a.fid, to, other).await.map(drop)
            }
            14..17 => fs.clone().unlink(by_user(), dir, this).await.map(drop),
            17 => fs.clone().rmdir(by_user(), dir, this).await.map(drop),
            _ if dir == self.tops[0] => Ok(()),
            n => {
                let ask = if n == 18 { Quotadir::Add(dir) } else { Quotadir::Remove(dir) };
                Admin(fs).quotadir(call(), ask).await.map(|_| c.sim.count("quota_of_directory_changed"))
            }
        }
    }

    async fn make(&mut self, fs: &Arc<Fs>, dir: Fid, name: Vec<u8>) -> Result<(), Errno> {
        let spec = LayoutSpec { stripe_count: 2, stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
        let spec = self.rng.coin().then_some(spec);
        let (a, f) = fs.clone().create(by_user(), dir, name, 0o600, O_RDWR, spec).await?;
        let data = vec![1; self.rng.range(1, 40_000) as usize].into();
        let written = fs.clone().write(by_user(), a.fid, 0, false, false, data).await;
        fs.clone().close(Arc::new(f)).await?;
        written.map(drop)
    }

    /// When nobody else does anything, and everything is up.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        run.bounded("the last of directories with a quota", self.is_counted(&run.cluster)).await?
    }

    async fn is_counted(&self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let Some((fs, _)) = c.mounts.iter().find_map(|m| m.get()) else { return Ok(()) };
        let start = c.sim.now();
        loop {
            let differs = match self.difference(c, &fs).await {
                Ok(None) => {
                    c.sim.count("quotas_of_directories_compared");
                    return Ok(());
                }
                Ok(Some(what)) => what,
                Err(e) => format!("what lies in directories with a quota is not known: {e}"),
            };
            if c.sim.now() - start > SETTLED.as_nanos() as u64 {
                return Err(format!("{SETTLED:?} without faults: {differs}"));
            }
            c.sim.sleep(LOOK_AGAIN).await;
        }
    }

    /// Where what is counted is not what a walk finds.
    async fn difference(&self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> Result<Option<String>, Errno> {
        let all = Admin(fs).quotadir(call(), Quotadir::List { after: 0 }).await?;
        if all.unsettled {
            return Ok(Some("trees are still being counted".into()));
        }
        for d in &all.directories {
            let below = below(fs, d.fid).await?;
            let Some(counted) = counted(fs, c.servers.len(), d.id).await else {
                return Ok(Some("not all targets say what is counted".into()));
            };
            let there = sum(below.values().map(|f| f.usage));
            let also_elsewhere: Vec<Usage> =
                below.values().filter(|f| f.names < f.nlink).map(|f| f.usage).collect();
            if counted != there && !is_less_some(there, counted, &also_elsewhere) {
                return Ok(Some(format!(
                    "{} inodes and {} blocks are counted to directory {}, there are {} and {}",
                    counted.inodes, counted.blocks, d.id, there.inodes, there.blocks
                )));
            }
        }
        Ok(None)
    }
}

/// A file that lies somewhere.
struct Found {
    usage: Usage,
    nlink: u32,
    /// Those of its names that lie there; of a directory as many as it has.
    names: u32,
}

/// All that lies below a directory, itself included.
async fn below(fs: &Arc<Fs>, top: Fid) -> Result<BTreeMap<Fid, Found>, Errno> {
    let (mut found, mut todo) = (BTreeMap::<Fid, Found>::new(), vec![top]);
    while let Some(fid) = todo.pop() {
        if let Some(f) = found.get_mut(&fid) {
            f.names += 1;
            continue;
        }
        let a = fs.clone().getattr(call(), fid).await?;
        let is_dir = a.kind == FileType::Directory;
        let usage = Usage { inodes: 1, blocks: a.blocks };
        found.insert(fid, Found { usage, nlink: a.nlink, names: if is_dir { a.nlink } else { 1 } });
        if is_dir {
            let names = list(fs, fid, 4096, false).await?.into_iter();
            todo.extend(names.filter(|(n, _, _)| n != b"." && n != b"..").filter_map(|(_, f, _)| f));
        }
    }
    Ok(found)
}

fn sum(of: impl Iterator<Item = Usage>) -> Usage {
    of.fold(Usage::default(), Usage::plus)
}

/// Whether `counted` is what is `there` without some of the files that have a name elsewhere, too. Two names
/// may be older than the quota between them: the file is counted to one of the directories that they are in
/// (0072).
fn is_less_some(there: Usage, counted: Usage, also_elsewhere: &[Usage]) -> bool {
    let Some((first, rest)) = also_elsewhere.split_first() else { return counted == there };
    let without = Usage { inodes: there.inodes - first.inodes, blocks: there.blocks - first.blocks };
    is_less_some(there, counted, rest) || is_less_some(without, counted, rest)
}

fn name(n: u64) -> Vec<u8> {
    format!("n{n}").into_bytes()
}

/// What is counted to a directory, if at least so many targets say so.
async fn counted(fs: &Arc<Fs>, targets: usize, id: u32) -> Option<Usage> {
    let (said, _) = Admin(fs).quotactl(call(), QuotaAsk::Of(vec![id_of(id)])).await.ok()?;
    if said.len() < targets {
        return None;
    }
    let mut sum = Usage::default();
    for (_, r) in said {
        match r {
            Ok(r) => sum = sum.plus(r.usage.first()?.1),
            Err(_) if targets == 0 => {}
            Err(_) => return None,
        }
    }
    Some(sum)
}
