//! `nacre bench` as its users start it: processes of its own, on a mount, on two mounts of one file system.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;
use tests::cluster::{Scratch, TestFs, kill, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(120);

fn bench(line: &str, dirs: &str) -> Result<Output> {
    run_within(tool("nacre").arg("bench").args(line.replace("DIRS", dirs).split_whitespace()), LIMIT)
}

fn json(line: &str, dirs: &str) -> Result<Value> {
    let words = format!("{line} --json").replace("DIRS", dirs);
    let text = ok_within(tool("nacre").arg("bench").args(words.split_whitespace()), LIMIT)?;
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

fn is_empty(dir: &Path) -> Result<bool> {
    Ok(std::fs::read_dir(dir)?.next().is_none())
}

/// Workers of this host that were started by `leader`.
fn workers(leader: u32) -> Result<Vec<i32>> {
    let mut out = Vec::new();
    for e in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = e.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let stat = std::fs::read_to_string(e.path().join("stat")).unwrap_or_default();
        let mut rest = stat.rsplit(") ").next().unwrap_or("").split(' ');
        let (state, parent) = (rest.next().unwrap_or("Z"), rest.next().unwrap_or(""));
        if state != "Z" && parent == leader.to_string() {
            out.push(pid);
        }
    }
    Ok(out)
}

#[test]
fn loads_on_a_mount_are_right_and_leave_nothing() -> Result<()> {
    let fs = TestFs::up("bench", 2, 2)?;
    let both = format!("{},{}", fs.mount(0).display(), fs.mount(1).display());
    // records of all processes between each other, each process on a mount of its own, read by the other
    let doc = json("-np 2 ior -t 47008 -b 47008 -s 40 -e -C -R --dirs DIRS", &both)?;
    for (row, phase) in doc["rows"].as_array().context("rows")?.iter().zip(["write", "read"]) {
        ensure!(row["phase"] == phase && row["bytes"] == 47_008 * 80 && row["wrong"] == 0, "{row}");
    }
    let doc = json("-np 3 ior -F -t 4k -b 256k -z -B -C -R --dirs DIRS", &both)?;
    ensure!(doc["rows"][1]["steps"] == 192 && doc["rows"][1]["wrong"] == 0, "{doc}");
    let doc = json("-np 2 mdtest -n 40 -z 1 -b 2 -N 1 -w 3901 -e 3901 -X --dirs DIRS", &both)?;
    let rows = doc["rows"].as_array().context("rows")?;
    ensure!(rows.len() == 9 && rows.iter().all(|r| r["wrong"] == 0), "{doc}");
    ensure!(rows.iter().filter(|r| r["steps"] == 80).count() == 7, "{doc}");
    let doc = json(
        "-np 2 io500 --seconds 0.5 --easy-block 8m --hard-files 50 --easy-files 50 --hard-segments 50 DIRS",
        &fs.mount(0).display().to_string(),
    )?;
    ensure!(doc["score"]["total"].as_f64().is_some_and(|s| s > 0.0), "{doc}");
    ensure!(is_empty(fs.mount(0))?, "everything was removed");
    fs.fsck()
}

#[test]
fn scripts_for_ior_and_mdtest_find_their_words() -> Result<()> {
    let s = Scratch::new("benchwords");
    let dir = s.path().display().to_string();
    let st = format!("-O stoneWallingWearOut=1 -O stoneWallingStatusFile={dir}/st");
    let o = bench(&format!("-np 2 ior -a POSIX -F -t 64k -b 16m -e -k -w -D 1 {st} -o DIRS/f"), &dir)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    let rate = text.lines().find(|l| l.starts_with("write ")).and_then(|l| l.split_whitespace().nth(1));
    ensure!(o.status.success() && rate.is_some_and(|r| r.parse::<f64>().is_ok_and(|r| r > 0.0)), "{text}");
    ensure!(text.contains("Max Write: "), "{text}");
    let o = bench(&format!("-np 2 ior -F -t 64k -b 16m -C -Q 1 -k -r {st} -o DIRS/f"), &dir)?;
    ensure!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let o = bench("-np 2 mdtest -n 50 -u -L -F -P -N 1 -d DIRS/md", &dir)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    for row in ["File creation", "File stat", "File read", "File removal"] {
        let line = text.lines().find(|l| l.trim_start().starts_with(row)).context(text.clone())?;
        let first = line.split_whitespace().nth(2).context("a number")?;
        ensure!(first.parse::<f64>()? > 0.0, "{line}");
    }
    Ok(())
}

#[test]
fn an_interrupted_run_takes_its_processes_and_files_along() -> Result<()> {
    let s = Scratch::new("benchint");
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = tool("nacre")
            .args(["bench", "-np", "3", "ior", "-F", "-t", "4k", "-b", "1m", "-i", "1000000", "-Y", "-w"])
            .arg(s.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let leader = child.id();
        let busy =
            || workers(leader).is_ok_and(|w| w.len() == 3) && is_empty(s.path()).is_ok_and(|empty| !empty);
        let started = wait_until("three workers with files", LIMIT, busy);
        let pids = workers(leader)?;
        kill(leader as i32, signal)?;
        let mut code = None;
        let ended = wait_until("its end", LIMIT, || {
            code = child.try_wait().ok().flatten();
            code.is_some()
        });
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        started?;
        ended?;
        ensure!(code.and_then(|c| c.code()) == Some(130), "{code:?}");
        ensure!(pids.iter().all(|p| !tests::cluster::alive(*p)), "a worker lives on");
        ensure!(is_empty(s.path())?, "a file is left");
    }
    Ok(())
}

#[test]
fn workers_do_not_outlive_a_killed_leader() -> Result<()> {
    let s = Scratch::new("benchkill");
    let mut child = tool("nacre")
        .args(["bench", "-np", "2", "ior", "-F", "-t", "4k", "-b", "1g", "-Y", "-w"])
        .arg(s.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let started = wait_until("two workers", LIMIT, || workers(child.id()).is_ok_and(|w| w.len() == 2));
    let pids = workers(child.id())?;
    child.kill()?;
    child.wait()?;
    started?;
    wait_until("the workers' end", LIMIT, || pids.iter().all(|p| !tests::cluster::alive(*p)))
}
