//! What of a file system runs: looked up in /proc and /proc/mounts, so that no pid file can be wrong.

use super::cluster::{Cluster, Node};
use admin::local::{Daemon, DaemonStatus, FSTYPE};
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::{self, mounts, process};

/// The living nacred that serves this folder.
pub fn server_pid(dir: &Path) -> Option<u32> {
    let dir = dir.to_str()?;
    process::pids().into_iter().find(|pid| {
        let a = process::arguments(*pid);
        a.first().is_some_and(|n| n.ends_with("nacred")) && a[1..].iter().any(|x| x == dir) && process::alive(*pid)
    })
}

/// The client daemon of a mount.
pub fn client_pid(source: &str, mount: &Path) -> Option<u32> {
    let mount = mount.to_str()?;
    process::pids().into_iter().find(|pid| {
        let a = process::arguments(*pid);
        a.first().is_some_and(|n| n == "mount.nacre")
            && a.get(1).is_some_and(|s| s == source)
            && a.get(2).is_some_and(|m| m == mount)
            && process::alive(*pid)
    })
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
        Ok(Some(m)) if m.fstype == FSTYPE && (m.source == source || m.source.starts_with(&format!("{source}/"))) => {}
        Ok(Some(_)) => return MountState::Foreign,
        _ => return MountState::Absent,
    }
    match answers(dir, patience) {
        Some(Ok(_)) => MountState::Up,
        Some(Err(e)) if is_dead(&e) && client_pid(source, dir).is_none() => MountState::Dead,
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

pub fn server(node: &Node) -> ServerState {
    let pid = node.dirs.iter().find_map(|d| server_pid(d));
    let paused = pid.is_some_and(|p| process::state(p) == Some('T'));
    let status = pid.filter(|_| !paused).and_then(Daemon::of_pid).and_then(|d| d.status());
    ServerState { pid, status }
}
