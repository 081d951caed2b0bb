//! A file system for one test: made by `nacre up` in a folder of its own, taken down and removed when the
//! test ends, also when it panics.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Folder of the programs under test: that of this test's build.
pub fn bin_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_path_buf()
}

/// A program of Nacre by the name users call it (`lfs`, `nacre`, `mount.nacre`).
pub fn tool(name: &str) -> Command {
    let path = bin_dir().join(name);
    let mut c = Command::new(if path.exists() { path } else { bin_dir().join("nacre") });
    if !bin_dir().join(name).exists() && name != "nacre" {
        c.arg(name);
    }
    c
}

/// A foreign program that the tests need: from PATH, or from the kit that `scripts/install-test-deps.sh`
/// made.
pub fn kit(name: &str) -> PathBuf {
    let kit = std::env::var("NACRE_KIT").map(PathBuf::from).unwrap_or_else(|_| bin_dir().join("../kit"));
    let in_kit = kit.join("bin").join(name);
    if in_kit.exists() {
        return in_kit;
    }
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        if dir.join(name).exists() {
            return dir.join(name);
        }
    }
    panic!("'{name}' is missing: run scripts/install-test-deps.sh");
}

/// Runs a command to its end within `limit`; its process group is killed when it takes longer.
pub fn run_within(cmd: &mut Command, limit: Duration) -> Result<Output> {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    let shown = format!("{cmd:?}");
    let mut child = cmd
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {shown}"))?;
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let out = std::thread::spawn(move || {
        let mut v = Vec::new();
        let _ = out.read_to_end(&mut v);
        v
    });
    let err = std::thread::spawn(move || {
        let mut v = Vec::new();
        let _ = err.read_to_end(&mut v);
        v
    });
    let end = Instant::now() + limit;
    let mut status = None;
    // Something that it started and that lives on may have its output.
    while status.is_none() || !out.is_finished() || !err.is_finished() {
        status = child.try_wait()?;
        if Instant::now() > end {
            let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            let _ = child.wait();
            // Whoever made a group of its own is alive.
            let _ = wait_until("its output ends", Duration::from_secs(1), || {
                out.is_finished() && err.is_finished()
            });
            let said = |h: std::thread::JoinHandle<Vec<u8>>| {
                if h.is_finished() {
                    h.join().unwrap_or_default()
                } else {
                    b"(its output is still open)".to_vec()
                }
            };
            bail!("{shown} took longer than {limit:?}\n{}", tail(&said(out), &said(err)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = status.expect("the loop's condition");
    Ok(Output { status, stdout: out.join().unwrap_or_default(), stderr: err.join().unwrap_or_default() })
}

fn tail(out: &[u8], err: &[u8]) -> String {
    let mut s = String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err);
    if s.len() > 6000 {
        let mut at = s.len() - 6000;
        while !s.is_char_boundary(at) {
            at += 1;
        }
        s = s.split_off(at);
    }
    s
}

/// Makes a file, or sets what is made in a folder, with pieces of 64 KiB over so many OSTs.
pub fn stripe_64k(path: &Path, stripes: u32) -> Result<()> {
    let count = stripes.to_string();
    let cmd = &mut tool("lfs");
    ok_within(cmd.args(["setstripe", "-c", &count, "-S", "64k"]).arg(path), Duration::from_secs(10)).map(drop)
}

/// Makes a file with pieces of 64 KiB on these OSTs.
pub fn stripe_on(path: &Path, osts: &str) -> Result<()> {
    let cmd = &mut tool("lfs");
    ok_within(cmd.args(["setstripe", "-S", "64k", "-o", osts]).arg(path), Duration::from_secs(60)).map(drop)
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As [`run_within`], and exit status 0 is required; returns what it printed on standard output.
pub fn ok_within(cmd: &mut Command, limit: Duration) -> Result<String> {
    let shown = format!("{cmd:?}");
    let o = run_within(cmd, limit)?;
    ensure!(o.status.success(), "{shown} ended with {}\n{}", o.status, tail(&o.stdout, &o.stderr));
    Ok(String::from_utf8_lossy(&o.stdout).into_owned())
}

/// How long a command may take that asks its host.
const ASK_LIMIT: Duration = Duration::from_secs(60);
/// For a command of `nacre` that works on whole targets.
const NACRE_LIMIT: Duration = Duration::from_secs(120);

/// `lctl` with these words, required to succeed; what it printed.
pub fn lctl(args: &[&str]) -> Result<String> {
    ok_within(tool("lctl").args(args), ASK_LIMIT)
}

/// `nacre` with these words, required to succeed; what it printed.
pub fn nacre(args: &[&str]) -> Result<String> {
    ok_within(tool("nacre").args(args), NACRE_LIMIT)
}

/// The document that `nacre` with these words printed.
pub fn nacre_json(args: &[&str]) -> Result<Value> {
    let text = nacre(args)?;
    serde_json::from_str(&text).with_context(|| format!("{args:?} printed {text}"))
}

/// A program fails with this status and these words.
pub fn fails(program: &str, args: &[&str], code: i32, part: &str) -> Result<()> {
    let o = run_within(tool(program).args(args), ASK_LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(code) && said.contains(part), "{args:?}: {}: {said}", o.status);
    Ok(())
}

/// A shell line, required to succeed.
pub fn sh(line: &str, limit: Duration) -> Result<String> {
    ok_within(Command::new("bash").args(["-euo", "pipefail", "-c", line]), limit)
}

/// Waits for a condition, asking ten times a second.
pub fn wait_until(what: &str, limit: Duration, mut cond: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + limit;
    while !cond() {
        ensure!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Where the threads of a process group stand: for the message of a test in which they should have ended.
pub fn where_they_stand(group: i32) -> String {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.path());
    all.filter(|p| stat_of(p, 2).and_then(|g| g.parse().ok()) == Some(group))
        .map(|p| threads_of(&p))
        .collect()
}

/// A field of a task's `stat` after its name: 0 is the state, 1 the parent, 2 the group.
fn stat_of(task: &Path, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    // A name may hold anything but ends at the last bracket.
    stat.rsplit(')').next()?.split_whitespace().nth(field).map(str::to_string)
}

/// State and kernel stack of each thread of a process, a line each.
fn threads_of(process: &Path) -> String {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten().map(|e| e.path());
    let line = |t: PathBuf| {
        let stack = std::fs::read_to_string(t.join("stack")).unwrap_or_default();
        let calls: Vec<&str> = stack.lines().filter_map(|l| l.split_whitespace().nth(1)).take(12).collect();
        format!("\n{} {} {}", t.display(), stat_of(&t, 0).unwrap_or_default(), calls.join(" < "))
    };
    threads.map(line).collect()
}

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A scratch folder that goes with the test. A test that leaves mounts or processes of it behind fails: the
/// next one would see them (`lctl` asks everything of its host).
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let n = SERIAL.fetch_add(1, Ordering::Relaxed);
        let p = std::env::temp_dir().join(format!("nacre-test-{}-{n}-{name}", std::process::id()));
        std::fs::create_dir_all(&p).expect("make a scratch folder");
        Scratch(p)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Mounts below the folder, the last one first.
    fn mounts(&self) -> Vec<PathBuf> {
        let all = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let dirs = all.lines().rev().filter_map(|l| l.split(' ').nth(1)).map(PathBuf::from);
        dirs.filter(|d| d.starts_with(&self.0)).collect()
    }

    /// Processes that name the folder in their command lines, with these.
    fn processes(&self) -> Vec<(i32, String)> {
        let name = self.0.to_str().expect("made of plain words");
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        let line = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.map(|p| (p, line(p).replace('\0', " "))).filter(|(_, l)| l.contains(name)).collect()
    }

    /// Ends what the test left behind; its words.
    fn sweep(&self) -> Option<String> {
        let gone = || self.mounts().is_empty() && self.processes().is_empty();
        wait_until("mounts and processes of the test are gone", Duration::from_secs(10), gone).err()?;
        let (mounts, processes) = (self.mounts(), self.processes());
        let stand: String =
            processes.iter().map(|(p, _)| threads_of(Path::new(&format!("/proc/{p}")))).collect();
        for m in &mounts {
            let _ = Command::new("umount").arg("-fl").arg(m).stderr(Stdio::null()).status();
        }
        for (pid, _) in &processes {
            let _ = kill(*pid, rustix::process::Signal::KILL);
        }
        Some(format!("the test left behind: mounts {mounts:?}, processes {processes:?}{stand}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let left = self.sweep();
        if std::thread::panicking() && std::env::var_os("NACRE_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
        match left {
            Some(left) if !std::thread::panicking() => panic!("{left}"),
            Some(left) => eprintln!("{left}"),
            None => {}
        }
    }
}

/// A running file system with its mounts.
pub struct TestFs {
    scratch: Scratch,
    mounts: Vec<PathBuf>,
    osts: u32,
    fsname: String,
    /// Something looks after the daemons.
    watched: bool,
    /// Environment of the daemons.
    env: Vec<(&'static str, String)>,
    /// More arguments of `nacre up`.
    args: Vec<&'static str>,
}

impl TestFs {
    pub fn up(name: &str, osts: u32, mounts: usize) -> Result<TestFs> {
        TestFs::up_with(name, osts, mounts, Vec::new())
    }

    /// As `up`, the daemons with some environment variables more.
    pub fn up_with(name: &str, osts: u32, mounts: usize, env: Vec<(&'static str, String)>) -> Result<TestFs> {
        TestFs::made(name, osts, mounts, env, false, Vec::new())
    }

    /// As `up`, with more arguments of `nacre up`.
    pub fn up_as(name: &str, osts: u32, mounts: usize, args: Vec<&'static str>) -> Result<TestFs> {
        TestFs::made(name, osts, mounts, Vec::new(), false, args)
    }

    /// As `up`, and what is killed is started again, as users have it.
    pub fn up_watched(name: &str, osts: u32, mounts: usize) -> Result<TestFs> {
        TestFs::made(name, osts, mounts, Vec::new(), true, Vec::new())
    }

    fn made(
        name: &str,
        osts: u32,
        mounts: usize,
        env: Vec<(&'static str, String)>,
        watched: bool,
        args: Vec<&'static str>,
    ) -> Result<TestFs> {
        let scratch = Scratch::new(name);
        let mounts = (0..mounts).map(|i| scratch.path().join(format!("mnt{i}"))).collect();
        let fsname = format!("t{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let fs = TestFs { scratch, mounts, osts, fsname, watched, env, args };
        fs.up_again()?;
        Ok(fs)
    }

    /// `nacre up` on what is there: starts what is dead.
    pub fn up_again(&self) -> Result<()> {
        ok_within(&mut self.up_command(), Duration::from_secs(90)).map(drop)
    }

    pub fn up_command(&self) -> Command {
        let mut c = tool("nacre");
        c.arg("up").arg("--dir").arg(self.dir());
        for m in &self.mounts {
            c.arg("--mount").arg(m);
        }
        c.envs(self.env.iter().map(|(k, v)| (*k, v.as_str())));
        c.args(["--osts", &self.osts.to_string(), "--fsname", &self.fsname]);
        c.args(&self.args);
        if !self.watched {
            // A test kills, and starts again when it wants to.
            c.arg("--no-watch");
        }
        c
    }

    pub fn down(&self) -> Result<()> {
        ok_within(tool("nacre").arg("down").arg("--dir").arg(self.dir()), Duration::from_secs(60)).map(drop)
    }

    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("fs")
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub fn mount(&self, i: usize) -> &Path {
        &self.mounts[i]
    }

    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    pub fn fsname(&self) -> &str {
        &self.fsname
    }

    pub fn status(&self) -> Result<Value> {
        let text = ok_within(
            tool("nacre").arg("status").arg("--dir").arg(self.dir()).arg("--json"),
            Duration::from_secs(30),
        )?;
        serde_json::from_str(&text).with_context(|| format!("status --json printed {text}"))
    }

    /// (role, pid) of every process that should run; pid 0 if it is dead.
    pub fn processes(&self) -> Result<Vec<(String, i32)>> {
        let status = self.status()?;
        let list = status["processes"].as_array().context("status has no list of processes")?;
        Ok(list
            .iter()
            .map(|p| (p["role"].as_str().unwrap_or("?").to_string(), p["pid"].as_i64().unwrap_or(0) as i32))
            .collect())
    }

    /// Pids of the servers.
    pub fn servers(&self) -> Result<Vec<i32>> {
        let serves = |role: &str| role != "client" && role != "console";
        Ok(self.processes()?.into_iter().filter(|(r, p)| serves(r) && *p > 0).map(|(_, p)| p).collect())
    }

    /// The process that serves the metadata target.
    pub fn mds(&self) -> Result<i32> {
        let all = self.processes()?;
        let it = all.iter().find(|(role, pid)| role.contains("mds") && *pid > 0);
        it.map(|(_, pid)| *pid).with_context(|| format!("no metadata server: {all:?}"))
    }

    /// The process that serves an OST.
    pub fn oss(&self, index: usize) -> Result<i32> {
        let all = self.processes()?;
        let mut osts = all.iter().filter(|(role, _)| role == "oss");
        osts.nth(index).map(|(_, pid)| *pid).with_context(|| format!("no server of OST {index}: {all:?}"))
    }

    /// Pids of the client daemons.
    pub fn clients(&self) -> Result<Vec<i32>> {
        Ok(self.processes()?.into_iter().filter(|(r, p)| r == "client" && *p > 0).map(|(_, p)| p).collect())
    }

    /// Takes the file system down and checks it offline.
    pub fn fsck(&self) -> Result<()> {
        self.down()?;
        fsck_when_free([self.dir()])
    }
}

/// Checks the folders of targets, which must be clean, as soon as nobody has them: a process that ends loses
/// its command line, by which tests look for it, a moment before its locks.
pub fn fsck_when_free(dirs: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<()> {
    let dirs: Vec<PathBuf> = dirs.into_iter().map(|d| d.as_ref().to_path_buf()).collect();
    let mut outcome = Ok(());
    let free = wait_until("nobody has the targets any more", Duration::from_secs(20), || {
        outcome = ok_within(tool("nacre").arg("fsck").args(&dirs), Duration::from_secs(300)).map(drop);
        !outcome.as_ref().is_err_and(|e| format!("{e:#}").contains("is in use by"))
    });
    outcome.and(free)
}

/// Sends a signal to a process that this test started.
pub fn kill(pid: i32, signal: rustix::process::Signal) -> Result<()> {
    let p = rustix::process::Pid::from_raw(pid).context("pid 0")?;
    Ok(rustix::process::kill_process(p, signal)?)
}

/// Kills processes that this test started, and waits until they are gone.
pub fn kill_all(pids: &[i32], limit: Duration) -> Result<()> {
    pids.iter().try_for_each(|p| kill(*p, rustix::process::Signal::KILL))?;
    wait_until("who was killed is gone", limit, || !pids.iter().any(|p| alive(*p)))
}

/// Whether the process is there (a zombie is not).
pub fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| s.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])))
}

impl Drop for TestFs {
    fn drop(&mut self) {
        // stopped servers cannot be asked to go
        for pid in self.servers().unwrap_or_default() {
            let _ = kill(pid, rustix::process::Signal::CONT);
        }
        if self.down().is_err() {
            for m in &self.mounts {
                let _ = Command::new("umount").arg("-fl").arg(m).stderr(Stdio::null()).status();
            }
            for (_, pid) in self.processes().unwrap_or_default() {
                if pid > 0 {
                    let _ = kill(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }
}
