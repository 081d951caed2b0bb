//! Processes and signals.

use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Lower than that of everything that is not said to be needed; never chosen (-1000) would mean that a daemon
/// that grows without bound ends everything else.
const OOM_SCORE_ADJ: &str = "-900";

pub use libc::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1};

/// A daemon that was just started and belongs to nobody's terminal any more.
pub struct Detached {
    child: Child,
}

impl Detached {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?.map(|s| ExitStatus { status: s.code(), signal: s.signal() }))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub struct ExitStatus {
    /// `None`: a signal ended it.
    pub status: Option<i32>,
    pub signal: Option<i32>,
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.status, self.signal) {
            (Some(c), _) => write!(f, "exit status {c}"),
            (None, Some(s)) => write!(f, "signal {s}"),
            (None, None) => f.write_str("an unknown end"),
        }
    }
}

/// What daemon to start.
#[derive(Clone, Debug)]
pub struct Daemon<'a> {
    pub exe: &'a Path,
    /// The name that `ps` shows.
    pub arg0: &'a str,
    pub args: &'a [OsString],
    /// Variables added to this process' environment.
    pub env: &'a [(&'a str, String)],
    /// Standard error is appended here.
    pub log: &'a Path,
}

/// Starts a daemon in a session of its own, standard input from /dev/null, both outputs appended to the log.
pub fn spawn_detached(d: &Daemon<'_>) -> io::Result<Detached> {
    spawn(d, super::files::open_log(d.log)?.into())
}

/// As [`spawn_detached`], with a pipe from the daemon's standard output: its first line is the report on how
/// starting went.
pub fn spawn_reporting(d: &Daemon<'_>) -> io::Result<(Detached, Report)> {
    let mut child = spawn(d, Stdio::piped())?;
    let out = child.child.stdout.take().expect("it was piped");
    let (tx, rx) = std::sync::mpsc::channel();
    super::thread("report", move || {
        use std::io::BufRead;
        let mut line = String::new();
        let _ = io::BufReader::new(io::Read::take(out, 64 << 10)).read_line(&mut line);
        let _ = tx.send(line);
    })?;
    Ok((child, Report { rx }))
}

/// The line that a starting daemon will print.
pub struct Report {
    rx: std::sync::mpsc::Receiver<String>,
}

impl Report {
    /// The line, empty if the daemon ended without one; `None` if it said nothing in time.
    pub fn wait(&self, d: Duration) -> Option<String> {
        match self.rx.recv_timeout(d) {
            Ok(l) => Some(l.trim_end().to_string()),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Some(String::new()),
        }
    }
}

/// For a daemon started by [`spawn_reporting`], once: prints the report and lets go of the pipe.
pub fn report(line: &str) -> io::Result<()> {
    use std::io::Write;
    let r = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    r
}

/// Name of this process as `top` and `pgrep` show it; at most 15 bytes.
pub fn set_name(name: &str) {
    if let Ok(c) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&c);
    }
}

/// The session of this process.
pub fn own_session() -> u32 {
    rustix::process::getsid(None).map_or(0, |s| s.as_raw_nonzero().get().unsigned_abs())
}

/// State letter of a process (`R`, `S`, `D`, `T` …), `None` if there is none.
pub fn state(pid: u32) -> Option<char> {
    state_in(&format!("/proc/{pid}/status"))
}

/// Not from `stat`, which waits for an execve(2) that is under way, and that may wait for a mount.
fn state_in(file: &str) -> Option<char> {
    let s = std::fs::read_to_string(file).ok()?;
    s.lines().find_map(|l| l.strip_prefix("State:"))?.trim().chars().next()
}

/// Its name as `top` shows it.
pub fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string()
}

fn spawn(d: &Daemon<'_>, out: Stdio) -> io::Result<Detached> {
    let err = super::files::open_log(d.log)?;
    let mut cmd = Command::new(d.exe);
    cmd.arg0(d.arg0).args(d.args).stdin(Stdio::null()).stdout(out).stderr(err).current_dir("/");
    cmd.envs(d.env.iter().map(|(k, v)| (k, v.as_str())));
    // SAFETY: setsid and sigprocmask are async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        cmd.pre_exec(|| {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            Ok(())
        });
    }
    Ok(Detached { child: cmd.spawn()? })
}

/// Becomes this program anew, with other arguments: the same process, of which nothing else is left. Threads
/// that wait for the disk are waited for first. Returns only if that failed.
///
/// Not by `Command::exec`: that lets SIGPIPE end the process from then on, while other threads still write to
/// connections that their peers closed. Signals that are blocked stay so.
pub fn become_anew(arg0: &str, args: &[OsString], env: &[(&str, String)]) -> io::Error {
    let inherited = std::env::vars_os().filter(|(k, _)| env.iter().all(|(name, _)| k != name));
    let added = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let variables = inherited.chain(added).map(|(name, value)| {
        let mut line = name.into_vec();
        line.push(b'=');
        line.extend(value.as_bytes());
        line
    });
    let args = std::iter::once(arg0.as_bytes()).chain(args.iter().map(|a| a.as_bytes())).map(<[u8]>::to_vec);
    let text =
        |lines: &mut dyn Iterator<Item = Vec<u8>>| lines.map(CString::new).collect::<Result<Vec<_>, _>>();
    let (args, variables) = match (text(&mut args.into_iter()), text(&mut variables.into_iter())) {
        (Ok(a), Ok(v)) => (a, v),
        (Err(e), _) | (_, Err(e)) => return e.into(),
    };
    let pointers =
        |all: &[CString]| all.iter().map(|c| c.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    // SAFETY: both arrays end with a null pointer, and what they point to lives until the call returns.
    unsafe {
        libc::execve(c"/proc/self/exe".as_ptr(), pointers(&args).as_ptr(), pointers(&variables).as_ptr())
    };
    io::Error::last_os_error()
}

/// When memory is short the kernel ends other processes first: one that ends here takes a file system with
/// it, or the files that are open in it. Needs root.
pub fn spare_when_memory_is_short() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ)
}

/// How a program ended that was run to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit status; `None` after a signal.
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Finished {
    /// The last line of its standard error, for messages.
    pub fn last_words(&self) -> &str {
        self.err.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it says nothing").trim()
    }
}

impl From<Output> for Finished {
    fn from(o: Output) -> Finished {
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        Finished { status: o.status.code(), out: text(o.stdout), err: text(o.stderr) }
    }
}

/// Runs a program of PATH to its end, without input. Meant for small outputs: they are kept in memory.
pub fn run(program: &str, args: &[&str]) -> io::Result<Finished> {
    Ok(Command::new(program).args(args).stdin(Stdio::null()).output()?.into())
}

/// As [`run`], for a program that may hang, or leave others behind that keep its outputs open: after
/// `patience` it is killed, with an error of the kind `TimedOut`.
pub fn run_within(program: &str, args: &[&str], patience: Duration) -> io::Result<Finished> {
    let mut cmd = Command::new(program);
    let child = cmd.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let (tx, rx) = std::sync::mpsc::channel();
    // It waits for the program whatever becomes of us, so that none stays a zombie.
    super::thread("run", move || drop(tx.send(child.wait_with_output())))?;
    match rx.recv_timeout(patience) {
        Ok(ended) => Ok(ended?.into()),
        Err(_) => {
            // It may have ended, with its outputs open in others.
            let _ = kill(pid, SIGKILL);
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {patience:?}")))
        }
    }
}

/// As [`run`], with these bytes for input. What the program writes to its standard output is thrown away; a
/// program that does not read its input to the end is no mistake.
pub fn run_with_input(program: &str, args: &[&str], input: &[u8]) -> io::Result<Finished> {
    let mut cmd = Command::new(program);
    let mut child =
        cmd.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take();
    let o = std::thread::scope(|s| {
        // Beside: the program may fill its standard error before it reads.
        s.spawn(move || stdin.map(|mut i| i.write_all(input)));
        child.wait_with_output()
    })?;
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    Ok(Finished { status: o.status.code(), out: String::new(), err })
}

/// Runs a program to its end, with this process' environment and outputs. One that takes longer is killed and
/// not waited for, as it may hang in the kernel: `None`.
pub fn run_for(
    exe: &Path,
    arg0: &str,
    args: &[OsString],
    patience: Duration,
) -> io::Result<Option<ExitStatus>> {
    let mut cmd = Command::new(exe);
    let mut child = cmd.arg0(arg0).args(args).stdin(Stdio::null()).spawn()?;
    let ended = super::Deadline::after(patience).wait_for(|| child.try_wait().transpose());
    match ended {
        Some(s) => s.map(|s| Some(ExitStatus { status: s.code(), signal: s.signal() })),
        None => {
            kill(child.id(), SIGKILL)?;
            Ok(None)
        }
    }
}

/// Starts a program in a session of its own, with these for standard input and output.
pub fn spawn_beside(
    exe: &Path,
    arg0: &str,
    args: &[OsString],
    input: OwnedFd,
    output: OwnedFd,
) -> io::Result<()> {
    let mut cmd = Command::new(exe);
    cmd.arg0(arg0).args(args).stdin(input).stdout(output).stderr(Stdio::null()).current_dir("/");
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        cmd.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
    }
    cmd.spawn().map(drop)
}

/// Sends a signal.
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    assert!(pid > 0, "only one process is meant");
    // SAFETY: no memory is involved.
    if unsafe { libc::kill(pid, signal) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether the process exists and any thread of it is not a zombie: one whose first thread has ended already
/// may have others that are on their way out, and holds its files and locks until they are.
pub fn alive(pid: u32) -> bool {
    let ended = |c: char| matches!(c, 'Z' | 'X');
    match state(pid) {
        None => false,
        Some(c) if !ended(c) => true,
        Some(_) => {
            let threads = super::files::list(format!("/proc/{pid}/task")).unwrap_or_default();
            threads
                .iter()
                .any(|t| state_in(&format!("/proc/{pid}/task/{t}/status")).is_some_and(|c| !ended(c)))
        }
    }
}

/// All process ids this process sees.
pub fn pids() -> Vec<u32> {
    super::files::list("/proc").unwrap_or_default().iter().filter_map(|n| n.parse().ok()).collect()
}

/// The command line, argument by argument. Waits while the process changes its memory, which may wait for a
/// mount: not to be asked of all processes of a host.
pub fn arguments(pid: u32) -> Vec<String> {
    let raw = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut parts: Vec<String> =
        raw.split(|b| *b == 0).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    parts.pop_if(|p| p.is_empty());
    parts
}

/// Whether a process was started with this variable in its environment.
pub fn has_variable(pid: u32, name: &str) -> bool {
    let raw = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let prefix = format!("{name}=");
    raw.split(|b| *b == 0).any(|v| v.starts_with(prefix.as_bytes()))
}

/// The program this process runs.
pub fn own_executable() -> io::Result<std::path::PathBuf> {
    std::env::current_exe()
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero set is overwritten by sigemptyset before use.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live sigset_t; wrong numbers only make sigaddset fail.
    unsafe {
        libc::sigemptyset(&mut set);
        for s in signals {
            libc::sigaddset(&mut set, *s);
        }
    }
    set
}

/// Takes signals out of normal delivery, to be fetched with [`wait_signal`]. Call before any thread starts.
pub fn block_signals(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: a live set; the old mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Gives signals back to normal delivery: one that came meanwhile is delivered.
pub fn unblock_signals(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: a live set; the old mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// The next of the blocked `signals`, `None` when `d` passed first.
pub fn wait_signal(signals: &[i32], d: Duration) -> Option<i32> {
    let set = set_of(signals);
    let ts = libc::timespec { tv_sec: d.as_secs() as libc::time_t, tv_nsec: i64::from(d.subsec_nanos()) };
    // SAFETY: live set and time; no siginfo is wanted.
    let s = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &ts) };
    (s > 0).then_some(s)
}

/// Lifts the soft limit of open files to the hard one: a server holds a file for many objects.
pub fn raise_open_files() {
    let mut lim = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `lim` is a live rlimit both calls read or write.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut lim) == 0 && lim.rlim_cur < lim.rlim_max {
            lim.rlim_cur = lim.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &lim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Deadline;

    const SOON: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_that_ends_in_time_says_what_it_said() {
        let f = run_within("sh", &["-c", "echo out; echo err >&2; exit 3"], LONG).unwrap();
        assert_eq!((f.status, f.out.as_str(), f.err.as_str()), (Some(3), "out\n", "err\n"));
    }

    #[test]
    fn outputs_that_others_keep_open_are_not_waited_for_without_bound() {
        let end = Deadline::after(LONG);
        let e = run_within("sh", &["-c", "sleep 30 & echo out"], SOON).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert!(!end.passed(), "it is given up long before that");
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_is_no_zombie_then() {
        let note = std::env::temp_dir().join(format!("nacre-hangs-{}", std::process::id()));
        let script = format!("echo $$ >{}; exec sleep 30", note.display());
        let e = run_within("sh", &["-c", &script], SOON).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        let pid: u32 = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
        let _ = std::fs::remove_file(&note);
        assert!(Deadline::after(LONG).wait_for(|| state(pid).is_none().then_some(())).is_some());
    }
}
