//! Hosts on one machine: network namespaces joined by a bridge, each with an address of its own; everybody's
//! files are the same, as storage is that two hosts reach.

use crate::cluster::{bin_dir, kill, ok_within, run_within, sh, tool, wait_until};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Mounts `source` with the command that `mounter` begins, on some host, and waits until the file system's
/// two OSTs are known.
pub fn mount(mounter: impl Fn() -> Command, source: &str, mount: &Path, limit: Duration) -> Result<()> {
    std::fs::create_dir_all(mount)?;
    wait_until("the client mounts", limit, || {
        let mut c = mounter();
        run_within(c.arg(source).arg(mount), Duration::from_secs(40)).is_ok_and(|o| o.status.success())
    })?;
    wait_until("both OSTs are known", limit, || {
        run_within(tool("lfs").arg("osts").arg(mount), limit)
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).matches(" ACTIVE").count() == 2)
    })
}

/// Two hosts that reach the same targets; one of them serves them.
pub struct Pair {
    pub hosts: [u32; 2],
    /// Index into `hosts`.
    pub at: usize,
    pub dirs: Vec<PathBuf>,
}

impl Pair {
    pub fn here(&self) -> u32 {
        self.hosts[self.at]
    }

    /// As `--servicenode` takes it.
    pub fn service(&self) -> String {
        self.hosts.map(Hosts::nid).join(":")
    }
}

/// Hosts on one Ethernet, gone with the test.
pub struct Hosts {
    tag: String,
    /// (host, process)
    daemons: Vec<(u32, Child)>,
    mounts: Vec<PathBuf>,
    /// Where the programs of a host are, if they are not those under test.
    programs: BTreeMap<u32, PathBuf>,
}

impl Hosts {
    /// `mounts`: what is unmounted at the end.
    pub fn new(count: u32, mounts: &[PathBuf]) -> Result<Hosts> {
        let tag = format!("nt{}", std::process::id());
        let hosts = Hosts {
            tag: tag.clone(),
            daemons: Vec::new(),
            mounts: mounts.to_vec(),
            programs: BTreeMap::new(),
        };
        sh(
            &format!(
                "ip netns add {tag}sw && ip -n {tag}sw link add name sw0 type bridge && ip -n {tag}sw link set sw0 up"
            ),
            LIMIT,
        )?;
        for i in 1..=count {
            sh(
                &format!(
                    "ip netns add {tag}h{i} && ip -n {tag}h{i} link set lo up
                     ip -n {tag}sw link add p{i} type veth peer name eth0 netns {tag}h{i}
                     ip -n {tag}sw link set p{i} master sw0 up
                     ip -n {tag}h{i} addr add {}/24 dev eth0 && ip -n {tag}h{i} link set eth0 up",
                    Hosts::address(i)
                ),
                LIMIT,
            )?;
        }
        Ok(hosts)
    }

    /// Its own address, without the length of its network.
    pub fn address(host: u32) -> String {
        format!("10.77.0.{host}")
    }

    pub fn nid(host: u32) -> String {
        format!("{}@tcp", Hosts::address(host))
    }

    /// Its network, as a file.
    pub fn network(&self, host: u32) -> String {
        format!("/var/run/netns/{}h{host}", self.tag)
    }

    /// A shell line in a host's network.
    pub fn sh(&self, host: u32, line: &str) -> Result<String> {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.network(host))).args(["bash", "-euc", line]);
        ok_within(&mut c, LIMIT)
    }

    /// Another build is installed on a host: what starts there from now on is of it.
    pub fn install(&mut self, host: u32, programs: &Path) {
        self.programs.insert(host, programs.to_path_buf());
    }

    /// A command on a host: its network, everybody's files.
    pub fn on(&self, host: u32, program: &str) -> Command {
        let mut c = Command::new("nsenter");
        let programs = self.programs.get(&host).cloned().unwrap_or_else(bin_dir);
        c.arg(format!("--net={}", self.network(host))).arg(programs.join(program));
        c
    }

    /// Nothing but its own address on its interface.
    pub fn only_own_address(&self, host: u32) -> Result<()> {
        let (tag, own) = (&self.tag, Hosts::address(host));
        sh(
            &format!("ip -n {tag}h{host} addr flush dev eth0 scope global && ip -n {tag}h{host} addr add {own}/24 dev eth0"),
            LIMIT,
        )
        .map(drop)
    }

    /// Its output is added to `log`.
    pub fn nacred(&mut self, host: u32, options: &[&str], dirs: &[PathBuf], log: &Path) -> Result<()> {
        let nid = Hosts::nid(host);
        self.nacred_at(host, &[&["--nid", nid.as_str()], options].concat(), dirs, log)
    }

    /// A second Ethernet: interface eth1 of each of the first `count` hosts, 10.78.0.N.
    pub fn second_network(&self, count: u32) -> Result<()> {
        let tag = &self.tag;
        sh(&format!("ip -n {tag}sw link add name sw1 type bridge && ip -n {tag}sw link set sw1 up"), LIMIT)?;
        for i in 1..=count {
            sh(
                &format!(
                    "ip -n {tag}sw link add q{i} type veth peer name eth1 netns {tag}h{i}
                     ip -n {tag}sw link set q{i} master sw1 up
                     ip -n {tag}h{i} addr add 10.78.0.{i}/24 dev eth1 && ip -n {tag}h{i} link set eth1 up"
                ),
                LIMIT,
            )?;
        }
        Ok(())
    }

    /// As [`Hosts::link`], on the second Ethernet.
    pub fn second_link(&self, host: u32, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        sh(&format!("ip -n {}sw link set q{host} {state}", self.tag), LIMIT).map(drop)
    }

    /// As [`Hosts::nacred`], with whatever `options` say of addresses.
    pub fn nacred_at(&mut self, host: u32, options: &[&str], dirs: &[PathBuf], log: &Path) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let mut c = self.on(host, "nacred");
        c.args(options).args(dirs).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push((host, c.spawn().context("start nacred")?));
        Ok(())
    }

    fn server(&self, host: u32) -> Result<usize> {
        self.daemons.iter().position(|d| d.0 == host).context("no server there")
    }

    pub fn signal(&self, host: u32, signal: Signal) -> Result<()> {
        kill(self.daemons[self.server(host)?].1.id() as i32, signal)
    }

    /// Whether the server of a host ended by itself.
    pub fn is_over(&mut self, host: u32) -> Result<bool> {
        let at = self.server(host)?;
        Ok(self.daemons[at].1.try_wait()?.is_some())
    }

    /// Ends the server of a host, and waits for its end.
    pub fn end(&mut self, host: u32, signal: Signal) -> Result<()> {
        self.signal(host, signal)?;
        self.ends_by_itself(host)
    }

    /// Waits for the end of a host's server.
    pub fn ends_by_itself(&mut self, host: u32) -> Result<()> {
        let at = self.server(host)?;
        let child = &mut self.daemons[at].1;
        wait_until("the server ends", LIMIT, || child.try_wait().is_ok_and(|s| s.is_some()))?;
        self.daemons.remove(at);
        Ok(())
    }

    /// What happens to packets that leave the host, in nft's words: `drop`, say; empty: nothing.
    pub fn filter(&self, host: u32, rule: &str) -> Result<()> {
        let mut script = vec!["table inet faults", "delete table inet faults"];
        if !rule.is_empty() {
            script.extend(["table inet faults {", "chain out {", "type filter hook output priority 0"]);
            script.extend([rule, "}", "}"]);
        }
        let script = script.join("\\n");
        let line =
            format!("printf '{script}\\n' | nsenter --net=/var/run/netns/{}h{host} nft -f -", self.tag);
        sh(&line, LIMIT).map(drop)
    }

    /// Its cable: unplugged, nobody is told anything.
    pub fn link(&self, host: u32, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        sh(&format!("ip -n {}sw link set p{host} {state}", self.tag), LIMIT).map(drop)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for m in &self.mounts {
            let _ = run_within(Command::new("umount").arg(m), Duration::from_secs(10));
            let _ = run_within(Command::new("umount").arg("-fl").arg(m), Duration::from_secs(10));
        }
        for (_, d) in &mut self.daemons {
            let _ = d.kill();
            let _ = d.wait();
        }
        let _ = sh(
            &format!(
                "for n in $(ip netns list | awk '/^{}/{{print $1}}'); do ip netns del $n; done",
                self.tag
            ),
            LIMIT,
        );
    }
}
