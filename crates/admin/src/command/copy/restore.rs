//! What a file that comes back from a snapshot keeps beside what any copy keeps, its layout and its project;
//! and what a restore made itself: a mark says so until it is complete, so that the same command goes on
//! after a `kill -9` and still replaces nothing of anybody else.

use super::super::getstripe::part::Parts;
use client::control::{self, ControlError, Name, Reply, Request, Stripe};
use model::inode_rules::FLAG_PROJINHERIT;
use model::{Attr, Errno};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use world::sys::load::LoadFile;
use world::sys::tree::{Folder, Node};

/// The attribute of what a restore has begun: the snapshot's file system.
pub const MARK: &str = "user.nacre.restore";

/// How files come back.
pub struct Restore {
    /// What names the snapshot: the name of the file system that it is.
    pub mark: String,
    /// What is there may be replaced, and get the attributes of then.
    pub overwrite: bool,
    /// Both ends are Nacre file systems: there are layouts and projects to keep.
    pub layouts: bool,
}

/// What a file could not be given.
#[derive(Default)]
pub struct NotKept {
    pub project: bool,
    /// In words.
    pub others: Vec<String>,
}

fn stripe(dir: &Folder, name: Option<&OsStr>) -> Result<Stripe, ControlError> {
    let name = name.map(|n| Name(n.as_bytes().to_vec()));
    match control::call(dir, &Request::Getstripe { name })? {
        Reply::Stripe(s) => Ok(*s),
        _ => Err(Errno::EPROTO.into()),
    }
}

fn attr(dir: &Folder, name: Option<&OsStr>) -> Result<Attr, ControlError> {
    let name = name.map(|n| Name(n.as_bytes().to_vec()));
    match control::call(dir, &Request::Inode { name })? {
        Reply::Listing { mut entries, .. } => {
            let inode = entries.pop().and_then(|e| e.inode);
            inode.map(|i| i.attr).ok_or_else(|| Errno::ENOENT.into())
        }
        _ => Err(Errno::EPROTO.into()),
    }
}

fn inherits(a: &Attr) -> bool {
    a.flags & FLAG_PROJINHERIT != 0
}

impl Restore {
    /// From now on it is known to be incomplete. Where there are no such attributes a restore that is killed
    /// leaves what the next one takes for somebody else's.
    pub fn mark(&self, node: Node<'_>) {
        let _ = node.set_xattr(MARK.as_ref(), self.mark.as_bytes());
    }

    /// It is complete.
    pub fn unmark(&self, node: Node<'_>) {
        let _ = node.remove_xattr(MARK.as_ref());
    }

    /// Whether a restore from this snapshot made it and did not complete it.
    pub fn is_begun(&self, node: Node<'_>) -> bool {
        matches!(node.xattr(MARK.as_ref()), Ok(Some(v)) if v == self.mark.as_bytes())
    }

    /// A new file, as its layout was: so many stripes, of such a size, in that pool, on whichever OSTs.
    pub fn create(
        &self,
        from: &Folder,
        old: &OsStr,
        (to, new): (&Folder, &OsStr),
    ) -> io::Result<(LoadFile, NotKept)> {
        let mut not_kept = NotKept::default();
        if self.layouts {
            match self.create_as(from, old, (to, new)) {
                Ok(()) => return to.write_file(new).map(|f| (f, not_kept)),
                Err(e) if e.errno == Errno::EEXIST.0 => return Err(Errno::EEXIST.into()),
                Err(e) if e.errno == Errno::ENODATA.0 => {}
                Err(e) => not_kept.others.push(format!("has another layout than it had: {}", e.message)),
            }
        }
        to.create_file(new, 0o600).map(|f| (f, not_kept))
    }

    /// `ENODATA`: it had no layout.
    fn create_as(
        &self,
        from: &Folder,
        old: &OsStr,
        (to, new): (&Folder, &OsStr),
    ) -> Result<(), ControlError> {
        let was = Parts::of_file(&stripe(from, Some(old))?).ok_or(Errno::ENODATA)?;
        let spec = was.without_places().spec()?;
        let name = Name(new.as_bytes().to_vec());
        control::call(to, &Request::Create { name, mode: 0o600, umask: 0, spec }).map(drop)
    }

    /// Whether a name in `to` can be a hard link to a file: not where all files are to be of another project.
    pub fn may_link(&self, (from, old): (&Folder, &OsStr), to: &Folder) -> bool {
        if !self.layouts {
            return true;
        }
        // What is not known, the link itself will say.
        match (attr(from, Some(old)), attr(to, None)) {
            (Ok(file), Ok(dir)) => !inherits(&dir) || dir.projid == file.projid,
            _ => true,
        }
    }

    /// The project of what is made in a folder of the copy; `None`: it is not known.
    pub fn project_in(&self, to: &Folder) -> Option<u32> {
        let a = attr(to, None).ok().filter(|_| self.layouts)?;
        Some(if inherits(&a) { a.projid } else { 0 })
    }

    /// A new file or name gets the project that it had; `now`: the one that it has.
    pub fn set_project(
        &self,
        (from, old): (&Folder, &OsStr),
        (to, new): (&Folder, &OsStr),
        now: Option<u32>,
    ) -> NotKept {
        let mut not_kept = NotKept::default();
        if !self.layouts {
            return not_kept;
        }
        match attr(from, Some(old)) {
            Ok(a) if Some(a.projid) == now => {}
            Ok(a) => {
                let name = Some(Name(new.as_bytes().to_vec()));
                self.give(to, name, (Some(a.projid), None), &mut not_kept);
            }
            Err(e) => not_kept.others.push(format!("its project is not known: {}", e.message)),
        }
        not_kept
    }

    fn give(
        &self,
        to: &Folder,
        name: Option<Name>,
        (projid, inherit): (Option<u32>, Option<bool>),
        not_kept: &mut NotKept,
    ) {
        match control::call(to, &Request::SetProject { name, projid, inherit }) {
            Ok(_) => {}
            Err(e) if [Errno::EPERM.0, Errno::EACCES.0].contains(&e.errno) => not_kept.project = true,
            Err(e) => not_kept.others.push(format!("has another project than it had: {}", e.message)),
        }
    }

    /// A folder gets the default layout that it had for its files.
    pub fn set_default(&self, from: &Folder, to: &Folder) -> NotKept {
        let mut not_kept = NotKept::default();
        if !self.layouts {
            return not_kept;
        }
        let layout = stripe(from, None).and_then(|was| {
            let now = stripe(to, None)?;
            if was.default != now.default {
                control::call(to, &Request::Setstripe { name: None, spec: was.default })?;
            }
            Ok(())
        });
        if let Err(e) = layout {
            not_kept.others.push(format!("has another default layout than it had: {}", e.message));
        }
        not_kept
    }

    /// A folder in which everything is there gets its project, and whether its files inherit it: in one where
    /// they do nobody can make a hard link to a file of another project.
    pub fn set_folder_project(&self, from: &Folder, to: &Folder) -> NotKept {
        let mut not_kept = NotKept::default();
        if !self.layouts {
            return not_kept;
        }
        match attr(from, None).and_then(|was| Ok((was, attr(to, None)?))) {
            Ok((was, now)) => {
                let projid = (was.projid != now.projid).then_some(was.projid);
                let inherit = (inherits(&was) != inherits(&now)).then_some(inherits(&was));
                if projid.is_some() || inherit.is_some() {
                    self.give(to, None, (projid, inherit), &mut not_kept);
                }
            }
            Err(e) => not_kept.others.push(format!("its project is not known: {}", e.message)),
        }
        not_kept
    }
}
