//! What jobs do: by a variable of their environment, by their session, by their program; and the commands
//! that show it.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const VARIABLE: &str = "NACRE_TEST_JOB";
const MIB: u64 = 1 << 20;

fn set(name: &str, value: &str) -> Result<()> {
    ok_within(tool("lctl").args(["set_param", &format!("{name}={value}")]), LIMIT).map(drop)
}

/// Writes some MiB with dd(1), and waits until they are on disk.
fn dd(file: &Path, mib: u64, job: Option<&str>) -> Result<()> {
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1M", "conv=fsync", &format!("count={mib}")]);
    dd.arg(format!("of={}", file.display())).env_remove(VARIABLE);
    if let Some(job) = job {
        dd.env(VARIABLE, job);
    }
    ok_within(&mut dd, LIMIT).map(drop)
}

/// The jobs that `nacre top jobs` shows, by their ids.
fn top(m: &Path) -> Result<serde_json::Map<String, Value>> {
    let said = ok_within(tool("nacre").args(["top", "jobs", "-n", "100", "--json"]).arg(m), LIMIT)?;
    let doc: Value = serde_json::from_str(&said)?;
    let jobs = doc["file_systems"][0]["jobs"].as_array().context("no jobs")?;
    Ok(jobs.iter().map(|j| (j["job_id"].as_str().unwrap_or("?").to_string(), j.clone())).collect())
}

#[test]
fn jobs_are_told_apart_by_their_environment_session_and_program() -> Result<()> {
    let fs = TestFs::up("jobs", 2, 1)?;
    let m = fs.mount(0);
    dd(&m.join("before"), 1, Some("early"))?;
    set("jobid_var", VARIABLE)?;
    dd(&m.join("a"), 8, Some("job.A"))?;
    dd(&m.join("b"), 3, Some("job.B"))?;
    dd(&m.join("none"), 2, None)?;
    let jobs = top(m)?;
    ensure!(!jobs.contains_key("early"), "job ids were off: {jobs:?}");
    for (id, mib) in [("job.A", 8), ("job.B", 3), ("dd.0", 2)] {
        let j = jobs.get(id).with_context(|| format!("no job {id}: {jobs:?}"))?;
        ensure!(j["write_bytes"] == mib * MIB, "{j}");
        ensure!(j["operations"]["mknod"] == 1, "{j}");
    }
    // The parameter of each kind of target, as Lustre's monitoring reads it.
    let of = |pattern: &str| ok_within(tool("lctl").args(["get_param", "-n", pattern]), LIMIT);
    let (mdt, ost) =
        (format!("mdt.{}-*.job_stats", fs.fsname()), format!("obdfilter.{}-*.job_stats", fs.fsname()));
    ensure!(of(&mdt)?.contains("- job_id:          job.A\n  snapshot_time:   "));
    let bytes = of(&ost)?;
    let sum =
        |l: &&str| l.starts_with("  write_bytes:     { samples: ") && l.contains(" sum:          8388608,");
    ensure!(bytes.lines().filter(sum).count() == 1, "{bytes}");
    // A session's own, set from within it.
    set("jobid_var", "session")?;
    let line = format!(
        "'{0}' lctl set_param jobid_this_session='my job' && dd if=/dev/zero of='{1}' bs=1M count=5 conv=fsync",
        tool("nacre").get_program().to_string_lossy(),
        m.join("s").display()
    );
    ok_within(Command::new("setsid").args(["-w", "sh", "-c", &line]), LIMIT)?;
    dd(&m.join("t"), 1, None)?;
    let jobs = top(m)?;
    ensure!(jobs["my job"]["write_bytes"] == 5 * MIB, "{jobs:?}");
    ensure!(jobs["dd.0"]["write_bytes"] == 2 * MIB, "another session has no job id: {jobs:?}");
    set("jobid_var", "procname_uid")?;
    dd(&m.join("p"), 1, Some("job.A"))?;
    ensure!(top(m)?["dd.0"]["write_bytes"] == 3 * MIB);
    set(&mdt, "clear")?;
    // One of the OSTs has nothing of it, which is said; the other one forgets it.
    ensure!(set(&ost, "job.B").is_err());
    let jobs = top(m)?;
    ensure!(!jobs.contains_key("job.B") && jobs["job.A"]["operations"].get("mknod").is_none(), "{jobs:?}");
    Ok(())
}

#[test]
fn lljobstat_shows_the_busiest_jobs_until_it_is_interrupted() -> Result<()> {
    let fs = TestFs::up("lljobstat", 1, 1)?;
    let m = fs.mount(0);
    let none = tool("lljobstat").args(["--param", "mdt.nothing.job_stats", "-n", "1"]).output()?;
    ensure!(none.status.code() == Some(2), "{none:?}");
    set("jobid_var", VARIABLE)?;
    dd(&m.join("a"), 8, Some("job.A"))?;
    let said = ok_within(tool("lljobstat").args(["-n", "2", "-i", "1", "-c", "1"]), LIMIT)?;
    let documents: Vec<&str> = said.split_terminator("...\n").collect();
    ensure!(documents.len() == 2, "{said}");
    for d in documents {
        let lines: Vec<&str> = d.lines().collect();
        ensure!(lines.len() == 4 && lines[0] == "---" && lines[2] == "top_jobs:", "{d}");
        ensure!(
            lines[1].starts_with("timestamp: 1") && lines[3].starts_with("- job.A:           {ops: "),
            "{d}"
        );
        ensure!(lines[3].contains(", mn: 1") && lines[3].contains(", wr: "), "{d}");
    }
    let osts = ok_within(tool("lljobstat").args(["-n", "1", "-o", "--fullname"]), LIMIT)?;
    ensure!(osts.contains(", write: ") && !osts.contains("mknod"), "{osts}");
    let text = ok_within(tool("nacre").args(["top", "jobs"]).arg(m), LIMIT)?;
    ensure!(text.lines().nth(1).is_some_and(|l| l.starts_with("job.A ")), "{text}");
    for mut command in [tool("lljobstat"), tool("nacre")] {
        if command.get_program().to_string_lossy().ends_with("/nacre") && command.get_args().next().is_none()
        {
            command.args(["top", "jobs", "--interval", "1"]).arg(m);
        }
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let first = BufReader::new(child.stdout.take().context("piped")?).lines().next();
        ensure!(first.context("no output")??.len() > 2);
        kill(child.id() as i32, Signal::INT)?;
        let mut status = None;
        wait_until("it ends", Duration::from_secs(10), || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        })?;
        // Nobody reads its output any more: that may end it as well.
        ensure!(matches!(status.and_then(|s| s.code()), Some(130 | 1)), "{status:?}");
    }
    Ok(())
}
