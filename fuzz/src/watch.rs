//! Starts a process for each target, so that one that dies or hangs takes nothing else with it.

use crate::Options;
use crate::target::{ALL, Target};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process may take so much longer than it was told to.
const GRACE: Duration = Duration::from_secs(30);

struct Running {
    target: &'static Target,
    child: Child,
    started: Instant,
}

#[derive(Default)]
struct Sum {
    targets: usize,
    executions: u64,
    crashes: usize,
}

/// Runs all targets; true if nothing crashed. Ends in one line.
pub fn run(o: &Options) -> Result<bool, String> {
    let dir = format!("{}/artifacts", o.folder);
    std::fs::create_dir_all(&dir).map_err(|e| format!("{dir}: {e}"))?;
    let mut waiting: Vec<&'static Target> =
        ALL.iter().filter(|t| o.only.as_deref().is_none_or(|n| n == t.name)).rev().collect();
    let total = (waiting.len() as u64 * o.seconds).div_ceil(o.jobs as u64);
    eprintln!(
        "fuzz: {} targets of {} s, {} at a time: about {total} s, seed {}",
        waiting.len(),
        o.seconds,
        o.jobs,
        o.seed
    );
    let mut running: Vec<Running> = Vec::new();
    let mut sum = Sum::default();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < o.jobs
            && let Some(t) = waiting.pop()
        {
            running.push(start(t, o)?);
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut i = 0;
        while i < running.len() {
            let limit = Duration::from_secs(o.seconds) + GRACE;
            let over = running[i].started.elapsed() > limit;
            let ended = running[i].child.try_wait().map_err(|e| e.to_string())?.is_some();
            if over && !ended {
                let _ = running[i].child.kill();
            }
            if ended || over {
                finish(running.swap_remove(i), over && !ended, o, &mut sum)?;
            } else {
                i += 1;
            }
        }
    }
    println!("fuzz: {} targets, {} executions, {} crashes", sum.targets, sum.executions, sum.crashes);
    Ok(sum.crashes == 0)
}

fn start(target: &'static Target, o: &Options) -> Result<Running, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let child = Command::new(me)
        .args(["--child", "--only", target.name, "--folder", &o.folder])
        .args(["--seconds", &o.seconds.to_string(), "--seed", &o.seed.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", target.name))?;
    Ok(Running { target, child, started: Instant::now() })
}

fn finish(r: Running, hung: bool, o: &Options, sum: &mut Sum) -> Result<(), String> {
    let name = r.target.name;
    let out = r.child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout);
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    sum.targets += 1;
    sum.executions += numbers.first().copied().unwrap_or(0);
    let current = format!("{}/artifacts/{name}.current", o.folder);
    if let [executions, reached, corpus] = numbers[..] {
        eprintln!("{name:<20} {executions:>10} executions, {reached:>6} branches, {corpus:>5} inputs");
    }
    if !out.status.success() {
        sum.crashes += 1;
        if numbers.is_empty() {
            // It died without a word: what it was executing is in the file.
            let crash = format!("{}/artifacts/{name}.crash", o.folder);
            let bytes = std::fs::read(&current).unwrap_or_default();
            if let Some((head, body)) = bytes.split_first_chunk::<4>() {
                let len = u32::from_le_bytes(*head) as usize;
                let _ = std::fs::write(&crash, &body[..len.min(body.len())]);
            }
            let how = if hung { "does not end".to_string() } else { format!("died: {}", out.status) };
            eprintln!("{name}: {how} (input in {crash})");
        }
        eprintln!("{name}: again with fuzz/run 0 --only {name} --replay fuzz/artifacts/{name}.crash");
    }
    let _ = std::fs::remove_file(&current);
    Ok(())
}
