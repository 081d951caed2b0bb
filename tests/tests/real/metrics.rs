//! Metrics as Prometheus and Grafana read them: pages over HTTP and of `nacre metrics`, the dashboards'
//! queries and the alert rules in a real Prometheus.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, kill, kit, ok_within, run_within, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
/// Of the Prometheus in the test's own network.
const PROMETHEUS: &str = "127.0.0.1:9090";

/// A file of the repository's `deploy`.
fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// Status line with headers, and body.
fn http(at: SocketAddr, request: &str) -> Result<(String, String)> {
    let mut s = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    s.set_read_timeout(Some(Duration::from_secs(10)))?;
    s.write_all(request.as_bytes())?;
    let mut all = String::new();
    s.read_to_string(&mut all)?;
    let (head, body) = all.split_once("\r\n\r\n").with_context(|| format!("no answer: {all}"))?;
    Ok((head.to_string(), body.to_string()))
}

fn get(at: SocketAddr, path: &str, accept: &str) -> Result<(String, String)> {
    http(at, &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAccept: {accept}\r\n\r\n"))
}

/// Where the daemons and mounts tell their metrics, in the order servers, mounts.
fn told_at(fs: &TestFs) -> Result<Vec<SocketAddr>> {
    let doc: Value = serde_json::from_str(&fs::read_to_string(fs.dir().join("metrics.json"))?)?;
    let all = doc[0]["targets"].as_array().context("no targets")?;
    all.iter().map(|t| Ok(t.as_str().context("no address")?.parse()?)).collect()
}

/// Some of everything, so that each statistic has something to say.
fn load(fs: &TestFs, round: u32) -> Result<()> {
    let dir = fs.mount(0).join(format!("load{round}"));
    fs::create_dir(&dir)?;
    let file = dir.join("data");
    let of = format!("of={}", file.display());
    ok_within(Command::new("dd").args(["if=/dev/zero", &of, "bs=1M", "count=8", "conv=fsync"]), LIMIT)?;
    ensure!(fs::read(fs.mount(1).join(format!("load{round}/data")))?.len() == 8 << 20);
    fs::write(dir.join("small"), "x")?;
    fs::rename(dir.join("small"), dir.join("other"))?;
    fs::remove_dir_all(&dir)?;
    Ok(())
}

/// The disks of an OST and of the MDT are slow, until so many probes of each were.
fn slow_probes(fs: &TestFs, many: u64) -> Result<()> {
    let targets = [("obdfilter", "OST0000"), ("mdt", "MDT0000")];
    let lctl = |text: String| ok_within(tool("lctl").args(["set_param", &text]), LIMIT).map(drop);
    let faults = |what: &str| -> Result<()> {
        for (kind, target) in targets {
            let (of, interval) = (format!("{}-{target}", fs.fsname()), if what == "none" { 10 } else { 1 });
            lctl(format!("osd-nacre.{of}.disk_fault={what}"))?;
            lctl(format!("{kind}.{of}.probe_interval={interval}"))?;
        }
        Ok(())
    };
    faults("flush=1100ms@/journal")?;
    let counted = wait_until("probes are slow", LIMIT, || {
        let page = ok_within(tool("nacre").args(["metrics", "--text"]), LIMIT).unwrap_or_default();
        targets.iter().all(|(kind, target)| {
            let row = format!(
                "nacre_{kind}_probe_operation_seconds_count{{target=\"{}-{target}\",operation=\"slow\"}} ",
                fs.fsname()
            );
            let value = page.lines().find_map(|l| l.strip_prefix(&row));
            value.and_then(|v| v.trim().parse::<f64>().ok()).is_some_and(|v| v >= many as f64)
        })
    });
    faults("none")?;
    counted
}

fn promtool(args: &[&str], input: &str) -> Result<std::process::Output> {
    let mut c = Command::new(kit("promtool"));
    let mut child =
        c.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    Ok(child.wait_with_output()?)
}

#[test]
fn metrics_are_told_where_they_were_asked_for_and_say_what_is_away() -> Result<()> {
    let fs = TestFs::up_as("metrics", 2, 2, vec!["--metrics"])?;
    let name = fs.fsname();
    ok_within(tool("lctl").args(["set_param", "jobid_var=procname_uid"]), LIMIT)?;
    load(&fs, 0)?;
    let all = told_at(&fs)?;
    ensure!(all.len() == 5 && all.iter().all(|a| a.ip().is_loopback() && a.port() == 9169), "{all:?}");
    for at in &all {
        let (head, page) = get(*at, "/metrics", OPEN_METRICS)?;
        ensure!(head.starts_with("HTTP/1.1 200 ") && head.contains(OPEN_METRICS), "{head}");
        ensure!(page.ends_with("\n# EOF\n") && page.contains("\nnacre_healthy{"), "{page}");
        let (head, page) = get(*at, "/metrics", "*/*")?;
        ensure!(head.contains("text/plain; version=0.0.4") && !page.contains("# EOF"), "{head}");
        // What the field's names are is not ours to choose: promtool has something against some.
        let o = promtool(&["check", "metrics"], &page)?;
        let said = String::from_utf8_lossy(&o.stderr).into_owned() + &String::from_utf8_lossy(&o.stdout);
        let ours: Vec<&str> = said.lines().filter(|l| !l.starts_with("lustre_")).collect();
        ensure!(ours.is_empty() && matches!(o.status.code(), Some(0 | 3)), "{ours:?}");
        let (_, health) = get(*at, "/health", "*/*")?;
        ensure!(health == "healthy\n", "{health}");
    }
    // The other ones are as they were.
    let wrong = ["--metrics", "0.0.0.0:9169", "/nowhere"];
    let o = run_within(tool("nacred").args(wrong), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr);
    ensure!(o.status.code() == Some(2) && said.contains("an address of this host and a port"), "{said}");

    // The whole host on one page.
    let page = ok_within(tool("nacre").arg("metrics"), LIMIT)?;
    for row in [
        format!("lustre_capacity_kilobytes{{component=\"ost\",target=\"{name}-OST0001\"}}"),
        format!("nacre_mdt_filestotal{{target=\"{name}-MDT0000\"}}"),
        format!("nacre_osc_connected{{mount=\"{}\",target=\"{name}-OST0000\"}} 1", fs.mount(1).display()),
        "nacre_target_up{component=\"mgt\",target=\"MGS\"} 1".to_string(),
        format!("lustre_job_write_bytes_total{{component=\"ost\",target=\"{name}-OST000"),
    ] {
        ensure!(page.lines().any(|l| l.starts_with(&row)), "{row} is not in\n{page}");
    }
    ensure!(page.matches("# TYPE nacre_target_up gauge").count() == 1 && page.ends_with("# EOF\n"));
    let ost = ["metrics", "--json", "-t", &format!("{name}-OST0001")].map(String::from);
    let doc: Value = serde_json::from_str(&ok_within(tool("nacre").args(&ost), LIMIT)?)?;
    let rows = doc["metrics"].as_array().context("no rows")?;
    ensure!(rows.len() > 50 && rows.iter().all(|r| r["labels"]["target"] == format!("{name}-OST0001")));

    slow_probes(&fs, 1)?;
    zabbix_finds_what_it_looks_for(&fs)?;

    // A server that is dead: mounts say so, and which.
    kill(fs.oss(1)?, Signal::KILL)?;
    let mount = all[3];
    wait_until("the mount says that a target is away", LIMIT, || {
        get(mount, "/health", "*/*").is_ok_and(|(head, body)| {
            head.starts_with("HTTP/1.1 503 ") && body.contains(&format!("{name}-OST0001 is "))
        })
    })?;
    let (_, page) = get(mount, "/metrics", "*/*")?;
    let away =
        format!("nacre_osc_connected{{mount=\"{}\",target=\"{name}-OST0001\"}} 0", fs.mount(0).display());
    ensure!(page.contains(&away) && page.contains("\nlustre_health_healthy{"), "{page}");
    fs.up_again()?;
    wait_until("the mount is healthy again", LIMIT, || {
        get(mount, "/health", "*/*").is_ok_and(|(_, body)| body == "healthy\n")
    })?;
    fs.down()
}

/// The template is what its script makes, and each metric that it takes out of a page is on one.
fn zabbix_finds_what_it_looks_for(fs: &TestFs) -> Result<()> {
    let (file, made) = (deploy("zabbix/nacre.yaml"), fs.scratch().join("nacre.yaml"));
    ok_within(Command::new("python3").arg(deploy("../scripts/zabbix.py")).arg(&made), LIMIT)?;
    let text = fs::read_to_string(&file)?;
    ensure!(text == fs::read_to_string(&made)?, "deploy/zabbix/nacre.yaml: run scripts/zabbix.py");
    let page = ok_within(tool("nacre").args(["metrics", "--text"]), LIMIT)?;
    let rows = text.lines().filter_map(|l| l.trim().strip_prefix("- \"nacre_"));
    let wanted: BTreeSet<&str> = rows.filter_map(|r| r.split(['{', '"']).next()).collect();
    let is_there = |name: &&str| {
        page.lines()
            .any(|l| l.strip_prefix("nacre_").is_some_and(|l| l.split(['{', ' ']).next() == Some(*name)))
    };
    let missing: Vec<&&str> = wanted.iter().filter(|n| !is_there(n)).collect();
    ensure!(wanted.len() > 15 && missing.is_empty(), "of {} metrics no page has {missing:?}", wanted.len());
    // Labels that it names are on the rows.
    let labels = text.match_indices("labels['").map(|(i, m)| text[i + m.len()..].split('\'').next());
    for label in labels.flatten().collect::<BTreeSet<_>>() {
        ensure!(page.contains(&format!("{label}=\"")), "no row has a label '{label}'");
    }
    Ok(())
}

/// The queries of a dashboard, with what Grafana puts in.
fn queries(file: &Path) -> Result<Vec<String>> {
    let doc: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let panels = doc["panels"].as_array().context("no panels")?;
    let all = panels.iter().flat_map(|p| p["targets"].as_array().into_iter().flatten());
    let put_in = |q: &str| {
        let q = q.replace("$__rate_interval", "30s").replace("$target", ".*").replace("$mount", ".*");
        ensure!(!q.contains('$'), "{q}: what is to be put in?");
        Ok(q)
    };
    all.map(|t| put_in(t["expr"].as_str().context("no query")?)).collect()
}

/// Asks Prometheus.
fn api(path: &str, query: Option<&str>) -> Result<Value> {
    let hex = |b: u8| format!("%{b:02X}");
    let query = query.map(|q| format!("?query={}", q.bytes().map(hex).collect::<String>()));
    let path = format!("/api/v1/{path}{}", query.unwrap_or_default());
    // The older version of HTTP: an answer in one piece.
    let (_, body) = http(PROMETHEUS.parse()?, &format!("GET {path} HTTP/1.0\r\n\r\n"))?;
    let doc: Value = serde_json::from_str(&body)?;
    ensure!(doc["status"] == "success", "{path}: {doc}");
    Ok(doc["data"].clone())
}

fn has_data(query: &str) -> bool {
    api("query", Some(query)).is_ok_and(|d| d["result"].as_array().is_some_and(|r| !r.is_empty()))
}

/// Alerts that fire, each with its target.
fn firing() -> Result<BTreeSet<(String, String)>> {
    let doc = api("alerts", None)?;
    let word = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let all = doc["alerts"].as_array().context("no alerts")?.iter().filter(|a| a["state"] == "firing");
    Ok(all.map(|a| (word(&a["labels"]["alertname"]), word(&a["labels"]["target"]))).collect())
}

/// A Prometheus that scrapes this file system every second; its rules wait for a second only, and three make
/// a hang.
fn prometheus(fs: &TestFs) -> Result<Running> {
    let dir = fs.scratch().join("prometheus");
    fs::create_dir(&dir)?;
    let rules = fs::read_to_string(deploy("prometheus/nacre-rules.yml"))?;
    let mut alert = "";
    let mut sooner = |l| {
        alert = str::trim_start(l).strip_prefix("- alert: ").unwrap_or(alert);
        // It is said of who has shown nothing yet as well: probes come every ten seconds.
        let waits = l.trim_start().starts_with("for: ") && alert != "NacreProbeHangs";
        if waits { "        for: 1s" } else { l }
    };
    let rules = rules.lines().map(&mut sooner).collect::<Vec<_>>().join("\n");
    fs::write(dir.join("nacre-rules.yml"), rules.replace("_seconds > 60", "_seconds > 3"))?;
    let config = fs::read_to_string(deploy("prometheus/prometheus.yml"))?;
    let config = config
        .replace(": 15s", ": 1s")
        .replace("scrape_timeout: 10s", "scrape_timeout: 1s")
        .replace("targets/*.json", fs.dir().join("metrics.json").to_str().context("a path")?);
    let file = dir.join("prometheus.yml");
    fs::write(&file, config)?;
    ok_within(Command::new(kit("promtool")).args(["check", "config"]).arg(&file), LIMIT)?;
    let mut c = Command::new(kit("prometheus"));
    c.arg(format!("--config.file={}", file.display()));
    c.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
    c.arg(format!("--web.listen-address={PROMETHEUS}"));
    let log = fs::File::create(dir.join("log"))?;
    let p = Running(c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
    wait_until("Prometheus answers", LIMIT, || api("alerts", None).is_ok())?;
    Ok(p)
}

#[test]
fn dashboards_show_something_and_rules_fire_in_a_real_prometheus() -> Result<()> {
    let rules = deploy("prometheus/nacre-rules.yml");
    ok_within(Command::new(kit("promtool")).args(["check", "rules"]).arg(&rules), LIMIT)?;
    let drills = deploy("prometheus/nacre-rules-test.yml");
    ok_within(Command::new(kit("promtool")).args(["test", "rules"]).arg(&drills), LIMIT)?;

    let fs = TestFs::up_as("prometheus", 2, 2, vec!["--metrics"])?;
    // The dashboards are what their script makes.
    let (made, script) = (fs.scratch().join("made"), deploy("../scripts/dashboards.py"));
    fs::create_dir(&made)?;
    ok_within(Command::new("python3").arg(script).arg(&made), LIMIT)?;
    let mut asked = Vec::new();
    for name in ["overview", "mdt", "ost", "client", "job", "recovery"].map(|n| format!("{n}.json")) {
        let file = deploy("grafana").join(&name);
        ensure!(fs::read(&file)? == fs::read(made.join(&name))?, "{name}: run scripts/dashboards.py");
        asked.extend(queries(&file)?);
    }
    ensure!(asked.len() > 50, "{} queries", asked.len());

    ok_within(tool("lctl").args(["set_param", "jobid_var=procname_uid"]), LIMIT)?;
    let prometheus = prometheus(&fs)?;
    let (mut left, mut round) = (asked, 0);
    let all = wait_until("every query of a dashboard returns data", LIMIT, || {
        round += 1;
        let worked = load(&fs, round).is_ok();
        left.retain(|q| !has_data(q));
        worked && left.is_empty()
    });
    all.with_context(|| format!("without data: {left:#?}"))?;
    ensure!(firing()?.is_empty(), "nothing is wrong yet: {:?}", firing()?);

    an_ost_is_down(&fs)?;
    an_ost_is_full(&fs)?;
    a_block_is_damaged(&fs)?;
    a_server_hangs(&fs)?;
    slow_probes(&fs, 6)?;
    tells("NacreProbesSlow", &format!("{}-OST0000", fs.fsname()))?;
    tells("NacreProbesSlow", &format!("{}-MDT0000", fs.fsname()))?;
    a_client_is_evicted(&fs)?;
    drop(prometheus);
    fs.down()
}

/// Waits until an alert about a target fires; `any`: about whatever.
fn tells(alert: &str, target: &str) -> Result<()> {
    let is = |(a, t): &(String, String)| a == alert && (t == target || target == "any");
    wait_until(&format!("{alert} of {target} fires"), LIMIT, || firing().is_ok_and(|f| f.iter().any(is)))
}

fn set(name: &str, value: u64) -> Result<()> {
    ok_within(tool("lctl").args(["set_param", &format!("{name}={value}")]), LIMIT).map(drop)
}

/// Everybody says it of that one, and of no other.
fn an_ost_is_down(fs: &TestFs) -> Result<()> {
    let ost = format!("{}-OST0001", fs.fsname());
    kill(fs.oss(1)?, Signal::KILL)?;
    tells("NacreTargetAway", &ost)?;
    tells("NacreDaemonDown", "any")?;
    let all = api("query", Some("ALERTS{alertname='NacreTargetAway',alertstate='firing'}"))?;
    ensure!(all["result"].as_array().is_some_and(|r| r.len() == 1), "{all}");
    // Two mounts and the metadata server.
    let who = "count(nacre_osc_connected == 0) + count(nacre_osp_connected == 0) == 3";
    wait_until("all its clients say so", LIMIT, || has_data(who))?;
    let scope = "ALERTS{alertname='NacreConnectionsLost',scope='one server',alertstate='firing'}";
    wait_until("it is said to be one server's", LIMIT, || has_data(scope))?;
    let others = firing()?.into_iter().filter(|(_, t)| !t.is_empty() && *t != ost).collect::<Vec<_>>();
    ensure!(others.is_empty(), "nothing is said of others: {others:?}");
    fs.up_again()?;
    wait_until("all is well again", LIMIT, || firing().is_ok_and(|f| f.is_empty()))
}

fn an_ost_is_full(fs: &TestFs) -> Result<()> {
    let ost = format!("{}-OST0000", fs.fsname());
    let of = |name: &str| format!("obdfilter.{ost}.{name}");
    let kib = ok_within(tool("lctl").args(["get_param", "-n", &of("kbytestotal")]), LIMIT)?;
    // Kept back: as if others had taken it.
    set(&of("reserved_mb"), kib.trim().parse::<u64>()? >> 10)?;
    let told = tells("NacreTargetFull", &ost);
    set(&of("reserved_mb"), 0)?;
    told?;
    // The metadata server asks it now and then, and gives it objects again.
    let probe = fs.mount(0).join("probe");
    wait_until("it is given objects again", LIMIT, || stripe_on(&probe, "0").is_ok())
}

/// The one object of a target that is as long as this.
fn object(ost: &Path, len: u64) -> Result<PathBuf> {
    for sub in fs::read_dir(ost.join("objects/own"))? {
        for f in fs::read_dir(sub?.path())? {
            let p = f?.path();
            if fs::metadata(&p)?.len() == len {
                return Ok(p);
            }
        }
    }
    anyhow::bail!("no object of {len} bytes")
}

fn a_block_is_damaged(fs: &TestFs) -> Result<()> {
    let (name, len) = ("precious", 3_000_000);
    let file = fs.mount(0).join(name);
    stripe_on(&file, "0")?;
    fs::write(&file, vec![7; len])?;
    ok_within(Command::new("sync").arg(&file), LIMIT)?;
    let object = fs::File::options().write(true).open(object(&fs.dir().join("ost0000"), len as u64)?)?;
    object.write_all_at(b"x", 2_000_000)?;
    ensure!(fs::read(fs.mount(1).join(name)).is_err(), "the block is damaged");
    tells("NacreChecksumError", &format!("{}-OST0000", fs.fsname()))
}

fn a_server_hangs(fs: &TestFs) -> Result<()> {
    let (file, oss) = (fs.mount(0).join("on0"), fs.oss(0)?);
    stripe_on(&file, "0")?;
    kill(oss, Signal::STOP)?;
    let told = (|| {
        let of = format!("of={}", file.display());
        let args = ["if=/dev/zero", &of, "bs=1M", "count=4", "conv=notrunc,fsync"];
        let _writer = Running(Command::new("dd").args(args).stderr(Stdio::null()).spawn()?);
        tells("NacreHang", &format!("{}-OST0000", fs.fsname()))
    })();
    kill(oss, Signal::CONT)?;
    told
}

/// One that falls silent.
fn a_client_is_evicted(fs: &TestFs) -> Result<()> {
    let client = fs.clients()?[1];
    kill(client, Signal::STOP)?;
    let told = tells("NacreClientEvicted", "any");
    kill(client, Signal::CONT)?;
    told
}
