//! What runs on this host: mounts, and daemons with their control sockets.

use crate::failure::Failure;
use crate::views::{TableAnswer, TableOrder};
use client::control::{self, ControlError, Inode, MountName, Name, Packed, Reply, Request, Response};
use mgs::pools::{PoolChange, PoolOrder};
use mgs::restore::{ConfigAnswer, ConfigOrder};
use model::barrier::{BarrierOrder, BarrierStanding};
use model::debug::{DebugAnswer, DebugOrder};
use model::events::Events;
use model::history::Records;
use model::metrics::Page;
use model::param::ParamInfo;
use model::snapshot::{SnapshotAnswer, SnapshotOrder};
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

/// How long a mount's daemon may take to say where it is, for which it asks nobody.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);

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
    /// Of its debug log: [`DaemonReply::Debug`].
    Debug(DebugOrder),
    /// Its events behind a number: [`DaemonReply::Events`].
    Events {
        after: u64,
    },
    /// What this target recorded behind a time: [`DaemonReply::History`].
    History {
        target: String,
        since: i64,
    },
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
    /// `nacre config`; only a daemon with the MGT can do it: [`DaemonReply::Config`].
    Config(ConfigOrder),
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
    /// `lctl barrier_freeze` and its sisters, of a metadata target by its label: [`DaemonReply::Barrier`].
    Barrier {
        target: String,
        order: BarrierOrder,
    },
    /// `nacre backup` of a target, by its label: [`DaemonReply::Table`].
    Table {
        target: String,
        order: TableOrder,
    },
    /// `nacre snapshot` and `lctl barrier_freeze`, of targets of a file system by their labels, wherever
    /// they are; only a daemon with the MGT can do it: [`DaemonReply::Asked`].
    Ask {
        fsname: String,
        orders: Vec<(String, HostOrder)>,
    },
    /// `obdfilter-survey case=disk` of an OST, by its label: [`DaemonReply::Echo`].
    Echo {
        target: String,
        order: EchoOrder,
    },
    /// The OST pools of a file system, as the targets here know them: [`DaemonReply::Pools`].
    Pools {
        fsname: String,
    },
    /// `mount -t nacre FOLDER MOUNT_POINT`: the daemon begins to serve that target as well. `ESHUTDOWN`: it
    /// is about to end.
    MountTarget {
        folder: String,
        mount_point: PathBuf,
        abort_recov: bool,
    },
    /// `nacre metrics`: [`DaemonReply::Metrics`].
    Metrics,
    /// How that went: [`DaemonReply::Text`] with its labels, or [`DaemonReply::Done`] while it is under way.
    MountedTarget {
        folder: String,
    },
}

/// What the server of a target is asked to do about it, on this host or another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostOrder {
    Barrier(BarrierOrder),
    Snapshot(SnapshotOrder),
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostAnswer {
    Barrier(BarrierStanding),
    Snapshot(SnapshotAnswer),
    Failed { errno: i32, why: String },
}

/// An answer, and when it was there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heard {
    pub answer: HostAnswer,
    /// Microseconds after all were asked.
    pub after_us: u64,
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

/// What an OST's echo objects are to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EchoOrder {
    /// Write or read so many bytes in all, in requests of so many, on so many objects.
    Start { write: bool, objects: u32, threads: u32, bytes: u64, request: u32 },
    /// How it stands.
    Look,
    /// End, and remove the objects.
    Clean,
}

/// How a run on echo objects stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EchoState {
    pub running: bool,
    pub bytes: u64,
    /// From its begin to the end of its last thread so far.
    pub nanos: u64,
    pub failed: Option<String>,
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
    /// `nacre metrics`: answered with a [`Packed`] page.
    Metrics,
    /// Of its debug log: answered with a [`DebugAnswer`].
    Debug(DebugOrder),
    /// Answered with its [`Events`] behind a number.
    Events { after: u64 },
}

/// Where daemons of root have their sockets, whoever looks.
const ROOT_RUN_DIR: &str = "/run/nacre";
/// Names of control sockets begin with one of these.
pub const DAEMON_SOCKET: &str = "nacred-";
pub const MOUNT_SOCKET: &str = "mount-";

fn sockets(prefix: &str) -> impl Iterator<Item = PathBuf> {
    let ours = move |p: &PathBuf| p.file_name().is_some_and(|n| n.as_bytes().starts_with(prefix.as_bytes()));
    sys::control::list().into_iter().filter(ours)
}

/// A daemon or mount of this host, for its debug log and its events.
#[derive(Clone)]
pub struct Process {
    /// `nacred-PID` or `mount-PID`.
    pub name: String,
    socket: PathBuf,
}

impl Process {
    pub fn all() -> Vec<Process> {
        let named = |socket: PathBuf| {
            let name = socket.file_stem()?.to_str()?.to_string();
            Some(Process { name, socket })
        };
        sockets(DAEMON_SOCKET).chain(sockets(MOUNT_SOCKET)).filter_map(named).collect()
    }

    /// All of this host that this user may ask, for `what` of `object`. `ENODEV`: there is none.
    pub fn require(what: &str, object: &str) -> Result<Vec<Process>, Failure> {
        let all = Process::all();
        if all.is_empty() {
            let why = "no daemon and no mount of this user runs on this host: run it as root where one does";
            return Err(Failure::explained(what, object, Errno::ENODEV, why));
        }
        Ok(all)
    }

    pub fn debug(&self, order: &DebugOrder) -> Result<DebugAnswer, Failure> {
        match self.daemon() {
            Some(daemon) => match daemon.ask(&DaemonRequest::Debug(order.clone()))? {
                DaemonReply::Debug(answer) => Ok(answer),
                other => Err(self.no_answer(other)),
            },
            None => self.ask_mount(&MountRequest::Debug(order.clone())),
        }
    }

    /// Its events behind a number.
    pub fn events(&self, after: u64) -> Result<Events, Failure> {
        match self.daemon() {
            Some(daemon) => match daemon.ask(&DaemonRequest::Events { after })? {
                DaemonReply::Events(answer) => Ok(answer),
                other => Err(self.no_answer(other)),
            },
            None => self.ask_mount(&MountRequest::Events { after }),
        }
    }

    fn daemon(&self) -> Option<Daemon> {
        self.name.starts_with(DAEMON_SOCKET).then(|| Daemon { socket: self.socket.clone() })
    }

    fn no_answer(&self, reply: DaemonReply) -> Failure {
        match reply {
            DaemonReply::Error { errno, message } => {
                Failure::explained("cannot ask", &self.name, Errno(errno), &message)
            }
            other => Failure::explained("cannot ask", &self.name, Errno::EPROTO, &format!("{other:?}")),
        }
    }

    fn ask_mount<R: serde::de::DeserializeOwned>(&self, request: &MountRequest) -> Result<R, Failure> {
        let text = serde_json::to_string(request).expect("plain data encodes");
        let answer = sys::control::call(&self.socket, &text, PLACE_PATIENCE)
            .map_err(|e| Failure::io("cannot ask", &self.name, e))?;
        serde_json::from_str(&answer).map_err(|e| {
            Failure::explained("cannot read answer of", &self.name, Errno::EPROTO, &e.to_string())
        })
    }
}

/// Why no daemon with the MGS was found: an errno, and words. `EACCES`: there may be one, which this user may
/// not ask; `ENODEV`: there is none on this host.
pub fn no_mgs() -> (Errno, &'static str) {
    let of_root = || {
        let names = sys::files::list(ROOT_RUN_DIR).unwrap_or_default();
        names.iter().any(|n| n.starts_with(DAEMON_SOCKET))
    };
    match sys::euid() != 0 && (sys::control::is_refused() || of_root()) {
        true => (
            Errno::EACCES,
            "you may not ask this host's servers: only root may, on the node that has the MGS",
        ),
        false => (Errno::ENODEV, "this must be run on the node that has the MGS"),
    }
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

impl DaemonTarget {
    /// It is a snapshot's (`nacre snapshot mount`), which lies in the folder of another target.
    pub fn is_of_snapshot(&self) -> bool {
        let within = self.dir.rsplit_once(&format!("/{}/", store::snapshot::FOLDER));
        let named = within.and_then(|(above, rest)| Some((above, rest.split('/').next()?)));
        named.is_some_and(|(above, name)| {
            let record = format!("{}/{}", store::snapshot::place(above, name), store::snapshot::RECORD);
            sys::files::stat(Path::new(&record), false).is_ok()
        })
    }
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
    /// Folders whose mount points are gone, or that it lets go because it ends.
    #[serde(default)]
    pub leaving: Vec<String>,
}

impl DaemonStatus {
    /// Whether it has the MGS of a file system that is no snapshot's.
    pub fn has_mgs(&self) -> bool {
        self.targets.iter().any(|t| t.label == "MGS" && !t.is_of_snapshot())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonReply {
    Done,
    Status(DaemonStatus),
    Debug(DebugAnswer),
    Events(Events),
    History(Records),
    Params(Vec<(String, String)>),
    Error {
        errno: i32,
        message: String,
    },
    ParamInfos(Vec<ParamInfo>),
    Check(CheckState),
    Echo(EchoState),
    Barrier(BarrierStanding),
    Table(TableAnswer),
    /// In the order in which they were asked.
    Asked(Vec<Heard>),
    Text(String),
    Pool(PoolChange),
    Config(ConfigAnswer),
    Metrics(Packed<Page>),
    /// Empty: nobody here knows the file system.
    Pools(Vec<KnownPools>),
}

/// A daemon that answers on its control socket.
#[derive(Clone)]
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

    /// The one of this host that serves a target, which is named by its label or its folder.
    pub fn serving(target: &str) -> Option<(Daemon, DaemonTarget)> {
        let folder = sys::files::canonical(target).ok();
        let is = |t: &DaemonTarget| {
            t.label == target && !t.is_of_snapshot()
                || folder.as_ref().is_some_and(|f| f.to_str() == Some(&t.dir))
        };
        Daemon::all().into_iter().find_map(|d| {
            let t = d.status()?.targets.into_iter().find(is)?;
            Some((d, t))
        })
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

    /// All that answer, asked at the same time.
    fn answering() -> impl Iterator<Item = (Daemon, DaemonStatus)> {
        let all = Daemon::all();
        let said = sys::at_once(&all, Daemon::status);
        all.into_iter().zip(said).filter_map(|(d, s)| Some((d, s?)))
    }

    /// Of all that answer, asked at the same time.
    pub fn statuses() -> Vec<DaemonStatus> {
        Daemon::answering().map(|(_, s)| s).collect()
    }

    /// Those of this host that have the MGS; over etcd an MGS may be one of several, of which one is active.
    /// Not those of snapshots, which nobody is to change.
    pub fn of_mgs() -> Vec<Daemon> {
        Daemon::answering().filter(|(_, s)| s.has_mgs()).map(|(d, _)| d).collect()
    }

    /// The targets of this host, each with the daemon that serves it, of all that answer. Not those of
    /// snapshots: who does something to all that is here does not mean them.
    pub fn served() -> Vec<(Daemon, DaemonTarget)> {
        let each = |(d, s): (Daemon, DaemonStatus)| s.targets.into_iter().map(move |t| (d.clone(), t));
        Daemon::answering().flat_map(each).filter(|(_, t)| !t.is_of_snapshot()).collect()
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

/// The metrics of all mounts and daemons of this host, asked at the same time, and why some said nothing.
pub fn metrics() -> (Page, Vec<Failure>) {
    let (daemons, mounts) = (Daemon::all(), sockets(MOUNT_SOCKET).collect::<Vec<_>>());
    let mut said: Vec<Result<Option<Packed<Page>>, Failure>> = sys::at_once(&daemons, |d| {
        Ok(match d.ask_if_there(&DaemonRequest::Metrics)? {
            Some(DaemonReply::Metrics(page)) => Some(page),
            None => None,
            Some(DaemonReply::Error { errno, message }) => {
                let object = d.socket.display().to_string();
                return Err(Failure::explained("cannot ask daemon", &object, Errno(errno), &message));
            }
            Some(_) => return Err(Failure::op("cannot read answer of", "a daemon", Errno::EPROTO)),
        })
    });
    let question = serde_json::to_string(&MountRequest::Metrics).expect("plain data encodes");
    said.extend(sys::at_once(&mounts, |s| {
        let object = s.display().to_string();
        let answer = sys::control::call(s, &question, MOUNT_PATIENCE)
            .map_err(|e| Failure::io("cannot ask the mount of", &object, e))?;
        serde_json::from_str(&answer)
            .map(Some)
            .map_err(|e| Failure::explained("cannot read answer of", &object, Errno::EPROTO, &e.to_string()))
    }));
    let (mut all, mut failed) = (Page::default(), Vec::new());
    for page in said {
        let opened = page.map(|p| p.map(|p| p.open()).transpose());
        match opened {
            Ok(Ok(Some(page))) => all.merge(page),
            Ok(Ok(None)) => {}
            Ok(Err(e)) => failed.push(Failure::op("cannot read", "a page of metrics", e)),
            Err(e) => failed.push(e),
        }
    }
    (all, failed)
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

/// What a path leads to; `what` is what it is looked at for.
pub fn inode_of(path: &Path, what: &str) -> Result<Inode, Failure> {
    match ask_about(path, what, |name| Request::Inode { name })? {
        Reply::Listing { mut entries, .. } => {
            let found = entries.pop().and_then(|e| e.inode);
            found.ok_or_else(|| Failure::op(what, &show(path.as_os_str()), Errno::ENOENT))
        }
        other => Err(strange(path, &other)),
    }
}

/// Has a mount give back the locks on objects that it keeps, with what it has read and written under them.
/// Root's right.
pub fn give_back_objects(mount: &Path) -> Result<(), Failure> {
    let sizes = match ask(mount, &Request::ListParam { pattern: "ldlm.namespaces.*-OST*.lru_size".into() })? {
        Reply::Params(all) => all,
        other => return Err(strange(mount, &other)),
    };
    for (name, _) in sizes {
        ask(mount, &Request::SetParam { name, value: "clear".into() })?;
    }
    Ok(())
}

/// A reply of another kind than the request's.
pub fn strange(path: &Path, r: &Reply) -> Failure {
    let shown = format!("{r:?}");
    Failure::explained("unexpected answer from", &path.display().to_string(), Errno::EPROTO, &shown)
}

/// The control socket of the mount at `dir`, if this user may use it.
fn socket_of(dir: &Path) -> Option<PathBuf> {
    let place = serde_json::to_string(&MountRequest::Where).expect("plain data encodes");
    let all: Vec<PathBuf> = sockets(MOUNT_SOCKET).collect();
    // All at the same time: one whose daemon is stopped holds up questions about no other.
    let places = sys::at_once(&all, |s| sys::control::call(s, &place, PLACE_PATIENCE).ok());
    let is = |a: Option<String>| {
        a.and_then(|a| serde_json::from_str::<PathBuf>(&a).ok()).is_some_and(|p| p == dir)
    };
    all.into_iter().zip(places).find_map(|(s, a)| is(a).then_some(s))
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
