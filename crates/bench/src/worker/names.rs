//! Operations on many names, as mdtest does them.

use super::{Meter, Wrong, barrier};
use crate::layout::Shuffle;
use crate::link::{Link, NamesOrder, NamesVerb, Report};
use crate::pattern;
use anyhow::{Context, Result, bail};
use std::io;
use std::path::{Path, PathBuf};
use world::sys::files;
use world::sys::load::{self, Buffer, LoadFile, OpenHow, monotonic_ns};

struct Work<'a> {
    o: &'a NamesOrder,
    shuffle: Option<Shuffle>,
    buf: Buffer,
    wrong: Wrong,
}

pub fn run(o: &NamesOrder, link: &mut dyn Link) -> Result<Option<Report>> {
    let len = usize::try_from(o.write_bytes.max(o.read_bytes)).context("bytes of a file")?;
    let mut w = Work {
        o,
        shuffle: o.shuffle.map(|seed| Shuffle::new(o.pace.count.max(1), seed)),
        buf: Buffer::new(len),
        wrong: Wrong::default(),
    };
    if !barrier(link) {
        return Ok(None);
    }
    let start = monotonic_ns();
    let mut meter = Meter::new();
    match o.verb {
        NamesVerb::Find => w.find(&mut meter, link)?,
        _ => meter.phase(link, &o.pace, start, &mut |n| w.step(n))?,
    }
    let end = monotonic_ns();
    let (wrong, first_wrong) = (w.wrong.count, w.wrong.first);
    Ok(Some(Report { start, opened: start, moved: end, end, wrong, first_wrong, ..meter.report() }))
}

/// Path of the n-th item of `rank`.
fn item(o: &NamesOrder, n: u64) -> PathBuf {
    let kind = if o.folders { "dir" } else { "file" };
    let folder = o.tree.folder(o.tree.folder_of(n));
    let mut p = o.root.join(folder);
    p.push(format!("{kind}.mdtest.{}.{n}", o.rank));
    p
}

fn told<'a, T>(r: io::Result<T>, verb: &'a str, path: &'a Path) -> Result<T> {
    r.with_context(|| format!("{verb} '{}'", path.display()))
}

impl Work<'_> {
    fn step(&mut self, n: u64) -> Result<u64> {
        let o = self.o;
        if matches!(o.verb, NamesVerb::MakeTree | NamesVerb::RemoveTree) {
            return self.tree(n);
        }
        let n = self.shuffle.map_or(n, |s| s.at(n));
        let path = item(o, n);
        match (o.verb, o.folders) {
            (NamesVerb::Create, true) => told(load::mkdir(&path), "mkdir", &path).map(|()| 0),
            (NamesVerb::Create, false) => self.create(&path, n),
            (NamesVerb::Stat, _) => {
                let s = told(files::stat(&path, true), "stat", &path)?;
                if s.is_dir() != o.folders || (s.is_file() && o.verify && s.size != o.write_bytes) {
                    let (size, want) = (s.size, o.write_bytes);
                    self.wrong
                        .add(|| format!("'{}': {size} bytes where {want} were written", path.display()));
                }
                Ok(0)
            }
            (NamesVerb::Read, _) => self.read(&path, n),
            (NamesVerb::Remove, true) => told(load::rmdir(&path), "rmdir", &path).map(|()| 0),
            (NamesVerb::Remove, false) => told(load::unlink(&path), "unlink", &path).map(|()| 0),
            (NamesVerb::MakeTree | NamesVerb::RemoveTree | NamesVerb::Find, _) => Ok(0),
        }
    }

    /// The n-th folder of the tree, from the root on or (to remove) back to it.
    fn tree(&self, n: u64) -> Result<u64> {
        let o = self.o;
        let number = if o.verb == NamesVerb::MakeTree { n } else { o.pace.count - 1 - n };
        let path = o.root.join(o.tree.folder(number));
        if o.verb == NamesVerb::MakeTree {
            told(load::mkdir(&path), "mkdir", &path)?;
        } else {
            told(load::rmdir(&path), "rmdir", &path)?;
        }
        Ok(0)
    }

    fn key(&self, n: u64) -> u64 {
        pattern::key((self.o.rank << 40) ^ n)
    }

    fn create(&mut self, path: &Path, n: u64) -> Result<u64> {
        let o = self.o;
        let how = OpenHow { write: true, create: true, direct: false };
        let f = told(LoadFile::open(path, how), "create", path)?;
        if o.write_bytes > 0 {
            let key = self.key(n);
            let data = &mut self.buf[..o.write_bytes as usize];
            if o.verify {
                pattern::fill(data, key, 0);
            }
            told(f.write_at(data, 0), "write", path)?;
            if o.fsync {
                told(f.fsync(), "fsync", path)?;
            }
        }
        told(f.close(), "close", path)?;
        Ok(o.write_bytes)
    }

    fn read(&mut self, path: &Path, n: u64) -> Result<u64> {
        let o = self.o;
        let f = told(LoadFile::open(path, OpenHow::default()), "open", path)?;
        let len = o.read_bytes as usize;
        if len > 0 {
            let got = told(f.read_at(&mut self.buf[..len], 0), "read", path)?;
            if got < len {
                bail!("'{}' has {got} bytes: it was written with fewer", path.display());
            }
            let key = self.key(n);
            let bad = if o.verify { pattern::first_difference(&self.buf[..len], key, 0) } else { None };
            if let Some((pos, want, found)) = bad {
                self.wrong.add(|| format!("'{}' at {pos}: {found:#04x}, not {want:#04x}", path.display()));
            }
        }
        told(f.close(), "close", path)?;
        Ok(o.read_bytes)
    }

    /// Lists all trees below the root and looks at this rank's share of the names, as `find -size` would.
    fn find(&mut self, meter: &mut Meter, link: &mut dyn Link) -> Result<()> {
        let o = self.o;
        let mut folders = vec![o.root.clone()];
        let mut seen = 0u64;
        while let Some(dir) = folders.pop() {
            let mut mine = Vec::new();
            let listed = load::each_entry(&dir, |name, is_dir| {
                if seen % o.procs == o.rank {
                    mine.push(dir.join(&name));
                }
                seen += 1;
                if is_dir {
                    folders.push(dir.join(name));
                }
                Ok(())
            });
            told(listed, "list", &dir)?;
            let goal = meter.steps + mine.len() as u64;
            let first = meter.steps;
            meter.go(link, goal, None, &mut |n| {
                let path = &mine[(n - first) as usize];
                told(files::stat(path, false), "stat", path).map(|_| 0)
            })?;
        }
        let now = monotonic_ns();
        meter.tell(link, now);
        Ok(())
    }
}
