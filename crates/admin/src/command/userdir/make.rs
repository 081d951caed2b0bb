//! Making a directory: under a hidden name that only root may enter, until it is as it is to be.
//!
//! Limits are set before there is anything that its owner could write into, and a name that users see is of
//! a directory that has all it is to have. Each step may be done twice, so whoever was killed between two of
//! them is followed by one who does all of them again.

use super::rules::{Limits, Plan};
use crate::command::quota::{directory, set::order_limits};
use crate::failure::Failure;
use crate::local;
use client::control::{self, Reply, Request};
use model::quota::{LimitChange, LimitOrder};
use model::{Errno, LayoutSpec};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use world::sys::tree::{Folder, Kind, Node};

/// Before the name of a directory that is being made.
pub const NEW: &str = ".nacre-userdir-new.";
/// Others may do the same at the same time: so often is looked again.
const ROUNDS: usize = 5;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub is_folder: bool,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

/// The directory in which directories are made: one of a mount, or a test's. Names are those in it.
pub trait Site {
    fn find(&self, name: &str) -> Result<Option<Found>, Failure>;
    /// For root alone; false: the name is taken.
    fn make(&self, name: &str) -> Result<bool, Failure>;
    fn set_limits(&self, order: &LimitOrder) -> Result<(), Failure>;
    /// The directory has a quota of its own, with these limits.
    fn limit_directory(&self, name: &str, space: LimitChange, inodes: LimitChange) -> Result<(), Failure>;
    /// What is made in it belongs to the project.
    fn set_project(&self, name: &str, project: u32) -> Result<(), Failure>;
    fn set_layout(&self, name: &str, layout: &LayoutSpec) -> Result<(), Failure>;
    fn set_owner(&self, name: &str, uid: u32, gid: u32) -> Result<(), Failure>;
    fn set_mode(&self, name: &str, mode: u32) -> Result<(), Failure>;
    /// False: the new name is taken.
    fn rename(&self, old: &str, new: &str) -> Result<bool, Failure>;
    fn remove_empty(&self, name: &str) -> Result<(), Failure>;
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    Made,
    /// It was there, and is now as it is to be.
    Set,
    /// It was there, and a login changes nothing.
    Kept,
}

impl Came {
    pub fn word(self) -> &'static str {
        match self {
            Came::Made => "made",
            Came::Set => "set",
            Came::Kept => "kept",
        }
    }
}

fn refused(plan: &Plan, name: &str, why: &str) -> Failure {
    Failure::explained("cannot use", &plan.under.join(name).display().to_string(), Errno::EEXIST, why)
}

/// Limits that hold before there is a directory.
fn limit_owner(plan: &Plan, site: &dyn Site) -> Result<(), Failure> {
    match &plan.limits {
        Some(Limits::Owner(order)) => site.set_limits(order),
        _ => Ok(()),
    }
}

/// Everything of a directory; the owner and the mode, which let him in, come last.
fn settle(plan: &Plan, site: &dyn Site, name: &str) -> Result<(), Failure> {
    if let Some(Limits::Directory { space, inodes }) = plan.limits {
        site.limit_directory(name, space, inodes)?;
    }
    if let Some(project) = plan.project {
        site.set_project(name, project)?;
    }
    if let Some(layout) = &plan.layout {
        site.set_layout(name, layout)?;
    }
    site.set_owner(name, plan.uid, plan.gid)?;
    // Behind the owner: a change of owner may take set-id bits away.
    site.set_mode(name, plan.mode)
}

fn existing(plan: &Plan, site: &dyn Site, found: Found, is_login: bool) -> Result<Came, Failure> {
    if !found.is_folder {
        return Err(refused(plan, &plan.name, "it is no directory"));
    }
    if found.uid == plan.uid && is_login {
        return Ok(Came::Kept);
    }
    // What an administrator gave to root no login gives back.
    if found.uid != plan.uid && (found.uid != 0 || is_login) {
        return Err(refused(plan, &plan.name, &format!("it belongs to user {}", found.uid)));
    }
    limit_owner(plan, site)?;
    settle(plan, site, &plan.name)?;
    Ok(Came::Set)
}

fn attempt(plan: &Plan, site: &dyn Site, is_login: bool) -> Result<Came, Failure> {
    if let Some(found) = site.find(&plan.name)? {
        return existing(plan, site, found, is_login);
    }
    limit_owner(plan, site)?;
    let hidden = format!("{NEW}{}", plan.name);
    if !site.make(&hidden)? {
        let gone =
            || Failure::op("cannot find", &plan.under.join(&hidden).display().to_string(), Errno::ENOENT);
        let found = site.find(&hidden)?.ok_or_else(gone)?;
        if !found.is_folder || (found.uid != 0 && found.uid != plan.uid) {
            return Err(refused(plan, &hidden, "somebody else made it: remove it"));
        }
    }
    settle(plan, site, &hidden)?;
    if site.rename(&hidden, &plan.name)? {
        return Ok(Came::Made);
    }
    // Somebody was faster: what is left of this attempt is empty.
    site.remove_empty(&hidden)?;
    Err(refused(plan, &plan.name, "somebody else made it just now"))
}

/// Makes it, or what is missing of it.
pub fn make(plan: &Plan, site: &dyn Site, is_login: bool) -> Result<Came, Failure> {
    let mut last = None;
    for _ in 0..ROUNDS {
        match attempt(plan, site, is_login) {
            // Another makes the same directory at this moment, and took the hidden name along.
            Err(f @ Failure::Op { errno: Errno::ENOENT | Errno::EEXIST, .. }) => last = Some(f),
            other => return other,
        }
    }
    Err(last.expect("there was an attempt"))
}

/// A directory of a mount.
pub struct MountSite {
    under: PathBuf,
    folder: Folder,
    mount: PathBuf,
}

impl MountSite {
    pub fn open(under: &Path) -> Result<MountSite, Failure> {
        let mount = local::mount_point(under)?;
        let failed = |e| Failure::io("cannot open", &under.display().to_string(), e);
        Ok(MountSite { under: under.to_path_buf(), folder: Folder::open(under).map_err(failed)?, mount })
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn mount(&self) -> &Path {
        &self.mount
    }

    fn shown(&self, name: &str) -> String {
        self.under.join(name).display().to_string()
    }

    fn failed<'a>(&'a self, what: &'a str, name: &'a str) -> impl Fn(io::Error) -> Failure + 'a {
        move |e| Failure::io(what, &self.shown(name), e)
    }

    /// Asks about the directory itself, which no symbolic link can stand for.
    fn ask(&self, what: &str, name: &str, r: &Request) -> Result<Reply, Failure> {
        let folder = self.folder.folder(OsStr::new(name)).map_err(self.failed(what, name))?;
        control::call(&folder, r).map_err(|e| Failure::control(what, &self.shown(name), &e))
    }
}

impl Site for MountSite {
    fn find(&self, name: &str) -> Result<Option<Found>, Failure> {
        let found = self.folder.find(OsStr::new(name)).map_err(self.failed("cannot look at", name))?;
        Ok(found.map(|s| Found {
            is_folder: s.kind() == Kind::Folder,
            uid: s.uid,
            gid: s.gid,
            mode: s.permissions(),
        }))
    }

    fn make(&self, name: &str) -> Result<bool, Failure> {
        match self.folder.make_folder(OsStr::new(name), 0o700) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            other => other.map(|()| true).map_err(self.failed("cannot make directory", name)),
        }
    }

    fn set_limits(&self, order: &LimitOrder) -> Result<(), Failure> {
        order_limits(&self.mount, order)
    }

    fn limit_directory(&self, name: &str, space: LimitChange, inodes: LimitChange) -> Result<(), Failure> {
        let what = "cannot give a quota to";
        let own = match self.ask(what, name, &Request::QuotaDirectory { name: None, change: Some(true) })? {
            Reply::Directories(r) => r.directories.first().copied(),
            other => return Err(local::strange(&self.under.join(name), &other)),
        };
        let own = own.ok_or_else(|| Failure::op(what, &self.shown(name), Errno::EIO))?;
        order_limits(&self.mount, &LimitOrder::Own { of: directory::id_of(&own), space, inodes })
    }

    fn set_project(&self, name: &str, project: u32) -> Result<(), Failure> {
        let r = Request::SetProject { name: None, projid: Some(project), inherit: Some(true) };
        self.ask("cannot set the project of", name, &r).map(drop)
    }

    fn set_layout(&self, name: &str, layout: &LayoutSpec) -> Result<(), Failure> {
        let r = Request::Setstripe { name: None, spec: Some(layout.clone()) };
        self.ask("cannot set layout of", name, &r).map(drop)
    }

    fn set_owner(&self, name: &str, uid: u32, gid: u32) -> Result<(), Failure> {
        let done = Node::Named(&self.folder, OsStr::new(name)).set_owner(Some(uid), Some(gid));
        done.map_err(self.failed("cannot set the owner of", name))
    }

    fn set_mode(&self, name: &str, mode: u32) -> Result<(), Failure> {
        let done = Node::Named(&self.folder, OsStr::new(name)).set_permissions(mode);
        done.map_err(self.failed("cannot set the mode of", name))
    }

    fn rename(&self, old: &str, new: &str) -> Result<bool, Failure> {
        match self.folder.rename_new(OsStr::new(old), OsStr::new(new)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            other => other.map(|()| true).map_err(self.failed("cannot rename", old)),
        }
    }

    fn remove_empty(&self, name: &str) -> Result<(), Failure> {
        self.folder.remove_folder(OsStr::new(name)).map_err(self.failed("cannot remove", name))
    }
}
