//! `--verify`: walks both trees once more, reads both sides, and says what differs.

use super::attributes;
use super::copier::{Failed, Options, holder};
use super::report::{Report, add};
use crate::pool::{BLOCK_BYTES, Pool, Stop};
use model::Map;
use model::mutex::Mutex;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::frame::crc32c;
use world::sys::load::Buffer;
use world::sys::tree::{Folder, Kind, Listing, Node, Stat};

const LISTED_AT_ONCE: usize = 256;

/// Of which files the contents are read back: so many of a million, chosen by their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(u32);

impl Share {
    /// `all`, or `N%`.
    pub fn parse(text: &str) -> Result<Share, String> {
        if text == "all" {
            return Ok(Share(1_000_000));
        }
        let percent = text.strip_suffix('%').and_then(|n| n.parse::<f64>().ok());
        match percent {
            Some(p) if (0.0..=100.0).contains(&p) => Ok(Share((p * 10_000.0).round() as u32)),
            _ => Err(format!("'{text}': expected 'all' or a percentage, as in '5%'")),
        }
    }

    /// The same file is in it or not, each time.
    fn has(self, path: &Path) -> bool {
        crc32c(path.as_os_str().as_bytes()) % 1_000_000 < self.0
    }
}

/// A directory that is in both trees.
struct Pair {
    from: Folder,
    to: Folder,
    path: PathBuf,
    /// What DST itself is called.
    renamed: Option<OsString>,
}

enum Task {
    List(Arc<Pair>, Listing),
    One(Arc<Pair>, OsString),
}

struct Verifier<'a> {
    options: &'a Options,
    report: &'a Report,
    stop: &'a Stop,
    share: Share,
    pool: Pool<Task>,
    /// Of files with several names: which file each is in the copy.
    links: Mutex<Map<(u64, u64), (u64, u64)>>,
}

/// Compares all of both trees. Differences and errors are in the report.
pub fn run(options: &Options, report: &Report, stop: &Stop, share: Share) -> std::io::Result<()> {
    let ((from, name), (to, renamed)) = (holder(&options.src)?, holder(&options.dst)?);
    let v = Verifier { options, report, stop, share, pool: Pool::new(stop), links: Mutex::default() };
    let top = Pair { from, to, path: PathBuf::new(), renamed: Some(renamed) };
    v.pool.push(Task::One(Arc::new(top), name));
    v.pool.run(options.threads, |task, buffer| match task {
        Task::List(p, listing) => v.list(&p, listing),
        Task::One(p, name) => v.one(&p, &name, buffer),
    });
    Ok(())
}

impl Verifier<'_> {
    fn shown(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.options.dst.clone() } else { self.options.dst.join(path) }
    }

    fn list(&self, p: &Arc<Pair>, mut listing: Listing) {
        let mut names = Vec::new();
        while let Some(next) = listing.next() {
            match next {
                Ok(name) => names.push(name),
                Err(e) => {
                    self.report.error(&self.options.src.join(&p.path), "list", e);
                    break;
                }
            }
            if names.len() == LISTED_AT_ONCE {
                self.pool.push(Task::List(p.clone(), listing));
                break;
            }
        }
        self.pool.push_all(names.into_iter().map(|n| Task::One(p.clone(), n)));
    }

    fn one(&self, p: &Arc<Pair>, name: &OsStr, buffer: &mut Buffer) {
        let path = if p.renamed.is_some() { PathBuf::new() } else { p.path.join(name) };
        if let Err((what, e)) = self.entry(p, name, &path, buffer) {
            self.report.error(&self.shown(&path), what, e);
        }
        self.report.show("verify");
        self.stop.step();
    }

    fn entry(&self, p: &Arc<Pair>, name: &OsStr, path: &Path, buffer: &mut Buffer) -> Result<(), Failed> {
        let new = p.renamed.as_deref().unwrap_or(name);
        let Some(wanted) = p.from.find(name).map_err(|e| ("look at the original of", e))? else {
            return Ok(());
        };
        let differs = |what: &str| self.report.difference(&self.shown(path), what);
        let Some(there) = p.to.find(new).map_err(|e| ("look at", e))? else {
            differs("is missing");
            return Ok(());
        };
        if wanted.mode & 0o170000 != there.mode & 0o170000 {
            differs("is of another type");
            return Ok(());
        }
        let (a, b) = (Node::Named(&p.from, name), Node::Named(&p.to, new));
        let found = attributes::compare(a, &wanted, b, &there, self.options.root);
        for what in found.map_err(|e| ("compare attributes of", e))? {
            differs(&what);
        }
        if wanted.nlink > 1 && wanted.kind() != Kind::Folder {
            let first = *self.links.lock().entry(wanted.id()).or_insert(there.id());
            if first != there.id() {
                differs("is no hard link to what it is one to in the source");
            }
        }
        match wanted.kind() {
            Kind::Folder => {
                let from = p.from.folder(name).map_err(|e| ("open the original of", e))?;
                let to = p.to.folder(new).map_err(|e| ("open", e))?;
                let listing = from.list().map_err(|e| ("list the original of", e))?;
                let pair = Pair { from, to, path: path.to_path_buf(), renamed: None };
                self.pool.push(Task::List(Arc::new(pair), listing));
            }
            Kind::Symlink => {
                let a = p.from.read_symlink(name).map_err(|e| ("read the original of", e))?;
                let b = p.to.read_symlink(new).map_err(|e| ("read", e))?;
                if a != b {
                    differs("points elsewhere");
                }
            }
            Kind::Device if wanted.rdev != there.rdev => differs("is another device"),
            Kind::File if wanted.size != there.size => {
                differs(&format!("has {} bytes, not {}", there.size, wanted.size));
            }
            Kind::File if self.share.has(path) => {
                if let Some(at) = self.contents(p, name, new, &wanted, buffer)? {
                    differs(&format!("has other contents from byte {at} on, or up to a mebibyte behind it"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the first block begins that has another checksum.
    fn contents(
        &self,
        p: &Pair,
        name: &OsStr,
        new: &OsStr,
        wanted: &Stat,
        buffer: &mut Buffer,
    ) -> Result<Option<u64>, Failed> {
        let from = p.from.read_file(name).map_err(|e| ("open the original of", e))?;
        let to = p.to.read_file(new).map_err(|e| ("open", e))?;
        let mut at = 0;
        while at < wanted.size && !self.stop.wanted() {
            let n = from.read_at(&mut buffer[..BLOCK_BYTES], at).map_err(|e| ("read the original of", e))?;
            let sum = (n, crc32c(&buffer[..n]));
            let n = to.read_at(&mut buffer[..BLOCK_BYTES], at).map_err(|e| ("read", e))?;
            if sum != (n, crc32c(&buffer[..n])) {
                return Ok(Some(at));
            }
            if n == 0 {
                break;
            }
            add(&self.report.counts.bytes_verified, n as u64);
            at += n as u64;
        }
        add(&self.report.counts.files_verified, 1);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_files_is_about_as_large_as_said() {
        let paths: Vec<PathBuf> = (0..10_000).map(|i| PathBuf::from(format!("d{}/f{i}", i % 7))).collect();
        for (text, low, high) in
            [("all", 10_000, 10_000), ("100%", 10_000, 10_000), ("10%", 700, 1300), ("0%", 0, 0)]
        {
            let share = Share::parse(text).unwrap();
            let n = paths.iter().filter(|p| share.has(p)).count();
            assert!((low..=high).contains(&n), "{text}: {n}");
        }
        for bad in ["", "5", "101%", "-1%", "some"] {
            assert!(Share::parse(bad).is_err(), "{bad}");
        }
    }
}
