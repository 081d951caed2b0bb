//! What only shows between the kernel and the client daemon: waits of every kind that end with their process,
//! signals that are no business of a file's, positions in directories, locks that go with a descriptor.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill, ok_within, run_within, wait_until};

fn script(fs: &TestFs) -> Result<PathBuf> {
    let path = fs.scratch().join("kernel.py");
    // Once: a program that is starting reads it.
    if !path.exists() {
        std::fs::write(&path, include_str!("kernel.py"))?;
    }
    Ok(path)
}

fn program(fs: &TestFs, name: &str) -> Result<Command> {
    let mut c = Command::new("python3");
    c.arg(script(fs)?).arg(name).arg(fs.mount(0));
    Ok(c)
}

const WAITING: &[&str] = &[
    "many_descriptors",
    "record_locks",
    "record_locks",
    "flocks",
    "flocks",
    "page_faults",
    "truncate_under_mapping",
    "run_program",
    "work_in_directory",
    "asynchronous_io",
    "attributes_and_space",
];

/// Programs that run until they are killed: at the latest with the test, whose own error is to be seen.
struct Programs(Vec<(&'static str, Child)>);

impl Programs {
    fn kill(&self) {
        for (_, child) in &self.0 {
            let group = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where a program's standard error goes.
fn words_of(fs: &TestFs, name: &str) -> PathBuf {
    fs.scratch().join(format!("{name}.err"))
}

fn start_all(fs: &TestFs) -> Result<Programs> {
    use std::os::unix::process::CommandExt;
    std::fs::write(fs.mount(0).join("data"), vec![7u8; 4 << 20])?;
    std::fs::copy("/bin/sleep", fs.mount(0).join("program"))?;
    let start = |name: &&'static str| -> Result<_> {
        let mut c = program(fs, name)?;
        let words = std::fs::File::options().create(true).append(true).open(words_of(fs, name))?;
        let child = c.process_group(0).stdout(Stdio::null()).stderr(words).spawn();
        Ok((*name, child.context("start python3")?))
    };
    let mut all = Programs(Vec::new());
    for name in WAITING {
        all.0.push(start(name)?);
    }
    Ok(all)
}

#[test]
fn every_kind_of_wait_ends_with_its_process() -> Result<()> {
    let fs = TestFs::up("waits", 2, 1)?;
    let mut all = start_all(&fs)?;
    std::thread::sleep(Duration::from_secs(2)); // the load itself
    for (name, child) in &mut all.0 {
        let ended = child.try_wait()?;
        let words = std::fs::read_to_string(words_of(&fs, name))?;
        ensure!(ended.is_none(), "{name} ended by itself: {ended:?} {words}");
    }
    let servers = fs.servers()?;
    for &pid in &servers {
        kill(pid, Signal::STOP)?;
    }
    std::thread::sleep(Duration::from_secs(2)); // everybody runs into the stopped servers
    let t = Instant::now();
    all.kill();
    let mut left: Vec<&str> = Vec::new();
    let gone = wait_until("killed processes are gone", Duration::from_secs(2), || {
        left = all.0.iter_mut().filter_map(|(n, c)| matches!(c.try_wait(), Ok(None)).then_some(*n)).collect();
        left.is_empty()
    });
    println!("all gone after {:?}", t.elapsed());
    for pid in servers {
        kill(pid, Signal::CONT)?;
    }
    for (_, child) in &mut all.0 {
        child.wait()?;
    }
    gone.with_context(|| format!("left: {left:?}"))
}

#[test]
fn a_caught_signal_fails_no_call_while_servers_are_away() -> Result<()> {
    let fs = TestFs::up("alarms", 2, 1)?;
    let mut c = program(&fs, "alarms")?;
    let child = c.arg("6").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_secs(1)); // some turns with all servers
    let servers = fs.servers()?;
    for &pid in &servers {
        kill(pid, Signal::STOP)?;
    }
    std::thread::sleep(Duration::from_secs(2)); // the outage
    for pid in servers {
        kill(pid, Signal::CONT)?;
    }
    let out = child.wait_with_output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

#[test]
fn locks_go_with_their_descriptor() -> Result<()> {
    let fs = TestFs::up("ofd", 1, 2)?;
    ok_within(program(&fs, "ofd_locks")?.arg(fs.mount(1)), Duration::from_secs(60)).map(drop)
}

#[test]
fn a_wait_for_a_lock_ends_at_a_signal() -> Result<()> {
    let fs = TestFs::up("lockwait", 1, 2)?;
    ok_within(program(&fs, "interrupted_waits")?.arg(fs.mount(1)), Duration::from_secs(30)).map(drop)
}

#[test]
fn positions_in_a_directory_stay_good() -> Result<()> {
    let fs = TestFs::up("seekdir", 1, 1)?;
    ok_within(&mut program(&fs, "directory_positions")?, Duration::from_secs(120)).map(drop)
}

#[test]
fn a_shut_down_mount_fails_everything_and_can_be_unmounted() -> Result<()> {
    let fs = TestFs::up("shutdown", 1, 2)?;
    std::fs::write(fs.mount(0).join("data"), b"kept")?;
    ok_within(&mut program(&fs, "shutdown")?, Duration::from_secs(20))?;
    let r = std::fs::read(fs.mount(1).join("data"))?;
    ensure!(r == b"kept", "the other mount lives");
    let out = run_within(Command::new("umount").arg(fs.mount(0)), Duration::from_secs(10))?;
    ensure!(out.status.success(), "umount: {}", String::from_utf8_lossy(&out.stderr));
    fs.up_again()?;
    ensure!(std::fs::read(fs.mount(0).join("data"))? == b"kept", "mounted again");
    Ok(())
}

/// open(2) with O_TRUNC of a program that runs is refused, and the program stays whole.
#[test]
fn a_running_program_is_not_cut() -> Result<()> {
    let fs = TestFs::up("running", 2, 2)?;
    let whole = std::fs::metadata("/bin/sleep")?.len();
    for i in 0..20 {
        let path = fs.mount(0).join(format!("program{i}"));
        std::fs::copy("/bin/sleep", &path)?;
        let mut child = Command::new(&path).arg("60").spawn()?;
        let cut = std::fs::OpenOptions::new().write(true).truncate(true).open(&path);
        let cut = cut.err().and_then(|e| e.raw_os_error());
        let (alive, len) = (child.try_wait()?.is_none(), std::fs::metadata(&path)?.len());
        child.kill()?;
        child.wait()?;
        ensure!(cut == Some(26) && alive, "errno {cut:?} (26: ETXTBSY), alive: {alive}");
        ensure!(len == whole && std::fs::metadata(fs.mount(1).join(format!("program{i}")))?.len() == whole);
        // One that runs no more can be.
        std::fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
        ensure!(std::fs::metadata(&path)?.len() == 0);
    }
    fs.fsck()
}
