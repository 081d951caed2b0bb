//! OSTs that get no new objects for a while: new files go elsewhere, and the log says it once.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, sh, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn set(name: &str, value: &str) -> Result<()> {
    ok_within(tool("lctl").args(["set_param", &format!("{name}={value}")]), LIMIT).map(drop)
}

/// How often the servers' logs have these words.
fn logged(fs: &TestFs, words: &str) -> Result<usize> {
    let line = format!("(grep -rhF '{words}' {} --include='*.log' || true) | wc -l", fs.dir().display());
    Ok(sh(&line, LIMIT)?.trim().parse()?)
}

#[test]
fn an_ost_that_cannot_or_should_not_take_objects_is_passed_over_and_the_log_says_so_once() -> Result<()> {
    let fs = TestFs::up("passed", 3, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    let osp = format!("osp.{ost}-osc-MDT0000");
    set(&format!("lod.{}-*.qos_maxage", fs.fsname()), "1")?;
    let why = || {
        let o = tool("lctl").args(["get_param", "-n", &format!("{osp}.passed_over")]).output();
        o.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_string())
    };
    let becomes = |words: &str| wait_until(&format!("it is '{words}'"), LIMIT, || why() == words);
    let used = |name: &str| -> Result<bool> {
        let mut used = false;
        for n in 0..6 {
            let file = m.join(format!("{name}{n}"));
            ok_within(tool("lfs").args(["setstripe", "-c", "1"]).arg(&file), LIMIT)?;
            used |= ok_within(tool("lfs").args(["getstripe", "-i"]).arg(&file), LIMIT)?.trim() == "1";
        }
        Ok(used)
    };
    becomes("")?;
    ensure!(used("before")?, "six files go to three OSTs");
    for (param, words) in [
        (format!("obdfilter.{ost}.degraded"), "degraded"),
        (format!("obdfilter.{ost}.no_create"), "set to no_create"),
        (format!("obdfilter.{ost}.readonly"), "read-only"),
    ] {
        set(&param, "1")?;
        becomes(words)?;
        ensure!(!used(&format!("{}-", words.replace(' ', "-")))?, "{words}");
        set(&param, "0")?;
        becomes("")?;
        ensure!(logged(&fs, &format!("it is {words}"))? == 1, "{words} is said once");
    }
    // Its server is stopped: it does not answer, until it goes on.
    let status = fs.status()?;
    let all = status["processes"].as_array().context("no processes")?;
    let server = all.iter().find(|p| p["targets"].to_string().contains(&ost)).context("no server of it")?;
    let pid = server["pid"].as_i64().context("a pid")? as i32;
    // On a busy machine it may have been late before.
    let begins = format!("{ost} takes no new objects: it is not answering");
    let before = logged(&fs, &begins)?;
    kill(pid, Signal::STOP)?;
    let gone = becomes("not answering");
    let elsewhere = used("gone");
    kill(pid, Signal::CONT)?;
    gone?;
    ensure!(!elsewhere?, "nobody waits for it");
    becomes("")?;
    let (said, again) = (logged(&fs, &begins)?, logged(&fs, &format!("{ost} takes new objects again"))?);
    ensure!(said > before && again > 3, "once for each: {before}, {said} and {again}");
    ensure!(used("after")?);
    Ok(())
}
