//! An error reaches everybody who must know, once each: a mount's daemon sleeps until it is evicted with
//! bytes, pages and names that only it has. What each process and each descriptor is told then prints
//! `told.py`.

use anyhow::{Context, Result, anyhow, bail, ensure};
use client::control::{Reply, Request};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, kill, ok_within, stripe_64k, wait_until};

const LIMIT: Duration = Duration::from_secs(120);
const EIO: &str = "5";

/// What is printed up to a line with this beginning, that line included.
fn lines(out: &mut BufReader<ChildStdout>, last: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for line in out.lines() {
        let line = line?;
        let end = line.starts_with(last);
        all.push(line);
        if end {
            return Ok(all);
        }
    }
    bail!("it ended before it printed '{last}': {all:?}")
}

/// Batches of operations that a mount executed by itself and sent. Its daemon is asked: lctl would ask the
/// servers too, which may be asleep.
fn batches(mount: &Path) -> Result<u64> {
    let pattern = "llite.*.md_writeback_stats".to_string();
    let reply = admin::local::ask(mount, &Request::GetParam { pattern }).map_err(|e| anyhow!("{e}"))?;
    let Reply::Params(params) = reply else { bail!("not parameters: {reply:?}") };
    let count = params.iter().find_map(|(_, text)| text.lines().find_map(|l| l.strip_prefix("batches: ")));
    Ok(count.with_context(|| format!("no batches in {params:?}"))?.parse()?)
}

#[test]
fn each_descriptor_is_told_of_what_was_lost_once_and_nobody_else() -> Result<()> {
    let fs = TestFs::up("told", 1, 2)?;
    let dir = fs.mount(0).join("work");
    std::fs::create_dir(&dir)?;
    stripe_64k(&dir, 1)?;
    let script = fs.scratch().join("told.py");
    std::fs::write(&script, include_str!("told.py"))?;
    let mut cmd = Command::new("python3");
    let child = cmd.arg(script).arg(&dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut program = Running(child);
    let mut out = BufReader::new(program.0.stdout.take().context("its output")?);
    let mut say = |line: &str| writeln!(program.0.stdin.as_mut().expect("piped"), "{line}");
    lines(&mut out, "ready")?;
    let (daemon, servers) = (fs.clients()?[0], fs.servers()?);
    let all = |signal| servers.iter().try_for_each(|pid| kill(*pid, signal));
    let sent = batches(fs.mount(0))?;
    all(Signal::STOP)?;
    say("some")?;
    let some = lines(&mut out, "made");
    let gone =
        wait_until("the first of them are sent", LIMIT, || batches(fs.mount(0)).is_ok_and(|n| n > sent));
    say("more")?;
    let made = lines(&mut out, "made");
    kill(daemon, Signal::STOP)?;
    all(Signal::CONT)?;
    some.and(gone).and(made)?;

    // The other mount wants all of it: the servers evict the one that sleeps.
    let there = fs.mount(1).join("work");
    let look = format!(
        "cd {}; ls dir | wc -l & for f in child two closed process mapped unopened; do cat $f > /dev/null; done; wait",
        there.display()
    );
    let looked = ok_within(Command::new("bash").args(["-euc", &look]), LIMIT);
    kill(daemon, Signal::CONT)?;
    let count: usize = looked?.trim().parse().context("a number of directories")?;
    for name in ["child", "two", "closed", "process", "mapped", "unopened"] {
        let seen = std::fs::read(there.join(name))?;
        ensure!(
            seen.len() == 65536 && seen.iter().all(|b| *b == b'o'),
            "{name} was not lost: the test shows nothing"
        );
    }
    say(&count.to_string())?;

    let said = lines(&mut out, "end")?;
    let of = |name: &str| -> Result<String> {
        let line = said.iter().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_string).with_context(|| format!("'{name}' is not in {said:?}"))
    };
    ensure!(of("lost")?.parse::<i64>()? > 0, "no name was lost: the test shows nothing: {said:?}");
    let once = format!("{EIO} 0");
    for name in [
        "closed",
        "reader",
        "child",
        "two, first",
        "two, second",
        "process",
        "other process",
        "mapped",
        "dir, first",
        "dir, second",
        "unopened",
    ] {
        ensure!(of(name)? == once, "'{name}' was told {}: {said:#?}", of(name)?);
    }
    ensure!(of("close of a copy")? == format!("{EIO} {EIO}"), "{said:#?}");
    for name in ["close of a reader", "calm", "calm-dir", "calm again", "later"] {
        ensure!(of(name)? == "0", "'{name}' was told {}: {said:#?}", of(name)?);
    }
    drop(program);
    fs.fsck()
}
