//! Whole servers on one machine: a network, a file tree and processes of their own, in which a cluster
//! manager runs as it does on hosts. Everything that is not below /etc, /usr, /var, /run and /dev/shm is
//! storage that all of them reach. Their power is in the hands of the test, which the fence agent
//! `tests/host-files/fence_netns` asks.

use crate::cluster::{bin_dir, kill, kit, ok_within, run_within, sh, wait_until};
use crate::hosts::Hosts;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A nacred that runs on one of the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving {
    pub host: u32,
    pub pid: i32,
}

/// Servers 1 to n, and the networks of the hosts behind them, which have no tree of their own (clients).
pub struct Machines {
    pub hosts: Hosts,
    site: PathBuf,
    names: Vec<String>,
    /// The one that made the host's namespaces and is the parent of its first process.
    on: BTreeMap<u32, Child>,
    /// Servers that a fence says to have switched off, and does not.
    spared: BTreeSet<u32>,
    /// How often the power of a server was cut.
    pub fenced: u64,
}

/// Shared with the one who answers fence agents.
pub type Shared = Arc<Mutex<Machines>>;

pub fn lock(m: &Shared) -> MutexGuard<'_, Machines> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Processes of a host by a link of theirs in /proc: (pid, command line).
fn processes_in(namespace: &Path) -> Vec<(i32, Vec<String>)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let here = |pid: &i32| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|l| l == namespace);
    let words = |pid: i32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
    };
    pids.filter(here).map(|pid| (pid, words(pid))).collect()
}

impl Machines {
    /// Boots the named servers; `others`: how many hosts have only a network. `site` is a folder for their
    /// disks.
    pub fn boot_all(names: &[&str], others: u32, site: &Path, mounts: &[PathBuf]) -> Result<Machines> {
        let hosts = Hosts::new(names.len() as u32 + others, mounts)?;
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("host-files");
        for d in ["disks", "power", "mail"] {
            fs::create_dir_all(site.join(d))?;
        }
        // Not every file system can carry the changes of an overlay.
        sh(&format!("mount -t tmpfs tmpfs {}", site.join("disks").display()), LIMIT)?;
        let mut m = Machines {
            hosts,
            site: site.to_path_buf(),
            names: names.iter().map(|n| (*n).to_string()).collect(),
            on: BTreeMap::new(),
            spared: BTreeSet::new(),
            fenced: 0,
        };
        for f in fs::read_dir(folders)? {
            let f = f?;
            fs::copy(f.path(), site.join(f.file_name()))?;
        }
        let table: String = (1..).zip(names).map(|(i, n)| format!("{} {n}\n", Hosts::address(i))).collect();
        fs::write(site.join("hosts"), table)?;
        for host in 1..=names.len() as u32 {
            m.boot(host)?;
        }
        Ok(m)
    }

    pub fn name(&self, host: u32) -> &str {
        &self.names[host as usize - 1]
    }

    fn host(&self, name: &str) -> Option<u32> {
        (1..).zip(&self.names).find(|(_, n)| *n == name).map(|(i, _)| i)
    }

    /// Its part of the disks: what was changed of the machine's tree lies below.
    pub fn disk(&self, host: u32) -> PathBuf {
        self.site.join("disks").join(self.name(host)).join("changed")
    }

    pub fn boot(&mut self, host: u32) -> Result<()> {
        self.hosts.only_own_address(host)?;
        self.hosts.filter(host, "")?;
        let name = self.name(host).to_string();
        let booted = self.site.join("disks").join(&name).join("booted");
        let _ = fs::remove_file(&booted);
        let log =
            fs::File::options().create(true).append(true).open(self.site.join(format!("{name}.log")))?;
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.hosts.network(host)));
        c.args([
            "unshare",
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
        ]);
        c.arg(self.site.join("host")).arg(&name).arg(&self.site).arg(bin_dir());
        c.arg(kit("etcd").parent().expect("a path"));
        // Whatever it starts must not hold files of the test's, nor end by its terminal.
        c.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = c.spawn().context("start a host")?;
        let outcome = wait_until(&format!("{name} boots"), LIMIT, || {
            booted.exists() || child.try_wait().is_ok_and(|s| s.is_some())
        });
        self.on.insert(host, child);
        self.hosts.link(host, true)?;
        outcome?;
        if !booted.exists() {
            bail!("{name} does not boot: {}", self.said(host));
        }
        Ok(())
    }

    fn parent(&self, host: u32) -> Result<i32> {
        Ok(self.on.get(&host).with_context(|| format!("{} is off", self.name(host)))?.id() as i32)
    }

    pub fn is_on(&self, host: u32) -> bool {
        self.on.contains_key(&host)
    }

    /// A command on a server: in everything that is its own.
    pub fn on(&self, host: u32, line: &str) -> Result<Command> {
        let p = self.parent(host)?;
        let mut c = Command::new("nsenter");
        c.args(["-t", &p.to_string(), "--mount", "--uts", "--ipc", "--net"]);
        c.arg(format!("--pid=/proc/{p}/ns/pid_for_children"));
        c.args(["env", "-i", PATH, "HOME=/root", "LC_ALL=C", "sh", "-c", line]);
        Ok(c)
    }

    /// Its processes, by their numbers on this machine.
    fn processes(&self, host: u32) -> Vec<(i32, Vec<String>)> {
        let namespace =
            self.parent(host).ok().map(|p| fs::read_link(format!("/proc/{p}/ns/pid_for_children")));
        namespace.and_then(Result::ok).map(|n| processes_in(&n)).unwrap_or_default()
    }

    /// Who has this folder: more than one if one of them sleeps.
    pub fn servers_of(&self, dir: &Path) -> Vec<Serving> {
        let dir = dir.to_str().expect("a path of ours");
        let serves = |w: &[String]| {
            w.first().is_some_and(|p| p.ends_with("nacred")) && w.iter().skip(1).any(|a| a == dir)
        };
        let on_host = |host: &u32| {
            let here = self.processes(*host).into_iter().filter(|(_, w)| serves(w));
            here.map(|(pid, _)| Serving { host: *host, pid }).collect::<Vec<_>>()
        };
        self.on.keys().flat_map(on_host).collect()
    }

    /// Boots hosts again that reset themselves, as hosts do.
    pub fn revive(&mut self) -> Result<()> {
        let gone = |c: &mut Child| c.try_wait().is_ok_and(|s| s.is_some());
        let dead: Vec<u32> = self.on.iter_mut().filter_map(|(h, c)| gone(c).then_some(*h)).collect();
        for host in dead {
            self.on.remove(&host);
            self.boot(host)?;
        }
        Ok(())
    }

    /// Folders of targets that a host serves.
    fn served_by(&self, host: u32) -> Vec<PathBuf> {
        let servers = self.processes(host).into_iter().map(|p| p.1);
        let servers = servers.filter(|w| w.first().is_some_and(|p| p.ends_with("nacred")));
        // What the hosts call /srv is in the site.
        let from_here = |p: String| match p.strip_prefix("/srv/") {
            Some(rest) => self.site.join("srv").join(rest),
            None => PathBuf::from(p),
        };
        servers.flatten().map(from_here).filter(|p| p.join("mmp").exists()).collect()
    }

    /// Every process of a host sleeps, or wakes up.
    pub fn freeze(&self, host: u32, asleep: bool) {
        let signal = if asleep { Signal::STOP } else { Signal::CONT };
        // A second look finds what was born during the first.
        for _ in 0..2 {
            for (pid, _) in self.processes(host) {
                let _ = kill(pid, signal);
            }
        }
    }

    /// A host without power says nothing any more, least of all that its connections end.
    pub fn power_off(&mut self, host: u32) -> Result<()> {
        let Some(mut child) = self.on.remove(&host) else { return Ok(()) };
        self.on.insert(host, child);
        let dirs = self.served_by(host);
        self.hosts.link(host, false)?;
        for (pid, _) in self.processes(host) {
            let _ = kill(pid, Signal::KILL);
        }
        child = self.on.remove(&host).expect("it was put back");
        let _ = child.kill();
        child.wait()?;
        self.fenced += 1;
        self.hosts.only_own_address(host)?;
        self.forget_locks(&dirs, false)
    }

    /// Nothing but what is in their folders tells others now that this host has its targets; `asleep`: not
    /// even that they are open.
    pub fn forget_locks_of(&self, host: u32, asleep: bool) -> Result<()> {
        self.forget_locks(&self.served_by(host), asleep)
    }

    /// Locks on files are of this one kernel, and would tell what no other host can know: that the holder is
    /// dead, or that it lives although it was declared dead.
    fn forget_locks(&self, dirs: &[PathBuf], held: bool) -> Result<()> {
        for d in dirs {
            let _ = fs::remove_file(d.join("lock"));
            // One folder may hold an MGT as well.
            for d in [d.clone(), d.join("mgt")] {
                if held && d.join("table.redb").exists() {
                    fs::copy(d.join("table.redb"), d.join("table.copy"))?;
                    fs::rename(d.join("table.copy"), d.join("table.redb"))?;
                }
            }
        }
        Ok(())
    }

    /// From now on fences only say that they switch this host off. It may sleep then, or not be heard.
    pub fn spare(&mut self, host: u32, spared: bool) {
        if spared {
            self.spared.insert(host);
        } else {
            self.spared.remove(&host);
        }
    }

    pub fn is_spared(&self, host: u32) -> bool {
        self.spared.contains(&host)
    }

    /// What a fence agent asked: its answer is an exit status.
    fn asked(&mut self, action: &str, name: &str) -> Result<i32> {
        let Some(host) = self.host(name) else { return Ok(1) };
        match action {
            "status" => return Ok(if self.is_on(host) { 0 } else { 2 }),
            "on" if self.is_on(host) => {}
            "on" => self.boot(host)?,
            "off" | "reboot" if self.is_spared(host) => {
                let dirs = self.served_by(host);
                let asleep = self.processes(host).iter().all(|(pid, _)| {
                    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                    stat.rsplit(") ").next().is_some_and(|s| s.starts_with(['T', 'Z']))
                });
                self.fenced += 1;
                self.forget_locks(&dirs, asleep)?;
            }
            "off" => self.power_off(host)?,
            "reboot" => {
                self.power_off(host)?;
                self.boot(host)?;
            }
            _ => return Ok(1),
        }
        Ok(0)
    }

    pub fn said(&self, host: u32) -> String {
        let name = self.name(host);
        let mut text = fs::read_to_string(self.site.join(format!("{name}.log"))).unwrap_or_default();
        let logs = self.disk(host).join("var/log");
        for f in ["pacemaker/pacemaker.log", "corosync.out"] {
            text += &sh(
                &format!(
                    "grep -E ' (notice|warning|error|crit)' {} | tail -n 60 || true",
                    logs.join(f).display()
                ),
                LIMIT,
            )
            .unwrap_or_default();
        }
        for f in fs::read_dir(logs.join("nacre")).into_iter().flatten().flatten() {
            text +=
                &format!("{}:\n{}\n", f.path().display(), fs::read_to_string(f.path()).unwrap_or_default());
        }
        text
    }

    /// What all servers said, the end of it.
    pub fn all_said(&self) -> String {
        let one = |h: u32| {
            let mut text = self.said(h);
            let keep = text.len().saturating_sub(12_000);
            let at = (keep..).find(|i| text.is_char_boundary(*i)).expect("the end is one");
            format!("=== {}:\n{}", self.name(h), text.split_off(at))
        };
        (1..=self.names.len() as u32).map(one).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for host in 1..=self.names.len() as u32 {
            let _ = self.power_off(host);
        }
        let _ = run_within(Command::new("umount").arg("-l").arg(self.site.join("disks")), LIMIT);
    }
}

/// Answers fence agents until it is dropped.
pub struct Power {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Power {
    pub fn new(machines: &Shared, site: &Path) -> Power {
        let (stop, machines, folder) =
            (Arc::new(AtomicBool::new(false)), machines.clone(), site.join("power"));
        let until = stop.clone();
        let answer = move || {
            while !until.load(Ordering::Relaxed) {
                for f in fs::read_dir(&folder).into_iter().flatten().flatten() {
                    let question = f.path();
                    if question.extension().is_some_and(|e| e == "ask") {
                        let text = fs::read_to_string(&question).unwrap_or_default();
                        let (action, name) = text.trim().split_once(' ').unwrap_or_default();
                        let answer = lock(&machines).asked(action, name).unwrap_or_else(|e| {
                            eprintln!("power of {name}: {e:#}");
                            1
                        });
                        let _ = fs::remove_file(&question);
                        let fresh = question.with_extension("made");
                        let _ = fs::write(&fresh, format!("{answer}\n"));
                        let _ = fs::rename(&fresh, question.with_extension("answer"));
                    }
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        Power { stop, thread: Some(std::thread::spawn(answer)) }
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Runs a line on a server and wants it to succeed; the machines are not locked meanwhile.
pub fn on(m: &Shared, host: u32, line: &str, limit: Duration) -> Result<String> {
    let mut c = lock(m).on(host, line)?;
    ok_within(&mut c, limit)
}
