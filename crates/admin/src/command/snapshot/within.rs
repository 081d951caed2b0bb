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
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::mounts::{self, Unmount};
use world::sys::{Deadline, control, files, process};

const WHAT: &str = "cannot restore from snapshot";
/// What mount.nacre and its daemon may take.
const MOUNT_PATIENCE: Duration = Duration::from_secs(100);
/// How long programs that look at every mount may keep one from being unmounted.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

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
    let ours = |m: &local::LocalMount| m.dir != place_of(&m.name.fsname).0;
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

/// Where a restore mounts a snapshot, and the file that says that its servers were started for that.
fn place_of(snapshot_fsname: &str) -> (PathBuf, PathBuf) {
    let of = |end: &str| control::run_dir().join(format!("restore-{snapshot_fsname}{end}"));
    (of(""), of(".served"))
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
        let (_, mark) = place_of(&s.record.snapshot_fsname);
        // The MGS of a snapshot is where that of its file system is.
        let own = |s: &record::Snapshot| s.parts.iter().find(|p| p.nids == here.nids).and_then(|p| p.pid);
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
        let (dir, _) = place_of(&self.fsname);
        let shown = dir.display().to_string();
        if mounts::at(&dir).is_ok_and(|m| m.is_some()) {
            if !is_of(&dir, &self.name, self.here.fsname()) {
                // Its daemon was killed with the restore that made it.
                let _ = mounts::unmount(&dir, Unmount::Lazy);
            } else {
                return Ok(Within {
                    dir,
                    fsname: self.fsname.clone(),
                    subdir: PathBuf::new(),
                    served: Some(self),
                });
            }
        }
        match files::create_private_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::io("cannot make directory", &shown, e));
            }
            _ => {}
        }
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
        let shown = dir.display().to_string();
        let unmounted =
            Deadline::after(UNMOUNT_PATIENCE).wait_for(|| match mounts::at(dir).map(|m| m.is_some()) {
                Ok(true) => mounts::unmount(dir, Unmount::Normal).is_ok().then_some(()),
                _ => Some(()),
            });
        if unmounted.is_none() {
            mounts::unmount(dir, Unmount::Lazy).map_err(|e| Failure::io("cannot unmount", &shown, e))?;
        }
        let _ = files::remove_dir(dir);
        let (_, mark) = place_of(&self.fsname);
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
