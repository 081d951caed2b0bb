//! A file that a walk met, with as much as is known of it so far.

use client::control::{Inode, Listed, Name, Stripe};
use model::layout::Component;
use model::{FileType, Layout, Timestamp};
use std::path::{Path, PathBuf};
use wire::msg::scan::Number;
use world::sys::walk::FullStat;

/// What must be known of a file before something can be said of it: the later, the more it costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Its name, type and FID.
    Name,
    /// What its metadata server knows of it, which many files' tell at once.
    Inode,
    /// A question to the metadata server about this file alone.
    Question,
    /// Size, space and times of its objects.
    Objects,
}

/// A file that may be looked for.
pub struct Candidate {
    /// As it is shown.
    pub path: PathBuf,
    /// Levels below the path that the walk began at.
    pub depth: u32,
    pub listed: Listed,
    /// Of a directory: what its new files get, once it was asked.
    pub defaults: Option<Stripe>,
    /// What the object servers' part makes of size, space and times, once they were asked.
    pub stat: Option<FullStat>,
}

impl Candidate {
    pub fn new(path: PathBuf, depth: u32, listed: Listed) -> Candidate {
        Candidate { path, depth, listed, defaults: None, stat: None }
    }

    pub fn name(&self) -> &Name {
        &self.listed.name
    }

    pub fn kind(&self) -> FileType {
        self.listed.kind
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Only asked for what needs [`Stage::Inode`] or more.
    pub fn inode(&self) -> &Inode {
        self.listed.inode.as_ref().expect("a file's inode is there before something needs it")
    }

    /// Of a regular file.
    pub fn layout(&self) -> Option<&Layout> {
        self.inode().layout.as_ref().filter(|_| self.kind() == FileType::Regular)
    }

    /// The component that says how a file is striped: the last that has objects.
    pub fn component(&self) -> Option<&Component> {
        let all = &self.layout()?.components;
        all.iter().rev().find(|c| !c.objects.is_empty()).or(all.last())
    }

    /// Whether object servers know a part of size, space and times.
    pub fn has_objects(&self) -> bool {
        self.layout().is_some_and(|l| l.objects().next().is_some())
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.stat.map_or(self.inode().attr.size, |s| s.size)
    }

    /// Of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.stat.map_or(self.inode().attr.blocks, |s| s.blocks)
    }

    pub fn time(&self, which: Time) -> (i64, u32) {
        let (attr, of) = (&self.inode().attr, |t: Timestamp| (t.sec, t.nsec));
        match which {
            Time::Access => self.stat.map_or(of(attr.atime), |s| s.atime),
            Time::Modify => self.stat.map_or(of(attr.mtime), |s| s.mtime),
            Time::Change => self.stat.map_or(of(attr.ctime), |s| s.ctime),
            Time::Birth => of(attr.btime),
        }
    }

    /// What `-name` compares: the last part of the path, or `.` as it was given.
    pub fn shown_name(&self) -> &[u8] {
        &self.listed.name.0
    }

    /// The directory that the file is in, as it is shown.
    pub fn shown_directory(&self) -> &Path {
        self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// One of a file's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Access,
    Modify,
    Change,
    Birth,
}

impl Time {
    /// As scans name it.
    pub fn number(self) -> Number {
        match self {
            Time::Access => Number::Atime,
            Time::Modify => Number::Mtime,
            Time::Change => Number::Ctime,
            Time::Birth => Number::Btime,
        }
    }

    /// Writes move the time of modification and that of change at the objects first.
    pub fn stage(self) -> Stage {
        match self {
            Time::Access | Time::Birth => Stage::Inode,
            Time::Modify | Time::Change => Stage::Objects,
        }
    }
}
