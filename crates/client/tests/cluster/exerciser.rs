//! Two mounts do random reads, writes, appends, truncates and fallocates on one file, against an array of
//! bytes.

use crate::data::striped;
use crate::harness::{Cluster, call};
use bytes::Bytes;
use client::{Fs, OpenHandle};
use model::SetAttr;
use std::sync::Arc;
use world::rng::Rng;

const SIZE_MAX: u64 = 700_000;

struct Exerciser {
    rng: Rng,
    mounts: [Arc<Fs>; 2],
    files: [Arc<OpenHandle>; 2],
    want: Vec<u8>,
}

impl Exerciser {
    fn range(&mut self) -> (u64, u64) {
        let off = self.rng.below(SIZE_MAX);
        let longest = *self.rng.pick(&[100, 5_000, 70_000, 250_000]);
        (off, 1 + self.rng.below(longest).min(SIZE_MAX - off))
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        let first = self.rng.u64() as u8;
        Bytes::from((0..len).map(|i| first.wrapping_add((i % 241) as u8)).collect::<Vec<_>>())
    }

    fn put(&mut self, off: u64, data: &[u8]) {
        let end = off as usize + data.len();
        if self.want.len() < end {
            self.want.resize(end, 0);
        }
        self.want[off as usize..end].copy_from_slice(data);
    }

    async fn step(&mut self, i: usize) {
        let who = self.rng.below(2) as usize;
        let (fs, file) = (self.mounts[who].clone(), self.files[who].clone());
        let fid = file.fid;
        match self.rng.below(12) {
            0..=3 => {
                let (off, len) = self.range();
                let got = fs.read(call(), file, off, len as u32).await.unwrap();
                let from = (off as usize).min(self.want.len());
                let to = ((off + len) as usize).min(self.want.len());
                assert_eq!(got.len(), to - from, "step {i}: read {len} at {off}");
                let diff = got.iter().zip(&self.want[from..to]).position(|(a, b)| a != b);
                assert_eq!(diff, None, "step {i}: read {len} at {off} differs");
            }
            4..=6 => {
                let (off, len) = self.range();
                let data = self.bytes(len);
                self.put(off, &data);
                assert_eq!(fs.write(call(), fid, off, false, false, data).await, Ok(off), "step {i}");
            }
            7 => {
                if (self.want.len() as u64) < SIZE_MAX {
                    let len = self.rng.range(1, 30_000);
                    let data = self.bytes(len);
                    let end = self.want.len() as u64;
                    self.put(end, &data);
                    assert_eq!(
                        fs.write(call(), fid, 0, true, false, data).await,
                        Ok(end),
                        "step {i}: append"
                    );
                }
            }
            8 => {
                let size = self.rng.below(SIZE_MAX);
                self.want.resize(size as usize, 0);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                assert_eq!(fs.setattr(call(), fid, set).await.unwrap().size, size, "step {i}: truncate");
            }
            9 => {
                let (off, len) = self.range();
                let mode = *self.rng.pick(&[0, 1, 3, 0x10, 0x11]);
                if mode & 1 == 0 && self.want.len() < (off + len) as usize {
                    self.want.resize((off + len) as usize, 0);
                }
                if mode > 1 {
                    let n = self.want.len();
                    self.want[(off as usize).min(n)..((off + len) as usize).min(n)].fill(0);
                }
                assert_eq!(
                    fs.fallocate(call(), fid, mode, off, len).await,
                    Ok(()),
                    "step {i}: mode {mode:#x}"
                );
            }
            10 => {
                let a = fs.getattr(call(), fid).await.unwrap();
                assert_eq!(a.size, self.want.len() as u64, "step {i}: size");
            }
            _ => self.check_seek(&fs, fid, i).await,
        }
    }

    /// What is said to be a hole must read as zeros; there is no more to know about holes.
    async fn check_seek(&mut self, fs: &Arc<Fs>, fid: model::Fid, i: usize) {
        let off = self.rng.below(SIZE_MAX);
        let size = self.want.len() as u64;
        let data = fs.clone().seek(call(), fid, off, false).await;
        let hole = fs.clone().seek(call(), fid, off, true).await;
        if off >= size {
            assert!(data.is_err() && hole.is_err(), "step {i}: behind the end");
            return;
        }
        let end_of_hole = data.unwrap_or(size);
        assert!(end_of_hole >= off && end_of_hole <= size, "step {i}");
        assert!(
            self.want[off as usize..end_of_hole as usize].iter().all(|&x| x == 0),
            "step {i}: data in a hole"
        );
        let hole = hole.unwrap();
        assert!(hole >= off && hole <= size, "step {i}");
        assert!(hole == off || end_of_hole == off, "step {i}: {off} is neither in data nor in a hole");
    }
}

/// `NACRE_EXERCISE=SEED:STEPS` runs another one.
fn exercise(count: i32, seed: u64, steps: usize) {
    let wanted = std::env::var("NACRE_EXERCISE").ok();
    let wanted = wanted.as_deref().and_then(|w| w.split_once(':')).map(|(a, b)| (a.parse(), b.parse()));
    let (seed, steps) = match wanted {
        Some((Ok(a), Ok(b))) => (a, b),
        _ => (seed, steps),
    };
    let c = Cluster::start(3);
    c.run(async {
        let mounts = [c.mount().await, c.mount().await];
        let f = striped(&mounts[0], "f", count).await;
        let g = Arc::new(mounts[1].clone().open(call(), f.fid, 2).await.unwrap());
        let mut e = Exerciser { rng: Rng::new(seed), mounts, files: [f, g], want: Vec::new() };
        for i in 0..steps {
            e.step(i).await;
        }
        for (fs, f) in e.mounts.iter().zip(&e.files) {
            fs.clone().close(f.clone()).await.unwrap();
        }
    });
}

#[test]
fn one_stripe() {
    exercise(1, 1, 600);
}

#[test]
fn two_stripes() {
    exercise(2, 2, 600);
}

#[test]
fn three_stripes() {
    exercise(3, 3, 600);
}
