//! A load that knows what must be there: each worker owns a directory, remembers every acknowledged change,
//! and takes every error as a failure. A lost operation shows as ENOENT or wrong bytes, one done twice as
//! EEXIST or ENOENT, a stale reply as a wrong size.

use crate::rng::Rng;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What one worker knows to be acknowledged.
pub struct Worker {
    dir: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    dirs: Vec<String>,
    rng: Rng,
    serial: u64,
}

impl Worker {
    pub fn new(dir: PathBuf, seed: u64) -> Result<Worker> {
        fs::create_dir(&dir).with_context(|| format!("mkdir {}", dir.display()))?;
        Ok(Worker { dir, files: BTreeMap::new(), dirs: Vec::new(), rng: Rng::new(seed), serial: 0 })
    }

    /// One random operation, checked.
    pub fn step(&mut self) -> Result<()> {
        match self.rng.below(12) {
            0..=2 => self.create(),
            3 | 4 => self.overwrite(),
            5 => self.append(),
            6 => self.rename(),
            7 => self.unlink(),
            8 => self.mkdir_rmdir(),
            9 => self.truncate(),
            10 => self.exclusive(),
            _ => self.check_one(),
        }
    }

    fn pick(&mut self) -> Option<String> {
        let n = self.files.len() as u64;
        let k = self.rng.below(n) as usize;
        self.files.keys().nth(k).cloned()
    }

    fn fresh(&mut self) -> String {
        self.serial += 1;
        format!("f{:06}", self.serial)
    }

    fn create(&mut self) -> Result<()> {
        if self.files.len() > 200 {
            return self.unlink();
        }
        let name = self.fresh();
        let len = [0, 100, 5000, 70_000, 300_000][self.rng.below(5) as usize];
        let data = self.rng.bytes(len);
        let path = self.dir.join(&name);
        let mut f = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("create {name}"))?;
        f.write_all(&data).with_context(|| format!("write {name}"))?;
        f.sync_all().with_context(|| format!("fsync {name}"))?;
        self.files.insert(name, data);
        Ok(())
    }

    fn overwrite(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        let off = self.rng.below(self.files[&name].len() as u64 + 1000);
        let len = 1 + self.rng.below(90_000) as usize;
        let data = self.rng.bytes(len);
        let f = OpenOptions::new()
            .write(true)
            .open(self.dir.join(&name))
            .with_context(|| format!("open {name}"))?;
        f.write_all_at(&data, off).with_context(|| format!("overwrite {name}"))?;
        let have = self.files.get_mut(&name).expect("picked");
        let end = off as usize + len;
        if have.len() < end {
            have.resize(end, 0);
        }
        have[off as usize..end].copy_from_slice(&data);
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        let len = 1 + self.rng.below(3000) as usize;
        let data = self.rng.bytes(len);
        let mut f = OpenOptions::new()
            .append(true)
            .open(self.dir.join(&name))
            .with_context(|| format!("open {name}"))?;
        f.write_all(&data).with_context(|| format!("append to {name}"))?;
        self.files.get_mut(&name).expect("picked").extend_from_slice(&data);
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        let size = self.rng.below(self.files[&name].len() as u64 + 5000);
        let f = OpenOptions::new()
            .write(true)
            .open(self.dir.join(&name))
            .with_context(|| format!("open {name}"))?;
        f.set_len(size).with_context(|| format!("truncate {name}"))?;
        self.files.get_mut(&name).expect("picked").resize(size as usize, 0);
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let Some(from) = self.pick() else { return self.create() };
        let to = if self.rng.below(3) == 0 { self.pick().expect("not empty") } else { self.fresh() };
        fs::rename(self.dir.join(&from), self.dir.join(&to))
            .with_context(|| format!("rename {from} to {to}"))?;
        if from != to {
            let data = self.files.remove(&from).expect("picked");
            self.files.insert(to, data);
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        fs::remove_file(self.dir.join(&name)).with_context(|| format!("unlink {name}"))?;
        self.files.remove(&name);
        Ok(())
    }

    fn mkdir_rmdir(&mut self) -> Result<()> {
        if self.dirs.len() > 5 {
            let d = self.dirs.remove(0);
            return fs::remove_dir(self.dir.join(&d)).with_context(|| format!("rmdir {d}"));
        }
        self.serial += 1;
        let d = format!("d{:06}", self.serial);
        fs::create_dir(self.dir.join(&d)).with_context(|| format!("mkdir {d}"))?;
        self.dirs.push(d);
        Ok(())
    }

    /// A name that is there must stay there.
    fn exclusive(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        match fs::hard_link(self.dir.join(&name), self.dir.join(&name)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            other => bail!("link over {name}: {other:?} instead of EEXIST"),
        }
    }

    fn check_one(&mut self) -> Result<()> {
        let Some(name) = self.pick() else { return self.create() };
        self.check(&name, &self.dir)
    }

    fn check(&self, name: &str, dir: &Path) -> Result<()> {
        let got = fs::read(dir.join(name)).with_context(|| format!("read {name}"))?;
        let want = &self.files[name];
        ensure!(got.len() == want.len(), "{name}: {} bytes instead of {}", got.len(), want.len());
        if let Some(i) = got.iter().zip(want).position(|(a, b)| a != b) {
            bail!("{name}: wrong byte at {i}: {:#04x} instead of {:#04x}", got[i], want[i]);
        }
        Ok(())
    }

    /// Everything acknowledged is there, nothing else; seen through `dir` (another mount's view of it, say).
    pub fn verify(&self, dir: &Path) -> Result<()> {
        let mut names: Vec<String> = fs::read_dir(dir)?
            .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.sort();
        let mut want: Vec<String> = self.files.keys().chain(&self.dirs).cloned().collect();
        want.sort();
        ensure!(names == want, "names differ: {}", difference(&names, &want));
        for name in self.files.keys() {
            self.check(name, dir)?;
        }
        Ok(())
    }
}

fn difference(got: &[String], want: &[String]) -> String {
    let extra: Vec<_> = got.iter().filter(|n| !want.contains(n)).collect();
    let missing: Vec<_> = want.iter().filter(|n| !got.contains(n)).collect();
    format!("extra {extra:?}, missing {missing:?}")
}

/// What a run of the load did.
pub struct LoadReport {
    pub operations: u64,
    pub errors: Vec<String>,
}

fn work(mounts: &[PathBuf], w: usize, seed: u64, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
    let (name, seed) = (format!("worker{w}"), seed + w as u64);
    let mut me = Worker::new(mounts[w % mounts.len()].join(&name), seed)?;
    while !stop.load(Ordering::Relaxed) {
        me.step().with_context(|| format!("{name} (seed {seed})"))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    let verify = |m: &PathBuf| me.verify(&m.join(&name)).with_context(|| format!("{name} at the end"));
    mounts.iter().try_for_each(verify)
}

/// Runs `workers` until `stop` is set (the first that fails sets it), each through one of `mounts`, then
/// verifies through every mount.
pub fn run(mounts: &[PathBuf], workers: usize, seed: u64, stop: &AtomicBool, done: &AtomicU64) -> LoadReport {
    let results: Vec<Result<()>> = std::thread::scope(|s| {
        let joins: Vec<_> = (0..workers)
            .map(|w| {
                // One failure is enough.
                s.spawn(move || {
                    work(mounts, w, seed, stop, done).inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        joins.into_iter().map(|j| j.join().expect("worker")).collect()
    });
    let errors = results.into_iter().filter_map(|r| r.err().map(|e| format!("{e:#}"))).collect();
    LoadReport { operations: done.load(Ordering::Relaxed), errors }
}
