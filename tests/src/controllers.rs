//! Server hosts with a controller and a three-member etcd: network namespaces with processes of their own
//! each, the files everybody's, as storage is that all of them reach.

use crate::cluster::{bin_dir, kill, kit, ok_within, run_within, wait_until};
use crate::hosts::Hosts;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Seconds of the controllers' and the MGSs' leases.
pub const TERM: u32 = 5;
/// Hosts with a member of etcd, an MGS and a controller each.
pub const SERVERS: [u32; 3] = [1, 2, 3];

/// Servers 1 to 3 and the hosts behind them, which only have a network (clients).
pub struct Controllers {
    pub hosts: Hosts,
    folder: PathBuf,
    /// First processes of the servers that are on.
    machines: [Option<Child>; 3],
    members: [Option<Child>; 3],
    /// Further options of the controllers.
    pub options: String,
}

fn log(path: &Path) -> Result<fs::File> {
    Ok(fs::File::options().create(true).append(true).open(path)?)
}

impl Controllers {
    /// `clients`: how many hosts besides; `folder`: for logs and etcd's data.
    pub fn new(clients: u32, folder: &Path, mounts: &[PathBuf]) -> Result<Controllers> {
        let hosts = Hosts::new(3 + clients, mounts)?;
        for h in 1..=3 + clients {
            // One more address for each target that a server may have.
            let more = 1..if h <= 3 { 6 } else { 1 };
            let adds: String = more.map(|t| format!(" && ip addr add 10.77.{h}.{t}/32 dev eth0")).collect();
            hosts.sh(h, &format!("ip route add 10.77.0.0/16 dev eth0{adds}"))?;
        }
        let none = || [None, None, None];
        let mut c = Controllers {
            hosts,
            folder: folder.to_path_buf(),
            machines: none(),
            members: none(),
            options: String::new(),
        };
        SERVERS.iter().try_for_each(|h| c.member_on(*h))?;
        Ok(c)
    }

    pub fn name(host: u32) -> String {
        format!("server{host}")
    }

    pub fn url() -> String {
        "etcd://10.77.0.1,10.77.0.2,10.77.0.3/test".into()
    }

    /// Where host `h` serves target number `t`.
    pub fn place(h: u32, t: usize) -> String {
        format!("10.77.{h}.{}@tcp", t + 1)
    }

    /// All addresses where an MGS may be.
    pub fn mgs() -> String {
        SERVERS.map(Hosts::nid).join(":")
    }

    pub fn log(&self, host: u32) -> PathBuf {
        self.folder.join(format!("log{host}"))
    }

    /// What the hosts said, the end of it.
    pub fn said(&self) -> String {
        let mut out = String::new();
        for e in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = e.file_name().to_string_lossy().into_owned();
            let inner = |p: &Path| fs::read_to_string(p).unwrap_or_default();
            let mut logs = vec![(name.clone(), inner(&e.path()))];
            if e.path().is_dir() {
                let all = fs::read_dir(e.path()).into_iter().flatten().flatten();
                logs =
                    all.map(|f| (format!("{name}/{}", f.file_name().display()), inner(&f.path()))).collect();
            }
            let ours = |n: &str| n.starts_with("log") || (n.starts_with("ha") && n.ends_with(".log"));
            for (name, text) in logs.into_iter().filter(|l| ours(&l.0)) {
                let mut lines: Vec<&str> = text.lines().collect();
                lines.drain(..lines.len().saturating_sub(60));
                out.push_str(&format!("{name}:\n{}\n\n", lines.join("\n")));
            }
        }
        out
    }

    /// Starts a host's member of etcd.
    pub fn member_on(&mut self, host: u32) -> Result<()> {
        let at = |h: u32, port: u16| format!("http://10.77.0.{h}:{port}");
        let all = SERVERS.map(|h| format!("m{h}={}", at(h, 2380))).join(",");
        let out = log(&self.folder.join(format!("etcd{host}")))?;
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.hosts.network(host))).arg(kit("etcd"));
        c.args(["--name", &format!("m{host}"), "--initial-cluster", &all, "--initial-cluster-state", "new"]);
        c.arg("--data-dir").arg(self.folder.join(format!("etcd-data{host}")));
        c.args(["--listen-client-urls", &at(host, 2379), "--advertise-client-urls", &at(host, 2379)]);
        c.args(["--listen-peer-urls", &at(host, 2380), "--initial-advertise-peer-urls", &at(host, 2380)]);
        c.args(["--heartbeat-interval", "100", "--election-timeout", "1000", "--pre-vote"]);
        c.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        self.members[host as usize - 1] = Some(c.spawn().context("start etcd")?);
        Ok(())
    }

    pub fn member_off(&mut self, host: u32) -> Result<()> {
        if let Some(mut c) = self.members[host as usize - 1].take() {
            c.kill()?;
            c.wait()?;
        }
        Ok(())
    }

    /// Starts a server host: its MGS and its controller, which are started again when they end.
    pub fn boot(&mut self, host: u32) -> Result<()> {
        let (nacre, name, url) = (bin_dir().join("nacre"), Controllers::name(host), Controllers::url());
        let nacre = nacre.display();
        let logs = self.folder.join(format!("ha{host}"));
        let script = format!(
            "mount --make-rprivate / && mount -t tmpfs tmpfs /run && hostname {name}
             again() {{ while :; do \"$@\"; sleep 0.5; done; }}
             again {nacre} nacred --nid {} --mgs-store {url} --mgs-term {TERM} &
             again {nacre} ha controller --etcd {url} --term {TERM} --log-dir {} {} &
             wait",
            Hosts::nid(host),
            logs.display(),
            self.options,
        );
        let out = log(&self.log(host))?;
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.hosts.network(host)));
        c.args(["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        c.args(["bash", "-c", &script]);
        c.process_group(0).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        self.machines[host as usize - 1] = Some(c.spawn().context("start a host")?);
        Ok(())
    }

    /// Its processes by their numbers on this machine, and their words.
    fn processes(&self, host: u32) -> Vec<(i32, Vec<String>)> {
        let Some(c) = &self.machines[host as usize - 1] else { return Vec::new() };
        let Ok(ours) = fs::read_link(format!("/proc/{}/ns/pid_for_children", c.id())) else {
            return Vec::new();
        };
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        let here = |pid: &i32| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|l| l == ours);
        let words = |pid: i32| {
            let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            text.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
        };
        pids.filter(here).map(|pid| (pid, words(pid))).collect()
    }

    /// Sends a signal to the processes of a host that have this word in their command line. How many.
    pub fn signal(&self, host: u32, word: &str, signal: Signal) -> usize {
        let hit = |w: &[String]| w.iter().any(|a| a == word) && !w[0].ends_with("bash");
        let all: Vec<i32> = self.processes(host).into_iter().filter(|(_, w)| hit(w)).map(|p| p.0).collect();
        all.iter().for_each(|pid| drop(kill(*pid, signal)));
        all.len()
    }

    /// Every process of a host sleeps, or wakes up.
    pub fn freeze(&self, host: u32, asleep: bool) {
        let signal = if asleep { Signal::STOP } else { Signal::CONT };
        for _ in 0..2 {
            self.processes(host).into_iter().for_each(|(pid, _)| drop(kill(pid, signal)));
        }
    }

    /// The power is cut: nobody hears that connections end.
    pub fn power_off(&mut self, host: u32) -> Result<()> {
        self.hosts.link(host, false)?;
        if let Some(mut c) = self.machines[host as usize - 1].take() {
            for (pid, _) in self.processes(host) {
                let _ = kill(pid, Signal::KILL);
            }
            c.kill()?;
            c.wait()?;
        }
        self.member_off(host)
    }

    pub fn power_on(&mut self, host: u32) -> Result<()> {
        self.hosts.link(host, true)?;
        self.member_on(host)?;
        self.boot(host)
    }

    /// `nacre ha ARGS --etcd …`, on the last host.
    pub fn ha(&self, args: &[&str]) -> Result<String> {
        let mut c = self.hosts.on(4, "nacre");
        c.args(["ha", args[0], "--etcd", &Controllers::url()]).args(&args[1..]);
        ok_within(&mut c, LIMIT)
    }

    /// (target, host, state)
    pub fn status(&self) -> Result<Vec<(String, Option<String>, String)>> {
        let v: Value = serde_json::from_str(&self.ha(&["status", "--json"])?)?;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let all = v["targets"].as_array().context("targets")?;
        Ok(all
            .iter()
            .map(|t| (text(&t["target"]), t["host"].as_str().map(String::from), text(&t["state"])))
            .collect())
    }

    /// The server that has a target.
    pub fn owner(&self, target: &str) -> Result<u32> {
        let all = self.status()?;
        let host = all.iter().find(|t| t.0 == target).and_then(|t| t.1.clone()).context("nobody has it")?;
        SERVERS.into_iter().find(|h| Controllers::name(*h) == host).context("an unknown host has it")
    }

    /// As [`Controllers::owner`], once it has one: a target may be between two servers when a member of etcd
    /// has come back, as the others elect their leader anew.
    pub fn owner_soon(&self, target: &str) -> Result<u32> {
        let mut owner = None;
        let has_one = || {
            owner = self.owner(target).ok();
            owner.is_some()
        };
        wait_until("the target has a server", LIMIT, has_one).with_context(|| self.said())?;
        Ok(owner.expect("waited for"))
    }

    /// Waits until each target is served, by none of `without`.
    pub fn all_served(&self, without: &[u32]) -> Result<()> {
        let bad: Vec<String> = without.iter().map(|h| Controllers::name(*h)).collect();
        let well = |t: &(String, Option<String>, String)| {
            t.2 == "serving" && t.1.as_ref().is_some_and(|h| !bad.contains(h))
        };
        let end = wait_until("all targets are served", LIMIT, || {
            self.status().is_ok_and(|s| !s.is_empty() && s.iter().all(well))
        });
        end.with_context(|| format!("{:?}\n{}", self.status(), self.said()))
    }

    /// An MGS is active and says so.
    pub fn active_mgs(&self) -> Result<String> {
        let leader = self.etcd_says("/test/mgs/leader")?;
        ensure!(!leader.is_empty(), "no MGS is active");
        // The same host may win again: it has another epoch then.
        Ok(format!("{leader}, epoch {}", self.etcd_says("/test/mgs/epoch")?))
    }

    fn etcd_says(&self, key: &str) -> Result<String> {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.hosts.network(4))).arg(kit("etcdctl"));
        c.args(["--endpoints", "10.77.0.1:2379,10.77.0.2:2379,10.77.0.3:2379"]);
        c.args(["get", "--print-value-only", key]).env("ETCDCTL_API", "3");
        let o = run_within(&mut c, LIMIT)?;
        ensure!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        Ok(String::from_utf8_lossy(&o.stdout).trim().to_string())
    }

    /// Locks on files are of this one kernel, and would tell what no other host can know: that the holder
    /// lives although it was declared dead.
    pub fn forget_locks(&self, dirs: &[&Path]) -> Result<()> {
        for d in dirs {
            fs::remove_file(d.join("lock"))?;
            fs::copy(d.join("table.redb"), d.join("table.copy"))?;
            fs::rename(d.join("table.copy"), d.join("table.redb"))?;
        }
        Ok(())
    }

    /// The controllers forget these targets; waits until nobody serves them.
    pub fn undefine(&self, targets: &[&str]) -> Result<()> {
        targets.iter().try_for_each(|t| self.ha(&["undefine", t]).map(drop))?;
        let mgs = |w: &[String]| w.iter().any(|a| a == "--mgs-store");
        let serves = |w: &[String]| w[0].ends_with("nacred") && !mgs(w);
        let idle = |h: &u32| !self.processes(*h).iter().any(|(_, w)| serves(w));
        wait_until("the servers end", LIMIT, || SERVERS.iter().all(idle)).with_context(|| self.said())
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        for h in SERVERS {
            self.freeze(h, false);
            for (pid, _) in self.processes(h) {
                let _ = kill(pid, Signal::KILL);
            }
        }
        for c in self.machines.iter_mut().chain(&mut self.members).flatten() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}
