//! From a path to a file, as a kernel walks it: each directory on the way must be one that the user may
//! search.

use super::error::Failed;
use crate::llite::permission;
use crate::stats::Verb;
use crate::{Call, Fs};
use model::limits::{NAME_MAX_BYTES, PATH_MAX_BYTES};
use model::perm::MAY_EXEC;
use model::{Errno, FileType};
use std::sync::Arc;
use wire::msg::lookup::Entry;

/// Symbolic links that are followed on one way.
const LINKS_MAX: u32 = 40;

/// The last part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// The path is the root.
    Root,
    Dot,
    DotDot,
    Name(Vec<u8>),
}

/// Where a name is, or would be.
pub(super) struct Place {
    pub dir: Arc<Entry>,
    pub last: Last,
    /// A slash stands behind it: only a directory will do.
    pub slash: bool,
}

impl Place {
    /// The name; `other` if it is none that could be made or removed.
    pub(super) fn name(&self, other: Errno) -> Result<&[u8], Failed> {
        match &self.last {
            Last::Name(n) => Ok(n),
            _ => Err(other.into()),
        }
    }
}

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// At the file; `true`: a symbolic link at the end is followed.
    File(bool),
    /// Before the last part.
    Place,
}

enum End {
    File(Arc<Entry>),
    Place(Place),
}

/// A walk that may go on: several paths may be one way (a link that is followed by its user).
pub(super) struct Walk<'a> {
    fs: &'a Arc<Fs>,
    call: &'a Call,
    /// From the root down to where it is.
    dirs: Vec<(Arc<Entry>, Vec<u8>)>,
    links: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn new(fs: &'a Arc<Fs>, call: &'a Call) -> Walk<'a> {
        Walk { fs, call, dirs: Vec::new(), links: 0 }
    }

    /// The file that a path names; `follow`: what a symbolic link at its end leads to.
    pub(super) async fn file(&mut self, path: &[u8], follow: bool) -> Result<Arc<Entry>, Failed> {
        match self.go(path, Stop::File(follow)).await? {
            End::File(e) => Ok(e),
            End::Place(_) => unreachable!("it was to go on"),
        }
    }

    /// The directory in which a path's last part is or would be. The user may search it.
    pub(super) async fn place(&mut self, path: &[u8]) -> Result<Place, Failed> {
        match self.go(path, Stop::Place).await? {
            End::Place(p) => Ok(p),
            End::File(_) => unreachable!("it was to stop before"),
        }
    }

    /// The place to which a symbolic link leads that is the last part of the place where the walk is.
    pub(super) async fn follow(&mut self, link: &Entry) -> Result<Place, Failed> {
        let target = self.target(link).await?;
        self.place(&target).await
    }

    /// What a name in a directory leads to.
    pub(super) async fn lookup(&self, dir: &Entry, name: &[u8]) -> Result<Arc<Entry>, Failed> {
        if name.len() > NAME_MAX_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let found = self.fs.names.lookup_entry(self.call, dir.attr.fid, name);
        Ok(self.fs.run(Verb::Lookup, found).await?)
    }

    async fn go(&mut self, path: &[u8], stop: Stop) -> Result<End, Failed> {
        check(path)?;
        if self.dirs.is_empty() {
            let root = self.fs.lmv.getattr_entry(self.fs.cx.of(self.call), self.fs.root());
            self.dirs.push((self.fs.run(Verb::Getattr, root).await?, Vec::new()));
        }
        let mut rest = path.to_vec();
        loop {
            if rest.first() == Some(&b'/') {
                self.dirs.truncate(1);
            }
            let Some(start) = rest.iter().position(|b| *b != b'/') else {
                // Nothing but slashes.
                let dir = self.here();
                self.may_search(&dir).await?;
                return Ok(match stop {
                    Stop::File(_) => End::File(dir),
                    Stop::Place => End::Place(Place { dir, last: Last::Root, slash: true }),
                });
            };
            let end = rest[start..].iter().position(|b| *b == b'/').map_or(rest.len(), |n| start + n);
            let (name, more) = (rest[start..end].to_vec(), rest[end..].to_vec());
            let last = more.iter().all(|b| *b == b'/');
            let dir = self.here();
            self.may_search(&dir).await?;
            if last && stop == Stop::Place {
                return Ok(End::Place(Place { dir, last: kind_of(name), slash: !more.is_empty() }));
            }
            match name.as_slice() {
                b"." => {}
                b".." => self.up().await?,
                _ => {
                    let e = self.lookup(&dir, &name).await?;
                    match e.attr.kind {
                        FileType::Directory => self.dirs.push((e, name)),
                        FileType::Symlink if !last || !more.is_empty() || stop == Stop::File(true) => {
                            rest = self.target(&e).await?;
                            rest.extend_from_slice(&more);
                            continue;
                        }
                        _ if !more.is_empty() => return Err(self.no_directory(&name)),
                        _ => return Ok(End::File(e)),
                    }
                }
            }
            if last {
                return Ok(End::File(self.here()));
            }
            // Slashes before the next part do not lead to the root.
            rest = more[more.iter().position(|b| *b != b'/').expect("there is more")..].to_vec();
        }
    }

    fn here(&self) -> Arc<Entry> {
        let dir = &self.dirs.last().expect("a walk begins at the root").0;
        assert!(dir.attr.kind == FileType::Directory, "names are looked up in directories");
        dir.clone()
    }

    /// The root's parent is the root.
    async fn up(&mut self) -> Result<(), Failed> {
        if self.dirs.len() == 1 {
            return Ok(());
        }
        self.dirs.pop();
        // Time went by since it was passed.
        let at = self.dirs.last_mut().expect("the root stays");
        let again = self.fs.lmv.getattr_entry(self.fs.cx.of(self.call), at.0.attr.fid);
        at.0 = self.fs.run(Verb::Getattr, again).await?;
        Ok(())
    }

    /// Where a symbolic link leads. One more is followed.
    async fn target(&mut self, link: &Entry) -> Result<Vec<u8>, Failed> {
        assert!(link.attr.kind == FileType::Symlink, "only symbolic links lead on");
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Failed::because(
                Errno::ELOOP,
                format!("more than {LINKS_MAX} symbolic links on one way"),
            ));
        }
        let target = self.fs.clone().readlink(self.call.clone(), link.attr.fid).await?;
        if target.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(target) }
    }

    async fn may_search(&self, dir: &Arc<Entry>) -> Result<(), Failed> {
        let r = self.fs.run(Verb::Getxattr, permission::access(self.fs, self.call, dir, MAY_EXEC)).await;
        r.map_err(|e| match e {
            Errno::EACCES => Failed::because(
                e,
                format!("user {} may not search directory '{}'", self.call.cred.uid, self.shown()),
            ),
            e => e.into(),
        })
    }

    fn no_directory(&self, name: &[u8]) -> Failed {
        let (dir, name) = (self.shown(), String::from_utf8_lossy(name).into_owned());
        let dir = dir.trim_end_matches('/');
        Failed::because(Errno::ENOTDIR, format!("'{dir}/{name}' is none"))
    }

    /// Where the walk is, for people.
    fn shown(&self) -> String {
        let names = self.dirs.iter().skip(1).map(|(_, n)| String::from_utf8_lossy(n).into_owned());
        format!("/{}", names.collect::<Vec<_>>().join("/"))
    }
}

fn check(path: &[u8]) -> Result<(), Failed> {
    match path {
        [] => Err(Errno::ENOENT.into()),
        p if p.len() >= PATH_MAX_BYTES => Err(Errno::ENAMETOOLONG.into()),
        p if p.contains(&0) => Err(Failed::because(Errno::EINVAL, "a path has no NUL".to_string())),
        _ => Ok(()),
    }
}

fn kind_of(name: Vec<u8>) -> Last {
    match name.as_slice() {
        b"." => Last::Dot,
        b".." => Last::DotDot,
        _ => Last::Name(name),
    }
}
