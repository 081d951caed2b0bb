//! Files are moved to new objects while actors use them and servers crash. Nothing that an actor sees may
//! tell of it but the layout, which everybody sees as it is.

use crate::cluster::Cluster;
use crate::exec::{COMPOSITE, STRIPE_BYTES, call, layout};
use crate::pools::{self, MEMBERS, POOL};
use crate::run::{Run, Violation, alive};
use ::world::rng::Rng;
use ::world::{Either, select};
use client::Fs;
use model::{Errno, Fid, FileType, Layout, LayoutSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Directories below each other that are looked at for a file.
const DEPTH_MAX: usize = 5;
/// Files that are moved before the power fails at the end.
const LAST: usize = 4;
/// Entries of a directory among which one is chosen.
const PAGE_BYTES: u32 = 16 << 10;

#[derive(Clone)]
pub(crate) struct Mover {
    rng: Rng,
    /// Of what few movements are about.
    rare: Rng,
    osts: u16,
    pause_max_us: u64,
    /// Some files are bound to a pool then.
    pub(crate) pooled: bool,
    /// Every other file that is moved gets a layout in components.
    composite: bool,
}

impl Mover {
    /// A third of the seeds have one.
    pub(crate) fn new(seed: u64, osts: u16, composite: bool) -> Option<Mover> {
        let mut rng = Rng::new(seed ^ 0x6d6f_7665);
        let busy = rng.below(3) == 0;
        let pause_max_us = *rng.pick(&[100_000, 1_000_000, 3_000_000]);
        let mut rare = Rng::new(seed ^ 0x7261_7265);
        let pooled = rare.coin();
        busy.then_some(Mover { rng, rare, osts, pause_max_us, pooled, composite })
    }

    /// Until `over`.
    pub(crate) async fn work(mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            c.sim.sleep(Duration::from_micros(self.rng.range(100, self.pause_max_us))).await;
            let Some((m, fs, life)) = self.mount(&c) else { continue };
            let moved =
                run.bounded("moving a file", alive(&c.mounts[m], life, self.move_one(&c, fs))).await?;
            let Some((fid, layout)) = moved.unwrap_or(Ok(None))? else { continue };
            for (m, mount) in c.mounts.iter().enumerate() {
                let Some((fs, life)) = mount.get() else { continue };
                let look = alive(&c.mounts[m], life, look(fs, fid, &layout));
                run.bounded("asking where a file lies", look).await?.unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }

    /// Moves a few files when nobody uses them any more, and comes back when the last one is told.
    pub(crate) async fn at_last(&mut self, run: &Arc<Run>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        for _ in 0..LAST {
            let (m, fs, life) = run.mount(0, &mut self.rare).await;
            let one = alive(&c.mounts[m], life, self.move_one(&c, fs));
            if let Ok(Ok(Some(_))) = run.bounded("moving a file at last", one).await? {
                c.sim.count("power_loss_after_move");
            }
        }
        Ok(())
    }

    /// A mount, its number, and in which of its lives it is.
    fn mount(&mut self, c: &Cluster) -> Option<(usize, Arc<Fs>, u64)> {
        let i = self.rng.index(c.mounts.len());
        c.mounts[i].get().map(|(fs, life)| (i, fs, life))
    }

    async fn move_one(&mut self, c: &Cluster, fs: Arc<Fs>) -> Result<Option<(Fid, Layout)>, Violation> {
        let Some(fid) = self.some_file(&fs).await else { return Ok(None) };
        Ok(self.migrate(c, &fs, fid).await?.map(|layout| (fid, layout)))
    }

    /// A file with objects, found by going down from the root at random.
    async fn some_file(&mut self, fs: &Arc<Fs>) -> Option<Fid> {
        let mut dir = fs.root();
        for _ in 0..DEPTH_MAX {
            let page = fs.clone().readdir(call(), dir, 0, PAGE_BYTES, false).await.ok()?;
            let real = |d: &&wire::msg::readdir::Dirent| d.name != b"." && d.name != b"..";
            let entries: Vec<_> = page.0.iter().filter(real).collect();
            if entries.is_empty() {
                return None;
            }
            let e = entries[self.rng.index(entries.len())];
            match e.kind {
                FileType::Regular => return Some(e.fid),
                FileType::Directory => dir = e.fid,
                _ => return None,
            }
        }
        None
    }

    /// `None`: it was not moved, or perhaps.
    async fn migrate(&mut self, c: &Cluster, fs: &Arc<Fs>, fid: Fid) -> Result<Option<Layout>, Violation> {
        let stripe_count = self.rng.range(1, u64::from(self.osts) + 1) as i32;
        let stripe_size = *self.rng.pick(&[STRIPE_BYTES, 131_072]);
        let plain = LayoutSpec { stripe_count, stripe_size, ..LayoutSpec::default() };
        let kind = (self.composite && self.rng.coin()).then(|| self.rng.below(3) as u32);
        let mut spec = kind.and_then(|k| layout(COMPOSITE + k)).unwrap_or(plain);
        let to_pool = self.pooled && kind.is_none() && self.rare.below(3) == 0;
        if to_pool {
            spec.pool = POOL.into();
            spec.stripe_count = stripe_count.min(MEMBERS.len() as i32);
        }
        if kind.is_some() || (stripe_count > 1 && stripe_size == STRIPE_BYTES) {
            c.stripes(fid);
        }
        if self.rare.below(20) == 0 {
            return to_its_inode(c, fs, fid, (stripe_count, stripe_size)).await;
        }
        let mut moved = client::Admin(fs).migrate(call(), fid, spec);
        if self.rare.below(6) == 0 {
            let soon = Duration::from_micros(self.rare.range(1, 200_000));
            match select(moved, c.sim.sleep(soon)).await {
                Either::Left(r) => moved = Box::pin(async { r }),
                Either::Right(()) => {
                    c.sim.count("movement_withdrawn");
                    return Ok(None);
                }
            }
        }
        match moved.await {
            Ok(layout) => {
                c.sim.count("file_moved");
                pools::check(&layout)?;
                if to_pool {
                    c.sim.count("file_moved_to_pool");
                }
                // Objects on servers that are away are not chosen.
                let objects = layout.object_count();
                if objects == 0 || (kind.is_none() && objects > stripe_count as usize) {
                    return Err(format!("{fid} has {objects} objects, not {stripe_count}"));
                }
                Ok(Some(layout))
            }
            Err(e) => not_moved(c, fid, e),
        }
    }
}

/// To the file's inode if there is room, and on as many stripes as this later, or if there is none.
async fn to_its_inode(
    c: &Cluster,
    fs: &Arc<Fs>,
    fid: Fid,
    (stripe_count, stripe_size): (i32, u64),
) -> Result<Option<Layout>, Violation> {
    let mut spec = LayoutSpec { stripe_count, stripe_size, ..LayoutSpec::default() };
    spec.set_mdt_bytes(STRIPE_BYTES);
    match client::Admin(fs).migrate(call(), fid, spec).await {
        Ok(layout) if layout.mdt_component().is_some() => {
            c.sim.count("file_moved_to_inode");
            Ok(Some(layout))
        }
        Ok(layout) if layout.has_objects() => {
            c.sim.count("file_moved");
            Ok(Some(layout))
        }
        Ok(layout) => Err(format!("{fid} lies nowhere: {layout:?}")),
        Err(e) => not_moved(c, fid, e),
    }
}

/// What may keep a file where it is.
fn not_moved(c: &Cluster, fid: Fid, e: Errno) -> Result<Option<Layout>, Violation> {
    match e {
        // Removed meanwhile, or without a layout.
        Errno::ENOENT | Errno::ESTALE | Errno::ENODATA => Ok(None),
        // Not now: servers are away, or lost, or the mount ends.
        Errno::EBUSY | Errno::EIO | Errno::ETIMEDOUT | Errno::ENOSPC | Errno::ESHUTDOWN | Errno::ENOTCONN => {
            c.sim.count("file_not_moved");
            Ok(None)
        }
        e => Err(format!("moving {fid} gave {e}")),
    }
}

/// Whoever asks where a file lies that was moved is told so.
async fn look(fs: Arc<Fs>, fid: Fid, moved: &Layout) -> Result<(), Violation> {
    match client::Admin(&fs).getlayout(call(), fid).await {
        Ok(Some(l)) if l.generation < moved.generation => Err(format!(
            "{fid} was moved to objects of layout {}, and somebody is shown layout {}",
            moved.generation, l.generation
        )),
        _ => Ok(()),
    }
}
