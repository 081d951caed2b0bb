//! What targets record of themselves, and who reads it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tests::cluster::{TestFs, fails, lctl, nacre, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn lines(args: &[&str]) -> Result<Vec<Value>> {
    let text = nacre(&[&["history", "--json"], args].concat())?;
    text.lines().map(|l| serde_json::from_str(l).with_context(|| l.to_string())).collect()
}

#[test]
fn targets_record_files_space_and_requests_and_know_them_after_a_restart() -> Result<()> {
    let t = TestFs::up("history", 2, 1)?;
    lctl(&["set_param", "history_interval=1"])?;
    std::fs::write(t.mount(0).join("f"), vec![7; 3_000_000])?;
    let targets = || -> Result<BTreeSet<String>> {
        let busy = |l: &&Value| l["requests"].as_u64() > Some(0) && l["bytes_total"].as_u64() > Some(0);
        let all = lines(&[])?;
        Ok(all.iter().filter(busy).filter_map(|l| l["target"].as_str().map(String::from)).collect())
    };
    wait_until("all targets recorded requests", LIMIT, || targets().is_ok_and(|t| t.len() == 3))?;
    let ost = format!("{}-OST0001", t.fsname());
    let before = lines(&[&ost])?;
    ensure!(before.iter().all(|l| l["target"] == ost.as_str()), "only that one: {before:?}");
    ensure!(before.iter().any(|l| l["files_used"].as_u64() > Some(0)), "{before:?}");
    let first = before[0]["time"].as_str().context("a time")?.to_string();
    ensure!(nacre(&["history", "-d", &ost])?.lines().count() == 2, "a head and a day");
    ensure!(nacre(&["history", "-j", &ost])?.lines().count() == 1, "nothing jumped");
    fails("nacre", &["history", "nobody-OST0000"], 19, &ost)?;
    fails("nacre", &["history", "-s", "yesterday"], 4, "30s, 10m")?;

    let file = t.dir().join("ost0001/history");
    let mode = std::fs::metadata(&file).with_context(|| file.display().to_string())?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    t.down()?;
    t.up_again()?;
    wait_until("it is known again", LIMIT, || {
        lines(&[&ost]).is_ok_and(|l| l.first().is_some_and(|l| l["time"] == first.as_str()))
    })?;
    t.down()?;
    t.fsck()
}
