//! `nacre up`, `down`, `status`, `wipe` as a user meets them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, TestFs, alive, kill, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn nacre(args: &[&str]) -> Result<Output> {
    run_within(tool("nacre").args(args), LIMIT)
}

/// target or mount → pid
fn pids(fs: &TestFs) -> Result<BTreeMap<String, i64>> {
    let s = fs.status()?;
    let list = s["processes"].as_array().context("processes")?;
    let name = |p: &serde_json::Value| p["targets"][0].as_str().unwrap_or("?").to_string();
    Ok(list.iter().map(|p| (name(p), p["pid"].as_i64().unwrap_or(0))).collect())
}

#[test]
fn files_survive_down_and_up() -> Result<()> {
    let fs = TestFs::up("updown", 3, 2)?;
    let path = fs.mount(0).join("dir/deep/file");
    std::fs::create_dir_all(path.parent().context("parent")?)?;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&path, &data)?;
    ensure!(std::fs::read(fs.mount(1).join("dir/deep/file"))? == data, "the other mount sees it");
    fs.down()?;
    for p in pids(&fs)? {
        ensure!(p.1 == 0, "{} still runs as {}", p.0, p.1);
    }
    ensure!(!path.exists(), "the mount is gone");
    fs.up_again()?;
    ensure!(std::fs::read(&path)? == data, "after down and up");
    // `up` on a living file system changes nothing and is quick
    let before = pids(&fs)?;
    let start = Instant::now();
    fs.up_again()?;
    ensure!(start.elapsed() < Duration::from_secs(5), "a second up took {:?}", start.elapsed());
    ensure!(pids(&fs)? == before, "a second up restarted something");
    fs.fsck()
}

#[test]
fn only_the_dead_are_started() -> Result<()> {
    let fs = TestFs::up("dead", 2, 1)?;
    std::fs::write(fs.mount(0).join("f"), b"kept")?;
    let before = pids(&fs)?;
    let victim = before.keys().find(|k| k.ends_with("OST0001")).context("an OST")?.clone();
    kill(before[&victim] as i32, Signal::KILL)?;
    wait_until("status shows the death", LIMIT, || pids(&fs).is_ok_and(|p| p[&victim] == 0))?;
    fs.up_again()?;
    let after = pids(&fs)?;
    for (name, pid) in &after {
        let same = before[name] == *pid;
        ensure!(same == (*name != victim), "{name} was {} and is {pid}", before[name]);
        ensure!(alive(*pid as i32), "{name} does not run");
    }
    // a killed client daemon: its mount is taken away and made again, nothing else is touched
    let mount = fs.mount(0).display().to_string();
    kill(after[&mount] as i32, Signal::KILL)?;
    wait_until("ENOTCONN", LIMIT, || {
        std::fs::metadata(fs.mount(0)).is_err_and(|e| e.raw_os_error() == Some(107))
    })?;
    fs.up_again()?;
    ensure!(std::fs::read(fs.mount(0).join("f"))? == b"kept", "mounted again");
    let last = pids(&fs)?;
    ensure!(last.iter().all(|(n, p)| *n == mount || after[n] == *p), "a server was restarted");
    Ok(())
}

#[test]
fn file_systems_side_by_side_do_not_meet() -> Result<()> {
    let (a, b) = (TestFs::up("sidea", 1, 1)?, TestFs::up("sideb", 2, 1)?);
    std::fs::write(a.mount(0).join("only-a"), b"a")?;
    std::fs::write(b.mount(0).join("only-b"), b"b")?;
    ensure!(!a.mount(0).join("only-b").exists() && !b.mount(0).join("only-a").exists(), "they are separate");
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let source = |fs: &TestFs| -> Result<String> {
        let dir = fs.mount(0).display().to_string();
        let line = mounts.lines().find(|l| l.split(' ').nth(1) == Some(&dir)).context("in /proc/mounts")?;
        Ok(line.split(' ').next().unwrap_or("").to_string())
    };
    ensure!(source(&a)? != source(&b)?, "sources are unique");
    ensure!(mounts.matches(&source(&a)?).count() == 1, "and only one mount has it");
    a.down()?;
    ensure!(std::fs::read(b.mount(0).join("only-b"))? == b"b", "the other one lives on");
    Ok(())
}

#[test]
fn a_busy_mount_is_not_torn_away() -> Result<()> {
    let fs = TestFs::up("busy", 1, 1)?;
    let mut sleeper =
        Command::new("sleep").arg("1000").current_dir(fs.mount(0)).stdin(Stdio::null()).spawn()?;
    let dir = fs.dir().display().to_string();
    let o = nacre(&["down", "--dir", &dir])?;
    let text = String::from_utf8_lossy(&o.stderr).into_owned();
    let named =
        text.contains(&sleeper.id().to_string()) && text.contains("sleep") && text.contains("--force");
    let usable = std::fs::write(fs.mount(0).join("f"), b"x").is_ok();
    let forced = nacre(&["down", "--dir", &dir, "--force"]);
    sleeper.kill()?;
    sleeper.wait()?;
    ensure!(o.status.code() == Some(16) && named, "down said {} and\n{text}", o.status);
    ensure!(usable, "the file system goes on");
    ensure!(forced?.status.success(), "down --force");
    fs.up_again()?;
    ensure!(fs.mount(0).join("f").exists(), "the file is there");
    Ok(())
}

#[test]
fn mistakes_have_words() -> Result<()> {
    let s = Scratch::new("mistakes");
    let dir = s.path().join("nothing");
    let dir = dir.display().to_string();
    for (args, part) in [
        (vec!["down", "--dir", dir.as_str()], "No such file"),
        (vec!["up", "--dir", dir.as_str(), "--fsname", "much-too-long"], "1 to 8"),
        (vec!["up", "--dir", dir.as_str(), "--osts", "0"], "0"),
        (vec!["up", "--dir", dir.as_str(), "-o", "frobnicate"], "frobnicate"),
        (vec!["up"], "--dir"),
        (vec!["frobnicate"], "unknown command"),
    ] {
        let o = nacre(&args)?;
        let text = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(!o.status.success() && text.contains(part), "nacre {args:?}: {} {text}", o.status);
        ensure!(!text.contains("panicked"), "{text}");
    }
    Ok(())
}

#[test]
fn wipe_removes_everything_it_made() -> Result<()> {
    let fs = TestFs::up("wipe", 1, 1)?;
    std::fs::write(fs.mount(0).join("f"), b"x")?;
    let foreign = fs.dir().join("mine.txt");
    std::fs::write(&foreign, b"not Nacre's")?;
    ok_within(tool("nacre").arg("wipe").arg("--dir").arg(fs.dir()), LIMIT)?;
    let left: Vec<_> = std::fs::read_dir(fs.dir())?.filter_map(|e| Some(e.ok()?.file_name())).collect();
    ensure!(left == ["mine.txt"], "left: {left:?}");
    ensure!(!fs.mount(0).exists(), "the empty mount point is gone too");
    Ok(())
}
