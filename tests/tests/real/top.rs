//! `nacre top` while somebody works: the right job, target and client are shown, as JSON, as text, and on a
//! terminal that is given back.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, fails, lctl, ok_within, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const VARIABLE: &str = "NACRE_TEST_JOB";

/// Writes one file and makes and removes another one, again and again, until it is dropped.
fn load(fs: &TestFs) -> Result<Running> {
    let script =
        "while :; do dd if=/dev/zero of=data bs=1M count=2 conv=fsync,notrunc; touch a; mv a b; rm b; done";
    let mut c = Command::new("sh");
    c.args(["-c", script]).current_dir(fs.mount(0)).env(VARIABLE, "job.A");
    Ok(Running(c.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// The documents of several looks.
fn documents(text: &str) -> Result<Vec<Value>> {
    Ok(serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?)
}

fn row<'a>(doc: &'a Value, view: &str, key: &str, name: &str) -> Option<&'a Value> {
    doc[view].as_array()?.iter().find(|r| r[key] == name)
}

fn number(row: Option<&Value>, key: &str) -> f64 {
    row.and_then(|r| r[key].as_f64()).unwrap_or(0.0)
}

#[test]
fn what_a_load_does_is_shown_at_its_job_target_and_client() -> Result<()> {
    let fs = TestFs::up("top", 2, 1)?;
    lctl(&["set_param", &format!("jobid_var={VARIABLE}")])?;
    stripe_on(&fs.mount(0).join("data"), "1")?;
    let _load = load(&fs)?;
    let [mdt, ost, idle] = ["MDT0000", "OST0001", "OST0000"].map(|t| format!("{}-{t}", fs.fsname()));
    let look = || ok_within(tool("nacre").args(["top", "-b", "-n", "2", "-i", "1", "--json"]), LIMIT);
    wait_until("the load is under way", LIMIT, || {
        let doc = look().ok().and_then(|t| documents(&t).ok()).and_then(|mut d| d.pop()).unwrap_or_default();
        number(row(&doc, "jobs", "job_id", "job.A"), "write_bytes_per_s") > 0.0
    })?;
    let all = documents(&look()?)?;
    ensure!(all.len() == 2, "{all:?}");
    for doc in &all {
        ensure!(doc["missing"].as_array().is_some_and(Vec::is_empty), "{doc}");
        let target = |name: &str| row(doc, "targets", "target", name);
        ensure!(target(&ost).is_some_and(|t| t["state"] == "up"), "{doc:#}");
        ensure!(number(target(&ost), "write_bytes_per_s") > 100_000.0, "{doc:#}");
        ensure!(number(target(&ost), "mean_us") > 0.0 && number(target(&ost), "p99_us") >= 1000.0, "{doc:#}");
        ensure!(number(target(&ost), "full_percent") > 0.0, "{doc:#}");
        ensure!(number(target(&idle), "write_bytes_per_s") == 0.0, "{doc:#}");
        ensure!(number(target(&mdt), "metadata_per_s") > 0.0, "{doc:#}");
        let job = row(doc, "jobs", "job_id", "job.A");
        ensure!(job.is_some_and(|j| j["fsname"] == fs.fsname()), "{doc:#}");
        ensure!(number(job, "write_bytes_per_s") > 100_000.0, "{doc:#}");
        let clients = doc["clients"].as_array().context("clients")?;
        ensure!(clients.iter().any(|c| number(Some(c), "write_bytes_per_s") > 100_000.0), "{doc:#}");
        let writes = |r: &&Value| r["target"] == ost.as_str() && r["operation"] == "write";
        let latency = doc["latencies"].as_array().context("latencies")?.iter().find(writes);
        ensure!(number(latency, "mean_us") > 0.0, "{doc:#}");
    }
    // Piped it is text, in the order that is asked for.
    let args = ["top", "-n", "1", "-i", "1", "-s", "write_bytes_per_s", "-f", "-ost"];
    let text = ok_within(tool("nacre").args(args), LIMIT)?;
    ensure!(!text.contains('\x1b'), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    ensure!(
        lines[0].starts_with("nacre top, targets: ") && lines[1].starts_with("3 targets: read "),
        "{text}"
    );
    ensure!(lines[3].starts_with("TARGET ") && lines[3].contains(">WRITTEN/s"), "{text}");
    ensure!(lines[4].starts_with(&ost) && lines[5].starts_with(&idle) && lines.len() == 7, "{text}");
    let text = ok_within(tool("nacre").args(["top", "-b", "-n", "1", "-v", "latencies"]), LIMIT)?;
    ensure!(text.lines().any(|l| l.starts_with(&mdt) && l.contains(" rename ")), "{text}");
    fails("nacre", &["top", "-v", "osts"], 4, "'osts' is no view: targets, jobs, clients, latencies")?;
    fails("nacre", &["top", "-s", "nothing"], 4, "'nothing' is no column to sort by")
}

#[test]
fn a_terminal_is_as_it_was_after_a_key_and_after_a_signal() -> Result<()> {
    let fs = TestFs::up("topscreen", 1, 1)?;
    let _load = load(&fs)?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real/top.py");
    let program = tool("nacre").get_program().to_os_string();
    let said = ok_within(Command::new("python3").arg(script).arg(program), LIMIT * 2)?;
    let doc: Value = serde_json::from_str(said.trim())?;
    ensure!(doc["raw"] == true && doc["alternate"] == true, "{doc}");
    ensure!(doc["widest"].as_u64().is_some_and(|w| w <= 80), "{doc}");
    let ends = doc["ends"].as_array().context("ends")?;
    for (end, status) in ends.iter().zip([0, 143, 0]) {
        ensure!(end["status"] == status && end["same"] == true && end["left"] == true, "{doc}");
    }
    ensure!(ends.len() == 3, "{doc}");
    Ok(())
}

#[test]
fn where_nothing_is_served_or_mounted_that_is_said() -> Result<()> {
    let o = tool("nacre").args(["top", "-b", "-n", "1"]).output()?;
    ensure!(o.status.code() == Some(2), "{o:?}");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(said.contains("run it on a server or where the file system is mounted"), "{said}");
    Ok(())
}
