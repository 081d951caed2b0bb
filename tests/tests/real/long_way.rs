//! A cluster as an administrator builds it on separate hosts: four network namespaces joined by a bridge, one for
//! management and metadata, two with two OSTs each, one client.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::cluster::{Scratch, bin_dir, ok_within, run_within, sh, stripe_64k, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// Hosts on one Ethernet, gone with the test.
struct Hosts {
    tag: String,
    daemons: Vec<Child>,
    mount: PathBuf,
}

impl Hosts {
    fn new(count: u32, mount: &Path) -> Result<Hosts> {
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
                     ip -n {tag}h{i} addr add 10.77.0.{i}/24 dev eth0 && ip -n {tag}h{i} link set eth0 up"
                ),
                LIMIT,
            )?;
        }
        Ok(hosts)
    }

    /// A command on a host: its network, everybody's files.
    fn on(&self, host: u32, program: &str) -> Command {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net=/var/run/netns/{}h{host}", self.tag)).arg(bin_dir().join(program));
        c
    }

    fn nacred(&mut self, host: u32, dirs: &[PathBuf], log: &Path) -> Result<()> {
        let log = std::fs::File::create(log)?;
        let mut c = self.on(host, "nacred");
        c.args(["--nid", &format!("10.77.0.{host}@tcp")]).args(dirs);
        c.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push(c.spawn().context("start nacred")?);
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = run_within(Command::new("umount").arg(&self.mount), Duration::from_secs(10));
        let _ = run_within(Command::new("umount").arg("-fl").arg(&self.mount), Duration::from_secs(10));
        for d in &mut self.daemons {
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

#[test]
fn four_hosts_with_their_own_addresses() -> Result<()> {
    let s = Scratch::new("long");
    let mnt = s.path().join("mnt");
    std::fs::create_dir(&mnt)?;
    let dir = |n: &str| s.path().join(n);
    let mut hosts = Hosts::new(4, &mnt)?;
    let mgs = "10.77.0.1@tcp";
    ok_within(
        tool("mkfs.nacre").args(["--mgs", "--mdt", "--fsname=long", "--index=0"]).arg(dir("mdt0")),
        LIMIT,
    )?;
    for i in 0..4 {
        let out = ok_within(
            tool("mkfs.nacre")
                .args(["--ost", "--fsname=long", &format!("--index={i}"), &format!("--mgsnode={mgs}")])
                .arg(dir(&format!("ost{i}"))),
            LIMIT,
        )?;
        ensure!(out.contains(&format!("Target:     long:OST000{i}")), "mkfs.nacre printed:\n{out}");
    }
    hosts.nacred(1, &[dir("mdt0")], &dir("log1"))?;
    hosts.nacred(2, &[dir("ost0"), dir("ost1")], &dir("log2"))?;
    hosts.nacred(3, &[dir("ost2"), dir("ost3")], &dir("log3"))?;
    let source = format!("{mgs}:/long");
    wait_until("the client mounts", LIMIT, || {
        run_within(hosts.on(4, "mount.nacre").arg(&source).arg(&mnt), Duration::from_secs(40))
            .is_ok_and(|o| o.status.success())
    })?;
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    ensure!(
        mounts.lines().any(|l| l.starts_with(&format!("{source} {}", mnt.display()))),
        "not in /proc/mounts"
    );
    wait_until("all four OSTs are known", LIMIT, || {
        run_within(tool("lfs").arg("osts").arg(&mnt), LIMIT)
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).matches(" ACTIVE").count() == 4)
    })?;
    let file = mnt.join("striped");
    stripe_64k(&file, 4)?;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&file, &data)?;
    ensure!(std::fs::read(&file)? == data, "four stripes on two hosts");
    let count = ok_within(tool("lfs").args(["getstripe", "-c"]).arg(&file), LIMIT)?;
    ensure!(count.trim() == "4", "getstripe -c printed {count}");
    ok_within(Command::new("umount").arg(&mnt), LIMIT)?;
    ok_within(hosts.on(4, "mount.nacre").arg(&source).arg(&mnt), LIMIT)?;
    ensure!(std::fs::read(&file)? == data, "after an immediate remount");
    Ok(())
}
