//! Failure domains: targets are placed, and stripes go to different hosts and racks.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, run_within, tool};

const LIMIT: Duration = Duration::from_secs(60);
/// Where each OST stands; nobody places the last one.
const PLACES: [&str; 5] = ["rack1/host1", "rack1/host1", "rack1/host2", "rack2/host3", "rack2/host3"];

/// OSTs of a file's objects, in order.
fn osts(file: &Path) -> Result<Vec<usize>> {
    let table = ok_within(tool("lfs").args(["getstripe", "-q"]).arg(file), LIMIT)?;
    let first = |l: &str| l.split_whitespace().next().and_then(|w| w.parse().ok());
    Ok(table.lines().filter_map(first).collect())
}

fn made(dir: &Path, name: &str, stripes: usize) -> Result<Vec<usize>> {
    let file = dir.join(name);
    ok_within(tool("lfs").args(["setstripe", "-c", &stripes.to_string()]).arg(&file), LIMIT)?;
    let on = osts(&file)?;
    ensure!(on.len() == stripes, "{name} has objects on {on:?}");
    Ok(on)
}

fn tree(fs: &TestFs) -> Result<Value> {
    let text = ok_within(tool("nacre").args(["domains", "--json"]).arg(fs.mount(0)), LIMIT)?;
    let all: Value = serde_json::from_str(&text)?;
    Ok(all[0]["tree"].clone())
}

/// The one of this name among the domains in it.
fn within(domain: &Value, name: &str) -> Result<Value> {
    let all = domain["domains"].as_array().context("no domains")?;
    all.iter().find(|d| d["name"] == name).cloned().with_context(|| format!("no {name} in {domain}"))
}

fn place(fs: &TestFs, ost: usize, domain: &str) -> Result<()> {
    let dir = fs.dir().join(format!("ost{ost:04x}"));
    let said = ok_within(tool("tunefs.nacre").arg(format!("--domain={domain}")).arg(&dir), LIMIT)?;
    ensure!(domain.is_empty() || said.contains(&format!("domain={domain}")), "{said}");
    Ok(())
}

#[test]
fn stripes_of_a_file_lie_on_different_hosts_and_racks_as_targets_were_placed() -> Result<()> {
    let fs = TestFs::up("domains", 6, 1)?;
    let root = tree(&fs)?;
    ensure!(root["domains"].as_array().is_some_and(|d| d.len() >= 6), "each in its server: {root}");
    fs.down()?;
    for (ost, domain) in PLACES.iter().enumerate() {
        place(&fs, ost, domain)?;
    }
    let wrong = tool("tunefs.nacre").args(["--domain=rack 1/host"]).arg(fs.dir().join("ost0005")).output()?;
    ensure!(wrong.status.code() == Some(22), "{wrong:?}");
    fs.up_again()?;

    let root = tree(&fs)?;
    let host1 = within(&within(&root, "rack1")?, "host1")?;
    let targets: Vec<_> =
        host1["targets"].as_array().context("targets")?.iter().map(|t| &t["target"]).collect();
    ensure!(targets == ["OST0000", "OST0001"], "{host1}");
    ensure!(host1["total_bytes"].as_u64() > Some(0), "{host1}");
    ensure!(root["total_bytes"] == host1["total_bytes"], "one disk, once: {root}");
    let text = ok_within(tool("nacre").args(["domains"]).arg(fs.mount(0)), LIMIT)?;
    ensure!(text.contains("\n  rack2 ") && text.contains("\n    host3 "), "{text}");
    let bad = run_within(tool("nacre").args(["domains", "/proc"]), LIMIT)?;
    ensure!(bad.status.code() == Some(25), "{bad:?}");

    let host = |ost: &usize| PLACES.get(*ost).copied().unwrap_or("elsewhere");
    let rack = |ost: &usize| host(ost).split('/').next().unwrap_or_default();
    let m = fs.mount(0);
    // By turns, and by weight.
    for threshold in ["100", "0"] {
        let qos = format!("lod.{}-*.qos_threshold_rr={threshold}", fs.fsname());
        ok_within(tool("lctl").args(["set_param", &qos]), LIMIT)?;
        for n in 0..8 {
            for stripes in 2..=6usize {
                let on = made(m, &format!("f{threshold}-{n}-{stripes}"), stripes)?;
                let (hosts, racks) = (on.iter().map(host), on.iter().map(rack));
                let (hosts, racks): (BTreeSet<_>, BTreeSet<_>) = (hosts.collect(), racks.collect());
                ensure!(hosts.len() == stripes.min(4), "{stripes} stripes on {on:?}");
                ensure!(racks.len() == stripes.min(3), "{stripes} stripes on {on:?}");
            }
        }
    }

    // What was placed is moved, and taken out again.
    fs.down()?;
    place(&fs, 0, "rack2/host4")?;
    place(&fs, 1, "")?;
    fs.up_again()?;
    let root = tree(&fs)?;
    within(&within(&root, "rack2")?, "host4")?;
    ensure!(within(&within(&root, "rack1")?, "host1").is_err(), "{root}");
    Ok(())
}
