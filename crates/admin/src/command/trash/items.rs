//! What lies in the trash.

use super::explained;
use crate::command::changelog::when;
use crate::failure::Failure;
use crate::local::{ask, strange};
use crate::names;
use crate::size::human;
use client::control::{Reply, Request};
use model::{Errno, Fid, FileType};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::msg::trashlist::Trashed;

/// A file, symbolic link or directory that was removed.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    pub file: Trashed,
    /// Bytes, if they were asked for; `None`: an object server does not say.
    pub size: Option<u64>,
}

impl Item {
    pub fn fid(&self) -> Fid {
        self.file.attr.fid
    }

    /// Below the directory that was asked for; `None`: where it was is gone, or closed to the caller.
    pub fn path(&self) -> Option<PathBuf> {
        let way = OsStr::from_bytes(self.file.way.as_deref()?);
        Some(Path::new(way).join(OsStr::from_bytes(&self.file.name)))
    }

    /// As it is shown.
    pub fn shown(&self, dir: &Path) -> String {
        match self.path() {
            Some(p) => dir.join(p).display().to_string(),
            None => format!("?/{}", String::from_utf8_lossy(&self.file.name)),
        }
    }

    pub fn json(&self, dir: &Path) -> Value {
        let (f, a) = (&self.file, &self.file.attr);
        let kind = match a.kind {
            FileType::Directory => "directory",
            FileType::Symlink => "symlink",
            _ => "file",
        };
        json!({"fid": a.fid.to_string(), "type": kind, "path": self.path().map(|p| dir.join(p)),
               "name": String::from_utf8_lossy(&f.name), "parent": f.parent.to_string(),
               "parent_removed": !f.removed.is_empty(), "bytes": self.size, "uid": a.uid,
               "user": names::user(a.uid), "gid": a.gid, "mode": format!("{:04o}", a.mode),
               "removed": f.when.sec, "removed_by": f.by})
    }
}

/// Everything that was removed below a directory and that the caller may see, the oldest first; object
/// servers are asked for its sizes only if they are wanted.
pub fn below(dir: &Path, sizes: bool) -> Result<Vec<Item>, Failure> {
    let shown = dir.display().to_string();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let reply = ask(dir, &Request::TrashList { after, sizes });
        let (page, unknown) = match reply.map_err(|f| explained("cannot list the trash of", &shown, f))? {
            Reply::Trashed { page, unknown } => (page, unknown),
            other => return Err(strange(dir, &other)),
        };
        let page =
            page.open().map_err(|e: Errno| Failure::op("cannot understand the trash of", &shown, e))?;
        for (n, file) in (0u32..).zip(page.files) {
            let size = Some(file.attr.size).filter(|_| !unknown.contains(&n));
            all.push(Item { file, size });
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

pub fn text(all: &[Item], dir: &Path) -> String {
    let mut out = format!("{:<19} {:>8} {:<12} {:<28} {}\n", "Removed", "Size", "Owner", "FID", "Path");
    for i in all {
        let slash = if i.file.attr.kind == FileType::Directory { "/" } else { "" };
        out.push_str(&format!(
            "{} {:>8} {:<12} {:<28} {}{slash}\n",
            when(i.file.when.sec),
            i.size.map_or_else(|| "?".into(), |n| human(n, 1024)),
            names::user(i.file.attr.uid),
            i.fid().to_string(),
            i.shown(dir)
        ));
    }
    out
}
