//! A cluster as an administrator builds it on separate hosts: four network namespaces joined by a bridge, one
//! for management and metadata, two with two OSTs each, one client.

use anyhow::{Result, ensure};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, ok_within, run_within, stripe_64k, tool, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn four_hosts_with_their_own_addresses() -> Result<()> {
    let s = Scratch::new("long");
    let mnt = s.path().join("mnt");
    std::fs::create_dir(&mnt)?;
    let dir = |n: &str| s.path().join(n);
    let mut hosts = Hosts::new(4, std::slice::from_ref(&mnt))?;
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
    hosts.nacred(1, &[], &[dir("mdt0")], &dir("log1"))?;
    hosts.nacred(2, &[], &[dir("ost0"), dir("ost1")], &dir("log2"))?;
    hosts.nacred(3, &[], &[dir("ost2"), dir("ost3")], &dir("log3"))?;
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
