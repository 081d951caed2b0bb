//! `mount.nacre` as mount(8), fstab and administrators call it.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, TestFs, bin_dir, ok_within, run_within, sh, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// A mount of the test, unmounted at its end.
struct Mnt(PathBuf);

impl Mnt {
    fn new(fs: &TestFs, name: &str) -> Result<Mnt> {
        let p = fs.scratch().join(name);
        std::fs::create_dir(&p)?;
        Ok(Mnt(p))
    }
}

impl Drop for Mnt {
    fn drop(&mut self) {
        let mounted = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        if mounted.contains(&format!(" {} ", self.0.display())) {
            let _ = Command::new("umount").arg("-fl").arg(&self.0).status();
        }
    }
}

fn source(fs: &TestFs) -> Result<String> {
    Ok(fs.status()?["source"].as_str().context("source")?.to_string())
}

fn helper(args: &[&str]) -> Result<Output> {
    run_within(tool("mount.nacre").args(args), LIMIT)
}

fn line_of(dir: &Path) -> Result<String> {
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let shown = dir.display().to_string();
    let line = mounts.lines().find(|l| l.split(' ').nth(1) == Some(&shown));
    Ok(line.with_context(|| format!("{shown} is not mounted"))?.to_string())
}

/// Exit 32 and these words.
fn refused(args: &[&str], parts: &[&str]) -> Result<()> {
    let o = helper(args)?;
    let text = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(32), "mount.nacre {args:?}: {}\n{text}", o.status);
    for p in parts {
        ensure!(text.contains(p), "mount.nacre {args:?} does not say '{p}':\n{text}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_mounted_is_explained() -> Result<()> {
    let fs = TestFs::up("helper", 1, 1)?;
    let src = source(&fs)?;
    let m = Mnt::new(&fs, "m")?;
    let (dir, nid) = (m.0.display().to_string(), src.split(":/").next().unwrap_or("").to_string());
    let d = dir.as_str();
    refused(&[&src, d, "-o", "rw,frobnicate"], &["frobnicate"])?;
    refused(&[&format!("{nid}:/wrong"), d], &["wrong", "Is the file system name correct?"])?;
    refused(&[&format!("{src}/no/such/dir"), d], &["No such file or directory"])?;
    refused(&["nonsense", d], &["expected MGSNID"])?;
    refused(&["10.0.0.1@ib:/fs", d], &["10.0.0.1@ib"])?;
    refused(&[&src], &["a source and a directory"])?;
    refused(&[&src, &format!("{d}/missing")], &["missing", "No such file"])?;
    let file = fs.scratch().join("file");
    std::fs::write(&file, b"")?;
    refused(&[&src, &file.display().to_string()], &["not a directory"])?;
    refused(&[&src, &fs.mount(0).display().to_string()], &["already"])?;
    // nobody listens there
    let start = Instant::now();
    refused(&["127.255.255.1@tcp:/nacre", d], &["Is the MGS running?"])?;
    ensure!(start.elapsed() < Duration::from_secs(40), "a dead MGS took {:?}", start.elapsed());
    ensure!(line_of(&m.0).is_err(), "nothing was mounted");
    // -f: everything but the mount itself; -s: unknown options are passed over
    ensure!(helper(&[&src, d, "-f"])?.status.success(), "-f");
    ensure!(line_of(&m.0).is_err(), "-f mounted");
    ensure!(helper(&[&src, d, "-s", "-o", "frobnicate"])?.status.success(), "-s");
    Ok(())
}

#[test]
fn proc_mounts_shows_what_was_asked_for() -> Result<()> {
    let fs = TestFs::up("options", 1, 1)?;
    let src = source(&fs)?;
    std::fs::create_dir_all(fs.mount(0).join("a/b"))?;
    std::fs::write(fs.mount(0).join("a/b/f"), b"below")?;
    let m = Mnt::new(&fs, "sub dir")?;
    let d = m.0.display().to_string();
    let sub = format!("{src}/a/b");
    ensure!(
        helper(&[&sub, &d, "-o", "ro,nosuid,nodev,noatime,_netdev,x-systemd.automount"])?.status.success(),
        "mount"
    );
    let line = std::fs::read_to_string("/proc/mounts")?;
    let escaped = d.replace(' ', "\\040");
    let line = line.lines().find(|l| l.contains(&escaped)).context("listed")?;
    ensure!(line.starts_with(&format!("{sub} ")) && line.contains(" fuse.nacre "), "{line}");
    for o in ["ro", "nosuid", "nodev", "noatime"] {
        ensure!(
            line.split(' ').nth(3).is_some_and(|l| l.split(',').any(|x| x == o)),
            "{o} is missing: {line}"
        );
    }
    ensure!(std::fs::read(m.0.join("f"))? == b"below", "the subdirectory is the root");
    let e = std::fs::write(m.0.join("new"), b"x").err().context("read-only")?;
    ensure!(e.raw_os_error() == Some(30), "{e}");
    // remount: the same daemon
    let daemons = || -> Result<Vec<String>> {
        Ok(sh("pgrep -f '^mount.nacre .*sub dir' || true", LIMIT)?.lines().map(str::to_string).collect())
    };
    let before = daemons()?;
    ensure!(before.len() == 1, "one daemon: {before:?}");
    ensure!(helper(&[&sub, &d, "-o", "remount,rw"])?.status.success(), "remount,rw");
    std::fs::write(m.0.join("new"), b"x")?;
    ensure!(fs.mount(0).join("a/b/new").exists(), "seen through the whole");
    ensure!(helper(&[&sub, &d, "-o", "remount,ro"])?.status.success(), "remount,ro");
    ensure!(std::fs::write(m.0.join("new2"), b"x").is_err(), "read-only again");
    ensure!(daemons()? == before, "a second daemon");
    ok_within(Command::new("umount").arg(&m.0), LIMIT)?;
    wait_until("the daemon ends", LIMIT, || daemons().is_ok_and(|d| d.is_empty()))
}

#[test]
fn umount_and_an_immediate_mount_see_all_data() -> Result<()> {
    let fs = TestFs::up("remount", 2, 1)?;
    let src = source(&fs)?;
    let m = Mnt::new(&fs, "m")?;
    let d = m.0.display().to_string();
    for round in 0..5u8 {
        ensure!(helper(&[&src, &d])?.status.success(), "mount {round}");
        std::fs::write(m.0.join(format!("f{round}")), vec![round; 200_000])?;
        ok_within(Command::new("umount").arg(&m.0), LIMIT)?;
        ensure!(helper(&[&src, &d])?.status.success(), "mount again {round}");
        ensure!(std::fs::read(m.0.join(format!("f{round}")))? == vec![round; 200_000], "round {round}");
        ok_within(Command::new("umount").arg(&m.0), LIMIT)?;
    }
    Ok(())
}

/// A private view of the host in which `script` runs; what it mounts is gone with it.
fn in_private_namespace(script: &str) -> Result<Output> {
    run_within(
        Command::new("unshare").args(["-m", "--propagation", "private", "bash", "-euc", script]),
        LIMIT,
    )
}

#[test]
fn mount8_and_fstab_find_the_helper() -> Result<()> {
    let fs = TestFs::up("fstab", 1, 1)?;
    let src = source(&fs)?;
    std::fs::write(fs.mount(0).join("f"), b"by fstab")?;
    let m = Mnt::new(&fs, "m")?;
    let (s, d) = (fs.scratch().display(), m.0.display());
    // the helpers appear in /sbin of this namespace only
    let script = format!(
        "mkdir {s}/sbin; ln -s {bin}/nacre {s}/sbin/mount.fuse.nacre; ln -s {bin}/nacre {s}/sbin/mount.nacre
         mount -t overlay overlay -o lowerdir={s}/sbin:/usr/sbin /usr/sbin
         echo '{src} {d} fuse.nacre noatime,_netdev,nofail 0 0' > {s}/fstab
         mount -T {s}/fstab {d} && cat {d}/f && findmnt -n -o SOURCE {d} && umount {d}
         mount -t nacre -o ro {src} {d} && cat {d}/f && umount {d}",
        bin = bin_dir().display()
    );
    let o = in_private_namespace(&script)?;
    let out = String::from_utf8_lossy(&o.stdout).into_owned();
    ensure!(o.status.success(), "{}\n{out}{}", o.status, String::from_utf8_lossy(&o.stderr));
    ensure!(out.matches("by fstab").count() == 2 && out.contains(&src), "{out}");
    Ok(())
}

#[test]
fn a_missing_fuse_device_is_explained() -> Result<()> {
    let s = Scratch::new("nofuse");
    let bin = bin_dir().join("nacre");
    let script = format!(
        "mount -t tmpfs none /dev
         rc=0; {bin} mount.nacre 127.255.255.1@tcp:/nacre {dir} || rc=$?; echo rc=$rc
         rc=0; {bin} up --dir {dir}/fs || rc=$?; echo rc=$rc",
        bin = bin.display(),
        dir = s.path().display()
    );
    let o = in_private_namespace(&script)?;
    let (out, err) =
        (String::from_utf8_lossy(&o.stdout).into_owned(), String::from_utf8_lossy(&o.stderr).into_owned());
    ensure!(out.contains("rc=32") && out.contains("rc=1"), "{out}{err}");
    ensure!(err.matches("/dev/fuse").count() >= 2 && err.contains("modprobe fuse"), "{err}");
    ensure!(!err.contains("panicked"), "{err}");
    Ok(())
}
