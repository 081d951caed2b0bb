//! Random reads, writes, truncates, appends and holes through one or several mounts, each step checked
//! against a byte array: what a user of two login nodes would notice.

use crate::rng::Rng;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use world::mapping::Mapping;

/// Largest size a file of the exerciser reaches.
const FILE_MAX: u64 = 6 << 20;

/// One file seen through every mount, and what it must hold.
pub struct Exerciser {
    paths: Vec<PathBuf>,
    handles: Vec<File>,
    model: Vec<u8>,
    rng: Rng,
    /// Also through shared mappings.
    mmap: bool,
    /// Largest size.
    max: u64,
    step: u64,
}

impl Exerciser {
    /// `paths`: the same file through each mount; it must exist and be empty.
    pub fn new(paths: Vec<PathBuf>, seed: u64, mmap: bool) -> Result<Exerciser> {
        let handles = paths.iter().map(|p| open(p, false)).collect::<Result<Vec<_>>>()?;
        Ok(Exerciser { paths, handles, model: Vec::new(), rng: Rng::new(seed), mmap, max: FILE_MAX, step: 0 })
    }

    /// Keeps to small sizes: of a file whose data lies with its inode, and a bit more than it has room for.
    pub fn small(mut self) -> Exerciser {
        self.max = 110_000;
        self
    }

    /// Runs `steps` operations; the error says at which step what diverged.
    pub fn run(&mut self, steps: u64) -> Result<()> {
        for _ in 0..steps {
            self.step += 1;
            let step = self.step;
            self.one().with_context(|| format!("step {step} on {}", self.paths[0].display()))?;
        }
        self.compare_all()
    }

    fn one(&mut self) -> Result<()> {
        let via = self.rng.below(self.handles.len() as u64) as usize;
        if self.rng.below(25) == 0 {
            let direct = self.rng.below(3) == 0;
            self.handles[via] = open(&self.paths[via], direct)?;
        }
        let off = self.rng.below(self.max * 3 / 4);
        let small = self.max < FILE_MAX;
        let len = match self.rng.below(4) {
            0 => 1 + self.rng.below(100),
            1 => 1 + self.rng.below(5000),
            2 => 1 + self.rng.below(if small { 9000 } else { 200_000 }),
            _ => 1 + self.rng.below(if small { 20_000 } else { 1_300_000 }),
        };
        match self.rng.below(if self.mmap { 12 } else { 10 }) {
            0..=2 => self.write(via, off, len),
            3..=5 => self.read(via, off, len),
            6 => self.append(via, len.min(300_000)),
            7 => self.truncate(via, off),
            8 => self.hole(via, off, len),
            9 => self.size(via),
            _ => self.mapped(via, off, len),
        }
    }

    fn write(&mut self, via: usize, off: u64, len: u64) -> Result<()> {
        let data = self.rng.bytes(len as usize);
        self.handles[via].write_all_at(&data, off)?;
        self.put(off, &data);
        Ok(())
    }

    fn put(&mut self, off: u64, data: &[u8]) {
        let end = off as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[off as usize..end].copy_from_slice(data);
    }

    fn read(&mut self, via: usize, off: u64, len: u64) -> Result<()> {
        let mut got = vec![0; len as usize];
        let mut n = 0;
        while n < got.len() {
            match self.handles[via].read_at(&mut got[n..], off + n as u64)? {
                0 => break,
                k => n += k,
            }
        }
        let from = (off as usize).min(self.model.len());
        let want = &self.model[from..(from + len as usize).min(self.model.len())];
        same(&got[..n], want, off).with_context(|| format!("read {len} bytes at {off} through mount {via}"))
    }

    fn append(&mut self, via: usize, len: u64) -> Result<()> {
        use std::io::Write;
        if self.model.len() as u64 + len > self.max {
            return Ok(());
        }
        let data = self.rng.bytes(len as usize);
        let mut f = OpenOptions::new().append(true).open(&self.paths[via])?;
        f.write_all(&data)?;
        self.model.extend_from_slice(&data);
        Ok(())
    }

    fn truncate(&mut self, via: usize, size: u64) -> Result<()> {
        self.handles[via].set_len(size)?;
        self.model.resize(size as usize, 0);
        Ok(())
    }

    fn hole(&mut self, via: usize, off: u64, len: u64) -> Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.handles[via], mode, off, len).with_context(|| format!("punch {len} at {off}"))?;
        let n = self.model.len();
        self.model[(off as usize).min(n)..((off + len) as usize).min(n)].fill(0);
        Ok(())
    }

    fn size(&mut self, via: usize) -> Result<()> {
        let got = std::fs::metadata(&self.paths[via])?.len();
        ensure!(got == self.model.len() as u64, "size is {got}, should be {}", self.model.len());
        Ok(())
    }

    /// Changes or reads bytes through a shared mapping.
    fn mapped(&mut self, via: usize, off: u64, len: u64) -> Result<()> {
        let size = self.model.len() as u64;
        if off >= size {
            return Ok(());
        }
        let len = len.min(size - off).min(100_000) as usize;
        let start = off / 4096 * 4096;
        let skip = (off - start) as usize;
        // A kernel learns of another mount's append when it is asked where the file ends; it throws the
        // answer away if something about the inode was invalidated meanwhile (docs/semantics.md), and says so
        // by the old size.
        let mut looks = 0;
        while (&self.handles[via]).seek(SeekFrom::End(0))? != size {
            looks += 1;
            ensure!(looks < 1000, "lseek(SEEK_END) never gives {size}");
        }
        let mut map = Mapping::shared(&self.handles[via], start, skip + len, true)?;
        same(&map.read(skip, len), &self.model[off as usize..off as usize + len], off)
            .context("through a shared mapping")?;
        if self.rng.below(2) == 0 {
            let data = self.rng.bytes(len);
            map.write(skip, &data);
            self.put(off, &data);
            if self.rng.below(2) == 0 {
                map.sync().context("msync")?;
            }
        }
        Ok(())
    }

    fn compare_all(&self) -> Result<()> {
        for p in &self.paths {
            same(&std::fs::read(p)?, &self.model, 0)
                .with_context(|| format!("at the end: {}", p.display()))?;
        }
        Ok(())
    }
}

/// `direct`: O_DIRECT; beside handles that are not.
fn open(p: &PathBuf, direct: bool) -> Result<File> {
    let flags = if direct { rustix::fs::OFlags::DIRECT.bits() as i32 } else { 0 };
    let mut o = OpenOptions::new();
    o.read(true).write(true).custom_flags(flags).open(p).with_context(|| format!("open {}", p.display()))
}

fn same(got: &[u8], want: &[u8], at: u64) -> Result<()> {
    if got.len() != want.len() {
        bail!("{} bytes instead of {}", got.len(), want.len());
    }
    if let Some(i) = got.iter().zip(want).position(|(a, b)| a != b) {
        let n = got.iter().zip(want).filter(|(a, b)| a != b).count();
        bail!("{n} wrong bytes, first at {}: {:#04x} instead of {:#04x}", at + i as u64, got[i], want[i]);
    }
    Ok(())
}

/// Appends numbered records from `writers` threads, each through its own mount, and checks that every record
/// is there once and whole.
pub fn appenders(paths: &[PathBuf], writers: usize, records: u64) -> Result<()> {
    use std::io::Write;
    const RECORD: usize = 64;
    std::thread::scope(|s| -> Result<()> {
        let mut joins = Vec::new();
        for w in 0..writers {
            let path = &paths[w % paths.len()];
            joins.push(s.spawn(move || -> Result<()> {
                let mut f = OpenOptions::new().append(true).open(path)?;
                for i in 0..records {
                    let mut line = format!("w{w:03} r{i:08} ");
                    line.extend(std::iter::repeat_n('x', RECORD - 1 - line.len()));
                    line.push('\n');
                    f.write_all(line.as_bytes())?;
                }
                Ok(())
            }));
        }
        for j in joins {
            j.join().expect("appender")?;
        }
        Ok(())
    })?;
    let all = std::fs::read(&paths[0])?;
    ensure!(all.len() as u64 == RECORD as u64 * records * writers as u64, "{} bytes", all.len());
    let mut next = vec![0u64; writers];
    for line in all.chunks(RECORD) {
        let text = std::str::from_utf8(line).context("a torn record")?;
        let w: usize = text[1..4].parse().with_context(|| format!("a torn record: {text:?}"))?;
        let i: u64 = text[6..14].parse().with_context(|| format!("a torn record: {text:?}"))?;
        ensure!(next[w] == i, "writer {w}: record {i} where {} should be", next[w]);
        next[w] += 1;
    }
    Ok(())
}
