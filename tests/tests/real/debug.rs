//! The debug logs of daemons and mounts, and who follows them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, lctl, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn types_of_messages_are_switched_on_printed_once_and_followed() -> Result<()> {
    let fs = TestFs::up("debug", 2, 1)?;
    let mnt = fs.mount(0);
    ensure!(lctl(&["get_param", "-n", "debug", "debug_mb"])?.trim() == "0\n5", "the defaults");
    lctl(&["clear"])?;
    ensure!(lctl(&["set_param", "debug=+vfstrace", "debug=+rpctrace"])?.contains("debug=+rpctrace"));
    ensure!(
        lctl(&["get_param", "debug"])?.trim() == "debug=rpctrace vfstrace",
        "one line for all of the host"
    );
    let wrong = run_within(tool("lctl").args(["set_param", "debug=+malloc"]), LIMIT)?;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    ensure!(!wrong.status.success() && said.contains("debug_list types"), "{said}");
    lctl(&["mark", "the", "test", "begins"])?;
    std::fs::write(mnt.join("told-by-name"), b"some bytes")?;
    ok_within(Command::new("sync").arg("-f").arg(mnt), LIMIT)?;
    let file = fs.scratch().join("dk.txt");
    let said = lctl(&["dk", &file.to_string_lossy()])?;
    ensure!(said.starts_with("Debug log: ") && said.trim_end().ends_with(" dropped, 0 bad."), "{said}");
    let log = std::fs::read_to_string(&file)?;
    for part in [
        "DEBUG MARKER: the test begins",
        "llite:vfstrace:",
        "told-by-name",
        "rpc:rpctrace:",
        "nacred-",
        "mount-",
    ] {
        ensure!(log.contains(part), "'{part}' is not in\n{log}");
    }
    let times: Vec<&str> = log.lines().filter_map(|l| l.split(':').nth(2)).collect();
    ensure!(times.is_sorted(), "in the order of their times");
    lctl(&["set_param", "debug=0"])?;
    lctl(&["clear"])?;
    std::fs::write(mnt.join("quiet"), b"nothing is said of it")?;
    ensure!(!lctl(&["dk"])?.contains("quiet"), "what is switched off is not kept");

    let mut trace = tool("nacre");
    let out = fs.scratch().join("trace.txt");
    trace.args(["trace", "-o"]).arg(&out).arg("seen-by-trace").stdout(Stdio::null());
    let mut follower = Running(trace.spawn()?);
    let n = std::cell::Cell::new(0);
    wait_until("the operations are shown", LIMIT, || {
        n.set(n.get() + 1);
        let name = mnt.join(format!("seen-by-trace-{}", n.get()));
        let made = std::fs::write(name, b"x").is_ok();
        std::thread::sleep(Duration::from_millis(100));
        made && std::fs::read_to_string(&out)
            .is_ok_and(|t| t.contains("vfstrace") && t.contains("seen-by-trace"))
    })?;
    ensure!(std::fs::read_to_string(&out)?.lines().all(|l| l.contains("seen-by-trace")), "nothing else");
    follower.0.kill()?;
    follower.0.wait()?;
    // Killed, it leaves nothing switched on.
    wait_until("nothing is kept any more", LIMIT, || {
        let done = lctl(&["clear"]).is_ok() && std::fs::write(mnt.join("later"), b"x").is_ok();
        done && lctl(&["dk"]).is_ok_and(|t| !t.contains("trace:"))
    })?;
    fs.down()?;
    fs.fsck()
}

/// Spans of a trace: (process, span).
fn spans(document: &Value) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for r in document["resourceSpans"].as_array().into_iter().flatten() {
        let service = r["resource"]["attributes"][0]["value"]["stringValue"].as_str().unwrap_or_default();
        for s in r["scopeSpans"][0]["spans"].as_array().into_iter().flatten() {
            out.push((service.to_string(), s.clone()));
        }
    }
    out
}

fn kind(s: &Value) -> &str {
    s["attributes"][0]["value"]["stringValue"].as_str().unwrap_or_default()
}

/// The kinds of a span and of all above it, from the first of the trace on; they lie within each other.
fn way(all: &[(String, Value)], last: &Value) -> Result<Vec<String>> {
    let time = |s: &Value, name: &str| s[name].as_str().and_then(|t| t.parse::<u128>().ok()).unwrap_or(0);
    let mut kinds = vec![kind(last).to_string()];
    let mut at = last;
    while at["parentSpanId"] != "" {
        let above = all.iter().map(|(_, s)| s).find(|s| s["spanId"] == at["parentSpanId"]);
        let above = above.with_context(|| format!("what {at} is a part of is missing"))?;
        ensure!(above["traceId"] == at["traceId"], "one trace: {at} {above}");
        ensure!(time(above, "startTimeUnixNano") <= time(at, "startTimeUnixNano"), "{at} before {above}");
        kinds.push(kind(above).to_string());
        at = above;
    }
    kinds.reverse();
    Ok(kinds)
}

/// A collector that has no time for the first request; what it was sent then.
fn collect(l: &TcpListener) -> Result<Vec<Value>> {
    let mut taken = Vec::new();
    for answer in ["503 Busy", "200 OK"] {
        let (s, _) = l.accept()?;
        s.set_read_timeout(Some(LIMIT))?;
        let mut r = BufReader::new(s);
        let (mut line, mut length) = (String::new(), 0);
        r.read_line(&mut line)?;
        ensure!(line == "POST /v1/traces HTTP/1.0\r\n", "{line}");
        while line != "\r\n" {
            line.clear();
            r.read_line(&mut line)?;
            if let Some(n) = line.strip_prefix("Content-Length: ") {
                length = n.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        r.read_exact(&mut body)?;
        write!(r.get_mut(), "HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\n{{}}")?;
        taken.push(serde_json::from_slice(&body)?);
    }
    Ok(taken)
}

#[test]
fn traces_are_sent_to_a_collector_again_if_it_is_busy_and_one_that_is_away_is_named() -> Result<()> {
    let fs = TestFs::up("collect", 1, 1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let collector = std::thread::spawn(move || collect(&listener));
    let follow = || {
        let mut c = tool("nacre");
        c.args(["trace", "--otlp", "--url", &url]).stdout(Stdio::null()).stderr(Stdio::piped());
        c
    };
    let mut follower = Running(follow().spawn()?);
    let file = fs.mount(0).join("sent");
    wait_until("a trace is taken", LIMIT, || {
        std::fs::write(&file, b"something").is_ok()
            && std::fs::metadata(&file).is_ok()
            && collector.is_finished()
    })?;
    let taken = collector.join().map_err(|_| anyhow::anyhow!("the collector ended"))??;
    ensure!(taken[0] == taken[1], "what it had no time for is sent again");
    let all = spans(&taken[1]);
    ensure!(all.iter().any(|(process, s)| process == "mount" && kind(s) == "client"), "{:?}", taken[1]);
    // Nobody is there any more.
    let mut said = String::new();
    wait_until("it gives up", LIMIT, || {
        let _ = std::fs::write(&file, b"more");
        follower.0.try_wait().is_ok_and(|ended| ended.is_some())
    })?;
    follower.0.stderr.take().context("what it said")?.read_to_string(&mut said)?;
    ensure!(said.contains(&format!("cannot send traces to '{url}'")) && said.contains("attempt 5"), "{said}");
    Ok(())
}

#[test]
fn an_operation_is_one_trace_through_mount_network_server_and_disk() -> Result<()> {
    let fs = TestFs::up("otlp", 1, 1)?;
    let out = fs.scratch().join("traces");
    let file = fs.mount(0).join("followed");
    tests::cluster::stripe_64k(&file, 1)?;
    let mut follower =
        Running(tool("nacre").args(["trace", "--otlp", "-o"]).arg(&out).stdout(Stdio::null()).spawn()?);
    let found = std::cell::RefCell::new(Vec::new());
    wait_until("a trace that reaches the disk", LIMIT, || {
        let wrote = std::process::Command::new("dd")
            .args(["if=/dev/zero", "bs=200k", "count=1", "conv=fsync,notrunc", "status=none"])
            .arg(format!("of={}", file.display()))
            .status();
        std::thread::sleep(Duration::from_millis(200));
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let all: Vec<_> = text.lines().filter_map(|l| Some(spans(&serde_json::from_str(l).ok()?))).collect();
        let whole = all.into_iter().find(|t| t.iter().any(|(_, s)| kind(s) == "disk"));
        let is = wrote.is_ok_and(|s| s.success()) && whole.is_some();
        *found.borrow_mut() = whole.unwrap_or_default();
        is
    })?;
    follower.0.kill()?;
    follower.0.wait()?;
    let trace = found.into_inner();
    let ids: std::collections::BTreeSet<&str> =
        trace.iter().filter_map(|(_, s)| s["traceId"].as_str()).collect();
    ensure!(ids.len() == 1 && ids.iter().all(|i| i.len() == 32), "one id of 16 bytes: {ids:?}");
    let disk = trace.iter().filter(|(_, s)| kind(s) == "disk").map(|(_, s)| way(&trace, s));
    let ways = disk.collect::<Result<Vec<_>>>()?;
    ensure!(ways.iter().any(|w| *w == ["client", "rpc", "server", "disk"]), "{ways:?}");
    for (process, s) in &trace {
        let at_server = ["server", "disk"].contains(&kind(s));
        ensure!(!at_server || process == "nacred" || kind(s) == "disk", "{process}: {s}");
        ensure!(at_server || process == "mount", "{process}: {s}");
    }
    fs.down()?;
    fs.fsck()
}
