//! What is wrong right now, as `lfs status` says it to users and `nacre doctor` to operators.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tests::cluster::{Running, TestFs, kill, ok_within, run_within, stripe_on, tool, wait_until};
use tests::disks::OnDisks;

const LIMIT: Duration = Duration::from_secs(60);
/// What a question may take, whoever is dead; busy machines are slow.
const BOUND: Duration = Duration::from_secs(20);

fn text(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn status(args: &[&str]) -> Result<Output> {
    let start = Instant::now();
    let o = run_within(tool("lfs").arg("status").args(args), LIMIT)?;
    ensure!(start.elapsed() < BOUND, "lfs status took {:?}", start.elapsed());
    Ok(o)
}

fn doctor(args: &[&str]) -> Result<Output> {
    run_within(tool("nacre").arg("doctor").args(args), LIMIT)
}

/// What one check found.
fn found(check: &str) -> Result<Vec<Value>> {
    let v: Value = serde_json::from_slice(&doctor(&["--json"])?.stdout)?;
    let all = v["findings"].as_array().context("no findings")?;
    Ok(all.iter().filter(|f| f["check"] == check).cloned().collect())
}

fn set(name: &str, value: &str) -> Result<()> {
    ok_within(tool("lctl").args(["set_param", &format!("{name}={value}")]), LIMIT).map(drop)
}

#[test]
fn users_are_told_which_target_is_away_and_operators_what_helps() -> Result<()> {
    let fs = TestFs::up("doctor", 3, 1)?;
    let (m, name) = (fs.mount(0), fs.fsname().to_string());
    let path = m.to_str().context("a path")?;
    let o = status(&[path])?;
    ensure!(o.status.code() == Some(0) && text(&o) == format!("{path}: well\n"), "{o:?}");
    let v: Value = serde_json::from_slice(&status(&["--json", path])?.stdout)?;
    ensure!(v[0]["status"] == "well" && v[0]["troubles"] == serde_json::json!([]), "{v}");

    // Ordinary users ask through the mount.
    let mut user = Command::new("setpriv");
    user.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).arg(tests::cluster::bin_dir().join("lfs"));
    let o = run_within(user.args(["status", path]), LIMIT)?;
    ensure!(o.status.code() == Some(0) || text(&o).is_empty(), "{o:?}");

    ensure!(found("targets")?.is_empty() && found("modes")?.is_empty(), "{}", text(&doctor(&[])?));
    ensure!(found("quota")?.is_empty() && found("versions")?.is_empty(), "{}", text(&doctor(&[])?));
    ensure!(found("requests")?.is_empty(), "{}", text(&doctor(&[])?));

    // A file of a target that others may read.
    let superblock = fs.dir().join("ost0000").join("superblock");
    fs::set_permissions(&superblock, fs::Permissions::from_mode(0o644))?;
    let weak = found("modes")?;
    fs::set_permissions(&superblock, fs::Permissions::from_mode(0o600))?;
    ensure!(weak.len() == 1 && weak[0]["object"] == superblock.to_str().unwrap_or(""), "{weak:?}");
    let help = weak[0]["help"].as_str().context("help")?;
    ensure!(help.starts_with("chmod go= "), "{help}");

    // A drill is no accident, and is not forgotten.
    set(&format!("osd-nacre.{name}-OST0001.disk_fault"), "flush=EIO:1@nothing")?;
    let drill = found("errors")?;
    set(&format!("osd-nacre.{name}-OST0001.disk_fault"), "none")?;
    ensure!(drill.len() == 1 && drill[0]["severity"] == "warning", "{drill:?}");

    // A server that is stopped: who waits for it is named with his file.
    let (file, oss) = (m.join("on2"), fs.oss(2)?);
    stripe_on(&file, "2")?;
    fs::write(&file, vec![1u8; 1 << 16])?;
    ok_within(Command::new("sync").arg(&file), LIMIT)?;
    let fid = ok_within(tool("lfs").arg("path2fid").arg(&file), LIMIT)?.trim().to_string();
    set("stuck_request_timeout", "3")?;
    kill(oss, Signal::STOP)?;
    let went_on = (|| {
        let of = format!("of={}", file.display());
        let mut dd = Command::new("dd");
        let _writer =
            Running(dd.args(["if=/dev/zero", &of, "bs=64K", "count=1", "conv=notrunc,fsync"]).spawn()?);
        let waits = |what: &Value| what.to_string().contains(&fid) || what.to_string().contains("object");
        let hangs = || found("requests").is_ok_and(|f| f.iter().any(waits));
        wait_until("the request hangs", LIMIT, hangs)?;
        let o = status(&[path])?;
        ensure!(o.status.code() == Some(1), "{o:?}");
        let begin = format!("{path}: degraded: OST0002 (");
        ensure!(text(&o).starts_with(&begin) && text(&o).contains(" does not answer since "), "{}", text(&o));
        let logged = || {
            let log = fs::read_to_string(fs.dir().join("log").join("mount-1.log")).unwrap_or_default();
            log.contains("wait for too long, the oldest: ")
        };
        wait_until("it is logged", LIMIT, logged)
    })();
    kill(oss, Signal::CONT)?;
    went_on?;
    wait_until("all is well", LIMIT, || status(&[path]).is_ok_and(|o| o.status.code() == Some(0)))?;

    // One that is dead.
    kill(oss, Signal::KILL)?;
    wait_until("it is missed", LIMIT, || status(&[path]).is_ok_and(|o| o.status.code() == Some(1)))?;
    let v: Value = serde_json::from_slice(&status(&["--json", path])?.stdout)?;
    ensure!(v[0]["troubles"][0]["targets"] == serde_json::json!(["OST0002"]), "{v}");
    ensure!(v[0]["troubles"][0]["seconds"].as_i64().is_some(), "{v}");
    let o = doctor(&["--quiet"])?;
    ensure!(o.status.code() == Some(2), "{o:?}");
    ensure!(text(&o).contains(&format!("error: targets: {path}: OST0002 (")), "{}", text(&o));
    ensure!(text(&o).contains("    try: nacre status"), "{}", text(&o));
    fs.up_again()?;
    wait_until("all is well", LIMIT, || status(&[path]).is_ok_and(|o| o.status.code() == Some(0)))?;

    // Deactivated, by an operator.
    set(&format!("osc.{name}-OST0001-*.active"), "0")?;
    let o = status(&[path])?;
    set(&format!("osc.{name}-OST0001-*.active"), "1")?;
    ensure!(o.status.code() == Some(1) && text(&o).contains("is deactivated on this host"), "{o:?}");

    // Without its metadata server nobody gets far, and still there is an answer.
    kill(fs.mds()?, Signal::KILL)?;
    wait_until("it is missed", LIMIT, || status(&[path]).is_ok_and(|o| o.status.code() == Some(2)))?;
    fs.up_again()?;
    wait_until("all is well", LIMIT, || status(&[path]).is_ok_and(|o| o.status.code() == Some(0)))?;
    ensure!(doctor(&["--what"])?.status.code() == Some(4));
    ensure!(status(&["--what"])?.status.code() == Some(4));
    ensure!(doctor(&["/proc"])?.status.code() == Some(2));
    Ok(())
}

#[test]
fn a_full_ost_is_named_and_so_is_that_others_are_not() -> Result<()> {
    let fs = OnDisks::up("docfull", 2, "600m")?;
    let m = fs.mount(0);
    let file = m.join("big");
    stripe_on(&file, "1")?;
    let of = format!("of={}", file.display());
    let _ = run_within(
        Command::new("dd").args(["if=/dev/urandom", &of, "bs=1M", "count=600", "conv=fsync"]),
        LIMIT,
    )?;
    let full = || found("space").is_ok_and(|f| f.iter().any(|s| s["object"] == "docfull-OST0001"));
    wait_until("it is said to be full", LIMIT, full)?;
    let uneven = found("uneven")?;
    ensure!(uneven.len() == 1 && uneven[0]["help"].to_string().contains("nacre rebalance"), "{uneven:?}");
    fs.down()
}
