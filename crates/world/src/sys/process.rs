//! Processes and signals.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub use libc::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1};

/// A daemon that was just started and belongs to nobody's terminal any more.
pub struct Detached {
    child: Child,
}

impl Detached {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        let words = |s: std::process::ExitStatus| match (s.code(), s.signal()) {
            (Some(c), _) => format!("exit status {c}"),
            (None, Some(s)) => format!("signal {s}"),
            (None, None) => "an unknown end".to_string(),
        };
        Ok(self.child.try_wait()?.map(words))
    }
}

/// Starts `exe` in a session of its own, with `arg0` and `args` as `ps` shows them, standard input from
/// /dev/null and both outputs appended to `log`.
pub fn spawn_detached(exe: &Path, arg0: &str, args: &[OsString], log: &Path) -> io::Result<Detached> {
    let out = super::files::open_log(log)?;
    let err = out.try_clone()?;
    let mut cmd = Command::new(exe);
    cmd.arg0(arg0).args(args).stdin(Stdio::null()).stdout(out).stderr(err).current_dir("/");
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

/// Whether the process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(s) => s.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z') && !rest.starts_with('X')),
        Err(_) => false,
    }
}

/// All process ids this process sees.
pub fn pids() -> Vec<u32> {
    super::files::list("/proc").unwrap_or_default().iter().filter_map(|n| n.parse().ok()).collect()
}

/// The command line, argument by argument.
pub fn arguments(pid: u32) -> Vec<String> {
    let raw = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut parts: Vec<String> = raw.split(|b| *b == 0).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    parts.pop_if(|p| p.is_empty());
    parts
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
