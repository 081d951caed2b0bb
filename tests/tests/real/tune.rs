//! `nacre tune` on a host of its own: settings of its network are found, set and put back, and parameters
//! of a mount.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tests::cluster::{Scratch, TestFs, fails, lctl, ok_within, run_within, tool};

const LIMIT: Duration = Duration::from_secs(60);
const WMEM: &str = "/proc/sys/net/ipv4/tcp_wmem";
/// What belongs to this test's network alone: the rest is the whole machine's.
const ONLY: &str = "net.ipv4.tcp_rmem,net.ipv4.tcp_wmem,net.ipv4.tcp_mtu,osc.";

fn tune(args: &[&str], state: &Path) -> Result<(i32, Value)> {
    let mut c = tool("nacre");
    c.arg("tune").args(args).arg("--json");
    if !args.contains(&"--check") {
        c.arg("--state").arg(state);
    }
    let o = run_within(&mut c, LIMIT)?;
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    let doc = serde_json::from_str(&said).with_context(|| format!("{args:?}: {o:?}"))?;
    Ok((o.status.code().context("a status")?, doc))
}

fn value<'a>(doc: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    doc[list].as_array()?.iter().find(|v| v["name"].as_str().is_some_and(|n| n.starts_with(name)))
}

#[test]
fn what_a_profile_wants_is_set_and_put_back() -> Result<()> {
    let fs = TestFs::up("tune", 1, 1)?;
    let scratch = Scratch::new("tune-state");
    let state = scratch.path().join("state");
    std::fs::write(WMEM, "4096 16384 4194304")?;
    std::fs::write("/proc/sys/net/ipv4/tcp_mtu_probing", "0")?;
    let wan = ["--profile", "wan", "--only", ONLY];
    let check = || tune(&[&["--check"][..], &wan].concat(), &state);
    let (status, doc) = check()?;
    ensure!(status == 1 && doc["as_wanted"] == false, "{doc:#}");
    let wmem = value(&doc, "values", "net.ipv4.tcp_wmem").context("no tcp_wmem")?;
    ensure!(
        wmem["as_wanted"] == false && wmem["why"].as_str().is_some_and(|w| w.contains("round trip")),
        "{wmem}"
    );
    ensure!(
        wmem["undo"].as_str().is_some_and(|u| u.starts_with("sysctl -w net.ipv4.tcp_wmem='4096")),
        "{wmem}"
    );
    let flight = value(&doc, "values", "osc.").context("no parameter of the mount")?;
    ensure!(flight["now"].is_string(), "{flight}");
    let before = lctl(&["get_param", "osc.*.max_rpcs_in_flight"])?;
    let (status, doc) = tune(&[&["--apply"][..], &wan].concat(), &state)?;
    ensure!(status == 0, "{doc:#}");
    ensure!(std::fs::read_to_string(WMEM)?.trim().ends_with("\t134217728"));
    ensure!(lctl(&["get_param", "-n", "osc.*.max_rpcs_in_flight"])?.trim() == "64");
    let (status, doc) = check()?;
    ensure!(status == 0 && doc["as_wanted"] == true, "{doc:#}");
    // Somebody else has his own thoughts of one of them meanwhile.
    std::fs::write("/proc/sys/net/ipv4/tcp_mtu_probing", "2")?;
    let (status, doc) = tune(&["--undo"], &state)?;
    ensure!(status == 0, "{doc:#}");
    let left = value(&doc, "undone", "net.ipv4.tcp_mtu_probing").context("it is told")?;
    ensure!(left["outcome"] == "left" && left["now"] == "2", "{left}");
    ensure!(std::fs::read_to_string(WMEM)?.trim().ends_with("\t4194304"));
    ensure!(lctl(&["get_param", "osc.*.max_rpcs_in_flight"])? == before);
    let dir = state.display().to_string();
    fails("nacre", &["tune", "--undo", "--state", &dir], 2, "nothing was applied, or all of it is undone")?;
    // All of it, with the disks under targets; a folder without a target is refused.
    let text = tool("nacre").args(["tune", "--check", "--profile", "throughput"]).output()?;
    ensure!(matches!(text.status.code(), Some(0 | 1)), "{text:?}");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.lines().any(|l| l.contains("net.ipv4.tcp_rmem")), "{text}");
    let stray = scratch.path().display().to_string();
    fails("nacre", &["tune", "--check", "--profile", "iops", &stray], 22, "disks of others are left alone")?;
    ensure!(!fs.dir().join("ost0000/tune.flush").exists(), "what was flushed is gone");
    Ok(())
}

#[test]
fn a_plan_needs_no_file_system() -> Result<()> {
    let site =
        "plan --servers 20 --disks 24 --disk-size 16T --disk-rate 250M --net 100G --clients 400 --raid 8+2";
    let args: Vec<&str> = site.split(' ').collect();
    let doc: Value = serde_json::from_str(&ok_within(tool("nacre").args(&args).arg("--json"), LIMIT)?)?;
    ensure!(doc["read"]["bound_by"] == "disks" && doc["osts"] == 40, "{doc:#}");
    let text = ok_within(tool("nacre").args(&args), LIMIT)?;
    ensure!(text.starts_with("OSTs                   40 (2 a server, 8+2)\n"), "{text}");
    let few: Vec<&str> = [&args[..], &["--disks", "8"]].concat();
    fails("nacre", &few, 22, "--raid 8+2 takes 10 disks of one server, and it has 8: --raid 6+2 fits")
}
