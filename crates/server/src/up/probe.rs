//! What of a file system runs: looked up in /proc and /proc/mounts, so that no pid file can be wrong.

use super::cluster::{Cluster, Node};
use super::watch;
use admin::local::{Daemon, DaemonStatus, FSTYPE};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::{self, files, mounts, process};

/// Our processes on this host, looked at once: (pid, command line).
pub struct Processes(Vec<(u32, Vec<String>)>);

impl Processes {
    pub fn look() -> Processes {
        let ours = |pid: u32| {
            if !matches!(process::name(pid).as_str(), "nacre" | "nacred" | "mount.nacre" | watch::NAME) {
                return None;
            }
            let a = process::arguments(pid);
            let name = a.first()?.rsplit('/').next()?;
            (matches!(name, "nacred" | "mount.nacre" | watch::NAME) && process::alive(pid))
                .then_some((pid, a))
        };
        Processes(process::pids().into_iter().filter_map(ours).collect())
    }

    fn find(&self, program: &str, fits: impl Fn(&[String]) -> bool) -> Option<u32> {
        let hit = self.0.iter().find(|(_, a)| a[0].ends_with(program) && fits(&a[1..]));
        hit.map(|(pid, _)| *pid)
    }

    /// The nacred that serves this folder. It may have been started before the folder was there, with another
    /// path to it.
    pub fn server(&self, dir: &Path) -> Option<u32> {
        let name = dir.to_str()?;
        let same = |x: &str| x.starts_with('/') && files::canonical(x).is_ok_and(|c| c == dir);
        self.find("nacred", |a| a.iter().any(|x| x == name || same(x)))
    }

    /// What looks after a file system that `nacre up` started.
    pub fn watcher(&self, dir: &Path) -> Option<u32> {
        let dir = dir.to_str()?;
        self.find(watch::NAME, |a| a.iter().any(|x| x == dir))
    }

    /// Folders of `nacre up` that any of those has that fit.
    pub fn folders(&self, fits: impl Fn(&u32) -> bool) -> BTreeSet<PathBuf> {
        let of = |a: &[String]| match a[0].ends_with(watch::NAME) {
            true => a.iter().skip_while(|x| *x != "--dir").nth(1).map(PathBuf::from),
            false => a.last().and_then(|d| Some(Path::new(d).parent()?.to_path_buf())),
        };
        let servers = self.0.iter().filter(|(_, a)| !a[0].ends_with("mount.nacre"));
        servers.filter(|(pid, _)| fits(pid)).filter_map(|(_, a)| of(a)).collect()
    }

    /// The client daemon of a mount.
    pub fn client(&self, source: &str, mount: &Path) -> Option<u32> {
        let mount = mount.to_str()?;
        let ours =
            |s: &str| s.strip_prefix(source).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.find("mount.nacre", |a| a.len() >= 2 && ours(&a[0]) && a[1] == mount)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountState {
    /// It answers.
    Up,
    /// Mounted, but its daemon is gone (ENOTCONN).
    Dead,
    /// Mounted, and no answer in time: its servers are away.
    Waiting,
    Absent,
    /// Something else is mounted there.
    Foreign,
}

impl MountState {
    pub fn word(self) -> &'static str {
        match self {
            MountState::Up => "up",
            MountState::Dead => "dead",
            MountState::Waiting => "waiting",
            MountState::Absent => "down",
            MountState::Foreign => "foreign",
        }
    }
}

/// What is mounted at `dir`, asking it for at most `patience`.
pub fn mount_state(source: &str, dir: &Path, patience: Duration) -> MountState {
    match mounts::at(dir) {
        Ok(Some(m))
            if m.fstype == FSTYPE && (m.source == source || m.source.starts_with(&format!("{source}/"))) => {}
        Ok(Some(_)) => return MountState::Foreign,
        _ => return MountState::Absent,
    }
    match answers(dir, patience) {
        Some(Ok(_)) => MountState::Up,
        Some(Err(e)) if is_dead(&e) && Processes::look().client(source, dir).is_none() => MountState::Dead,
        Some(Err(_)) | None => MountState::Waiting,
    }
}

/// What the kernel says when nobody serves a FUSE mount any more.
pub fn is_dead(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(n) if n == model::Errno::ENOTCONN.0 || n == 103) // ECONNABORTED
}

/// statfs(2) on a thread of its own, because it may wait for ever.
pub fn answers(dir: &Path, patience: Duration) -> Option<std::io::Result<u64>> {
    let (tx, rx) = std::sync::mpsc::channel();
    let dir: PathBuf = dir.to_path_buf();
    let started = sys::thread("statfs", move || {
        let _ = tx.send(mounts::total_bytes(&dir));
    });
    match started {
        Ok(()) => rx.recv_timeout(patience).ok(),
        Err(e) => Some(Err(e)),
    }
}

/// Every mount of a file system, those that `cluster.json` does not know too.
pub fn mounts_of(c: &Cluster) -> Vec<PathBuf> {
    let source = c.source();
    let mut out = c.mounts.clone();
    for m in mounts::list().unwrap_or_default() {
        let ours = m.fstype == FSTYPE && (m.source == source || m.source.starts_with(&format!("{source}/")));
        if ours && !out.contains(&m.dir) {
            out.push(m.dir);
        }
    }
    out
}

/// A server process as it is now.
pub struct ServerState {
    pub pid: Option<u32>,
    /// What it says itself, if it answers.
    pub status: Option<DaemonStatus>,
}

impl ServerState {
    /// `up` when every target is; otherwise the worst of them.
    pub fn word(&self) -> &str {
        let Some(pid) = self.pid else { return "dead" };
        if process::state(pid) == Some('T') {
            return "paused";
        }
        let Some(s) = &self.status else { return "starting" };
        s.targets.iter().map(|t| t.state.as_str()).find(|s| *s != "up").unwrap_or("up")
    }
}

pub fn server(node: &Node, now: &Processes) -> ServerState {
    let pid = node.dirs.iter().find_map(|d| now.server(d));
    let paused = pid.is_some_and(|p| process::state(p) == Some('T'));
    let status = pid.filter(|_| !paused).and_then(Daemon::of_pid).and_then(|d| d.status());
    ServerState { pid, status }
}
