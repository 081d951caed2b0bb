//! start, stop and monitor. What runs is looked up in /proc each time: an engine forgets, and so may we.

use super::{FAILED, MonitorArgs, NOT_RUNNING, OK, StartArgs, StopArgs};
use crate::log;
use crate::up::probe::Processes;
use admin::local::{Daemon, DaemonStatus, DaemonTarget};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::process::{self, SIGKILL, SIGTERM};
use world::sys::{Deadline, files};

/// How long the MGS may take to answer. Without it a target that was registered once serves all the same, and
/// an engine must not think that this host is at fault.
const MGS_PATIENCE: Duration = Duration::from_secs(10);
/// Seconds that a server on another host has to end before a start fails: a host that is cut off notices
/// itself, and its engine then stops what it has. Engines do not try again for a minute what failed.
pub(super) const START_PATIENCE: u64 = 60;
/// Seconds for a target's folder at boot, whose disk is mounted by somebody else.
pub(super) const FOLDER_PATIENCE: u32 = 20;
/// How long a killed process may take to be gone: what it waits for of its disk.
const KILLED_PATIENCE: Duration = Duration::from_secs(20);
/// An engine's limit for all of `monitor` is longer.
const NETWORK_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// As the server has them in its command line. One that is missing stays as it is: its storage may be
/// elsewhere now.
fn canonical(dirs: &[PathBuf]) -> Vec<PathBuf> {
    dirs.iter().map(|d| files::canonical(d).unwrap_or_else(|_| d.clone())).collect()
}

/// Processes that serve any of these folders.
fn servers(dirs: &[PathBuf]) -> Vec<u32> {
    let now = Processes::look();
    let mut pids: Vec<u32> = dirs.iter().filter_map(|d| now.server(d)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn status(pid: u32) -> Option<DaemonStatus> {
    Daemon::of_pid(pid)?.status()
}

/// What is wrong with the server of these folders, and what it says of itself.
fn trouble(pid: u32, dirs: &[PathBuf]) -> (Option<String>, Option<DaemonStatus>) {
    let stopped = || process::state(pid) == Some('T');
    let by_signal = format!("nacred (pid {pid}) is stopped by a signal");
    if stopped() {
        return (Some(by_signal), None);
    }
    match status(pid) {
        // A signal may need a moment on a busy host.
        None if stopped() => (Some(by_signal), None),
        None => (Some(format!("nacred (pid {pid}) does not answer")), None),
        Some(s) => (unserved(&s, dirs), Some(s)),
    }
}

/// An MGT may lie below an MDT.
fn lies_in(t: &DaemonTarget, dir: &Path) -> bool {
    Path::new(&t.dir).starts_with(dir)
}

fn unserved(s: &DaemonStatus, dirs: &[PathBuf]) -> Option<String> {
    dirs.iter().find_map(|d| {
        let mut here = s.targets.iter().filter(|t| lies_in(t, d)).peekable();
        if here.peek().is_none() {
            return Some(format!("nacred (pid {}) does not serve '{}'", s.pid, d.display()));
        }
        here.find_map(|t| match t.state.as_str() {
            "stopped" => Some(format!("{} stopped: see nacred's log", t.label)),
            // Another host may reach the disk by another way.
            "read-only" => Some(format!("{} is read-only: its disk failed; see nacred's log", t.label)),
            _ => None,
        })
    })
}

/// What `monitor --json` prints.
#[derive(Serialize)]
struct Report {
    served: bool,
    /// What is wrong, if anything is.
    trouble: Option<String>,
    targets: Vec<DaemonTarget>,
}

/// Whether a server says anything to somebody who comes over the network, as clients do: its control socket
/// may answer while nobody else is heard.
fn deaf(s: &DaemonStatus) -> Option<String> {
    let nid = s.nids.first()?.parse().ok()?;
    admin::command::ping::answers(nid, s.port, NETWORK_PATIENCE)
        .err()
        .map(|e| format!("nacred (pid {}) does not answer at {nid}, port {}: {e}", s.pid, s.port))
}

/// Exit status and trouble of the server of these folders.
fn looked_after(dirs: &[PathBuf], depth: u32) -> (i32, Option<String>, Option<DaemonStatus>) {
    let pid = match servers(dirs)[..] {
        [] => return (NOT_RUNNING, None, None),
        [pid] => pid,
        _ => return (FAILED, Some("more than one nacred serves these targets".into()), None),
    };
    let (why, s) = trouble(pid, dirs);
    let why = why.or_else(|| s.as_ref().filter(|_| depth >= 10).and_then(deaf));
    (if why.is_some() { FAILED } else { OK }, why, s)
}

/// The end of a log.
pub(super) fn said(log: &Path) -> String {
    log::last_lines(log)
}

/// How the server of some folders does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Look {
    NotRunning,
    Well,
    Trouble(String),
}

/// As `monitor`, for a controller.
pub(super) fn look(dirs: &[PathBuf]) -> Look {
    let dirs = canonical(dirs);
    match looked_after(&dirs, 0) {
        (NOT_RUNNING, ..) => Look::NotRunning,
        (_, Some(why), _) => Look::Trouble(why),
        _ => Look::Well,
    }
}

/// Kills the servers of these folders, which loses nothing. Whether there were any.
pub(super) fn kill(dirs: &[PathBuf]) -> bool {
    let pids = servers(&canonical(dirs));
    for pid in &pids {
        let _ = process::kill(*pid, SIGKILL);
    }
    !pids.is_empty()
}

/// At depth 0 the processes and what the server says of its targets: their heartbeats, their disks. At 10 it
/// is asked over the network as well.
pub fn monitor(a: &MonitorArgs) -> Result<i32, String> {
    let dirs = canonical(&a.dirs);
    let (code, why, s) = looked_after(&dirs, a.depth);
    if a.json {
        let mut targets = s.map(|s| s.targets).unwrap_or_default();
        targets.retain(|t| dirs.iter().any(|d| lies_in(t, d)));
        let report = Report { served: code == OK, trouble: why, targets };
        println!("{}", serde_json::to_string_pretty(&report).expect("plain data encodes"));
        return Ok(code);
    }
    why.map_or(Ok(code), Err)
}

pub(super) fn spawn(a: &StartArgs, dirs: &[PathBuf]) -> Result<process::Detached, String> {
    let exe = process::own_executable().map_err(|e| format!("cannot find the program itself: {e}"))?;
    if let Some(folder) = a.log.parent() {
        files::create_dir_all(folder).map_err(|e| format!("cannot make '{}': {e}", folder.display()))?;
    }
    let mut args: Vec<OsString> = vec!["--port".into(), a.port.to_string().into()];
    args.extend(["--patience".into(), a.patience.to_string().into()]);
    args.extend(["--folder-patience".into(), a.folder_patience.to_string().into()]);
    if let Some(n) = a.nid {
        args.extend(["--nid".into(), n.to_string().into()]);
    }
    args.extend(a.options.split_whitespace().map(OsString::from));
    args.extend(dirs.iter().map(|d| d.clone().into_os_string()));
    let d = process::Daemon { exe: &exe, arg0: "nacred", args: &args, env: &[], log: &a.log };
    process::spawn_detached(&d).map_err(|e| format!("cannot start '{}': {e}", exe.display()))
}

/// No end of its own: the engine has one, and a heartbeat of another host may have to be watched for as long
/// as it says.
pub fn start(a: &StartArgs) -> Result<i32, String> {
    let dirs = canonical(&a.dirs);
    let mut started = match servers(&dirs)[..] {
        [] => Some(spawn(a, &dirs)?),
        _ => None,
    };
    let mut mgs = None;
    loop {
        if let Some(d) = &mut started
            && let Ok(Some(how)) = d.ended()
        {
            return Err(format!(
                "nacred ended with {how}. The last lines of {}:{}",
                a.log.display(),
                log::last_lines(&a.log)
            ));
        }
        let pids = servers(&dirs);
        let answer = pids.first().and_then(|pid| status(*pid));
        match (&pids[..], answer) {
            ([], _) if started.is_none() => return Err("nacred ended: see its log".into()),
            ([pid], Some(s)) => {
                if let Some(why) = unserved(&s, &dirs) {
                    return Err(format!("pid {pid}: {why}"));
                }
                let end = mgs.get_or_insert_with(|| Deadline::after(MGS_PATIENCE));
                if end.passed() || s.targets.iter().all(|t| t.registered) {
                    return Ok(OK);
                }
            }
            _ => {}
        }
        world::sys::sleep(LOOK_AGAIN);
    }
}

pub fn stop(a: &StopArgs) -> Result<i32, String> {
    let pids = servers(&canonical(&a.dirs));
    for pid in &pids {
        let _ = process::kill(*pid, SIGTERM);
        // One that is stopped hears nothing.
        let _ = process::kill(*pid, process::SIGCONT);
    }
    let orderly = Deadline::after(Duration::from_secs(a.patience));
    for pid in pids {
        let gone = || (!process::alive(pid)).then_some(());
        if orderly.wait_for(gone).is_some() {
            continue;
        }
        eprintln!("nacre ha: nacred (pid {pid}) does not end in order: it is killed, which loses nothing");
        let _ = process::kill(pid, SIGKILL);
        if Deadline::after(KILLED_PATIENCE).wait_for(gone).is_none() {
            eprintln!(
                "nacre ha: nacred (pid {pid}) cannot be killed: it waits for its disk; the host must be fenced"
            );
            return Ok(FAILED);
        }
    }
    Ok(OK)
}
