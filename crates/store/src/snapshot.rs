//! Copies of a target's folder as it is at one moment, in files that share their blocks with the target's
//! own ([`world::Disk::clone_file`]). Decision 0084; where they lie: `docs/formats/snapshot.md`.
//!
//! What is copied is what a killed server would leave behind: files with what was written to them, flushed or
//! not. Whoever opens the copy replays its journal. Most is copied while the target works
//! ([`Making::copy_all`]), then what changed meanwhile ([`Making::copy_changed`]), the last time while
//! nothing changes ([`world::pause::DiskPause`]).

use crate::StoreError;
use model::planted::{self, Bug};
use std::collections::BTreeSet;
use std::io;
use world::{OpenMode, World};

/// The folder of snapshots in a target's folder.
pub const FOLDER: &str = "snapshots";
/// In a snapshot's folder: what its maker says of it. It is written last.
pub const RECORD: &str = "snapshot.json";
/// Bytes of a record.
pub const RECORD_MAX_BYTES: usize = 1 << 20;
/// Names of one file system's snapshots.
pub const NAME_MAX_BYTES: usize = 64;
/// What of a target's folder is its server's, not its content.
const LEFT_OUT: &[&str] = &["lock", "mmp", "barred", FOLDER, "lost+found"];
/// Here files get other names while they are open, so that what is noted of them has the old ones.
const JOURNAL: &str = "journal";
/// Folders in one another, at most.
const DEPTH_MAX: usize = 16;

/// Told how many files were done; false: whoever waits does not want to any more.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Whether a snapshot may be called so: letters, digits, `_`, `-`, `.`, and not a `.` first.
pub fn name_is_valid(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
    (1..=NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

/// The folder of a snapshot of the target in `dir`.
pub fn place(dir: &str, name: &str) -> String {
    format!("{dir}/{FOLDER}/{name}")
}

/// The snapshot's name, if `dir` is the folder of one.
pub fn name_of_place(dir: &str) -> Option<&str> {
    let (above, name) = dir.rsplit_once('/')?;
    (above.ends_with(&format!("/{FOLDER}")) && name_is_valid(name)).then_some(name)
}

fn error(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> StoreError {
    StoreError::io(what, path)
}

fn interrupted() -> StoreError {
    StoreError::Errno(model::Errno::EINTR)
}

fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A snapshot that is being made: it counts for nothing before [`Making::keep`].
pub struct Making {
    world: World,
    /// The target's folder.
    dir: String,
    name: String,
    files: u64,
}

impl Making {
    /// Makes an empty folder for it, and tries whether files can be cloned there, with the superblock.
    /// `EEXIST`: there is a snapshot of this name; `EOPNOTSUPP`: the file system has no clones.
    pub fn begin(world: &World, dir: &str, name: &str) -> Result<Making, StoreError> {
        assert!(name_is_valid(name), "the caller looked at the name");
        let m = Making { world: world.clone(), dir: dir.to_string(), name: name.to_string(), files: 0 };
        let disk = &world.disk;
        let all = format!("{dir}/{FOLDER}");
        match disk.mkdir(&all) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(error("cannot make", &all)(e)),
            _ => {}
        }
        let place = place(dir, name);
        if disk.exists(&place).map_err(error("cannot look at", &place))? {
            return Err(StoreError::Io { what: "cannot make", path: place, errno: model::Errno::EEXIST });
        }
        let new = m.new_place();
        remove_tree(world, &new, &mut |_| true)?;
        disk.mkdir(&new).map_err(error("cannot make", &new))?;
        let tried = disk.clone_file(&format!("{dir}/superblock"), &format!("{new}/superblock"));
        if let Err(e) = tried {
            let e = error("cannot clone into", &new)(e);
            remove_tree(world, &new, &mut |_| true)?;
            return Err(e);
        }
        assert_eq!(m.files, 0, "nothing of it counts yet");
        Ok(m)
    }

    /// Where it is until it is kept: names that begin so are no snapshots.
    fn new_place(&self) -> String {
        place(&self.dir, &format!(".{}.new", self.name))
    }

    /// Files that were cloned, those that were cloned again included.
    pub fn files(&self) -> u64 {
        self.files
    }

    fn is_left_out(&self, path: &str) -> bool {
        LEFT_OUT.iter().any(|n| path.strip_prefix(&self.dir) == Some(&format!("/{n}")))
    }

    /// Clones everything. What vanishes meanwhile has changed: it is in the next [`Making::copy_changed`].
    pub fn copy_all(&mut self, progress: Progress<'_>) -> Result<(), StoreError> {
        let dir = self.dir.clone();
        self.copy_folder(&dir, 0, progress)
    }

    fn target_of(&self, path: &str) -> String {
        let rest = path.strip_prefix(&self.dir).expect("only what is in the target's folder is cloned");
        format!("{}{rest}", self.new_place())
    }

    /// Everything in a folder, which is there in the copy as well.
    fn copy_folder(&mut self, dir: &str, depth: usize, progress: Progress<'_>) -> Result<(), StoreError> {
        if depth > DEPTH_MAX {
            return Err(StoreError::Refused(format!("'{dir}' lies deeper than a target has folders")));
        }
        let names = match self.world.disk.list(dir) {
            Err(e) if is_gone(&e) => return Ok(()),
            other => other.map_err(error("cannot list", dir))?,
        };
        for name in names {
            let path = format!("{dir}/{name}");
            if !self.is_left_out(&path) {
                self.copy(&path, depth, progress)?;
            }
        }
        Ok(())
    }

    /// A file, or a folder with all that is in it, in the place of what the copy has of it.
    fn copy(&mut self, path: &str, depth: usize, progress: Progress<'_>) -> Result<(), StoreError> {
        let (disk, to) = (self.world.disk.clone(), self.target_of(path));
        match disk.list(path) {
            Ok(_) => {
                match disk.mkdir(&to) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error("cannot make", &to)(e));
                    }
                    _ => {}
                }
                return self.copy_folder(path, depth + 1, progress);
            }
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {}
            Err(e) if is_gone(&e) => return remove_tree(&self.world, &to, &mut |_| true),
            Err(e) => return Err(error("cannot look at", path)(e)),
        }
        match disk.unlink(&to) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(error("cannot remove", &to)(e)),
            _ => {}
        }
        match disk.clone_file(path, &to) {
            Err(e) if is_gone(&e) => {}
            done => done.map_err(error("cannot clone", path))?,
        }
        self.files += 1;
        if progress(self.files) { Ok(()) } else { Err(interrupted()) }
    }

    /// Clones again what changed since it was cloned: these paths, and the journals. While nothing changes
    /// the copy is what the target is afterwards.
    pub fn copy_changed(
        &mut self,
        changed: &BTreeSet<String>,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let dir = self.dir.clone();
        for path in changed {
            let inside = path.strip_prefix(&dir).is_some_and(|rest| rest.starts_with('/'));
            let is_ours = inside && !path.starts_with(&format!("{dir}/{FOLDER}/"));
            if is_ours && !self.is_left_out(path) && !planted::on(Bug::SnapshotStale) {
                self.make_above(path)?;
                self.copy(path, 0, progress)?;
            }
        }
        let sub = self.world.disk.list(&dir).map_err(error("cannot list", &dir))?;
        let journals = sub.iter().filter(|n| !LEFT_OUT.contains(&n.as_str()));
        let journals = journals.map(|n| format!("{dir}/{n}/{JOURNAL}")).chain([format!("{dir}/{JOURNAL}")]);
        for j in journals {
            if self.world.disk.list(&j).is_ok() {
                // Also what is not there any more.
                remove_tree(&self.world, &self.target_of(&j), &mut |_| true)?;
                self.copy(&j, 0, progress)?;
            }
        }
        Ok(())
    }

    /// The folders above what is cloned.
    fn make_above(&self, path: &str) -> Result<(), StoreError> {
        let rest = path.strip_prefix(&self.dir).expect("looked at by the caller");
        let above = rest.rsplit_once('/').map_or("", |(above, _)| above);
        let mut to = self.new_place();
        for name in above.split('/').filter(|n| !n.is_empty()) {
            to = format!("{to}/{name}");
            match self.world.disk.mkdir(&to) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error("cannot make", &to)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// It is durable, with this record, and counts from now on.
    pub fn keep(self, record: &[u8]) -> Result<(), StoreError> {
        self.make_durable(record)?;
        self.name()
    }

    /// All of it and this record are durable; it counts for nothing yet.
    pub fn make_durable(&self, record: &[u8]) -> Result<(), StoreError> {
        assert!(self.files > 0, "a target has files");
        let new = self.new_place();
        write_record(&self.world, &new, record)?;
        self.world.disk.sync_tree(&new).map_err(error("cannot flush", &new))
    }

    /// What is durable counts from now on.
    pub fn name(self) -> Result<(), StoreError> {
        let (new, to) = (self.new_place(), place(&self.dir, &self.name));
        let disk = &self.world.disk;
        disk.rename(&new, &to).map_err(error("cannot name", &to))?;
        let all = format!("{}/{FOLDER}", self.dir);
        disk.sync_dir(&all).map_err(error("cannot flush", &all))?;
        assert!(self.files > 0, "a target has files");
        disk.sync_dir(&self.dir).map_err(error("cannot flush", &self.dir))
    }

    /// Nothing is left of it.
    pub fn drop_all(self) -> Result<(), StoreError> {
        remove_tree(&self.world, &self.new_place(), &mut |_| true)
    }
}

/// What the maker of the snapshot in `place` says of it; `None`: it is none, or is being made or removed.
pub fn read_record(world: &World, place: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let path = format!("{place}/{RECORD}");
    if !world.disk.exists(&path).map_err(error("cannot look at", &path))? {
        return Ok(None);
    }
    let file = world.disk.open(&path, OpenMode::READ).map_err(error("cannot open", &path))?;
    let mut bytes = vec![0; RECORD_MAX_BYTES];
    let n = file.read_at(&mut bytes, 0).map_err(error("cannot read", &path))?;
    bytes.truncate(n);
    Ok(Some(bytes))
}

/// Puts another record in the place of the snapshot's, durable when it returns.
pub fn write_record(world: &World, place: &str, record: &[u8]) -> Result<(), StoreError> {
    assert!(record.len() <= RECORD_MAX_BYTES, "a record is bounded");
    let (path, new) = (format!("{place}/{RECORD}"), format!("{place}/{RECORD}.new"));
    let mode = OpenMode { write: true, create: true, exclusive: false, truncate: true };
    let file = world.disk.open(&new, mode).map_err(error("cannot write", &new))?;
    file.write_at(record, 0).map_err(error("cannot write", &new))?;
    file.sync_data().map_err(error("cannot flush", &new))?;
    world.disk.rename(&new, &path).map_err(error("cannot write", &path))?;
    world.disk.sync_dir(place).map_err(error("cannot flush", place))
}

/// Names of the snapshots of the target in `dir`, sorted.
pub fn names(world: &World, dir: &str) -> Result<Vec<String>, StoreError> {
    let all = format!("{dir}/{FOLDER}");
    match world.disk.list(&all) {
        Ok(names) => Ok(names.into_iter().filter(|n| name_is_valid(n)).collect()),
        Err(e) if is_gone(&e) => Ok(Vec::new()),
        Err(e) => Err(error("cannot list", &all)(e)),
    }
}

/// Gives a snapshot another name. `EEXIST`: it is taken.
pub fn rename(world: &World, dir: &str, name: &str, new: &str) -> Result<(), StoreError> {
    let (from, to) = (place(dir, name), place(dir, new));
    if world.disk.exists(&to).map_err(error("cannot look at", &to))? {
        return Err(StoreError::Io { what: "cannot rename to", path: to, errno: model::Errno::EEXIST });
    }
    world.disk.rename(&from, &to).map_err(error("cannot rename", &from))?;
    let all = format!("{dir}/{FOLDER}");
    world.disk.sync_dir(&all).map_err(error("cannot flush", &all))
}

/// Removes a snapshot: it counts for nothing from the begin, and what an interrupted call left the next one
/// takes away.
pub fn destroy(world: &World, dir: &str, name: &str, progress: Progress<'_>) -> Result<(), StoreError> {
    let (from, gone) = (place(dir, name), place(dir, &format!(".{name}.gone")));
    remove_tree(world, &gone, progress)?;
    match world.disk.rename(&from, &gone) {
        Err(e) if !is_gone(&e) => return Err(error("cannot rename", &from)(e)),
        _ => {}
    }
    let all = format!("{dir}/{FOLDER}");
    match world.disk.sync_dir(&all) {
        Err(e) if !is_gone(&e) => return Err(error("cannot flush", &all)(e)),
        _ => {}
    }
    remove_tree(world, &gone, progress)
}

/// Takes away what calls that were interrupted left of the target in `dir`: what was being made, or removed.
pub fn tidy(world: &World, dir: &str) -> Result<(), StoreError> {
    let all = format!("{dir}/{FOLDER}");
    let there = match world.disk.list(&all) {
        Err(e) if is_gone(&e) => return Ok(()),
        other => other.map_err(error("cannot list", &all))?,
    };
    for n in there.iter().filter(|n| n.starts_with('.') && (n.ends_with(".new") || n.ends_with(".gone"))) {
        remove_tree(world, &format!("{all}/{n}"), &mut |_| true)?;
    }
    Ok(())
}

/// A folder and what is in it, or a file; nothing if it is not there.
fn remove_tree(world: &World, path: &str, progress: Progress<'_>) -> Result<(), StoreError> {
    let mut removed = 0;
    remove(world, path, 0, &mut removed, progress)
}

fn remove(
    world: &World,
    path: &str,
    depth: usize,
    removed: &mut u64,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    if depth > DEPTH_MAX + 2 {
        return Err(StoreError::Refused(format!("'{path}' lies deeper than a snapshot has folders")));
    }
    let names = match world.disk.list(path) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            *removed += 1;
            let done = world.disk.unlink(path).map_err(error("cannot remove", path));
            return done.and_then(|()| if progress(*removed) { Ok(()) } else { Err(interrupted()) });
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(error("cannot list", path)(e)),
    };
    for n in names {
        remove(world, &format!("{path}/{n}"), depth + 1, removed, progress)?;
    }
    world.disk.rmdir(path).map_err(error("cannot remove", path))
}
