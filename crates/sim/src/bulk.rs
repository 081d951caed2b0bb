//! Files of megabytes: calls that are many requests each, and more of them than a mount may keep for itself.
//! Each part of a file is a number, written over and over; whoever reads it finds the last, or one that a
//! dead client may have taken along.

use crate::exec::{call, file};
use crate::executor::lock;
use crate::known::DEAD_CLIENT_PATIENCE;
use crate::oracle::{PIECE_BYTES as PIECE, pieces_fit};
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use bytes::Bytes;
use client::Fs;
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::collections::BTreeSet;
use std::sync::Arc;

const FILES: usize = 2;
/// Neither of pages nor of stripes.
const PART_BYTES: usize = 50_000;
const PARTS: usize = 160;
/// One call is so many parts at most.
const RUN_MAX: u64 = 40;

/// A part of a file.
#[derive(Clone, Default)]
struct Part {
    /// What it may hold: the last of them while who wrote that lives.
    values: Vec<u64>,
    /// Mount, in one of its lives, that wrote the last and may keep it for itself.
    kept_by: Option<(usize, u64)>,
}

impl Part {
    /// It holds this, whatever dies.
    fn is_known(&mut self, value: u64) {
        *self = Part { values: vec![value], kept_by: None };
    }
}

struct Big {
    fid: Fid,
    /// Who uses the file has it for himself: what others read beside him is the affair of the shared blocks.
    busy: bool,
    parts: Vec<Part>,
    last: u64,
}

pub struct Bulk(Vec<Mutex<Big>>);

fn fill(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(PART_BYTES / 8)
}

impl Bulk {
    pub async fn new(fs: &Arc<Fs>, dir: Fid, osts: i32) -> Result<Bulk, Errno> {
        let mut files = Vec::new();
        for (i, stripes) in [osts, 1].into_iter().enumerate() {
            let fid = file(fs, dir, &format!("big{i}"), stripes).await?;
            let parts = vec![Part { values: vec![0], ..Part::default() }; PARTS];
            files.push(Mutex::new(Big { fid, busy: false, parts, last: 0 }));
        }
        Ok(Bulk(files))
    }

    pub async fn step(&self, run: &Run, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
        let i = rng.index(FILES);
        let (mount, fs, life) = run.mount(actor, rng).await;
        let (from, write, flush) = (rng.index(PARTS), rng.coin(), rng.coin());
        let to = (from + rng.range(1, RUN_MAX) as usize).min(PARTS);
        {
            let mut f = lock(&self.0[i]);
            if f.busy {
                return Ok(());
            }
            f.busy = true;
        }
        run.cluster
            .sim
            .log(|| format!("actor {actor} mount {mount} big{i} {from}..{to} write {write} flush {flush}"));
        let at = (mount, life);
        let fid = lock(&self.0[i]).fid;
        let done = if write {
            let data = self.begin(i, from..to, at);
            let work = async {
                let place = (from * PART_BYTES) as u64;
                fs.clone().write(call(), fid, place, false, false, Bytes::from(data)).await?;
                if flush { fs.clone().fsync(call(), fid).await } else { Ok(()) }
            };
            match run.bounded("a large write", alive(&run.cluster.mounts[mount], life, work)).await? {
                Ok(Ok(())) => {
                    run.cluster.sim.count("large_write");
                    if flush {
                        self.flushed(i, at);
                    }
                    Ok(())
                }
                Ok(Err(e)) => Err(format!("large write of big{i} on mount {mount} gave {e}")),
                // It may still happen, until its client is thrown out.
                Err(Gone) => {
                    run.cluster.sim.sleep(DEAD_CLIENT_PATIENCE).await;
                    Ok(())
                }
            }
        } else {
            let work = self.check(run, &fs, i, from..to);
            let read = alive(&run.cluster.mounts[mount], life, work);
            run.bounded("a large read", read).await?.unwrap_or(Ok(()))
        };
        lock(&self.0[i]).busy = false;
        done
    }

    /// A write begins: its bytes.
    fn begin(&self, i: usize, range: std::ops::Range<usize>, at: (usize, u64)) -> Vec<u8> {
        let mut f = lock(&self.0[i]);
        f.last += 1;
        let value = f.last;
        let mut data = Vec::new();
        for k in range {
            f.parts[k].values.push(value << 8 | k as u64);
            f.parts[k].kept_by = Some(at);
            data.extend(fill(value << 8 | k as u64));
        }
        data
    }

    /// All that a mount wrote to the file is durable.
    fn flushed(&self, i: usize, at: (usize, u64)) {
        for p in lock(&self.0[i]).parts.iter_mut().filter(|p| p.kept_by == Some(at)) {
            let last = *p.values.last().expect("it was written");
            p.is_known(last);
        }
    }

    async fn check(
        &self,
        run: &Run,
        fs: &Arc<Fs>,
        i: usize,
        range: std::ops::Range<usize>,
    ) -> Result<(), Violation> {
        let gave = |e: Errno| format!("large read of big{i} gave {e}");
        let (fid, parts) = {
            let f = lock(&self.0[i]);
            (f.fid, f.parts.clone())
        };
        let (start, end) = (range.start * PART_BYTES, range.end * PART_BYTES);
        let mut seen = Vec::new();
        let open = Arc::new(fs.clone().open(call(), fid, 0).await.map_err(gave)?);
        while seen.len() < end - start {
            let (at, left) = ((start + seen.len()) as u64, (end - start - seen.len()) as u32);
            let data = fs.clone().read(call(), open.clone(), at, left).await.map_err(gave)?;
            if data.is_empty() {
                break;
            }
            seen.extend_from_slice(&data);
        }
        fs.clone().close(open).await.map_err(gave)?;
        // What is behind the end of the file was never written, or was lost.
        let short = seen.len();
        seen.resize(end - start, 0);
        let dead = |(m, l): &(usize, u64)| *run.cluster.mounts[*m].life.borrow() != *l;
        for k in range {
            let p = &parts[k];
            let bytes = &seen[k * PART_BYTES - start..(k + 1) * PART_BYTES - start];
            let lost = p.kept_by.is_some_and(|at| dead(&at));
            let from = if lost { 0 } else { p.values.len() - 1 };
            let may: Vec<Vec<u8>> = p.values[from..].iter().map(|v| fill(*v)).collect();
            if let Some(v) = may.iter().position(|m| m == bytes).filter(|_| lost) {
                // Its writer cannot lose it twice.
                lock(&self.0[i]).parts[k].is_known(p.values[from + v]);
                continue;
            }
            let may: Vec<&[u8]> = may.iter().map(Vec::as_slice).collect();
            // Blocks are counted from the beginning of the file.
            let first = (PIECE - k * PART_BYTES % PIECE) % PIECE;
            let cuts: BTreeSet<u64> = (first..PART_BYTES).step_by(PIECE).map(|c| c as u64).collect();
            if !pieces_fit(bytes, cuts, &may) {
                let word = |at: usize| bytes.get(at..at + 8).map(<[u8]>::to_vec);
                return Err(format!(
                    "big{i}: part {k} holds {:?} … {:?} ({short} bytes were read from {start}), it may hold {:?}, kept by {:?}",
                    word(0),
                    word(PART_BYTES - 8),
                    p.values,
                    p.kept_by
                ));
            }
        }
        run.cluster.sim.count("large_read");
        Ok(())
    }

    /// At the end, with every mount quiet.
    pub async fn verify(&self, run: &Run, fs: &Arc<Fs>) -> Result<(), Violation> {
        for i in 0..FILES {
            let all = lock(&self.0[i]).last > 0;
            if all {
                self.check(run, fs, i, 0..PARTS).await?;
            }
        }
        Ok(())
    }
}
