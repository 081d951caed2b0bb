//! Disks that fail under a target, by `osd-nacre.*.disk_fault`: nothing is silent, and what can go on does.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// A file whose bytes are on the disk of one OST.
fn put_on(fs: &TestFs, name: &str, ost: u32, byte: u8) -> Result<PathBuf> {
    let path = fs.mount(0).join(name);
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", &ost.to_string()]).arg(&path), LIMIT)?;
    let mut f = File::options().write(true).open(&path)?;
    f.write_all(&vec![byte; MIB])?;
    f.sync_all()?;
    Ok(path)
}

fn same(path: &Path, byte: u8) -> Result<()> {
    let got = fs::read(path).with_context(|| path.display().to_string())?;
    ensure!(got.len() == MIB && got.iter().all(|b| *b == byte), "{}: other bytes", path.display());
    Ok(())
}

/// Orders errors of a target's disk.
fn order(fs: &TestFs, target: &str, faults: &str) -> Result<()> {
    let word = format!("osd-nacre.{}-{target}.disk_fault={faults}", fs.fsname());
    ok_within(tool("lctl").args(["set_param", &word]), LIMIT).map(drop)
}

fn param(name: &str) -> Result<String> {
    ok_within(tool("lctl").args(["get_param", "-n", name]), LIMIT)
}

fn df(fs: &TestFs) -> Result<String> {
    ok_within(tool("lfs").arg("df").arg(fs.mount(0)), LIMIT)
}

/// The states that `nacre status` shows.
fn states(fs: &TestFs) -> Result<Vec<String>> {
    let s = fs.status()?;
    let rows = s["processes"].as_array().context("processes")?;
    Ok(rows.iter().filter_map(|r| Some(r["state"].as_str()?.to_string())).collect())
}

#[test]
fn an_ost_whose_disk_fails_goes_read_only_and_says_so() -> Result<()> {
    let fs = TestFs::up("roost", 2, 2)?;
    let label = format!("{}-OST0000", fs.fsname());
    let (kept, hit, other) =
        (put_on(&fs, "kept", 0, 1)?, put_on(&fs, "hit", 0, 2)?, put_on(&fs, "other", 1, 3)?);

    order(&fs, "OST0000", "flush=EIO@/objects")?;
    let f = File::options().write(true).open(&hit)?;
    f.write_all_at(&vec![9; MIB], MIB as u64)?;
    let e = f.sync_all().err().context("fsync of what no disk took")?;
    ensure!(matches!(e.kind(), ErrorKind::ReadOnlyFilesystem) || e.raw_os_error() == Some(5), "{e}");

    // It says so: status, health, `lfs df`, parameters, the mount's list of lost writes.
    wait_until("status says it", LIMIT, || states(&fs).is_ok_and(|s| s.iter().any(|w| w == "read-only")))?;
    let health = param("health_check")?;
    ensure!(health.contains("NOT HEALTHY") && health.contains(&label), "{health}");
    let why = param(&format!("osd-nacre.{label}.disk_state"))?;
    ensure!(why.contains("Input/output error") || why.contains("EIO"), "{why}");
    let table = df(&fs)?;
    let line = table.lines().find(|l| l.contains("OST:0]") || l.contains("OST0000")).context("df")?;
    ensure!(line.contains('R'), "{table}");

    // What is there can be read, also by a client that comes only now; other OSTs take what is new.
    ok_within(Command::new("umount").arg(fs.mount(1)), LIMIT)?;
    let source = fs.status()?["source"].as_str().context("source")?.to_string();
    ok_within(tool("mount.nacre").arg(source).arg(fs.mount(1)), LIMIT)?;
    same(&fs.mount(1).join("kept"), 1)?;
    same(&fs.mount(1).join("other"), 3)?;
    // The MDT asks its OSTs how they are every few seconds.
    let mut n = 0;
    wait_until("new files go elsewhere", LIMIT, || {
        n += 4;
        (n..n + 4).all(|i| put(&fs.mount(0).join(format!("new{i}"))).is_ok())
    })?;
    ensure!(f.write_all_at(b"more", 0).and_then(|()| f.sync_all()).is_err(), "it takes no changes");
    drop(f);

    // The disk is mended, `nacre up` starts the server anew, and what was acknowledged is there.
    order(&fs, "OST0000", "none")?;
    fs.up_again()?;
    ensure!(states(&fs)?.iter().all(|s| s == "up"), "{:?}", states(&fs)?);
    for m in fs.mounts() {
        for (name, byte) in [("kept", 1), ("other", 3)] {
            same(&m.join(name), byte)?;
        }
        ensure!(fs::read(m.join("hit"))?.iter().take(MIB).all(|b| *b == 2), "what was flushed is as it was");
    }
    put_on(&fs, "after", 0, 4)?;
    for p in [kept, hit, other] {
        fs::remove_file(p)?;
    }
    fs.fsck()
}

fn put(path: &Path) -> std::io::Result<()> {
    let mut f = File::create(path)?;
    f.write_all(&vec![7; MIB])?;
    f.sync_all()
}

/// The files of an OST that is gone are named by the MDT, which asks nobody.
#[test]
fn the_files_of_a_lost_ost_are_listed() -> Result<()> {
    let fs = TestFs::up("lost", 3, 1)?;
    let m = fs.mount(0);
    for dir in ["a", "a/b", "c"] {
        fs::create_dir(m.join(dir))?;
    }
    let mut there: Vec<String> = Vec::new();
    for i in 0..1200u32 {
        let name = format!("{}/f{i}", ["a", "a/b", "c"][i as usize % 3]);
        let stripe = if i % 100 == 0 {
            ["-c", "3", "-i", "0"]
        } else {
            ["-c", "1", "-i", if i % 2 == 0 { "1" } else { "2" }]
        };
        ok_within(tool("lfs").arg("setstripe").args(stripe).arg(m.join(&name)), LIMIT)?;
        if i % 2 == 0 || i % 100 == 0 {
            there.push(name);
        }
    }
    fs::hard_link(m.join("a/f0"), m.join("c/link"))?;
    there.push("c/link".into());
    there.sort();
    let status = fs.status()?;
    let pid = status["processes"].as_array().and_then(|a| {
        let ours = |p: &&serde_json::Value| p["targets"].to_string().contains("OST0001");
        a.iter().find(ours)?["pid"].as_i64()
    });
    kill(pid.context("the server of OST0001")? as i32, Signal::KILL)?;
    let found = |args: &[&str]| -> Result<Vec<String>> {
        let text = ok_within(tool("lfs").arg("find").args(args).current_dir(m), LIMIT)?;
        let mut names: Vec<String> = text.lines().map(|l| l.trim_start_matches("./").to_string()).collect();
        names.sort();
        Ok(names)
    };
    ensure!(found(&[".", "--ost", "1"])? == there, "{} files", there.len());
    let below: Vec<String> = there.iter().filter(|n| n.starts_with("a/")).cloned().collect();
    ensure!(found(&["a", "-ost", "1"])? == below, "below a folder");
    let deep: Vec<String> =
        there.iter().filter(|n| n.ends_with("00") && !n.contains("/b/")).cloned().collect();
    ensure!(found(&[".", "-ost", "1", "-name", "*00", "-maxdepth", "2"])? == deep, "by name and depth");
    fs.up_again()?;
    // With a look at each file.
    ensure!(found(&[".", "-ost", "1", "-type", "f", "-stripe-count", "3"])?.len() == 13, "by layout");
    fs.fsck()
}

/// One bad read is one error, to whoever reads it; a full disk is ENOSPC until there is room.
#[test]
fn bad_sectors_and_full_disks_concern_who_meets_them() -> Result<()> {
    let fs = TestFs::up("badrd", 1, 2)?;
    let (a, b) = (put_on(&fs, "a", 0, 1)?, put_on(&fs, "b", 0, 2)?);
    order(&fs, "OST0000", "read=EIO:1@/objects")?;
    let e = fs::read(fs.mount(1).join("a")).err().context("a read that the disk refused")?;
    ensure!(e.raw_os_error() == Some(5), "{e}");
    same(&fs.mount(1).join("a"), 1)?;
    same(&fs.mount(1).join("b"), 2)?;
    ensure!(
        param(&format!("osd-nacre.{}-OST0000.disk_faults_fired", fs.fsname()))?.trim() == "1",
        "it fired"
    );

    order(&fs, "OST0000", "write=ENOSPC@/objects")?;
    let f = File::options().write(true).open(&b)?;
    // Again and again: it was told too late at times, when the write had failed just before fsync looked.
    for round in 0..20 {
        let written = f.write_all_at(&vec![9; 4 * MIB], MIB as u64).and_then(|()| f.sync_all());
        let e = written.err().with_context(|| format!("round {round}: written in spite of the disk"))?;
        ensure!(e.kind() == ErrorKind::StorageFull, "{e}");
    }
    drop(f);
    order(&fs, "OST0000", "none")?;
    ensure!(states(&fs)?.iter().all(|s| s == "up"), "a full disk stops nothing");
    put_on(&fs, "c", 0, 3)?;
    same(&a, 1)?;
    fs.fsck()
}

/// An MDT cannot do anything without its disk: its server ends, and what it had answered and not flushed
/// comes back from the clients when it is started on a sound disk.
#[test]
fn an_mdt_whose_disk_fails_ends_and_nothing_that_was_answered_is_lost() -> Result<()> {
    let fs = TestFs::up("romdt", 1, 2)?;
    let dir = fs.mount(0).join("d");
    fs::create_dir(&dir)?;
    let mut names = Command::new("sh");
    let made = fs.scratch().join("made");
    // Until the end of its time, or of the disk: names that were made are noted.
    let line =
        "i=0; while [ $i -lt 3000 ]; do mkdir \"$0/$i\" && echo $i >> \"$1\" || exit 1; i=$((i+1)); done";
    let mut child = names.args(["-c", line]).arg(&dir).arg(&made).stderr(Stdio::null()).spawn()?;
    let count = || fs::read_to_string(&made).map_or(0, |t| t.lines().count());
    wait_until("names are made", LIMIT, || count() > 50)?;
    order(&fs, "MDT0000", "flush=EIO@/journal")?;
    wait_until("the server ends", LIMIT, || states(&fs).is_ok_and(|s| s.iter().any(|w| w == "dead")))?;
    fs.up_again()?;
    wait_until("the program ends", 2 * LIMIT, || child.try_wait().is_ok_and(|s| s.is_some()))?;
    ensure!(child.wait()?.success(), "the application saw an error after {} names", count());
    let listed = fs::read_dir(fs.mount(1).join("d"))?.count();
    ensure!(listed == 3000 && count() == 3000, "{listed} of {} names", count());
    let log = run_within(Command::new("cat").arg(fs.dir().join("log/nacred-1.log")), LIMIT)?;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    ensure!(log.contains("STOPPING") && log.contains("EIO") || log.contains("Input/output"), "{log}");
    fs.fsck()
}
