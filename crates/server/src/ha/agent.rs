//! start, stop and monitor. What runs is looked up in /proc each time: an engine forgets, and so may we.

use super::{FAILED, NOT_RUNNING, OK, StartArgs, StopArgs};
use crate::log;
use crate::up::probe::Processes;
use admin::local::{Daemon, DaemonStatus};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::process::{self, SIGKILL, SIGTERM};
use world::sys::{Deadline, files};

/// How long the MGS may take to answer. Without it a target that was registered once serves all the same, and an engine
/// must not think that this host is at fault.
const MGS_PATIENCE: Duration = Duration::from_secs(10);
/// How long a killed process may take to be gone: what it waits for of its disk.
const KILLED_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// As the server has them in its command line. One that is missing stays as it is: its storage may be elsewhere now.
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

/// What is wrong with the server of these folders.
fn trouble(pid: u32, dirs: &[PathBuf]) -> Option<String> {
    if process::state(pid) == Some('T') {
        return Some(format!("nacred (pid {pid}) is stopped by a signal"));
    }
    let Some(s) = status(pid) else {
        return Some(format!("nacred (pid {pid}) does not answer"));
    };
    for d in dirs {
        match s.targets.iter().find(|t| Path::new(&t.dir) == d) {
            None => return Some(format!("nacred (pid {pid}) does not serve '{}'", d.display())),
            Some(t) if t.state == "stopped" => return Some(format!("{} stopped: see nacred's log", t.label)),
            // Another host may reach the disk by another way.
            Some(t) if t.state == "read-only" => {
                return Some(format!("{} is read-only: its disk failed; see nacred's log", t.label));
            }
            Some(_) => {}
        }
    }
    None
}

pub fn monitor(dirs: &[PathBuf]) -> Result<i32, String> {
    let dirs = canonical(dirs);
    match servers(&dirs)[..] {
        [] => Ok(NOT_RUNNING),
        [pid] => match trouble(pid, &dirs) {
            None => Ok(OK),
            Some(why) => Err(why),
        },
        _ => Err("more than one nacred serves these targets".into()),
    }
}

fn spawn(a: &StartArgs, dirs: &[PathBuf]) -> Result<process::Detached, String> {
    let exe = process::own_executable().map_err(|e| format!("cannot find the program itself: {e}"))?;
    if let Some(folder) = a.log.parent() {
        files::create_dir_all(folder).map_err(|e| format!("cannot make '{}': {e}", folder.display()))?;
    }
    let mut args: Vec<OsString> = vec!["--port".into(), a.port.to_string().into()];
    if let Some(n) = a.nid {
        args.extend(["--nid".into(), n.to_string().into()]);
    }
    args.extend(a.options.split_whitespace().map(OsString::from));
    args.extend(dirs.iter().map(|d| d.clone().into_os_string()));
    let d = process::Daemon { exe: &exe, arg0: "nacred", args: &args, env: &[], log: &a.log };
    process::spawn_detached(&d).map_err(|e| format!("cannot start '{}': {e}", exe.display()))
}

/// No end of its own: the engine has one, and a heartbeat of another host may have to be watched for as long as it says.
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
                if let Some(why) = trouble(*pid, &dirs) {
                    return Err(why);
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
