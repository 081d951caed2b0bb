//! A disk that fails: errors of its journal, table or objects stop a target, and another start of it goes on
//! from what the disk has, also when the power fails next. Reads that fail are errors for the reader, and a
//! full disk is one for the writer; neither damages what is there.

use crate::cluster::Cluster;
use crate::exec::{call, file, read_at};
use crate::known::COMMIT_PATIENCE;
use crate::run::{Violation, Work, until_first_error};
use ::world::mem::{CrashMode, FaultPlan};
use ::world::rng::Rng;
use bytes::Bytes;
use client::Fs;
use model::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const ALWAYS_PPM: u32 = 1_000_000;
/// Of the file that fills a disk.
const BIG_BYTES: usize = 3 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// So much in the journal is followed by a checkpoint (`db_options` of `server.rs`), and a little more.
const CHECKPOINT_BYTES: usize = 300 << 10;
/// What is left on a disk that is nearly full; less than the servers' own headroom is refused at once.
const ROOM_BYTES: u64 = 1 << 20;

/// What of a target the disk fails to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Journal,
    Table,
    Objects,
}

impl Part {
    fn of(server: usize, rng: &mut Rng) -> Part {
        let all = [Part::Journal, Part::Table, Part::Objects, Part::Objects];
        // The first server keeps names, and small files in its table.
        *rng.pick(if server == 0 { &all[..2] } else { &all })
    }

    fn below(self, dir: &str) -> String {
        match self {
            Part::Journal => format!("{dir}/journal"),
            Part::Table => format!("{dir}/table.redb"),
            Part::Objects => format!("{dir}/objects"),
        }
    }

    fn counter(self) -> &'static str {
        match self {
            Part::Journal => "failed_flush_of_journal",
            Part::Table => "failed_flush_of_table",
            Part::Objects => "failed_flush_of_objects",
        }
    }
}

/// Writes or flushes of a part of a target fail until it stops, as it must; then the disk is well again, and
/// another start on the same host, which still has in memory what the disk never got, goes on from what is
/// there. When it serves, the power fails. What was acknowledged is there, whoever acknowledged it. Nobody
/// else works: whoever does is told of the errors.
pub async fn flushes(c: &Arc<Cluster>, fs: &Arc<Fs>, rng: &mut Rng) -> Result<(), Violation> {
    let server = rng.index(c.servers.len());
    let part = Part::of(server, rng);
    let gave = |what: &str, e| format!("server {server} with a failing {part:?}: {what} gave {e}");
    let name = format!("flushes{}", rng.below(u64::MAX));
    let stripes = if server == 0 { 0 } else { c.servers.len() as i32 - 1 };
    let fid = file(fs, fs.root(), &name, stripes).await.map_err(|e| gave("create", e))?;
    let bytes = if server == 0 { 3000 } else { PIECE_BYTES };
    // Bytes that are written anew go by the journal, and much of that to the table; new ones to the object's
    // file.
    let new = if part == Part::Objects { bytes..bytes * 4 } else { 0..bytes };
    let times = if part == Part::Table { CHECKPOINT_BYTES.div_ceil(bytes) } else { 1 };
    let fill = |at: std::ops::Range<usize>, value: u8| {
        let data = Bytes::from(vec![value; at.len()]);
        fs.clone().write(call(), fid, at.start as u64, false, false, data)
    };
    fill(0..bytes, 1).await.map_err(|e| gave("write", e))?;
    fs.clone().fsync(call(), fid).await.map_err(|e| gave("fsync", e))?;
    let mut told = Ok(());
    let write = async {
        for _ in 0..times {
            told = match fill(new.clone(), 2).await {
                Ok(_) => fs.clone().fsync(call(), fid).await,
                Err(e) => Err(e),
            };
            if told.is_err() {
                break;
            }
        }
        Ok(())
    };
    let both: Vec<Work<'_>> = vec![Box::pin(write), Box::pin(fail(c, server, part, rng))];
    until_first_error(both).await?;
    match told {
        Ok(()) => {}
        // A target whose disk failed takes no changes until it starts again.
        Err(Errno::EIO | Errno::EROFS) => c.sim.count("write_refused_for_errors"),
        Err(e) => return Err(gave("what was to report EIO or EROFS", e)),
    }
    if rng.coin() {
        // Else at once, before anything went on to the table.
        let soon = rng.below(400_000);
        c.sim.sleep(Duration::from_micros(soon)).await;
    }
    c.crash(server, Some(*rng.pick(&[CrashMode::LoseAll, CrashMode::Random])));
    c.sim.sleep(Duration::from_millis(100)).await;
    c.boot(server);
    let seen = read_at(fs, fid, 0, new.end).await.map_err(|e| gave("read", e))?;
    let right = |(i, b): (usize, &u8)| match *b {
        1 => i < bytes && (told.is_err() || !new.contains(&i)),
        2 => new.contains(&i),
        _ => i >= bytes && told.is_err(),
    };
    let whole = if told.is_ok() { new.end } else { bytes };
    if seen.len() < whole || seen.len() > new.end || !seen.iter().enumerate().all(right) {
        return Err(format!("server {server}: a failed flush of its {part:?} lost what fsync had promised"));
    }
    fs.clone().unlink(call(), fs.root(), name.into_bytes()).await.map_err(|e| gave("unlink", e))
}

async fn fail(c: &Arc<Cluster>, server: usize, part: Part, rng: &mut Rng) -> Result<(), Violation> {
    let s = &c.servers[server];
    s.drill(true);
    s.expect_errors(true);
    let disk = s.node().disk();
    let mut plan = FaultPlan {
        seed: rng.below(u64::MAX),
        only_below: Some(part.below(s.dir())),
        ..FaultPlan::default()
    };
    let ppm = *rng.pick(&[ALWAYS_PPM, 300_000]);
    let of_writes = part == Part::Journal && rng.coin();
    *if of_writes { &mut plan.write_error_ppm } else { &mut plan.sync_error_ppm } = ppm;
    disk.set_faults(plan);
    let boots = || s.host().boots.load(Relaxed);
    let before = boots();
    for _ in 0..20 {
        c.sim.sleep(Duration::from_millis(300)).await;
        if boots() != before {
            c.sim.count(part.counter());
            break;
        }
    }
    // A flush that failed may have lost what it was to write, as far as the disk is concerned.
    crate::executor::lock(&s.power_losses).push(c.sim.now());
    disk.set_faults(FaultPlan::default());
    c.crash(server, None);
    let soon = rng.below(500_000);
    c.sim.sleep(Duration::from_micros(soon)).await;
    s.drill(false);
    c.boot(server);
    s.expect_errors(false);
    Ok(())
}

/// Errors of reads, and a full disk, on an OST. Nobody else works.
pub async fn strike(c: &Arc<Cluster>, fs: &Arc<Fs>, rng: &mut Rng) -> Result<(), Violation> {
    let ost = rng.index(c.servers.len() - 1);
    let disk = c.servers[ost + 1].node().disk();
    let gave = |what: &str, e| format!("OST {ost} with a failing disk: {what} gave {e}");
    let name = format!("errors{}", rng.below(u64::MAX));
    let fid = file(fs, fs.root(), &name, c.servers.len() as i32 - 1).await.map_err(|e| gave("create", e))?;
    let piece = |value: u8| Bytes::from(vec![value; PIECE_BYTES]);
    fs.clone().write(call(), fid, 0, false, false, piece(1)).await.map_err(|e| gave("write", e))?;
    fs.clone().fsync(call(), fid).await.map_err(|e| gave("fsync", e))?;
    read_errors(c, ost, rng).await?;
    disk.set_faults(FaultPlan {
        capacity_bytes: Some(disk.used_bytes() + ROOM_BYTES),
        thin: rng.coin(),
        only_below: Some(format!("{}/objects", c.servers[ost + 1].dir())),
        ..FaultPlan::default()
    });
    let mut refused = false;
    for i in 1..BIG_BYTES / PIECE_BYTES {
        let at = (i * PIECE_BYTES) as u64;
        let written = fs.clone().write(call(), fid, at, false, false, piece(1 + i as u8)).await;
        refused |= is_refused(written.map(drop)).map_err(|e| gave("write", e))?;
    }
    refused |= is_refused(fs.clone().fsync(call(), fid).await).map_err(|e| gave("fsync", e))?;
    disk.set_faults(FaultPlan::default());
    if refused {
        c.sim.count("write_refused_for_space");
    }
    // What the server knows of free space is a little old.
    c.sim.sleep(Duration::from_secs(5)).await;
    let seen = read_at(fs, fid, 0, BIG_BYTES).await.map_err(|e| gave("read", e))?;
    for (i, part) in seen.chunks(PIECE_BYTES).enumerate() {
        let whole = part.iter().all(|b| *b == 1 + i as u8);
        let known = part.iter().all(|b| *b == 1 + i as u8 || (*b == 0 && i > 0 && refused));
        if !known || ((i == 0 || !refused) && !whole) {
            return Err(format!("OST {ost}: a write to a full disk left wrong bytes in piece {i}"));
        }
    }
    fs.clone().unlink(call(), fs.root(), name.into_bytes()).await.map_err(|e| gave("unlink", e))
}

/// A full disk is called by its name.
fn is_refused(r: Result<(), Errno>) -> Result<bool, Errno> {
    match r {
        Ok(()) => Ok(false),
        Err(Errno::ENOSPC) => Ok(true),
        Err(e) => Err(e),
    }
}

/// A read that fails is an error, and the next one is right.
async fn read_errors(c: &Cluster, ost: usize, rng: &mut Rng) -> Result<(), Violation> {
    let objects = c.objects(ost).ok_or_else(|| format!("OST {ost} is down"))?;
    let disk = c.servers[ost + 1].node().disk();
    let said = |what: &str, e: store::StoreError| format!("OST {ost}: {what}: {e}");
    let all = objects.list(None, 500).map_err(|e| said("objects cannot be listed", e))?;
    let sized: Vec<_> = all.into_iter().filter(|(.., a)| a.size > 4096).collect();
    if sized.is_empty() {
        return Ok(());
    }
    let (id, ..) = sized[rng.index(sized.len())];
    let before = objects.read(id, 0, 4096).await.map_err(|e| said("before an error", e))?;
    disk.set_faults(FaultPlan {
        read_error_ppm: ALWAYS_PPM,
        only_below: Some(format!("{}/objects", c.servers[ost + 1].dir())),
        ..FaultPlan::default()
    });
    let during = objects.read(id, 0, 4096).await;
    disk.set_faults(FaultPlan::default());
    if during.is_ok_and(|f| f.data != before.data) {
        return Err(format!("OST {ost}: a read that failed gave bytes of {id}"));
    }
    let after = objects.read(id, 0, 4096).await.map_err(|e| said("after an error", e))?;
    if after.data != before.data {
        return Err(format!("OST {ost}: {id} changed by a read that failed"));
    }
    Ok(())
}

/// A client dies, and when its servers have had time to commit what they answered it, the power fails. Nobody
/// else works: nobody asks for a commit.
pub async fn late_loss(c: &Arc<Cluster>, fs: &Arc<Fs>, rng: &mut Rng) -> Result<(), Violation> {
    let gave = |what: &str, e| format!("a loss of power after a client's death: {what} gave {e}");
    let (name, child) = (format!("late{}", rng.below(u64::MAX)).into_bytes(), "child");
    let guest = c.guest.clone();
    c.mount_on(&guest, c.mounts.len()).await.map_err(|e| e.to_string())?;
    let (own, _) = guest.get().ok_or("the guest is gone")?;
    let dir =
        own.clone().mkdir(call(), own.root(), name.clone(), 0o755).await.map_err(|e| gave("mkdir", e))?;
    file(&own, dir.fid, child, 1).await.map_err(|e| gave("create", e))?;
    let mut told = false;
    for _ in 0..100 {
        let (executed, answered, _) = own.pending_state();
        told = executed <= answered;
        if told {
            break;
        }
        c.sim.sleep(Duration::from_millis(50)).await;
    }
    drop(own);
    c.kill(&guest);
    c.sim.sleep(COMMIT_PATIENCE + Duration::from_secs(1)).await;
    for i in 0..c.servers.len() {
        c.crash(i, Some(CrashMode::LoseAll));
    }
    c.sim.sleep(Duration::from_millis(100)).await;
    c.boot_all();
    c.sim.count(if told { "power_loss_after_client" } else { "untold_at_death" });
    let gone = |r: Result<(), Errno>| if told { r } else { Ok(()) };
    let unlinked = fs.clone().unlink(call(), dir.fid, child.into()).await;
    gone(unlinked).map_err(|e| gave("unlink", e))?;
    gone(fs.clone().rmdir(call(), fs.root(), name).await).map_err(|e| gave("rmdir", e))
}
