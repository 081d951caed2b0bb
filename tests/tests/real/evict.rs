//! An administrator evicts the clients of a host by its NID, and others notice nothing.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, fsck_when_free, ok_within, run_within, tool, wait_until};
use tests::hosts::{self, Hosts};

const LIMIT: Duration = Duration::from_secs(60);
const SERVER: u32 = 1;
const CLIENTS: [u32; 2] = [2, 3];

fn set(who: &str, name: &str) -> Result<(bool, String)> {
    let o = run_within(tool("lctl").args(["set_param", &format!("{name}={who}")]), LIMIT)?;
    Ok((o.status.success(), String::from_utf8_lossy(&o.stderr).into_owned()))
}

fn count(name: &str) -> Result<Vec<u64>> {
    let all = ok_within(tool("lctl").args(["get_param", "-n", name]), LIMIT)?;
    Ok(all.lines().filter_map(|l| l.trim().parse().ok()).collect())
}

#[test]
fn clients_are_evicted_by_nid_and_others_go_on() -> Result<()> {
    let scratch = Scratch::new("evict");
    let dir = |n: &str| scratch.path().join(n);
    let mnts: Vec<PathBuf> = vec![dir("mnt2"), dir("mnt3")];
    mnts.iter().try_for_each(std::fs::create_dir)?;
    let mut hosts = Hosts::new(3, &mnts)?;
    let mkfs = |args: &[&str], d: &str| ok_within(tool("mkfs.nacre").args(args).arg(dir(d)), LIMIT);
    mkfs(&["--mgs", "--mdt", "--fsname=ev", "--index=0"], "mdt0")?;
    for n in ["0", "1"] {
        let at = ["--ost", "--fsname=ev", "--index", n, "--mgsnode", &Hosts::nid(SERVER)];
        mkfs(&at, &format!("ost{n}"))?;
    }
    hosts.nacred(SERVER, &[], &[dir("mdt0"), dir("ost0"), dir("ost1")], &dir("log1"))?;
    for (host, mnt) in CLIENTS.iter().zip(&mnts) {
        hosts::mount(|| hosts.on(*host, "mount.nacre"), &format!("{}:/ev", Hosts::nid(SERVER)), mnt, LIMIT)?;
    }
    for (n, mnt) in mnts.iter().enumerate() {
        std::fs::write(mnt.join(format!("of{n}")), vec![b'a'; 1 << 20])?;
        ok_within(Command::new("sync").arg("-f").arg(mnt), LIMIT)?;
    }
    ensure!(count("*.ev-*.eviction_count")? == [0, 0, 0], "nobody was evicted yet");

    let (done, said) = set(&format!("nid:{}", Hosts::nid(9)), "mdt.ev-*.evict_client")?;
    ensure!(!done && said.contains("No such device or address"), "{said}");
    let (done, said) = set(&Hosts::nid(CLIENTS[0]), "mdt.ev-*.evict_client")?;
    ensure!(!done && said.contains("nid:ADDRESS"), "{said}");

    let (done, said) = set(&format!("nid:{}", Hosts::nid(CLIENTS[0])), "*.ev-*.evict_client")?;
    ensure!(done, "{said}");
    wait_until("all targets evicted it", LIMIT, || {
        count("*.ev-*.eviction_count").is_ok_and(|all| all == [1, 1, 1])
    })?;
    // It comes back as a new client; the other one has not lost its session.
    for (n, mnt) in mnts.iter().enumerate() {
        let text = wait_until("the mount is used", LIMIT, || {
            std::fs::read(mnt.join("of1")).is_ok_and(|b| b.len() == 1 << 20)
                && std::fs::write(mnt.join(format!("after{n}")), b"on").is_ok()
        });
        text?;
    }
    ensure!(count("*.ev-*.eviction_count")? == [1, 1, 1], "only those were evicted that were named");
    // Times of the daemon, while its mounts are connected.
    for (name, value, all) in [
        ("timeout", "40", vec![("ping_interval", vec![10])]),
        ("ldlm_timeout", "250", vec![("*.ev-*.lock_callback_timeout", vec![250, 250, 250])]),
    ] {
        let said = ok_within(tool("lctl").args(["set_param", &format!("{name}={value}")]), LIMIT)?;
        ensure!(said.trim() == format!("{name}={value}"), "{said}");
        for (other, values) in all {
            ensure!(count(other)? == values, "{other} after {name}");
        }
    }
    let (done, said) = set("9999", "timeout")?;
    ensure!(!done && said.contains("4 to 240 s"), "{said}");
    for (n, mnt) in mnts.iter().enumerate() {
        std::fs::write(mnt.join(format!("then{n}")), b"on")?;
    }
    ensure!(count("*.ev-*.eviction_count")? == [1, 1, 1], "nobody is evicted by that");
    let uuid = ok_within(tool("lctl").args(["get_param", "-n", "mdt.ev-*.exports.*.uuid"]), LIMIT)?;
    let uuid = uuid.lines().next().unwrap_or_default();
    let (done, said) = set(uuid, "mdt.ev-*.evict_client")?;
    ensure!(done, "by its UUID {uuid}: {said}");
    wait_until("one more", LIMIT, || count("mdt.ev-*.eviction_count").is_ok_and(|all| all == [2]))?;

    for mnt in &mnts {
        ok_within(Command::new("umount").arg(mnt), LIMIT)?;
    }
    hosts.end(SERVER, rustix::process::Signal::TERM)?;
    fsck_when_free([dir("mdt0"), dir("ost0"), dir("ost1")])
}
