//! What daemons and mounts had to tell, as `nacre events` shows it.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, fails, kill, lctl, nacre, ok_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(90);

/// Events that are chosen by these words, the oldest first.
fn events(words: &[&str]) -> Result<Vec<Value>> {
    let text = nacre(&[&["events", "--json", "-n", "100000"], words].concat())?;
    text.lines().map(|l| serde_json::from_str(l).with_context(|| l.to_string())).collect()
}

fn there_is(id: &str, about: &str) -> bool {
    events(&["-a", about]).is_ok_and(|all| all.iter().any(|e| e["id"] == id))
}

#[test]
fn what_happens_to_a_cluster_is_told_with_what_it_has_in_common() -> Result<()> {
    let fs = TestFs::up("events", 2, 2)?;
    let (name, file) = (fs.fsname().to_string(), fs.mount(0).join("f"));
    let ost = format!("{name}-OST0001");
    ok_within(tool("lfs").args(["setstripe", "-o", "1"]).arg(&file), LIMIT)?;
    std::fs::write(&file, b"something")?;
    ok_within(Command::new("sync").arg(&file), LIMIT)?;

    // A server dies: everybody here says so, and it is one server.
    kill(fs.oss(1)?, Signal::KILL)?;
    let verdict =
        || nacre(&["events", "-n", "1"]).is_ok_and(|t| t.contains("now: one server: ") && t.contains(&ost));
    wait_until("the verdict", LIMIT, verdict)?;
    ensure!(there_is("N201", &ost), "a connection was lost");
    fs.up_again()?;
    wait_until("its recovery is told", LIMIT, || there_is("N302", &ost))?;
    wait_until("no connection is lost", LIMIT, || nacre(&["events"]).is_ok_and(|t| !t.contains("now: ")))?;
    let served = || {
        events(&["-c", "failover", "-a", &ost]).map(|all| all.iter().filter(|e| e["id"] == "N601").count())
    };
    ensure!(served()? == 2, "what it said before it died is known: {:?}", events(&["-a", &ost])?);

    // What an administrator does.
    lctl(&["set_param", "-P", &format!("obdfilter.{ost}.readcache_max_filesize=1048576")])?;
    ensure!(there_is("N801", "MGS"), "a change of the configuration");
    let line = nacre(&["events", "-c", "config", "-n", "1"])?;
    ensure!(line.contains(" N801 info config nacred-") && line.contains("readcache_max_filesize"), "{line}");

    // Something hangs: whoever probes says it, and who follows hears it.
    let told = fs.scratch().join("followed.txt");
    let mut follow = tool("nacre");
    follow.args(["events", "-f", "-c", "hang"]).stdout(Stdio::from(std::fs::File::create(&told)?));
    let _follower = Running(follow.spawn()?);
    lctl(&["set_param", "llite.*.probe_interval=1"])?;
    let oss = fs.oss(0)?;
    kill(oss, Signal::STOP)?;
    let heard = || std::fs::read_to_string(&told).is_ok_and(|t| t.contains(" N702 warning hang mount-"));
    wait_until("a slow answer is told", LIMIT, || {
        // Not every look is at this server.
        std::thread::sleep(Duration::from_secs(3));
        let goes_on = kill(oss, Signal::CONT).is_ok();
        std::thread::sleep(Duration::from_secs(1));
        heard() || !goes_on || kill(oss, Signal::STOP).is_err()
    })?;
    ensure!(heard(), "the server is not there");
    lctl(&["set_param", "llite.*.probe_interval=0"])?;

    a_disk_that_stalls_is_told_with_what_runs(&fs)?;

    let summary = nacre(&["events", "--summary"])?;
    ensure!(summary.starts_with("week from") && summary.contains(" network "), "{summary}");
    ensure!(nacre(&["events", "--explain", "n402"])?.contains("not written back is lost"));
    fails("nacre", &["events", "-c", "disc"], 4, "there are disk, checksum")?;
    fails("nacre", &["events", "--explain", "N999"], 4, "lists all")?;
    ensure!(events(&["-s", "1s", "-a", "no-such-name"])?.is_empty());
    ensure!(events(&["-l", "error", "-c", "config"])?.is_empty(), "nothing of that is an error");
    fs.down()?;
    fails("nacre", &["events"], 19, "no daemon and no mount")
}

/// The flushes of an OST take two seconds: the server says so itself, and who writes there.
fn a_disk_that_stalls_is_told_with_what_runs(fs: &TestFs) -> Result<()> {
    let ost = format!("{}-OST0001", fs.fsname());
    let (file, set) = (fs.mount(0).join("f"), |text: String| lctl(&["set_param", &text]));
    set(format!("obdfilter.{ost}.probe_interval=1"))?;
    set(format!("osd-nacre.{ost}.disk_fault=flush=2000ms@/journal"))?;
    let told = || {
        events(&["-c", "hang", "-a", &ost]).is_ok_and(|all| {
            let text = |e: &Value| e["text"].as_str().unwrap_or_default().to_string();
            all.iter().map(text).any(|t| {
                t.contains("waits since")
                    && t.contains(" at work beside it")
                    && t.contains(" of nacre-client ")
            })
        })
    };
    wait_until("who writes while its disk hangs is named", LIMIT, || {
        // Whoever waits for it to be durable runs while the probe does.
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4096", "count=1", "oflag=sync", "conv=notrunc"]);
        let wrote = dd.arg(format!("of={}", file.display())).stderr(Stdio::null()).status();
        told() || wrote.is_err()
    })?;
    set(format!("osd-nacre.{ost}.disk_fault=none"))?;
    // A probe is counted when it has ended.
    wait_until("probes are counted with those that were slow", LIMIT, || {
        let mut get = tool("lctl");
        get.args(["get_param", "-n", &format!("obdfilter.{ost}.probe_stats")]);
        ok_within(&mut get, LIMIT).is_ok_and(|stats| stats.contains("slow ") && stats.contains("done "))
    })?;
    set(format!("obdfilter.{ost}.probe_interval=0")).map(drop)
}
