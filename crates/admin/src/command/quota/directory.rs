//! Directories with a quota: `-d` of `lfs quota` and `lfs setquota`.

use super::set;
use crate::command::fid2path;
use crate::command::osts::mount_of;
use crate::failure::{Failure, FirstError};
use crate::interrupt::guarded;
use crate::local::{self, LocalMount, ask_about, strange};
use client::control::{Reply, Request};
use model::Errno;
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType, TRASH_LABEL};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::msg::quotadir::{QuotadirEntry, QuotadirReply};
use world::sys;

/// Between two looks whether everything below is counted.
const LOOK: Duration = Duration::from_millis(100);

/// What is changed of a directory's quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectoryChange {
    /// It has a quota from now on, with these limits; with none of them it is only counted.
    Limits { space: LimitChange, inodes: LimitChange },
    /// It has a quota, and what may lie below it on the OSTs of a pool is this.
    Pool { pool: String, space: LimitChange },
    /// It has none.
    Delete,
}

fn asked(dir: &Path, change: Option<bool>) -> Result<QuotadirReply, Failure> {
    match ask_about(dir, "cannot get the quota of", |name| Request::QuotaDirectory { name, change })? {
        Reply::Directories(r) => Ok(r),
        other => Err(strange(dir, &other)),
    }
}

/// The quotas that a directory lies in, the innermost first, and its own, if it has one.
pub fn look(dir: &Path) -> Result<(QuotadirReply, Option<QuotadirEntry>), Failure> {
    let fid = local::inode_of(dir, "cannot get the quota of")?.attr.fid;
    let around = asked(dir, None)?;
    let own = around.directories.first().copied().filter(|d| d.fid == fid);
    Ok((around, own))
}

pub fn id_of(d: &QuotadirEntry) -> QuotaId {
    QuotaId { of: QuotaType::Directory, id: d.id }
}

/// Whose usage and limits are those of a directory. `ENODATA`: it has no quota.
pub fn quota_of(dir: &Path) -> Result<(LocalMount, QuotaId), Failure> {
    let (around, own) = look(dir)?;
    let m = mount_of(dir)?;
    if let Some(own) = own {
        return Ok((m, id_of(&own)));
    }
    let shown = dir.display().to_string();
    let why = match around.directories.first().map(|d| fid2path::first(&m.dir, d.fid)) {
        Some(Ok(outer)) => format!("it has none of its own; it lies in {}, which has one", outer.display()),
        _ => format!("it has none: lfs setquota -d {shown} counts what lies in it"),
    };
    Err(Failure::explained("cannot get the quota of", &shown, Errno::ENODATA, &why))
}

/// What `lfs setquota -d` does.
pub fn change(dir: &Path, change: &DirectoryChange) -> Result<FirstError, Failure> {
    let shown = dir.display().to_string();
    let why = |f: Failure| match Errno(f.exit_code()) {
        e @ Errno::EPERM => Failure::explained("setquota failed on", &shown, e, "only root may set limits"),
        e @ Errno::ENOENT if *change == DirectoryChange::Delete => {
            Failure::explained("setquota failed on", &shown, e, "it has no quota")
        }
        e @ Errno::EBUSY => {
            let why = "somebody is moving it, or a directory that it lies in: try again";
            Failure::explained("setquota failed on", &shown, e, why)
        }
        e @ Errno::ENOSPC => {
            Failure::explained("setquota failed on", &shown, e, "as many directories have one as can")
        }
        e @ Errno::EOPNOTSUPP => {
            let why = "its metadata server is of a version that knows no quotas of directories";
            Failure::explained("setquota failed on", &shown, e, why)
        }
        _ => f,
    };
    let counted = || {
        let r = asked(dir, Some(true)).map_err(why)?;
        Ok(id_of(r.directories.first().ok_or_else(|| Failure::op("no quota of", &shown, Errno::EIO))?))
    };
    let order = match change {
        DirectoryChange::Delete => {
            asked(dir, Some(false)).map_err(why)?;
            None
        }
        DirectoryChange::Limits { space, inodes } => {
            let (of, none) = (counted()?, space.is_nothing() && inodes.is_nothing());
            (!none).then_some(LimitOrder::Own { of, space: *space, inodes: *inodes })
        }
        DirectoryChange::Pool { pool, space } => {
            Some(LimitOrder::Pool { of: counted()?, pool: pool.clone(), space: *space })
        }
    };
    if let Some(order) = order {
        set::order_limits(&local::mount_point(dir)?, &order)?;
    }
    settled(dir)
}

/// Waits until all that lies below is counted; an interrupt ends the wait, and not the counting.
fn settled(dir: &Path) -> Result<FirstError, Failure> {
    let mut looks = 0u32;
    let (r, signalled) = guarded(
        || {},
        |i| {
            while asked(dir, None)?.unsettled && !i.stopped() {
                looks = looks.saturating_add(1);
                if looks == 10 {
                    eprintln!("lfs setquota: what lies in {} is being counted", dir.display());
                }
                sys::sleep(LOOK);
            }
            Ok(FirstError::default())
        },
    );
    let mut errors = r?;
    if let Some(code) = signalled {
        eprintln!("lfs setquota: interrupted: the server goes on counting");
        errors.interrupted("lfs setquota", code);
    }
    Ok(errors)
}

/// All directories of a file system that have a quota.
pub fn all(m: &LocalMount) -> Result<Vec<QuotadirEntry>, Failure> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let r = match local::ask(&m.dir, &Request::QuotaDirectories { after })? {
            Reply::Directories(r) => r,
            other => return Err(strange(&m.dir, &other)),
        };
        all.extend(r.directories);
        match r.next {
            Some(n) => after = n,
            None => return Ok(all),
        }
    }
}

/// The paths of directories with a quota, by their ids.
#[derive(Default)]
pub struct Names(BTreeMap<u32, PathBuf>);

impl Names {
    /// Those of a file system; of one that has no path below the mount, its FID.
    pub fn of(m: &LocalMount) -> Result<Names, Failure> {
        let path = |d: &QuotadirEntry| {
            fid2path::first(&m.dir, d.fid).unwrap_or_else(|_| PathBuf::from(d.fid.to_string()))
        };
        Ok(Names(all(m)?.iter().map(|d| (d.id, path(d))).collect()))
    }

    /// What lies in the trash is counted to none of them, but shown beside them.
    pub fn get(&self, id: u32) -> Option<String> {
        if id == TRASH_LABEL {
            return Some("(trash)".into());
        }
        self.0.get(&id).map(|p| p.display().to_string())
    }
}
