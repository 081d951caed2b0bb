//! Servers on two networks, tcp0 and tcp1: who goes where, and what happens when one of them falls silent.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, fsck_when_free, ok_within, run_within, tool, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(60);
const MDS: u32 = 1;
const OSS: u32 = 2;
const CLIENT: u32 = 3;
/// The longest that an operation may wait for its way to be found again, on a machine that has other things
/// to do: a second of it is what the client waits for on purpose.
const GAP_MAX: Duration = Duration::from_secs(3);

struct Site {
    hosts: Hosts,
    scratch: Scratch,
    mnt: PathBuf,
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("networks");
        let dir = |n: &str| scratch.path().join(n);
        let mnt = dir("mnt");
        std::fs::create_dir(&mnt)?;
        let mut hosts = Hosts::new(3, std::slice::from_ref(&mnt))?;
        hosts.second_network(3)?;
        let mkfs = |args: &[&str], d: &str| ok_within(tool("mkfs.nacre").args(args).arg(dir(d)), LIMIT);
        mkfs(&["--mgs", "--mdt", "--fsname=net", "--index=0"], "mdt0")?;
        mkfs(&["--ost", "--fsname=net", "--index=0", "--mgsnode=10.77.0.1@tcp,10.78.0.1@tcp1"], "ost0")?;
        hosts.nacred_at(MDS, &["--networks", "tcp0(eth0),tcp1(eth1)"], &[dir("mdt0")], &dir("log1"))?;
        hosts.nacred_at(OSS, &["--nid", "10.77.0.2@tcp,10.78.0.2@tcp1"], &[dir("ost0")], &dir("log2"))?;
        Ok(Site { hosts, scratch, mnt })
    }

    fn mount(&self, options: &str, source: &str) -> Result<(bool, String)> {
        let mut c = self.hosts.on(CLIENT, "mount.nacre");
        let log = self.scratch.path().join("log3");
        let o = run_within(
            c.arg(source).arg(&self.mnt).args(["-o", &format!("{options},log={}", log.display())]),
            LIMIT,
        )?;
        Ok((o.status.success(), String::from_utf8_lossy(&o.stderr).into_owned()))
    }

    fn mounted(&self, options: &str, source: &str) -> Result<()> {
        wait_until("the client mounts", LIMIT, || self.mount(options, source).is_ok_and(|m| m.0))
            .with_context(|| self.said())?;
        wait_until("the OST is known", LIMIT, || {
            run_within(tool("lfs").arg("osts").arg(&self.mnt), LIMIT)
                .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(" ACTIVE"))
        })
    }

    fn umount(&self) -> Result<()> {
        ok_within(Command::new("umount").arg(&self.mnt), LIMIT).map(drop)
    }

    fn said(&self) -> String {
        let text = |n: &u32| {
            let all =
                std::fs::read_to_string(self.scratch.path().join(format!("log{n}"))).unwrap_or_default();
            format!("log{n}:\n{all}\n")
        };
        [1, 2, 3].iter().map(text).collect()
    }

    /// Where a session of the mount is: of an `osc` or `mdc`.
    fn at(&self, kind: &str, nid: &str) -> Result<()> {
        let name = format!("{kind}.net-*.import");
        let is_there = || {
            run_within(tool("lctl").args(["get_param", "-n", &name]), LIMIT).is_ok_and(|o| {
                let all = String::from_utf8_lossy(&o.stdout).into_owned();
                all.lines().any(|l| {
                    l.contains("current_connection") && l.contains(nid) && l.trim_end().ends_with(nid)
                })
            })
        };
        wait_until(&format!("{kind} is at {nid}"), LIMIT, is_there).with_context(|| {
            let all = run_within(tool("lctl").args(["get_param", "-n", &name]), LIMIT);
            format!(
                "{}\n{}",
                all.map_or(String::new(), |o| String::from_utf8_lossy(&o.stdout).into()),
                self.said()
            )
        })
    }

    /// The longest operation while `change` is made and for as long after it as it takes to be seen: a file
    /// made, written to its OST and made durable, its name taken away.
    fn longest_while(&self, change: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let over = AtomicBool::new(false);
        let dir = self.mnt.join("work");
        std::fs::create_dir_all(&dir)?;
        std::thread::scope(|s| {
            let work = s.spawn(|| -> Result<(Duration, u64)> {
                let (mut longest, mut n) = (Duration::ZERO, 0u64);
                while !over.load(Relaxed) {
                    let began = Instant::now();
                    let path = dir.join(format!("f{}", n % 16));
                    write_durable(&path, n)?;
                    std::fs::remove_file(&path)?;
                    longest = longest.max(began.elapsed());
                    n += 1;
                }
                Ok((longest, n))
            });
            std::thread::sleep(Duration::from_millis(500));
            let changed = change();
            // What was under way when it happened, and the second in which it is found out.
            std::thread::sleep(GAP_MAX + Duration::from_secs(2));
            over.store(true, Relaxed);
            let (longest, n) = work.join().expect("the worker")?;
            changed?;
            ensure!(n > 10, "{n} operations");
            Ok(longest)
        })
    }
}

fn write_durable(path: &Path, n: u64) -> Result<()> {
    use std::io::Write;
    let mut f = std::fs::File::create(path)?;
    // Larger than what stays on the MDT.
    f.write_all(&vec![n as u8; 1 << 20])?;
    f.sync_all()?;
    Ok(())
}

#[test]
fn a_client_goes_by_the_network_that_it_was_told_of_and_network_means_that_one_only() -> Result<()> {
    let site = Site::up()?;
    site.mounted("", "10.77.0.1@tcp,10.78.0.1@tcp1:/net")?;
    site.at("mdc", "10.77.0.1@tcp")?;
    site.at("osc", "10.77.0.2@tcp")?;
    let nids = ok_within(tool("lctl").arg("list_nids"), LIMIT)?;
    for nid in ["10.77.0.1@tcp", "10.78.0.1@tcp1", "10.77.0.2@tcp", "10.78.0.2@tcp1"] {
        ensure!(nids.lines().any(|l| l.trim() == nid), "{nid} is missing in {nids}");
    }
    site.umount()?;
    // By the network of the MGS's address.
    site.mounted("", "10.78.0.1@tcp1:/net")?;
    site.at("mdc", "10.78.0.1@tcp1")?;
    site.at("osc", "10.78.0.2@tcp1")?;
    site.umount()?;
    site.mounted("network=tcp1", "10.77.0.1@tcp,10.78.0.1@tcp1:/net")?;
    site.at("mdc", "10.78.0.1@tcp1")?;
    site.at("osc", "10.78.0.2@tcp1")?;
    write_durable(&site.mnt.join("file"), 1)?;
    site.umount()?;
    let (well, said) = site.mount("network=tcp7", "10.77.0.1@tcp,10.78.0.1@tcp1:/net")?;
    ensure!(!well && said.contains("no NID of the MGS") && said.contains("is on tcp7"), "{said}");
    let (well, said) = site.mount("network=o2ib", "10.77.0.1@tcp:/net")?;
    ensure!(!well && said.contains("there is TCP only"), "{said}");
    Ok(())
}

#[test]
fn a_network_that_falls_silent_is_passed_over_in_a_second_and_no_operation_fails() -> Result<()> {
    let mut site = Site::up()?;
    site.mounted("", "10.77.0.1@tcp,10.78.0.1@tcp1:/net")?;
    site.at("osc", "10.77.0.2@tcp")?;
    let calm = site.longest_while(|| Ok(()))?;
    let gone = site.longest_while(|| site.hosts.link(OSS, false)).with_context(|| site.said())?;
    site.at("osc", "10.78.0.2@tcp1")?;
    site.at("mdc", "10.77.0.1@tcp")?;
    let both = site.longest_while(|| site.hosts.link(MDS, false)).with_context(|| site.said())?;
    site.at("mdc", "10.78.0.1@tcp1")?;
    site.hosts.link(OSS, true)?;
    site.hosts.link(MDS, true)?;
    let back = site
        .longest_while(|| {
            site.hosts.second_link(OSS, false)?;
            site.hosts.second_link(MDS, false)
        })
        .with_context(|| site.said())?;
    site.at("osc", "10.77.0.2@tcp")?;
    site.at("mdc", "10.77.0.1@tcp")?;
    println!(
        "longest operation: calm {calm:?}, OST's network gone {gone:?}, MDT's gone {both:?}, the other ones gone {back:?}"
    );
    for (what, took) in [("the OST's", gone), ("the MDT's", both), ("both others", back)] {
        ensure!(took < GAP_MAX, "{what} network: an operation took {took:?}\n{}", site.said());
    }
    site.umount()?;
    for h in [MDS, OSS] {
        site.hosts.end(h, rustix::process::Signal::TERM)?;
    }
    fsck_when_free(["mdt0", "ost0"].map(|d| site.scratch.path().join(d)))
}
