//! Memory of processes held below a bound for a while, by a cgroup of the kernel (cgroups(7), version 1, 2).

use super::{files, process};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// First part of our groups' names; the pid of who made one is behind it.
const NAME: &str = "nacre-memory-";
/// A group ends when its last process has left, which the kernel sees a moment later.
const REMOVALS: usize = 50;

/// Where the hierarchy that bounds memory is, and the file of the bound.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hierarchy {
    root: PathBuf,
    bound: &'static str,
    /// Of the line in `/proc/PID/cgroup`: the controller, which in version 2 has no name.
    controller: &'static str,
}

fn hierarchy(root: &Path) -> io::Result<Hierarchy> {
    let v1 = root.join("memory");
    if files::stat(&v1.join("memory.limit_in_bytes"), true).is_ok() {
        return Ok(Hierarchy { root: v1, bound: "memory.limit_in_bytes", controller: "memory" });
    }
    let children = files::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    if children.split_whitespace().any(|c| c == "memory") {
        return Ok(Hierarchy { root: root.to_path_buf(), bound: "memory.max", controller: "" });
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "this host has no cgroup that bounds memory"))
}

/// A line of `/proc/PID/cgroup` is `NUMBER:CONTROLLERS:PATH`.
fn path_of<'t>(text: &'t str, controller: &str) -> Option<&'t str> {
    text.lines().find_map(|l| {
        let mut parts = l.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|c| c == controller).then_some(path)
    })
}

/// These files are no files: they are written to where they are.
fn set(path: &Path, value: &str) -> io::Result<()> {
    let mut f = std::fs::OpenOptions::new().write(true).open(path)?;
    f.write_all(value.as_bytes())
}

/// Processes whose memory is bounded until this is dropped; then they are where they were.
#[derive(Debug)]
pub struct Bounded {
    at: Hierarchy,
    group: PathBuf,
    /// Each with the group that it came from.
    processes: Vec<(u32, PathBuf)>,
}

impl Bounded {
    /// Bounds the memory of these processes together, with what the kernel keeps of files for them: what they
    /// have already counts to where they were. Root's; `Unsupported` where the kernel or the host has no such
    /// groups.
    pub fn new(pids: &[u32], bytes: u64) -> io::Result<Bounded> {
        assert!(bytes > 0 && !pids.is_empty(), "somebody is bounded to something");
        let at = hierarchy(Path::new(ROOT))?;
        let group = at.root.join(format!("{NAME}{}", std::process::id()));
        std::fs::create_dir(&group)?;
        let mut bounded = Bounded { at, group, processes: Vec::new() };
        set(&bounded.group.join(bounded.at.bound), &bytes.to_string())?;
        for pid in pids {
            let text = files::read_to_string(format!("/proc/{pid}/cgroup"))?;
            let was = path_of(&text, bounded.at.controller).unwrap_or("/");
            // A group of somebody who was killed before he put it back: nobody knows where that was.
            let was = if was.contains(NAME) { "/" } else { was };
            let was = bounded.at.root.join(was.trim_start_matches('/'));
            set(&bounded.group.join("cgroup.procs"), &pid.to_string())?;
            bounded.processes.push((*pid, was));
        }
        Ok(bounded)
    }

    /// The bound that holds, as the kernel has it.
    pub fn bound(&self) -> io::Result<String> {
        files::read_to_string(self.group.join(self.at.bound)).map(|t| t.trim().to_string())
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        for (pid, was) in &self.processes {
            if let Err(e) = set(&was.join("cgroup.procs"), &pid.to_string())
                && process::alive(*pid)
            {
                eprintln!("process {pid} stays in '{}': {e}", self.group.display());
            }
        }
        let gone = (0..REMOVALS).any(|_| {
            let removed = std::fs::remove_dir(&self.group);
            if removed.is_err() {
                super::sleep(std::time::Duration::from_millis(20));
            }
            removed.is_ok()
        });
        if !gone {
            eprintln!("cannot remove '{}': processes of it run still", self.group.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_found_in_both_versions() {
        let v1 = "7:memory:/system.slice/nacred.service\n4:cpu,cpuacct:/\n";
        assert_eq!(path_of(v1, "memory"), Some("/system.slice/nacred.service"));
        assert_eq!(path_of(v1, "cpuacct"), Some("/"));
        assert_eq!(path_of("0::/user.slice/a:b\n", ""), Some("/user.slice/a:b"));
        assert_eq!(path_of(v1, ""), None);
    }

    #[test]
    fn a_process_is_bounded_and_put_back() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let where_it_is = || files::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        let before = where_it_is();
        match Bounded::new(&[child.id()], 64 << 20) {
            Ok(b) => {
                assert_eq!(b.bound().unwrap(), (64u64 << 20).to_string());
                assert!(where_it_is().contains(NAME), "{}", where_it_is());
                let group = b.group.clone();
                drop(b);
                assert_eq!(where_it_is(), before);
                assert!(files::stat(&group, true).is_err(), "nothing is left");
            }
            // A host without such groups, or an ordinary user.
            Err(e) => assert!(
                [
                    io::ErrorKind::Unsupported,
                    io::ErrorKind::PermissionDenied,
                    io::ErrorKind::ReadOnlyFilesystem
                ]
                .contains(&e.kind()),
                "{e}"
            ),
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
