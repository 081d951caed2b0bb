//! An object server has no room for another step of a component that grows, as far as the metadata server
//! knows: such a file goes on elsewhere then. In seeds with layouts in components that drain no server.

use crate::cluster::Cluster;
use crate::exec::{O_EXCL, O_RDWR, STRIPE_BYTES, call, read_at};
use crate::executor::lock;
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use ::world::{Either, select};
use bytes::Bytes;
use client::{Admin, Fs};
use model::layout::{ComponentSpec, EOF};
use model::{Errno, Fid, LayoutSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How often the metadata server, which may have restarted, is told so again.
const TICK: Duration = Duration::from_millis(20);
/// Steps that the file grows by.
const STEPS: u64 = 3;

pub(crate) struct FullOst {
    rng: Rng,
}

impl FullOst {
    pub(crate) fn new(seed: u64, composite: bool) -> Option<FullOst> {
        let mut rng = Rng::new(seed ^ 0x0073_6861_7265);
        (composite && rng.coin()).then_some(FullOst { rng })
    }

    /// Until `over`.
    pub(crate) async fn work(mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        let mut number = 0;
        while !over.load(Relaxed) {
            c.sim.sleep(Duration::from_micros(self.rng.range(1_000, 2_000_000))).await;
            let (m, fs, life) = run.mount(self.rng.index(c.mounts.len()), &mut self.rng).await;
            number += 1;
            let name = format!("grows{number}").into_bytes();
            let (made, mount) = (Made::default(), &c.mounts[m]);
            let one = alive(mount, life, one_file(&c, &fs, &name, &made));
            let r = run.bounded("a file that grows", one).await;
            let made = *lock(&made.0);
            if let Some((fid, ost)) = made {
                // Before the next one begins: with two that take nothing there may be none left.
                while !set_room(&c, ost, true).await && !over.load(Relaxed) {
                    c.sim.sleep(TICK).await;
                }
                if let Ok(Err(Gone)) = r {
                    // What of it there is, with its name or without, nobody knows.
                    lock(&run.lost).insert(fid);
                }
            }
            r?.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// The file that was made, and the OST that it begins on.
#[derive(Default)]
struct Made(model::mutex::Mutex<Option<(Fid, u16)>>);

async fn one_file(c: &Arc<Cluster>, fs: &Arc<Fs>, name: &[u8], made: &Made) -> Result<(), Violation> {
    // Errors are those of servers that are away.
    let Ok((fid, ost)) = make(fs, name, made).await else { return Ok(()) };
    c.sim.count("ost_without_room");
    let short = async {
        loop {
            set_room(c, ost, false).await;
            c.sim.sleep(TICK).await;
        }
    };
    match select(Box::pin(grow(c, fs, (fid, name), ost)), Box::pin(short)).await {
        Either::Left(r) => r,
        Either::Right(()) => unreachable!("there is no room until the file has grown"),
    }
}

/// A file that grows by one stripe at a time.
async fn make(fs: &Arc<Fs>, name: &[u8], made: &Made) -> Result<(Fid, u16), Errno> {
    let mut spec = LayoutSpec { stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
    spec.set_components(&[ComponentSpec {
        end: EOF,
        stripe_count: 1,
        extension_bytes: STRIPE_BYTES,
        ..ComponentSpec::default()
    }]);
    let (dir, flags) = (fs.root(), O_RDWR | O_EXCL);
    let (a, f) = fs.clone().create(call(), dir, name.to_vec(), 0o600, flags, Some(spec)).await?;
    fs.clone().close(Arc::new(f)).await?;
    let layout = Admin(fs).getlayout(call(), a.fid).await?;
    let ost = layout.as_ref().and_then(|l| l.objects().next()).ok_or(Errno::ENODATA)?.ost;
    *lock(&made.0) = Some((a.fid, ost));
    Ok((a.fid, ost))
}

/// The metadata server takes an OST for one that has room, or not. False: it stands still, goes down, or does
/// not know the OST yet, and must be told again.
async fn set_room(c: &Cluster, ost: u16, has: bool) -> bool {
    let Some(mdt) = c.mdt() else { return false };
    let name = format!("osp.sim-OST{ost:04x}-osc-*.max_create_count");
    mdt.set_params(&name, if has { "20000" } else { "0" }).await.is_ok()
}

/// Writes step by step, and reads it again. What servers that are away refuse is no finding.
async fn grow(c: &Arc<Cluster>, fs: &Arc<Fs>, (fid, name): (Fid, &[u8]), ost: u16) -> Result<(), Violation> {
    let bytes: Vec<u8> = (0..STEPS * STRIPE_BYTES).map(|i| 1 + (i % 251) as u8).collect();
    let mut whole = true;
    for (n, step) in bytes.chunks(STRIPE_BYTES as usize).enumerate() {
        c.sim.sleep(2 * TICK).await;
        let at = n as u64 * STRIPE_BYTES;
        let wrote = fs.clone().write(call(), fid, at, false, false, Bytes::copy_from_slice(step)).await;
        whole &= wrote.is_ok();
    }
    whole &= fs.clone().fsync(call(), fid).await.is_ok();
    if whole && let Ok(seen) = read_at(fs, fid, 0, bytes.len()).await {
        if seen != bytes {
            return Err(format!("{fid} grew while OST {ost} had no room, and holds other bytes"));
        }
        let layout = Admin(fs).getlayout(call(), fid).await.ok().flatten();
        let elsewhere = |l: &model::Layout| l.objects().any(|o| o.ost != ost) && l.components.len() > 1;
        if layout.as_ref().is_some_and(elsewhere) {
            c.sim.count("component_went_elsewhere");
        }
    }
    // Should it stay there, that is no harm.
    let _ = fs.clone().unlink(call(), fs.root(), name.to_vec()).await;
    Ok(())
}
