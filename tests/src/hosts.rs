//! Hosts on one machine: network namespaces joined by a bridge, each with an address of its own; everybody's files are the
//! same, as storage is that two hosts reach.

use crate::cluster::{bin_dir, kill, run_within, sh, wait_until};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Hosts on one Ethernet, gone with the test.
pub struct Hosts {
    tag: String,
    /// (host, process)
    daemons: Vec<(u32, Child)>,
    mount: PathBuf,
}

impl Hosts {
    pub fn new(count: u32, mount: &Path) -> Result<Hosts> {
        let tag = format!("nt{}", std::process::id());
        let hosts = Hosts { tag: tag.clone(), daemons: Vec::new(), mount: mount.to_path_buf() };
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

    fn address(host: u32) -> String {
        format!("10.77.0.{host}")
    }

    pub fn nid(host: u32) -> String {
        format!("{}@tcp", Hosts::address(host))
    }

    /// A command on a host: its network, everybody's files.
    pub fn on(&self, host: u32, program: &str) -> Command {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net=/var/run/netns/{}h{host}", self.tag)).arg(bin_dir().join(program));
        c
    }

    /// Its output is added to `log`.
    pub fn nacred(&mut self, host: u32, dirs: &[PathBuf], log: &Path) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let mut c = self.on(host, "nacred");
        c.args(["--nid", &Hosts::nid(host)]).args(dirs);
        c.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push((host, c.spawn().context("start nacred")?));
        Ok(())
    }

    /// Ends the server of a host, and waits for its end.
    pub fn end(&mut self, host: u32, signal: Signal) -> Result<()> {
        let at = self.daemons.iter().position(|d| d.0 == host).context("no server there")?;
        kill(self.daemons[at].1.id() as i32, signal)?;
        let child = &mut self.daemons[at].1;
        wait_until("the server ends", LIMIT, || child.try_wait().is_ok_and(|s| s.is_some()))?;
        self.daemons.remove(at);
        Ok(())
    }

    /// Its cable: unplugged, nobody is told anything.
    pub fn link(&self, host: u32, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        sh(&format!("ip -n {}sw link set p{host} {state}", self.tag), LIMIT).map(drop)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = run_within(Command::new("umount").arg(&self.mount), Duration::from_secs(10));
        let _ = run_within(Command::new("umount").arg("-fl").arg(&self.mount), Duration::from_secs(10));
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
