//! Operations that wait for somebody else, many at once: nobody else waits for them, and all of them can be ended.

use anyhow::{Context, Result, ensure};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, run_within, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const WAITING: usize = 240;
const KILLED: usize = 60;
/// flock(2) in /proc/PID/syscall on x86_64 and aarch64.
const FLOCK: [&str; 2] = ["73 ", "32 "];

fn waits(c: &Child) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/syscall", c.id())).unwrap_or_default();
    FLOCK.iter().any(|n| text.starts_with(n))
}

fn ended(all: &mut [Child]) -> bool {
    all.iter_mut().all(|c| c.try_wait().is_ok_and(|s| s.is_some()))
}

/// Whatever happens, nobody waits after the test.
struct Waiters(Vec<Child>);

impl Drop for Waiters {
    fn drop(&mut self) {
        for c in &mut self.0 {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn waiters(file: &Path) -> Result<Waiters> {
    let one = || {
        let mut c = Command::new("flock");
        c.arg(file).args(["true"]).stdin(Stdio::null()).spawn().context("start flock(1)")
    };
    let all = Waiters((0..WAITING).map(|_| one()).collect::<Result<_>>()?);
    wait_until("all of them wait", LIMIT, || all.0.iter().all(waits))?;
    Ok(all)
}

fn others_work(dir: &Path) -> Result<()> {
    for i in 0..100 {
        let f = dir.join(format!("f{i}"));
        fs::write(&f, vec![i as u8; 100_000])?;
        ensure!(fs::read(&f)?.len() == 100_000, "{}", f.display());
        fs::remove_file(&f)?;
    }
    Ok(())
}

#[test]
fn many_wait_and_others_work() -> Result<()> {
    let fs = TestFs::up("wait", 1, 1)?;
    let lock = fs.mount(0).join("lock");
    let held = File::create(&lock)?;
    rustix::fs::flock(&held, FlockOperation::LockExclusive)?;
    let mut all = waiters(&lock)?;
    others_work(fs.mount(0))?;
    for c in &all.0[..KILLED] {
        kill(c.id() as i32, Signal::KILL)?;
    }
    wait_until("who was killed is gone", LIMIT, || ended(&mut all.0[..KILLED]))?;
    others_work(fs.mount(0))?;
    ensure!(all.0[KILLED..].iter().all(waits), "the others wait");
    drop(held);
    wait_until("the others had their turn", LIMIT, || ended(&mut all.0))?;
    for c in &mut all.0[KILLED..] {
        ensure!(c.wait()?.success(), "flock(1) saw an error");
    }
    others_work(fs.mount(0))?;
    // The mount as a whole can be ended while many wait.
    rustix::fs::flock(&File::open(&lock)?, FlockOperation::NonBlockingLockExclusive)?;
    let held = File::open(&lock)?;
    rustix::fs::flock(&held, FlockOperation::LockExclusive)?;
    let mut all = waiters(&lock)?;
    let out = run_within(Command::new("umount").args(["-f", "-l"]).arg(fs.mount(0)), LIMIT)?;
    ensure!(out.status.success(), "{out:?}");
    wait_until("nobody waits any more", LIMIT, || ended(&mut all.0))?;
    drop(held);
    Ok(())
}
