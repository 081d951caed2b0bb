//! The configuration as data with versions, and permanent parameters on all nodes.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};
use tests::cluster::{Running, Scratch, TestFs, kill, ok_within, run_within, tool, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(30);

fn run(line: &str) -> Result<Output> {
    let mut words = line.split_whitespace();
    run_within(tool(words.next().context("a command")?).args(words), LIMIT)
}

/// Exit 0; what it printed.
fn ok(line: &str) -> Result<String> {
    let o = run(line)?;
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.success(), "{line}: {}\n{out}{err}", o.status);
    Ok(out.into_owned())
}

/// This exit status, these words on standard error.
fn fails(line: &str, code: i32, part: &str) -> Result<()> {
    let o = run(line)?;
    let err = String::from_utf8_lossy(&o.stderr);
    ensure!(o.status.code() == Some(code), "{line}: {} instead of {code}\n{err}", o.status);
    ensure!(err.contains(part), "{line} does not say '{part}':\n{err}");
    Ok(())
}

fn json(line: &str) -> Result<Value> {
    Ok(serde_json::from_str(&ok(line)?)?)
}

fn version() -> Result<u64> {
    json("nacre config show --json")?["version"].as_u64().context("a version")
}

/// The different values that everybody on this host shows, and how many show one.
fn values(pattern: &str) -> Result<(BTreeSet<String>, usize)> {
    let all = ok(&format!("lctl get_param -n {pattern}"))?;
    let all: Vec<String> = all.lines().map(str::to_string).collect();
    Ok((all.iter().cloned().collect(), all.len()))
}

#[test]
fn the_configuration_is_shown_compared_taken_back_and_imported() -> Result<()> {
    let fs = TestFs::up("config", 3, 1)?;
    let f = fs.fsname();
    let first = version()?;
    ok(&format!("lctl set_param -P llite.{f}-*.statfs_max_age=7"))?;
    ok(&format!("lctl pool_new {f}.flash"))?;
    ok(&format!("lctl pool_add {f}.flash OST0000 OST0002"))?;
    let filled = version()?;
    ok(&format!("lctl set_param -P llite.{f}-*.statfs_max_age=9"))?;
    ok(&format!("lctl pool_remove {f}.flash OST0002"))?;
    let show = ok("nacre config show")?;
    for part in [
        format!("file system {f}  uuid "),
        format!("  {f}-MDT0000  active  "),
        "  pool flash: OST0000\n".into(),
        format!("  llite.{f}-*.statfs_max_age=9   (version {}, ", filled + 1),
        ", MGS host)\n".into(),
    ] {
        ensure!(show.contains(&part), "'{part}' is not in\n{show}");
    }
    let history = ok("nacre config history -n 2")?;
    let lines: Vec<&str> = history.lines().collect();
    ensure!(lines[0].starts_with(&format!("version {}  ", filled + 1)), "{history}");
    ensure!(lines[0].ends_with("  MGS host  set_param -P"), "{history}");
    ensure!(lines[1] == format!("  ~ llite.{f}-*.statfs_max_age: 7 -> 9"), "{history}");
    ensure!(lines[3] == format!("  ~ pool {f}.flash: OST0000 OST0002 -> OST0000"), "{history}");
    let registered = json("nacre config history --json")?["versions"][0].clone();
    ensure!(registered["how"] == "register" && registered["by"].as_str().is_some(), "{registered}");
    let diff = ok(&format!("nacre config diff {first} {filled}"))?;
    ensure!(
        diff == format!("+ llite.{f}-*.statfs_max_age=7\n+ pool {f}.flash: OST0000 OST0002\n"),
        "diff prints\n{diff}"
    );
    let exported = ok("nacre config export")?;
    ensure!(ok("nacre config export")? == exported, "an export is always the same");
    // Back, first without doing it.
    let dry = ok(&format!("nacre config rollback {filled} --dry-run"))?;
    ensure!(dry.ends_with("2 changes: nothing was done\n"), "{dry}");
    ensure!(version()? == filled + 2);
    let done = ok(&format!("nacre config rollback {filled}"))?;
    ensure!(done.ends_with(&format!("2 changes: version {}\n", filled + 3)), "{done}");
    let age = format!("llite.{f}-*.statfs_max_age");
    wait_until("the old value is on the mount", LIMIT, || {
        values(&age).is_ok_and(|(v, _)| v == BTreeSet::from(["7".to_string()]))
    })?;
    let pools = ok(&format!("lctl pool_list {f}.flash"))?;
    ensure!(pools.lines().count() == 3, "{pools}");
    // What was exported, from a file.
    let file = fs.scratch().join("exported.json");
    std::fs::write(&file, &exported)?;
    let shown = file.display();
    let dry = json(&format!("nacre config import {shown} -n --json"))?;
    ensure!(dry["applied"] == false && dry["changes"].as_array().map(Vec::len) == Some(2), "{dry}");
    ok(&format!("nacre config import {shown}"))?;
    ensure!(ok(&format!("nacre config diff {}", filled + 2))?.ends_with("are the same\n"));
    let bad = exported.replace("\"9\"", "\"nine\"");
    ensure!(bad != exported);
    std::fs::write(&file, bad)?;
    let before = version()?;
    fails(&format!("nacre config import {shown}"), 22, "it takes a whole number")?;
    std::fs::write(&file, exported.replace("\"format\": 1", "\"format\": 99"))?;
    fails(&format!("nacre config import {shown}"), 22, "it has format 99")?;
    fails("nacre config import /nowhere.json", 2, "cannot read '/nowhere.json'")?;
    fails("nacre config rollback 100000", 2, "there is no version 100000")?;
    fails("nacre config rollback x", 4, "'x' is no version")?;
    ensure!(version()? == before, "what was refused changed nothing");
    fs.fsck()
}

/// Until everybody shows the value: how long that took.
fn everywhere(pattern: &str, value: &str, many: usize, since: Instant) -> Result<Duration> {
    loop {
        let (values, count) = values(pattern)?;
        if count == many && values == BTreeSet::from([value.to_string()]) {
            return Ok(since.elapsed());
        }
        if since.elapsed() > LIMIT {
            bail!("{pattern}: {count} show {values:?} after {LIMIT:?}");
        }
    }
}

#[test]
fn a_permanent_parameter_is_everywhere_within_a_second() -> Result<()> {
    let fs = TestFs::up("config-all", 3, 5)?;
    let f = fs.fsname();
    let all = [
        (format!("llite.{f}-*.statfs_max_age"), ["3", "4"], 5),
        (format!("osc.{f}-OST*-osc-*.max_rpcs_in_flight"), ["17", "18"], 15),
        (format!("obdfilter.{f}-OST*.degraded"), ["1", "0"], 3),
    ];
    for (name, values, many) in &all {
        for value in values {
            ok(&format!("lctl set_param -P {name}={value}"))?;
            let took = everywhere(name, value, *many, Instant::now())?;
            // Asking everybody is part of it.
            ensure!(took < Duration::from_secs(1), "{name}={value} was everywhere after {took:?}");
        }
    }
    // The form of before, and taking back: what runs keeps its value.
    ok(&format!("lctl conf_param {f}.llite.statfs_max_age=6"))?;
    everywhere(&all[0].0, "6", 5, Instant::now())?;
    ok(&format!("lctl set_param -P -d {}", all[0].0))?;
    fails(&format!("lctl set_param -P -d {}", all[0].0), 2, "No such file")?;
    everywhere(&all[0].0, "6", 5, Instant::now())?;
    ensure!(!ok("nacre config show")?.contains("statfs_max_age"));
    Ok(())
}

#[test]
fn everybody_agrees_after_an_mgs_that_was_killed() -> Result<()> {
    let fs = TestFs::up("config-kill", 2, 3)?;
    let name = format!("llite.{}-*.statfs_max_age", fs.fsname());
    let holder =
        fs.processes()?.into_iter().find(|(role, _)| role == "mgs+mds").context("a server with the MGS")?;
    let mut acknowledged = 0;
    for n in 1..=20 {
        if n == 12 {
            kill(holder.1, Signal::KILL)?;
        }
        match run(&format!("lctl set_param -P {name}={n}"))?.status.success() {
            true => acknowledged = n,
            false => ensure!(n >= 12, "change {n} failed before the MGS was killed"),
        }
    }
    fs.up_again()?;
    let kept = json("nacre config export")?["params"][&name].as_str().context("the parameter")?.to_string();
    let number: u32 = kept.parse()?;
    ensure!(number >= acknowledged, "{number} is kept and {acknowledged} was acknowledged");
    everywhere(&name, &kept, 3, Instant::now())?;
    let last = json("nacre config history -n 1 --json")?["versions"][0].clone();
    ensure!(last["changes"][0]["after"] == kept.as_str(), "{last}");
    let version = last["version"].as_u64().context("a version")?;
    ok(&format!("nacre config rollback {}", version - 1))?;
    everywhere(&name, &(number - 1).to_string(), 3, Instant::now())?;
    Ok(())
}

#[test]
fn parameters_are_listed_with_their_directories_and_explained() -> Result<()> {
    let fs = TestFs::up("config-list", 1, 1)?;
    let f = fs.fsname();
    let list = ok("lctl list_param -F osc.* obdfilter mds timeout devices")?;
    let lines: Vec<&str> = list.lines().collect();
    ensure!(lines[0].starts_with(&format!("osc.{f}-OST0000-osc-")) && lines[0].ends_with('/'), "{list}");
    ensure!(lines[1..] == ["obdfilter/", "mds/", "timeout=", "devices"], "{list}");
    let all = ok(&format!("lctl list_param -F -R obdfilter.{f}-OST0000"))?;
    for part in [
        format!("obdfilter.{f}-OST0000/\n"),
        format!("obdfilter.{f}-OST0000.degraded=\n"),
        format!("obdfilter.{f}-OST0000.kbytesfree\n"),
        format!("obdfilter.{f}-OST0000.exports/\n"),
    ] {
        ensure!(all.contains(&part), "'{part}' is not in\n{all}");
    }
    let dirs = ok(&format!("lctl list_param -D -R -p obdfilter.{f}-OST0000.exports"))?;
    ensure!(dirs.lines().count() > 1 && dirs.lines().all(|l| !l.contains("OST0000.")), "{dirs}");
    fails("lctl list_param -F nothing.*", 2, "param_path 'nothing/*'")?;
    let both = ok("lctl get_param devices timeout")?;
    ensure!(both.contains("timeout=") && both.contains(&format!(" UP osc {f}-OST0000-osc-")), "{both}");
    ensure!(ok("lctl get_param -n devices")? == ok("lctl dl")?);
    let import = ok(&format!("lctl get_param -n osc.{f}-OST0000-osc-*.import"))?;
    for part in ["\n    connect_flags: [ proof, ", "\n       last_replay: 0\n       peer_committed: "] {
        ensure!(import.contains(part), "'{part}' is not in\n{import}");
    }
    let help = json("nacre param help osc.*.max_rpcs_in_flight --json")?;
    ensure!(help[0]["unit"] == "requests" && help[0]["lasting"] == true, "{help}");
    ensure!(json("nacre param list --json")?.as_array().is_some_and(|a| a.len() > 100));
    fails("nacre param help osc.*.max_rpc_in_flight", 2, "is it osc.*.max_rpcs_in_flight?")
}

#[test]
fn tunefs_shows_tries_and_changes() -> Result<()> {
    let scratch = Scratch::new("tunefs");
    let ost = scratch.path().join("ost");
    let dir = ost.display();
    let says = |line: &str, has: &[&str], has_not: &[&str]| -> Result<()> {
        let out = ok(line)?;
        let wrong = has.iter().find(|p| !out.contains(**p)).or(has_not.iter().find(|p| out.contains(**p)));
        ensure!(wrong.is_none(), "{line}: {wrong:?}\n{out}");
        Ok(())
    };
    std::fs::create_dir(&ost)?;
    fails(&format!("tunefs.nacre {dir}"), 19, "has not been formatted")?;
    ok(&format!("mkfs.nacre --ost --fsname=demo --index=3 --mgsnode=127.0.0.1@tcp {dir}"))?;
    let params = "--param osc.*.checksums=0 --param osc.*.max_dirty_mb=64";
    for dry in ["-n", "--dryrun", "--print"] {
        says(
            &format!("tunefs.nacre {dry} {params} --failnode=127.0.0.2@tcp {dir}"),
            &[
                "Previous values",
                "Permanent disk data",
                "demo:OST0003",
                "osc.*.checksums=0",
                "Nothing was written",
            ],
            &["Writing CONFIGS/mountdata"],
        )?;
        says(&format!("tunefs.nacre {dir}"), &["demo:OST0003"], &["checksums", "127.0.0.2", "Writing"])?;
    }
    says(
        &format!("tunefs.nacre {params} --failnode=127.0.0.2@tcp {dir}"),
        &["Writing CONFIGS/mountdata"],
        &[],
    )?;
    says(
        &format!("tunefs.nacre {dir}"),
        &["osc.*.checksums=0", "osc.*.max_dirty_mb=64", "127.0.0.2@tcp"],
        &[],
    )?;
    ok(&format!("tunefs.nacre --erase-param osc.*.checksums {dir}"))?;
    says(&format!("tunefs.nacre {dir}"), &["osc.*.max_dirty_mb=64"], &["checksums"])?;
    fails(&format!("tunefs.nacre --erase-param osc.*.checksums {dir}"), 2, "osc.*.checksums")?;
    ok(&format!("tunefs.nacre --erase-params --param osc.*.checksums=1 {dir}"))?;
    says(
        &format!("tunefs.nacre {dir}"),
        &["osc.*.checksums=1", "mgsnode=127.0.0.1@tcp"],
        &["max_dirty_mb", "127.0.0.2"],
    )?;
    fails(&format!("tunefs.nacre --rename=other {dir}"), 22, "--rename is not changed on a made target")?;
    fails(&format!("tunefs.nacre --param nothing {dir}"), 22, "expected KEY=VALUE")
}

#[test]
fn addresses_are_replaced_while_everybody_runs() -> Result<()> {
    let fs = TestFs::up("config-nids", 2, 1)?;
    let target = format!("{}-OST0001", fs.fsname());
    let nids = || -> Result<String> {
        let shown = json("nacre config show --json")?;
        let targets = shown["file_systems"][0]["targets"].as_array().context("targets")?.clone();
        let one = targets.iter().find(|t| t["target"] == target.as_str()).context("the target")?;
        let all: Vec<&str> =
            one["nids"].as_array().context("NIDs")?.iter().filter_map(Value::as_str).collect();
        Ok(all.join(","))
    };
    let own = nids()?;
    let version = version()?;
    let said = ok(&format!("lctl replace_nids {target} {own},127.0.0.99@tcp"))?;
    ensure!(said.contains(&format!("nids: {own},127.0.0.99@tcp\n")), "{said}");
    ensure!(nids()? == format!("{own},127.0.0.99@tcp"));
    let diff = ok(&format!("nacre config diff {version}"))?;
    ensure!(diff.starts_with(&format!("~ target {target}: {own} active")), "{diff}");
    let left = ok(&format!("nacre config rollback {version}"))?;
    ensure!(
        left == format!("left: target {target}: targets and their registrations stay\nnothing to change\n"),
        "{left}"
    );
    ok(&format!("lctl replace_nids {target} {own}"))?;
    ensure!(ok(&format!("nacre config diff {version}"))?.ends_with("are the same\n"));
    fails(&format!("lctl replace_nids {}-OST0009 127.0.0.1@tcp", fs.fsname()), 19, "knows no target")?;
    fails(&format!("lctl replace_nids {target} no/where"), 4, "no/where")?;
    fails(&format!("lctl replace_nids {target}"), 4, "a target and its NIDs")
}

#[test]
fn another_host_sees_the_configuration_and_its_history() -> Result<()> {
    const MDS: u32 = 1;
    const OSS: u32 = 2;
    const CLIENT: u32 = 3;
    let scratch = Scratch::new("config-far");
    let dir = |n: &str| scratch.path().join(n);
    let mut hosts = Hosts::new(3, &[dir("mnt")])?;
    let mkfs = |args: &[&str], d: &str| ok_within(tool("mkfs.nacre").args(args).arg(dir(d)), LIMIT);
    mkfs(&["--mgs", "--mdt", "--fsname=far", "--index=0"], "mdt")?;
    mkfs(&["--ost", "--fsname=far", "--index=0", "--mgsnode=10.77.0.1@tcp"], "ost")?;
    hosts.nacred(MDS, &[], &[dir("mdt")], &dir("log1"))?;
    // Hosts of the test see the same files: sockets of the others are not to be found.
    let at = |host: u32, line: &str| -> Result<Output> {
        let mut words = line.split_whitespace();
        let mut c = hosts.on(host, words.next().context("a command")?);
        if host != MDS {
            c.env("NACRE_RUN_DIR", dir(&format!("run{host}")));
        }
        run_within(c.args(words), LIMIT)
    };
    let said =
        |o: &Output| format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    let on = |host: u32, line: &str| -> Result<String> {
        let o = at(host, line)?;
        ensure!(o.status.success(), "host {host}: {line}: {}\n{}", o.status, said(&o));
        Ok(String::from_utf8_lossy(&o.stdout).into_owned())
    };
    let refused = |host: u32, line: &str, code: i32, part: &str| -> Result<()> {
        let o = at(host, line)?;
        let words = said(&o);
        ensure!(o.status.code() == Some(code) && words.contains(part), "{line}: {}\n{words}", o.status);
        Ok(())
    };
    (OSS..=CLIENT).try_for_each(|h| std::fs::create_dir(dir(&format!("run{h}"))))?;
    let mut oss = hosts.on(OSS, "nacred");
    oss.env("NACRE_RUN_DIR", dir("run2")).args(["--nid", "10.77.0.2@tcp"]).arg(dir("ost"));
    oss.stderr(std::fs::File::create(dir("log2"))?);
    let _oss = Running(oss.spawn()?);
    wait_until("the OST has registered", LIMIT, || {
        on(MDS, "nacre config show").is_ok_and(|s| s.contains("far-OST0000  active  10.77.0.2@tcp"))
    })?;
    for value in 1..=25 {
        on(MDS, &format!("lctl set_param -P llite.far-*.statfs_max_age={value}"))?;
    }
    on(MDS, "lctl pool_new far.flash")?;
    let views = [
        "show",
        "show --json",
        "history",
        "history -n 500 --json",
        "diff 1",
        "diff 3 9 --json",
        "export",
        "history -n 3",
    ];
    // Where it is is said, or a target of this host knows it.
    for view in views {
        let there = on(MDS, &format!("nacre config {view}"))?;
        for (host, far) in
            [(CLIENT, " --mgs 10.77.0.1@tcp"), (CLIENT, " --mgs=10.77.0.1:10.77.0.2"), (OSS, "")]
        {
            let line = format!("nacre config {view}{far}");
            let here = on(host, &line)?;
            ensure!(here == there, "{line} on host {host} says\n{here}\nand on the MGS's host\n{there}");
        }
    }
    // Everybody's answers are equal; they are also true.
    let history: Value = serde_json::from_str(&on(OSS, "nacre config history -n 500 --json")?)?;
    let all = history["versions"].as_array().context("versions")?;
    ensure!(all.iter().filter(|v| v["how"] == "set_param -P").count() == 25, "{history}");
    refused(CLIENT, "nacre config show", 19, "say --mgs NID")?;
    refused(CLIENT, "nacre config diff 9999 --mgs 10.77.0.1@tcp", 2, "there is no version 9999")?;
    refused(OSS, "nacre config rollback 3", 19, "on the node that has the MGS, which is at 10.77.0.1@tcp")?;
    refused(CLIENT, "nacre config show --mgs 10.77.0.9@tcp", 110, "no MGS answers at 10.77.0.9@tcp within")?;
    // A mount knows it as well.
    std::fs::create_dir_all(dir("mnt"))?;
    let mount = format!("mount.nacre 10.77.0.1@tcp:/far {}", dir("mnt").display());
    wait_until("the client mounts", LIMIT, || at(CLIENT, &mount).is_ok_and(|o| o.status.success()))?;
    ensure!(on(CLIENT, "nacre config show")? == on(MDS, "nacre config show")?);
    Ok(())
}
