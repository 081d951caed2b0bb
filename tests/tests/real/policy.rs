//! A purge at a high fill: who is told, what goes in which order, what stays, and that a run that was killed
//! goes on with its list.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tests::cluster::{Running, kill, ok_within, run_within, tool, wait_until};
use tests::disks::OnDisks;

const LIMIT: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86400);
const MIB: usize = 1 << 20;

/// A file that nobody has read for so many days.
fn make(path: &Path, uid: u32, days: u32, mib: usize) -> Result<()> {
    fs::create_dir_all(path.parent().context("it has one")?)?;
    fs::write(path, vec![days as u8; mib * MIB])?;
    std::os::unix::fs::chown(path, Some(uid), Some(uid))?;
    let then = SystemTime::now() - DAY * days;
    let f = File::options().write(true).open(path)?;
    Ok(f.set_times(FileTimes::new().set_accessed(then).set_modified(then))?)
}

/// Percent of the object target that are used, as `lfs df` has it.
fn used(mount: &Path) -> Result<u64> {
    let text = ok_within(tool("lfs").arg("df").arg(mount), LIMIT)?;
    let line = text.lines().find(|l| l.starts_with("filesystem_summary")).context("no summary")?;
    let percent = line.split_whitespace().find_map(|w| w.strip_suffix('%')).context("no percent")?;
    Ok(percent.parse()?)
}

pub(crate) struct Policy {
    pub file: PathBuf,
    pub state: PathBuf,
}

impl Policy {
    pub fn command(&self, what: &str) -> Command {
        let mut c = tool("nacre");
        c.args(["policy", what]).arg("--state").arg(&self.state);
        if what == "run" {
            c.arg(&self.file);
        }
        c
    }

    pub fn json(&self, args: &[&str]) -> Result<Value> {
        self.json_within(args, LIMIT)
    }

    pub fn json_within(&self, args: &[&str], limit: Duration) -> Result<Value> {
        let text = ok_within(self.command(args[0]).args(&args[1..]).arg("--json"), limit)?;
        Ok(serde_json::from_str(&text)?)
    }

    pub fn listed(&self, rule: &str) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.state.join(format!("{rule}.deleted")))?;
        text.lines().map(|l| Ok(serde_json::from_str(l)?)).collect()
    }
}

/// Names of files below the directory, of JSON rows that have their paths.
fn names(rows: &Value, below: &Path) -> Vec<String> {
    let name = |r: &Value| {
        let path = Path::new(r["path"].as_str().unwrap_or_default());
        path.strip_prefix(below).unwrap_or(path).display().to_string()
    };
    rows.as_array().into_iter().flatten().map(name).collect()
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

/// The rules of a site for this fill.
fn rules(mount: &Path, tell: &Path, (warn, above, until): (u64, u64, u64)) -> String {
    format!(
        "directory = {}\n\
         [tell]\nwhen space > {warn}%\npath = scratch/*\naccessed > 20d\nexempt user = 4003\naction = notify\n\
         command = {}\nusers = 2\n\
         [purge]\nwhen space > {above}% until {until}%\npath = scratch/*\naccessed > 30d\n\
         exempt user = 4003\nexempt path = scratch/keep/* and size < 1G\norder = accessed\naction = purge\n",
        mount.display(),
        tell.display()
    )
}

#[test]
fn a_purge_tells_the_heaviest_deletes_the_oldest_and_goes_on_after_a_kill() -> Result<()> {
    let s = OnDisks::up("policy", 1, "400m")?;
    let (a, b) = (s.mount(0), s.mount(1));
    let before = used(&a)?;
    ok_within(tool("lfs").args(["setstripe", "-c", "1"]).arg(&a), LIMIT)?;
    for (name, uid, days, mib) in [
        ("scratch/u1/f90", 4001, 90, 20),
        ("scratch/u1/f80", 4001, 80, 20),
        ("scratch/u2/f95", 4002, 95, 20),
        ("scratch/u2/f70", 4002, 70, 20),
        ("scratch/u2/f60", 4002, 60, 20),
        ("scratch/u2/f25", 4002, 25, 40),
        ("scratch/u4/f50", 4004, 50, 10),
        ("scratch/u3/exempt", 4003, 400, 20),
        ("scratch/keep/f300", 4001, 300, 10),
        ("home/f500", 4001, 500, 10),
    ] {
        make(&b.join(name), uid, days, mib)?;
    }
    ok_within(tool("lfs").arg("sync").arg(&b), LIMIT)
        .or_else(|_| ok_within(&mut Command::new("sync"), LIMIT))?;
    let full = used(&a)?;
    ensure!(full >= before + 35, "{full}% are used, before {before}%");

    let (p, told) =
        (Policy { file: s.dir().join("policy.conf"), state: s.dir().join("policy") }, s.dir().join("told"));
    let tell = s.dir().join("tell");
    fs::write(&tell, format!("#!/bin/sh\n(echo \"to $1\"; cat) >> {}\n", told.display()))?;
    fs::set_permissions(&tell, fs::Permissions::from_mode(0o755))?;
    // 50 MiB are to go: 20 of each of the oldest, of which somebody has one open.
    let until = full - 12;
    fs::write(&p.file, rules(&a, &tell, (full - 2, full - 1, until)))?;
    ok_within(tool("nacre").args(["policy", "check"]).arg(&p.file), LIMIT)?;

    let dry = p.json(&["run", "--dry-run"])?;
    let planned = names(&dry["rules"][1]["files"], &a);
    let order = ["scratch/u2/f95", "scratch/u1/f90", "scratch/u1/f80", "scratch/u2/f70", "scratch/u2/f60"];
    ensure!(
        planned.len() >= 2 && order.starts_with(&planned.iter().map(String::as_str).collect::<Vec<_>>()),
        "{planned:?}"
    );
    ensure!(a.join(&planned[0]).exists() && !told.exists(), "a dry run does nothing");

    let open = File::open(b.join("scratch/u1/f90"))?;
    let done = p.json(&["run"])?;
    let result = &done["rules"][1]["result"];
    ensure!(result["open"] == 1 && result["failed"] == 0, "{done}");
    ensure!(result["done"].as_u64() == Some(planned.len() as u64 - 1), "{done}");
    drop(open);
    let letters = fs::read_to_string(&told)?;
    let to: Vec<&str> = letters.lines().filter(|l| l.starts_with("to ")).collect();
    ensure!(to == ["to 4002", "to 4001"], "{letters}");
    ensure!(letters.contains("4002: 4 files of ") && letters.contains("4001: 3 files of 50.0M"), "{letters}");

    let expected: Vec<&String> = planned.iter().filter(|n| *n != "scratch/u1/f90").collect();
    let list = p.listed("purge")?;
    ensure!(names(&Value::Array(list.clone()), &a).iter().eq(expected.iter().copied()), "{list:?}");
    ensure!(list[0]["uid"] == 4002 && list[0]["size"] == 20 * MIB && list[0]["certain"] == true, "{list:?}");
    for mount in [&a, &b] {
        ensure!(expected.iter().all(|n| !mount.join(n).exists()), "what is listed is gone");
        for kept in
            ["scratch/u1/f90", "scratch/u2/f25", "scratch/u3/exempt", "scratch/keep/f300", "home/f500"]
        {
            ensure!(mount.join(kept).exists(), "{kept} stays");
        }
    }

    // Without a threshold all that fits goes, one each second: a kill leaves a list to go on with.
    let all = rules(&a, &tell, (99, 99, 99)).replace("when space > 99% until 99%", "rate = 1");
    fs::write(&p.file, &all)?;
    let mut run = Running(p.command("run").stdout(Stdio::null()).spawn()?);
    wait_until("one file is gone", LIMIT, || !a.join("scratch/u1/f90").exists())?;
    kill(run.0.id() as i32, Signal::KILL)?;
    run.0.wait()?;
    let standing = p.json(&["status"])?;
    ensure!(standing["running"] == false && standing["runs"][0]["over"].as_u64() >= Some(1), "{standing}");
    // Read meanwhile: it is not purged any more.
    fs::read(b.join("scratch/u4/f50"))?;
    make(&b.join("scratch/late"), 4001, 900, 1)?;
    let done = p.json(&["run"])?;
    ensure!(done["rules"][1]["resumed"] == true && done["rules"][1]["result"]["changed"] == 1, "{done}");
    ensure!(a.join("scratch/u4/f50").exists() && a.join("scratch/late").exists(), "{done}");
    ensure!(order.iter().all(|n| !a.join(n).exists()), "the others are gone");

    fs::remove_file(b.join("scratch/late"))?;
    let (again, count) = (run_within(&mut p.command("run"), LIMIT)?, p.listed("purge")?.len());
    ensure!(
        again.status.success() && text(&again).contains("purge: purged 0 files of 0"),
        "{}",
        text(&again)
    );
    ensure!(p.listed("purge")?.len() == count, "a second run does nothing");
    let dirs = ok_within(tool("nacre").args(["top", "dirs", "--depth", "2", "-n", "1"]).arg(&a), LIMIT)?;
    ensure!(dirs.lines().nth(1).is_some_and(|l| l.ends_with(" scratch/u2") && l.contains("40.0M")), "{dirs}");
    s.down()
}
