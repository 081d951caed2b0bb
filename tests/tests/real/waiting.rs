//! Operations that wait for somebody else, many at once: nobody else waits for them, and all of them can be
//! ended.

use anyhow::{Context, Result, ensure};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, stripe_64k, tool, wait_until};

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

/// Plain ls(1) of a directory with files on a dead OST, and df(1) with every server dead, by itself or among
/// all mounts of the host: whoever only lists waits for no server.
#[test]
fn who_lists_waits_for_no_server() -> Result<()> {
    let fs = TestFs::up("away", 2, 1)?;
    let (dir, soon) = (fs.mount(0), Duration::from_secs(10));
    for i in 0..8 {
        let f = dir.join(format!("f{i}"));
        stripe_64k(&f, 1)?;
        fs::write(&f, "text")?;
    }
    // What the mount keeps under locks it need not ask for.
    ok_within(tool("lctl").args(["set_param", "ldlm.namespaces.*.lru_size=clear"]), soon)?;
    let processes = fs.processes()?;
    let ost = processes.iter().rfind(|(role, _)| role == "oss").context("no process of OSTs")?;
    kill(ost.1, Signal::KILL)?;
    let ls = || ok_within(Command::new("ls").arg("-U").arg(dir), soon);
    ensure!(ls()?.lines().count() == 8);
    let total = |args: &[&str]| -> Result<u64> {
        let text = ok_within(Command::new("df").args(args).arg("--output=size").arg(dir), soon)?;
        text.lines().nth(1).and_then(|l| l.trim().parse().ok()).with_context(|| format!("df printed {text}"))
    };
    let whole = total(&[])?;
    for pid in fs.servers()? {
        kill(pid, Signal::KILL)?;
    }
    ensure!(total(&[])? == whole, "df shows what it showed before");
    // Its status is that of the worst mount of the host; another test's may be ending just now.
    let all = run_within(&mut Command::new("df"), soon)?;
    let (shown, said) = (String::from_utf8_lossy(&all.stdout), String::from_utf8_lossy(&all.stderr));
    let dir = dir.to_str().context("a plain name")?;
    ensure!(shown.contains(dir) && !said.contains(dir), "df printed {shown} and {said}");
    fs.up_again()?;
    Ok(())
}
