//! Where files of a snapshot can be read on this host: a mount that is there, or one for as long as a restore
//! takes.

use super::mount::{self, At};
use super::record::{self, Here};
use crate::command::maintenance;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::local::{self, Daemon};
use crate::pool::Stop;
use client::Source;
use model::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::mounts::{self, Unmount};
use world::sys::{Deadline, control, files, process};

const WHAT: &str = "cannot restore from snapshot";
/// What mount.nacre and its daemon may take.
const MOUNT_PATIENCE: Duration = Duration::from_secs(100);
/// How long programs that look at every mount may keep one from being unmounted.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);
/// Mounts over each other: restores that were killed made one each at most.
const LAYERS_MAX: u32 = 64;

/// A mounted snapshot.
pub struct Within {
    pub dir: PathBuf,
    /// The name of the file system that it is.
    pub fsname: String,
    /// The directory of the snapshot's file system that is mounted; empty: its root.
    subdir: PathBuf,
    /// It was mounted for this command.
    served: Option<Served>,
}

/// What is said of a file system that is a snapshot's (`nacre snapshot mount`).
fn reason(name: &str, fsname: &str) -> String {
    format!("snapshot {name} of {fsname}")
}

/// Whether what is mounted there is this snapshot.
fn is_of(dir: &Path, name: &str, fsname: &str) -> bool {
    maintenance::of_mount(dir).is_some_and(|(m, _)| m.reason == reason(name, fsname))
}

fn subdir_of(source: &str) -> PathBuf {
    Source::parse(source).map(|s| PathBuf::from(s.subdir.trim_matches('/'))).unwrap_or_default()
}

/// A mount of the snapshot that somebody made on this host, with all of it.
pub fn on_this_host(name: &str, fsname: &str) -> Option<Within> {
    let whole = |m: &local::LocalMount| subdir_of(&m.source).as_os_str().is_empty();
    let ours = |m: &local::LocalMount| !is_place(&m.dir);
    // Whoever mounted it has to be one whom root would believe: what lies in it becomes files of now.
    let of_root = |m: &local::LocalMount| {
        let options = mounts::at(&m.dir).ok().flatten().map(|m| m.options).unwrap_or_default();
        options.split(',').any(|o| o == "user_id=0")
    };
    let all = local::mounts(false).into_iter().filter(|m| whole(m) && ours(m) && of_root(m));
    let found = all.filter(|m| m.name.fsname != fsname).find(|m| is_of(&m.dir, name, fsname))?;
    Some(Within { dir: found.dir, fsname: found.name.fsname, subdir: PathBuf::new(), served: None })
}

impl Within {
    /// The mount that `--from` names.
    pub fn said(dir: &str, name: &str, fsname: &str) -> Result<Within, Failure> {
        let dir = local::mount_point(Path::new(dir))?;
        let shown = dir.display().to_string();
        if !is_of(&dir, name, fsname) {
            let why = match maintenance::of_mount(&dir).filter(|(m, _)| m.reason.starts_with("snapshot ")) {
                Some((m, _)) => format!("that is {}", m.reason),
                None => format!(
                    "no snapshot is mounted there: mount {name} by what 'nacre snapshot mount' prints"
                ),
            };
            return Err(Failure::explained(WHAT, &shown, Errno::EINVAL, &why));
        }
        let at = mounts::at(&dir).map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
        let subdir = at.map(|m| subdir_of(&m.source)).unwrap_or_default();
        Ok(Within { fsname: local::mount_name(&dir)?.fsname, subdir, dir, served: None })
    }

    /// A path of the file system, here.
    pub fn root(&self, below: &Path) -> Result<PathBuf, Failure> {
        let rest = below.strip_prefix(&self.subdir).map_err(|_| {
            let why = format!(
                "only '{}' of the snapshot is mounted at {}",
                self.subdir.display(),
                self.dir.display()
            );
            Failure::explained(WHAT, &below.display().to_string(), Errno::EXDEV, &why)
        })?;
        Ok(if rest.as_os_str().is_empty() { self.dir.clone() } else { self.dir.join(rest) })
    }

    /// It is needed no more.
    pub fn leave(self) -> Result<(), Failure> {
        self.served.map_or(Ok(()), |s| s.leave(&self.dir))
    }
}

/// A snapshot that is served, on the host of the MGS.
pub struct Served {
    here: Here,
    name: String,
    fsname: String,
    source: String,
    port: u16,
    /// Nobody else restores from it meanwhile: who is the last ends what was begun.
    _alone: files::FileLock,
}

/// What files of restores begin with, in the folder for what runs.
const PREFIX: &str = "restore-";

/// The file that says that a snapshot's servers were started for a restore.
fn mark_of(snapshot_fsname: &str) -> PathBuf {
    control::run_dir().join(format!("{PREFIX}{snapshot_fsname}.served"))
}

/// Where this restore mounts a snapshot. Each has a place of its own: a mount that one before it began, which
/// was killed, finds its place gone and comes to nothing.
fn own_place(snapshot_fsname: &str) -> PathBuf {
    control::run_dir().join(format!("{PREFIX}{snapshot_fsname}.{}", std::process::id()))
}

/// Whether restores mount there.
fn is_place(dir: &Path) -> bool {
    let is_named = |n: &OsStr| n.as_bytes().starts_with(PREFIX.as_bytes());
    dir.parent() == Some(&control::run_dir()) && dir.file_name().is_some_and(is_named)
}

/// The places of restores from a snapshot that were killed, mounted or not.
fn places_left(snapshot_fsname: &str) -> io::Result<Vec<PathBuf>> {
    let name = format!("{PREFIX}{snapshot_fsname}");
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    // Before there were several it had no number.
    let is_of_it = |n: &String| match n.strip_prefix(&name) {
        Some(rest) => rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number),
        None => false,
    };
    let all = files::list(control::run_dir())?;
    Ok(all.iter().filter(|n| is_of_it(n)).map(|n| control::run_dir().join(n)).collect())
}

/// Unmounts all that is mounted there, and takes the place away, so that nobody mounts there later.
fn clear(dir: &Path) -> io::Result<()> {
    let gone = |how: Unmount| {
        let mut layers = 0;
        while layers < LAYERS_MAX && mounts::unmount(dir, how).is_ok() {
            layers += 1;
        }
        match files::remove_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    };
    let by_itself = Deadline::after(UNMOUNT_PATIENCE).wait_for(|| gone(Unmount::Normal).ok());
    if by_itself.is_some() { Ok(()) } else { gone(Unmount::Lazy) }
}

impl Served {
    /// Serves it, unless it is served.
    pub fn of(here: &Here, name: &str, stop: &Stop) -> Result<Served, Failure> {
        let io_failed = |what: &str, p: &Path, e| Failure::io(what, &p.display().to_string(), e);
        let path = control::run_dir().join(format!("snapshot-{}-{name}.restore.lock", here.fsname()));
        let alone = files::FileLock::try_take(&path).map_err(|e| io_failed("cannot lock", &path, e))?;
        let Some(alone) = alone else {
            let why = "another restore from it is under way: wait for it, or mount the snapshot";
            return Err(Failure::explained(WHAT, name, Errno::EBUSY, why));
        };
        let mut s = record::named(here, WHAT, name)?;
        let missing = s.missing();
        if !missing.is_empty() {
            let why = format!("it is not whole, {} lack it", missing.join(", "));
            return Err(Failure::explained(WHAT, name, Errno::ENOENT, &why));
        }
        let mark = mark_of(&s.record.snapshot_fsname);
        // The MGS of a snapshot is where that of its file system is.
        let own = |s: &record::Snapshot| s.parts.iter().find(|p| p.nids == here.nids).and_then(|p| p.pid);
        if s.status() == "partly mounted" && files::stat(&mark, false).is_ok() {
            // A restore before this one was killed while it started its servers, or ended them.
            mount::umount(here, &s, &Interrupt::by(stop))?;
            s = record::named(here, WHAT, name)?;
        }
        if s.mounted().is_none() {
            let i = Interrupt::by(stop);
            let at = At::choose(here, &s, None, None)?;
            // It may be killed before it knows the number of the process.
            files::replace(&mark, b"").map_err(|e| io_failed("cannot write", &mark, e))?;
            if let Err(f) = mount::mount(here, &s, &at, &i) {
                let _ = files::remove_file(&mark);
                return Err(f);
            }
            s = record::named(here, WHAT, name)?;
            let pid = own(&s).map(|p| p.to_string()).unwrap_or_default();
            files::replace(&mark, pid.as_bytes()).map_err(|e| io_failed("cannot write", &mark, e))?;
        }
        let status = own(&s).and_then(Daemon::of_pid).and_then(|d| d.status());
        let Some(status) = status.filter(|_| s.status() == "mounted") else {
            let why = "not all of its servers run: nacre snapshot umount, then again";
            return Err(Failure::explained(WHAT, name, Errno::ENODEV, why));
        };
        Ok(Served {
            here: here.clone(),
            name: name.to_string(),
            source: format!("{}:/{}", status.nids.join(","), s.record.snapshot_fsname),
            fsname: s.record.snapshot_fsname,
            port: status.port,
            _alone: alone,
        })
    }

    /// Mounts it where nobody but root looks, unless a restore before this one left it there.
    pub fn mounted(self) -> Result<Within, Failure> {
        let io_failed = |what: &str, p: &Path, e| Failure::io(what, &p.display().to_string(), e);
        let run_dir = control::run_dir();
        let left = places_left(&self.fsname).map_err(|e| io_failed("cannot list", &run_dir, e))?;
        let mut usable = None;
        for dir in left {
            let is_mounted = mounts::at(&dir).is_ok_and(|m| m.is_some());
            if usable.is_none() && is_mounted && is_of(&dir, &self.name, self.here.fsname()) {
                usable = Some(dir);
                continue;
            }
            // Its daemon was killed with the restore that made it, or somebody is about to mount there.
            clear(&dir).map_err(|e| io_failed("cannot unmount", &dir, e))?;
        }
        if let Some(dir) = usable {
            let fsname = self.fsname.clone();
            return Ok(Within { dir, fsname, subdir: PathBuf::new(), served: Some(self) });
        }
        let dir = own_place(&self.fsname);
        let shown = dir.display().to_string();
        files::create_private_dir(&dir).map_err(|e| io_failed("cannot make directory", &dir, e))?;
        let exe =
            process::own_executable().map_err(|e| Failure::io("cannot find", "the program itself", e))?;
        let options = format!("ro,port={}", self.port);
        let args = ["mount.nacre", &self.source, &shown, "-o", &options];
        let f = match process::run_within(&exe.to_string_lossy(), &args, MOUNT_PATIENCE) {
            Ok(ended) if ended.status == Some(0) => {
                let fsname = self.fsname.clone();
                return Ok(Within { dir, fsname, subdir: PathBuf::new(), served: Some(self) });
            }
            Ok(ended) => Failure::explained(WHAT, &self.name, Errno::EIO, ended.last_words()),
            Err(e) => Failure::io("cannot mount snapshot", &self.name, e),
        };
        let _ = self.leave(&dir);
        Err(f)
    }

    /// Unmounts it, and ends its servers if they were started for a restore.
    fn leave(self, dir: &Path) -> Result<(), Failure> {
        clear(dir).map_err(|e| Failure::io("cannot unmount", &dir.display().to_string(), e))?;
        let mark = mark_of(&self.fsname);
        let Ok(started) = files::read_to_string(&mark) else { return Ok(()) };
        let s = record::named(&self.here, WHAT, &self.name)?;
        let is_ours = |pid: Option<u32>| started.is_empty() || pid.is_some_and(|p| p.to_string() == started);
        if !s.parts.iter().any(|p| is_ours(p.pid)) {
            // Somebody ended it meanwhile, and perhaps had it served anew.
            return files::remove_file(&mark)
                .map_err(|e| Failure::io("cannot remove", &mark.display().to_string(), e));
        }
        let errors = mount::umount(&self.here, &s, &Interrupt::default())?;
        match errors.exit_code() {
            0 => files::remove_file(&mark)
                .map_err(|e| Failure::io("cannot remove", &mark.display().to_string(), e)),
            _ => {
                let why = "its servers still run: nacre snapshot umount ends them";
                Err(Failure::explained("cannot unmount snapshot", &self.name, Errno::EBUSY, why))
            }
        }
    }
}
