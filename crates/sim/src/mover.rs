//! Files are moved to new objects while actors use them and servers crash. Nothing that an actor sees may
//! tell of it but the layout, which everybody sees as it is.

use crate::cluster::Cluster;
use crate::exec::{COMPOSITE, STRIPE_BYTES, call, layout};
use crate::run::{Run, Violation, alive};
use ::world::rng::Rng;
use client::Fs;
use model::{Errno, Fid, FileType, Layout, LayoutSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Directories below each other that are looked at for a file.
const DEPTH_MAX: usize = 5;
/// Entries of a directory among which one is chosen.
const PAGE_BYTES: u32 = 16 << 10;

pub(crate) struct Mover {
    rng: Rng,
    /// Of what few movements are about.
    rare: Rng,
    osts: u16,
    pause_max_us: u64,
    /// Every other file that is moved gets a layout in components.
    composite: bool,
}

impl Mover {
    /// A third of the seeds have one.
    pub(crate) fn new(seed: u64, osts: u16, composite: bool) -> Option<Mover> {
        let mut rng = Rng::new(seed ^ 0x6d6f_7665);
        let busy = rng.below(3) == 0;
        let pause_max_us = *rng.pick(&[100_000, 1_000_000, 3_000_000]);
        let rare = Rng::new(seed ^ 0x7261_7265);
        busy.then_some(Mover { rng, rare, osts, pause_max_us, composite })
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
        let inward = self.rare.below(3) == 0;
        if inward {
            spec = LayoutSpec { stripe_count, stripe_size, ..LayoutSpec::default() };
            spec.set_mdt_bytes(STRIPE_BYTES);
        }
        let kind = kind.filter(|_| !inward);
        if kind.is_some() || (stripe_count > 1 && stripe_size == STRIPE_BYTES) {
            c.stripes(fid);
        }
        match client::Admin(fs).migrate(call(), fid, spec).await {
            Ok(layout) => {
                c.sim.count("file_moved");
                // Objects on servers that are away are not chosen.
                let objects = layout.object_count();
                if inward && layout.mdt_component().is_some() {
                    c.sim.count("file_moved_to_inode");
                } else if objects == 0 || (kind.is_none() && objects > stripe_count as usize) {
                    return Err(format!("{fid} has {objects} objects, not {stripe_count}"));
                }
                Ok(Some(layout))
            }
            // Removed meanwhile, or without a layout.
            Err(Errno::ENOENT | Errno::ESTALE | Errno::ENODATA) => Ok(None),
            // Not now: servers are away, or lost, or the mount ends.
            Err(
                Errno::EBUSY
                | Errno::EIO
                | Errno::ETIMEDOUT
                | Errno::ENOSPC
                | Errno::ESHUTDOWN
                | Errno::ENOTCONN,
            ) => {
                c.sim.count("file_not_moved");
                Ok(None)
            }
            Err(e) => Err(format!("moving {fid} gave {e}")),
        }
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
