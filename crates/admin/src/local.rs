//! What runs on this host: mounts, and daemons with their control sockets.

use crate::failure::Failure;
use client::control::{self, ControlError, MountName, Name, Reply, Request, Response};
use mgs::pools::{PoolChange, PoolOrder};
use model::param::ParamInfo;
use model::{Errno, Pool, TargetId, changelog};
use rpc::server::recovery::Progress;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys;

/// How long a mount's daemon may take to answer: `Df` asks servers, for a second.
const MOUNT_PATIENCE: Duration = Duration::from_secs(10);

/// How long a mount without a known daemon may take to be opened.
const STRANGE_MOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// Type of our mounts in /proc/mounts.
pub const FSTYPE: &str = "fuse.nacre";

/// A request to a daemon's control socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonRequest {
    /// Answered with [`DaemonReply::Status`].
    Status,
    GetParam {
        pattern: String,
    },
    SetParam {
        name: String,
        value: String,
    },
    /// `lctl set_param -P`: only a daemon with the MGT can do it.
    SetPermanent {
        name: String,
        value: String,
        delete: bool,
    },
    /// `lctl abort_recovery` of a target, by its label.
    AbortRecovery {
        target: String,
    },
    /// What parameters mean: [`DaemonReply::ParamInfos`].
    HelpParam {
        pattern: String,
    },
    /// `lctl registration` of a target, by its label; only a daemon with the MGT can do it:
    /// [`DaemonReply::Text`].
    Registration {
        target: String,
        order: mgs::registration::Order,
    },
    /// `nacre fsck --online` of a target, by its label: [`DaemonReply::Check`].
    Check {
        target: String,
        order: CheckOrder,
    },
    /// `lctl pool_new` and its sisters; only a daemon with the MGT can do it: [`DaemonReply::Pool`].
    Pool(PoolOrder),
    /// `lctl changelog_register` and `changelog_deregister` of a metadata target, by its label: the
    /// consumer's name as [`DaemonReply::Text`].
    Changelog {
        target: String,
        order: changelog::Order,
    },
    /// The OST pools of a file system, as the targets here know them: [`DaemonReply::Pools`].
    Pools {
        fsname: String,
    },
}

/// The OST pools of a file system, as a target knows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownPools {
    /// The label of the target: `MGS`, or one that goes by them.
    pub target: String,
    /// Of the configuration that says so.
    pub version: u64,
    pub pools: Vec<Pool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOrder {
    /// A new check, unless one is under way.
    Start,
    Stop,
    /// How it stands.
    Look,
}

/// A check of a target that is served.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CheckState {
    pub running: bool,
    /// Records looked at so far.
    pub looked: u64,
    pub inodes: u64,
    pub names: u64,
    pub objects: u64,
    /// The first of them.
    pub problems: Vec<CheckProblem>,
    /// All that were found.
    pub errors: u64,
    /// Why it did not come to its end.
    pub failed: Option<String>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckProblem {
    /// A short name for scripts.
    pub kind: String,
    pub fid: Option<String>,
    pub path: Option<String>,
    pub what: String,
}

/// A request to the control socket of a mount's daemon. Unlike a request through the mount itself it needs
/// nobody but the daemon: a look at the mount's root may have to wait for a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountRequest {
    /// Answered with the path of the mount.
    Where,
    /// Answered with a [`control::Response`]; `EINVAL` for requests about files.
    Ask(Request),
}

/// Names of control sockets begin with one of these.
pub const DAEMON_SOCKET: &str = "nacred-";
pub const MOUNT_SOCKET: &str = "mount-";

fn sockets(prefix: &str) -> impl Iterator<Item = PathBuf> {
    let ours = move |p: &PathBuf| p.file_name().is_some_and(|n| n.as_bytes().starts_with(prefix.as_bytes()));
    sys::control::list().into_iter().filter(ours)
}

/// One target of a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonTarget {
    /// `fsname-OST0000`, `MGS`.
    pub label: String,
    pub dir: String,
    /// `starting`, `up`, `recovering`, `read-only` (its disk failed), `stopped`.
    pub state: String,
    pub uuid: String,
    pub epoch: u32,
    /// Registered with the MGS (or the MGS itself).
    pub registered: bool,
    /// Clients it knows.
    pub clients: usize,
    /// While it waits for clients of before its restart.
    pub recovery: Option<Progress>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub pid: u32,
    /// How often it started again by itself.
    #[serde(default)]
    pub started_again: u32,
    pub nids: Vec<String>,
    pub port: u16,
    pub targets: Vec<DaemonTarget>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonReply {
    Done,
    Status(DaemonStatus),
    Params(Vec<(String, String)>),
    Error {
        errno: i32,
        message: String,
    },
    ParamInfos(Vec<ParamInfo>),
    Check(CheckState),
    Text(String),
    Pool(PoolChange),
    /// Empty: nobody here knows the file system.
    Pools(Vec<KnownPools>),
}

/// A daemon that answers on its control socket.
pub struct Daemon {
    pub socket: PathBuf,
}

impl Daemon {
    pub fn all() -> Vec<Daemon> {
        sockets(DAEMON_SOCKET).map(|socket| Daemon { socket }).collect()
    }

    pub fn of_pid(pid: u32) -> Option<Daemon> {
        let socket = sys::control::run_dir().join(format!("{DAEMON_SOCKET}{pid}.sock"));
        sys::files::stat(&socket, false).ok().map(|_| Daemon { socket })
    }

    pub fn ask(&self, r: &DaemonRequest) -> Result<DaemonReply, Failure> {
        let object = self.socket.display().to_string();
        let text = serde_json::to_string(r).expect("plain data encodes");
        let answer = sys::control::call(&self.socket, &text, Duration::from_secs(10))
            .map_err(|e| Failure::io("cannot ask daemon", &object, e))?;
        serde_json::from_str(&answer)
            .map_err(|e| Failure::explained("cannot read answer of", &object, Errno::EPROTO, &e.to_string()))
    }

    /// As [`Daemon::ask`]; `None`: it ended since it was found.
    pub fn ask_if_there(&self, r: &DaemonRequest) -> Result<Option<DaemonReply>, Failure> {
        match self.ask(r) {
            Err(Failure::Op { errno: Errno::ECONNREFUSED | Errno::ENOENT, .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Asks all of these at the same time: one that is stopped holds up nobody. Their answers in order.
    pub fn ask_all(daemons: &[Daemon], r: &DaemonRequest) -> Vec<Result<DaemonReply, Failure>> {
        sys::at_once(daemons, |d| d.ask(r))
    }

    /// Of all that answer, asked at the same time.
    pub fn statuses() -> Vec<DaemonStatus> {
        sys::at_once(&Daemon::all(), Daemon::status).into_iter().flatten().collect()
    }

    pub fn status(&self) -> Option<DaemonStatus> {
        match self.ask(&DaemonRequest::Status) {
            Ok(DaemonReply::Status(s)) => Some(s),
            _ => None,
        }
    }
}

/// One of our mounts.
#[derive(Clone, Debug)]
pub struct LocalMount {
    pub dir: PathBuf,
    pub source: String,
    pub name: MountName,
}

/// Our mounts on this host that answer; with `report`, those that do not are named on standard error.
pub fn mounts(report: bool) -> Vec<LocalMount> {
    let mut ours = sys::mounts::list().unwrap_or_default();
    ours.retain(|m| m.fstype == FSTYPE);
    let names = sys::at_once(&ours, |m| mount_name(&m.dir));
    let mut out = Vec::new();
    for (m, name) in ours.into_iter().zip(names) {
        match name {
            Ok(name) => out.push(LocalMount { dir: m.dir, source: m.source, name }),
            Err(Failure::Op { text, .. } | Failure::Usage(text)) if report => eprintln!("{text}"),
            Err(_) => {}
        }
    }
    out
}

/// The mount point `path` lies below.
pub fn mount_point(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display().to_string();
    let real = sys::files::canonical(path).map_err(|e| Failure::io("cannot find", &shown, e))?;
    match sys::mounts::containing(&real) {
        Ok(Some(m)) if m.fstype == FSTYPE => Ok(m.dir),
        Ok(_) => Err(Failure::explained("cannot use", &shown, Errno::ENOTTY, "not on a Nacre file system")),
        Err(e) => Err(Failure::io("cannot read", "/proc/mounts", e)),
    }
}

pub fn mount_name(dir: &Path) -> Result<MountName, Failure> {
    match ask(dir, &Request::Getname)? {
        Reply::Mount(m) => Ok(m),
        other => Err(strange(dir, &other)),
    }
}

/// A reply of another kind than the request's.
pub fn strange(path: &Path, r: &Reply) -> Failure {
    let shown = format!("{r:?}");
    Failure::explained("unexpected answer from", &path.display().to_string(), Errno::EPROTO, &shown)
}

/// The control socket of the mount at `dir`, if this user may use it.
fn socket_of(dir: &Path) -> Option<PathBuf> {
    let place = serde_json::to_string(&MountRequest::Where).expect("plain data encodes");
    let at = |s: &PathBuf| sys::control::call(s, &place, MOUNT_PATIENCE).ok();
    sockets(MOUNT_SOCKET)
        .find(|s| at(s).and_then(|a| serde_json::from_str::<PathBuf>(&a).ok()).is_some_and(|p| p == dir))
}

/// Asks the mount that `path` itself lies on; `path` is opened (and followed, if a symbolic link), but for a
/// request about the mount itself at its root, which its daemon is asked.
pub fn ask(path: &Path, r: &Request) -> Result<Reply, Failure> {
    let shown = path.display().to_string();
    if r.is_of_mount()
        && let Some(socket) = socket_of(path)
    {
        let text = serde_json::to_string(&MountRequest::Ask(r.clone())).expect("plain data encodes");
        let answer = sys::control::call(&socket, &text, MOUNT_PATIENCE)
            .map_err(|e| Failure::io("cannot ask the daemon of", &shown, e))?;
        return match serde_json::from_str(&answer) {
            Ok(Response::Ok(reply)) => Ok(reply),
            Ok(Response::Error(e)) => Err(Failure::control("cannot ask", &shown, &e)),
            Err(e) => Err(Failure::explained("cannot read answer of", &shown, Errno::EPROTO, &e.to_string())),
        };
    }
    let fd = if r.is_of_mount() { open_soon(path) } else { control::open(path) };
    let fd = fd.map_err(|e| Failure::control("cannot open", &shown, &e))?;
    control::call(&fd, r).map_err(|e| Failure::control("cannot ask", &shown, &e))
}

/// Opens a mount of which no daemon of ours is known (it has its sockets elsewhere, or is gone): looking at
/// its root may have to wait for a server, which nobody wants whose question is about other mounts.
/// `ETIMEDOUT`.
fn open_soon(path: &Path) -> Result<OwnedFd, ControlError> {
    let (tx, rx) = std::sync::mpsc::channel();
    let path = path.to_path_buf();
    // Left behind if it waits: it ends with this program.
    sys::thread("open", move || drop(tx.send(control::open(&path))))?;
    rx.recv_timeout(STRANGE_MOUNT_PATIENCE).unwrap_or_else(|_| Err(Errno::ETIMEDOUT.into()))
}

/// Directory and last component of `path`, for what cannot or must not be opened.
pub fn split(path: &Path) -> (PathBuf, Option<Name>) {
    match path.file_name() {
        Some(n) => {
            let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (dir.to_path_buf(), Some(Name(n.as_bytes().to_vec())))
        }
        None => (path.to_path_buf(), None),
    }
}

/// Asks about `path`, by opening it, or by its directory and name if that is not possible (symbolic links,
/// FIFOs, files without the right to read).
pub fn ask_about(path: &Path, what: &str, make: impl Fn(Option<Name>) -> Request) -> Result<Reply, Failure> {
    let shown = path.display().to_string();
    let stat = sys::files::stat(path, false).map_err(|e| Failure::io(what, &shown, e))?;
    let direct = if stat.is_dir() || stat.is_file() { control::open(path) } else { Err(Errno::ELOOP.into()) };
    let result = match direct {
        Ok(fd) => control::call(&fd, &make(None)),
        Err(_) => {
            let (dir, name) = split(path);
            let fd = control::open(&dir).map_err(|e| Failure::control(what, &shown, &e))?;
            control::call(&fd, &make(name))
        }
    };
    result.map_err(|e| Failure::control(what, &shown, &e))
}

/// Parameters of a server's target whose names match the shell glob, by way of a mount.
pub fn target_params(
    mount: &Path,
    target: TargetId,
    pattern: &str,
) -> Result<Vec<(String, String)>, Failure> {
    match ask(mount, &Request::TargetParams { target, pattern: pattern.to_string() })? {
        Reply::Params(values) => Ok(values),
        other => Err(strange(mount, &other)),
    }
}

/// The one device that a command of `lctl` is about, as `lctl dl` and `--device` name it.
pub fn device(args: &[OsString]) -> Result<String, Failure> {
    let [device] = args else {
        return Err(Failure::usage("name one device of lctl dl"));
    };
    Ok(show(device).trim_start_matches(['%', '$']).to_string())
}

/// `path` for messages and output.
pub fn show(path: &OsStr) -> String {
    path.to_string_lossy().into_owned()
}
