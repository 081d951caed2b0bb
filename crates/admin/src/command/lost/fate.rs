//! What becomes of a file of which something is lost.

use crate::command::drain::ost::Ost;
use crate::failure::Failure;
use crate::local::{ask_about, split, strange};
use client::control::{self, HeldFile, Name, Reply, Request};
use model::{Errno, Fid};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::files;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Keep,
    Remove,
    Recreate,
}

pub fn under(ost: &Ost, path: &Name) -> PathBuf {
    ost.mount.dir.join(OsStr::from_bytes(&path.0))
}

impl Fate {
    /// Does it.
    pub fn of(self, ost: &Ost, f: &HeldFile) -> Result<(), Failure> {
        match self {
            Fate::Keep => Ok(()),
            Fate::Remove => f.paths.iter().try_for_each(|p| remove(&under(ost, p), f.fid)),
            Fate::Recreate => {
                let (fid, dir) = (f.fid, &ost.mount.dir);
                ask_about(dir, "cannot make anew what is lost below", |_| Request::Recreate {
                    fid,
                    ost: ost.index,
                })
                .map(drop)
            }
        }
    }

    /// What was done, for people and scripts.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Keep => "lost",
            Fate::Remove => "removed",
            Fate::Recreate => "recreated",
        }
    }
}

/// Removes a name, if it still stands for that file. One that is gone is no failure.
fn remove(path: &Path, fid: Fid) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let (dir, name) = split(path);
    let fail = |e: &control::ControlError| Failure::control("cannot remove", &shown, e);
    // The metadata server alone is asked: of its objects one cannot be.
    let looked = control::open(&dir).and_then(|d| control::call(&d, &Request::Inode { name }));
    let now = match looked {
        Ok(Reply::Listing { entries, .. }) => entries.first().map(|e| e.fid),
        Ok(other) => return Err(strange(path, &other)),
        Err(e) if Errno(e.errno) == Errno::ENOENT => return Ok(()),
        Err(e) => return Err(fail(&e)),
    };
    if now != Some(fid) {
        return Ok(());
    }
    match files::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("cannot remove", &shown, e)),
        _ => Ok(()),
    }
}
