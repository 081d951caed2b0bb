//! `nacre down` and `nacre wipe`.

use super::cluster::{self, Cluster};
use super::probe::{self, Processes};
use super::{Result, UpError, dashboard, rootless, watch};
use crate::nacred::snapshot;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use world::sys::mounts::{self, Unmount};
use world::sys::process::{self, SIGKILL, SIGTERM};
use world::sys::{Deadline, files};

const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(5);
const SERVER_PATIENCE: Duration = Duration::from_secs(25);

/// Exit status when a mount is in use.
const BUSY: i32 = 16;

fn unmount(c: &Cluster, m: &Path, force: bool) -> Result<bool> {
    let source = c.source();
    let ours = |m: &Path| matches!(mounts::at(m), Ok(Some(x)) if x.fstype == admin::local::FSTYPE && x.source.starts_with(&source));
    let pid = Processes::look().client(&source, m);
    while ours(m) {
        let Err(e) = mounts::unmount(m, Unmount::Normal) else { continue };
        match e.raw_os_error() {
            Some(n) if n == model::Errno::ENOTCONN.0 => {
                lazily(m)?;
            }
            Some(n) if n == model::Errno::EBUSY.0 => {
                if force {
                    let _ = mounts::unmount(m, Unmount::Force);
                    if ours(m) {
                        lazily(m)?;
                    }
                    continue;
                }
                eprintln!("nacre down: '{}' is in use:", m.display());
                for (pid, name, what) in mounts::users(m) {
                    eprintln!("  {pid:>7} {name:<16} {what}");
                }
                eprintln!("  end these processes, or use 'nacre down --force'");
                return Ok(false);
            }
            _ => return Err(UpError::io("cannot unmount", m, &e)),
        }
    }
    let Some(pid) = pid else { return Ok(true) };
    if Deadline::after(CLIENT_PATIENCE).wait_for(|| (!process::alive(pid)).then_some(())).is_none() {
        // Out of sight already; what it still holds is given up.
        let _ = process::kill(pid, SIGKILL);
    }
    Ok(true)
}

/// The servers of snapshots that are mounted: pid, and the snapshot's name.
fn servers_of_snapshots(c: &Cluster) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for dir in c.nodes().into_iter().flat_map(|n| n.dirs) {
        let all = dir.join(store::snapshot::FOLDER);
        // Most targets have no snapshots, and no such folder.
        for name in files::list(&all).unwrap_or_default() {
            let pid = all.join(&name).to_str().and_then(snapshot::server_of);
            found.extend(pid.map(|pid| (pid, name)));
        }
    }
    found
}

/// False if a snapshot is mounted, which only `force` ends.
fn stop_snapshots(c: &Cluster, force: bool) -> Result<bool> {
    let all = servers_of_snapshots(c);
    if let (false, Some((pid, name))) = (force, all.first_key_value()) {
        eprintln!(
            "nacre down: snapshot '{name}' is mounted (its server is process {pid}): unmount it where it is in use, then"
        );
        eprintln!("  lctl snapshot_umount -F {} -n {name}, or use 'nacre down --force'", c.fsname);
        return Ok(false);
    }
    for (pid, name) in all {
        let _ = process::kill(pid, SIGTERM);
        let ends = |patience| Deadline::after(patience).wait_for(|| (!process::alive(pid)).then_some(()));
        if ends(SNAPSHOT_PATIENCE).is_none() {
            // Nobody changes a snapshot: there is nothing to lose.
            let _ = process::kill(pid, SIGKILL);
            let text = format!("the server of snapshot '{name}' (pid {pid}) cannot be killed");
            ends(CLIENT_PATIENCE).ok_or_else(|| UpError::new(text))?;
        }
    }
    Ok(true)
}

fn lazily(m: &Path) -> Result<()> {
    mounts::unmount(m, Unmount::Lazy).map_err(|e| UpError::io("cannot unmount", m, &e))
}

fn stop_servers(c: &Cluster, force: bool) -> Result<()> {
    // MDT and MGT share a node and go first, the OSTs after it: nobody is left to ask them.
    let mut groups = c.nodes();
    let osts = groups.split_off(1);
    assert!(
        groups[0].role == "mgs+mds" && osts.iter().all(|n| n.role == "oss"),
        "who asks others ends first"
    );
    for group in [groups, osts] {
        let now = Processes::look();
        let pids: Vec<(u32, String)> =
            group.iter().filter_map(|n| Some((probe::server(n, &now).pid?, n.labels.join("+")))).collect();
        for (pid, _) in &pids {
            let _ = process::kill(*pid, SIGTERM);
        }
        let end = Deadline::after(if force { Duration::from_secs(5) } else { SERVER_PATIENCE });
        for (pid, label) in pids {
            if end.wait_for(|| (!process::alive(pid)).then_some(())).is_some() {
                continue;
            }
            if !force {
                let text = format!(
                    "the server of {label} (pid {pid}) does not end: is it paused? 'nacre down --force' kills it, nothing acknowledged is lost"
                );
                return Err(UpError::new(text));
            }
            let _ = process::kill(pid, SIGKILL);
            let gone = Deadline::after(CLIENT_PATIENCE).wait_for(|| (!process::alive(pid)).then_some(()));
            gone.ok_or_else(|| UpError::new(format!("the server of {label} (pid {pid}) cannot be killed")))?;
        }
    }
    Ok(())
}

pub fn down(dir: &Path, force: bool, say: bool) -> Result<i32> {
    let c = Cluster::require(dir)?;
    let _lock = cluster::lock(&c.dir)?;
    dashboard::end(&c)?;
    if !stop_snapshots(&c, force)? {
        return Ok(BUSY);
    }
    let mut busy = false;
    for m in probe::mounts_of(&c).iter().rev() {
        busy |= !unmount(&c, m, force)?;
    }
    if busy {
        return Ok(BUSY);
    }
    watch::end(&c)?;
    stop_servers(&c, force)?;
    rootless::forget(&c.dir);
    if say {
        println!("File system '{}' is down; its files stay in {}", c.fsname, c.dir.display());
    }
    Ok(0)
}

pub fn wipe(dir: &Path) -> Result<i32> {
    if files::stat(dir, true).is_err() {
        println!("'{}' is not there: nothing to remove", dir.display());
        return Ok(0);
    }
    let c = Cluster::require(dir)?;
    down(dir, true, false)?;
    for n in c.own_names() {
        let path = c.dir.join(&n);
        let gone = match files::stat(&path, false) {
            Ok(s) if s.is_dir() => files::remove_tree(&path),
            Ok(_) => files::remove_file(&path),
            Err(_) => Ok(()),
        };
        gone.map_err(|e| UpError::io("cannot remove", &path, &e))?;
    }
    // Only if nothing else is in it.
    let _ = files::remove_dir(&c.dir);
    for m in &c.mounts {
        let _ = files::remove_dir(m);
    }
    println!("File system '{}' and its files are gone", c.fsname);
    Ok(0)
}
