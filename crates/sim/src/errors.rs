//! A disk that fails: the journal's errors stop a target, and another start of it goes on from what is there. Reads that fail
//! are errors for the reader, and a full disk is one for the writer; neither damages what is there.

use crate::cluster::Cluster;
use crate::exec::call;
use crate::scenario::{Work, until_first_error};
use crate::shared::{file, read_at};
use crate::workload::Violation;
use ::world::mem::FaultPlan;
use ::world::rng::Rng;
use bytes::Bytes;
use client::Fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const ALWAYS_PPM: u32 = 1_000_000;
/// Of the file that fills a disk.
const BIG_BYTES: usize = 3 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// What is left on a disk that is nearly full; less than the servers' own headroom is refused at once.
const ROOM_BYTES: u64 = 1 << 20;

/// Writes or flushes of the journal fail until the target stops, as it must; then the disk is well again, and another start
/// goes on from what is there. Nobody else works: whoever does is told of the errors.
pub async fn journal(c: &Arc<Cluster>, fs: &Arc<Fs>, rng: &mut Rng) -> Result<(), Violation> {
    let server = rng.index(c.servers.len());
    let gave = |what: &str, e| format!("server {server} with a failing journal: {what} gave {e}");
    let name = format!("journal{}", rng.below(u64::MAX));
    let stripes = if server == 0 { 0 } else { c.servers.len() as i32 - 1 };
    let fid = file(fs, fs.root(), &name, stripes).await.map_err(|e| gave("create", e))?;
    let bytes = if server == 0 { 3000 } else { PIECE_BYTES };
    let fill = |value: u8| fs.clone().write(call(), fid, 0, false, false, Bytes::from(vec![value; bytes]));
    fill(1).await.map_err(|e| gave("write", e))?;
    fs.clone().fsync(call(), fid).await.map_err(|e| gave("fsync", e))?;
    let mut told = Ok(());
    let write = async {
        told = match fill(2).await {
            Ok(_) => fs.clone().fsync(call(), fid).await,
            Err(e) => Err(e),
        };
        Ok(())
    };
    let both: Vec<Work<'_>> = vec![Box::pin(write), Box::pin(fail_journal(c, server, rng))];
    until_first_error(both).await?;
    if told.is_err() {
        c.sim.count("write_refused_for_errors");
    }
    let seen = read_at(fs, fid, 0, bytes).await.map_err(|e| gave("read", e))?;
    let right = |b: &u8| *b == 2 || (*b == 1 && told.is_err());
    if seen.len() != bytes || !seen.iter().all(right) {
        return Err(format!("server {server}: a journal that failed lost what fsync had promised"));
    }
    fs.clone().unlink(call(), fs.root(), name.into_bytes()).await.map_err(|e| gave("unlink", e))
}

async fn fail_journal(c: &Arc<Cluster>, server: usize, rng: &mut Rng) -> Result<(), Violation> {
    let s = &c.servers[server];
    s.drill(true);
    s.expect_errors(true);
    let disk = s.node().disk();
    let mut plan = FaultPlan {
        seed: rng.below(u64::MAX),
        only_below: Some(format!("{}/journal", s.dir())),
        ..FaultPlan::default()
    };
    let ppm = *rng.pick(&[ALWAYS_PPM, 300_000]);
    *if rng.coin() { &mut plan.write_error_ppm } else { &mut plan.sync_error_ppm } = ppm;
    disk.set_faults(plan);
    let boots = || s.host().boots.load(Relaxed);
    let before = boots();
    for _ in 0..20 {
        c.sim.sleep(Duration::from_millis(300)).await;
        if boots() != before {
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
        only_below: Some("/ost/objects".into()),
        ..FaultPlan::default()
    });
    let mut refused = false;
    for i in 1..BIG_BYTES / PIECE_BYTES {
        let at = (i * PIECE_BYTES) as u64;
        refused |= fs.clone().write(call(), fid, at, false, false, piece(1 + i as u8)).await.is_err();
    }
    refused |= fs.clone().fsync(call(), fid).await.is_err();
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
        only_below: Some("/ost/objects".into()),
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
