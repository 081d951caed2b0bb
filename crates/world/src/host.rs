//! What the kernel tells about other tasks, for the FUSE side: groups of a caller, whether it is being
//! killed.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Largest /proc file read here.
const STATUS_MAX_BYTES: usize = 1 << 20;
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

fn read_proc(path: &str) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::retry_on_intr;
    let fd = retry_on_intr(|| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))?;
    let mut buf = vec![0; 4096];
    let mut len = 0;
    loop {
        match retry_on_intr(|| rustix::io::read(&fd, &mut buf[len..]))? {
            0 => break,
            n => len += n,
        }
        if len == buf.len() {
            if len >= STATUS_MAX_BYTES {
                break;
            }
            buf.resize(len * 2, 0);
        }
    }
    buf.truncate(len);
    Ok(String::from_utf8_lossy(&buf).into_owned())
}

fn status_of(tid: u32) -> io::Result<String> {
    read_proc(&format!("/proc/{tid}/status"))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn parse_groups(status: &str, uid: u32, gid: u32) -> Option<Vec<u32>> {
    // Real, effective, saved, and the one that counts for files.
    let fs = |name| field(status, name)?.split_ascii_whitespace().nth(3)?.parse::<u32>().ok();
    if fs("Uid")? != uid || fs("Gid")? != gid {
        return None;
    }
    field(status, "Groups")?.split_ascii_whitespace().map(|g| g.parse().ok()).collect()
}

fn parse_fatal(status: &str) -> bool {
    let pending = |name| {
        field(status, name)
            .and_then(|v| u64::from_str_radix(v, 16).ok())
            .is_some_and(|bits| bits & SIGKILL_BIT != 0)
    };
    pending("SigPnd")
        || pending("ShdPnd")
        || field(status, "State").is_some_and(|s| s.starts_with(['Z', 'X']))
}

/// Supplementary groups of a thread that acts as this user and group. `None` if it is gone or hidden from us,
/// or has other ids itself: then it acts with credentials of somebody else's (io_uring personalities, a file
/// server), whose groups nobody tells, and its own must not count.
pub fn groups_of(tid: u32, uid: u32, gid: u32) -> Option<Vec<u32>> {
    parse_groups(&status_of(tid).ok()?, uid, gid)
}

/// The name of the program that a thread runs, as the kernel has it (15 bytes); `None` if it is gone.
pub fn command_of(tid: u32) -> Option<String> {
    Some(read_proc(&format!("/proc/{tid}/comm")).ok()?.trim_end_matches('\n').to_string())
}

/// The session that a thread belongs to.
pub fn session_of(tid: u32) -> Option<u32> {
    field(&status_of(tid).ok()?, "NSsid")?.split_ascii_whitespace().next()?.parse().ok()
}

/// Looks into environments that are under way, at most.
const LOOKS_MAX: usize = 8;
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// One of those, until it is dropped.
struct LookIn;

impl LookIn {
    fn begin() -> Option<LookIn> {
        let begun = LookIn;
        (LOOKS.fetch_add(1, Ordering::Relaxed) < LOOKS_MAX).then_some(begun)
    }
}

impl Drop for LookIn {
    fn drop(&mut self) {
        LOOKS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn parse_variable(environ: &str, name: &str) -> Option<String> {
    environ.split('\0').find_map(|v| v.strip_prefix(name)?.strip_prefix('=')).map(str::to_string)
}

/// A variable of the environment with which the program of a thread was started. `None` if it has none, may
/// not be looked at, or takes longer than `patience`: the kernel makes whoever looks wait for an execve(2) of
/// the process that is under way and for changes of its memory, which may wait for who looks. The look
/// itself goes on, on a thread of its own.
pub fn variable_of(tid: u32, name: &str, patience: Duration) -> Option<String> {
    let look = LookIn::begin()?;
    let (tx, rx) = std::sync::mpsc::channel();
    let name = name.to_string();
    let read = move || {
        let found = read_proc(&format!("/proc/{tid}/environ")).ok().and_then(|e| parse_variable(&e, &name));
        drop(look);
        let _ = tx.send(found);
    };
    crate::sys::thread("environ", read).ok()?;
    rx.recv_timeout(patience).ok().flatten()
}

/// Whether a thread is gone, a zombie, or has SIGKILL waiting for it: nobody will take its answer. The
/// kernel turns any fatal signal of a process into SIGKILL for each of its threads. A thread that cannot be
/// looked at (other than for being gone) counts as alive.
pub fn fatal_signal_pending(tid: u32) -> bool {
    match status_of(tid) {
        Ok(s) => parse_fatal(&s),
        Err(e) => matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

/// Whether a process is on its way out: the signal that ended it is not pending any more, and it holds its
/// files and locks until it is gone.
pub fn exits(pid: u32) -> bool {
    read_proc(&format!("/proc/{pid}/stat")).is_ok_and(|s| parse_exits(&s))
}

/// `PF_EXITING` among the flags, the ninth field of `/proc/PID/stat` (proc(5)): the seventh behind the name.
fn parse_exits(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6));
    flags.and_then(|f| f.parse::<u64>().ok()).is_some_and(|f| f & PF_EXITING != 0)
}

/// Memory that this process may have: the host's, or what a control group around it (version 2, a
/// container's) leaves it. `None`: the kernel does not say.
pub fn memory_bytes() -> Option<u64> {
    let meminfo = read_proc("/proc/meminfo").ok()?;
    let kib: u64 = field(&meminfo, "MemTotal")?.split_ascii_whitespace().next()?.parse().ok()?;
    let group = read_proc("/proc/self/cgroup").unwrap_or_default();
    let limits = memory_limits(&group, |path| read_proc(path).ok());
    Some(limits.into_iter().fold(kib.saturating_mul(1024), u64::min))
}

/// The bounds of a control group and of those around it.
fn memory_limits(group: &str, read: impl Fn(&str) -> Option<String>) -> Vec<u64> {
    let Some(path) = group.lines().find_map(|l| l.strip_prefix("0::")) else { return Vec::new() };
    let around = std::path::Path::new(path).ancestors();
    let limit = |at: &std::path::Path| {
        let at = at.to_str()?.trim_end_matches('/');
        read(&format!("/sys/fs/cgroup{at}/memory.max"))?.trim().parse().ok()
    };
    around.filter_map(limit).collect()
}

/// f_type, total and available bytes of the host file system that holds `path`.
pub fn statfs(path: &str) -> io::Result<(i64, u64, u64)> {
    let s = rustix::io::retry_on_intr(|| rustix::fs::statfs(path))?;
    let unit = s.f_bsize as u64;
    Ok((s.f_type as i64, s.f_blocks.saturating_mul(unit), s.f_bavail.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_status_and_a_task_that_is_not() {
        let own = std::process::id();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert!(groups_of(own, uid, gid).is_some());
        assert_eq!(groups_of(own, uid + 1, gid), None, "it acts as somebody else");
        assert!(!fatal_signal_pending(own));
        assert_eq!(groups_of(u32::MAX / 2, uid, gid), None);
        assert!(fatal_signal_pending(u32::MAX / 2));
        assert!(!exits(own) && !exits(u32::MAX / 2));
        assert!(parse_exits("12 (a) b) R 1 12 12 0 -1 4194308 0 0"));
        assert!(!parse_exits("12 (a 4) R 1 12 12 0 -1 4194304 4 4") && !parse_exits("12 (a"));
        assert!(statfs("/").unwrap().1 > 0);
    }

    #[test]
    fn program_session_and_environment_of_a_process() {
        let own = std::process::id();
        assert!(command_of(own).is_some_and(|c| !c.is_empty() && c.len() <= 15));
        assert!(session_of(own).is_some());
        let path = variable_of(own, "PATH", Duration::from_secs(10));
        assert_eq!(path, std::env::var("PATH").ok());
        assert_eq!(variable_of(own, "PAT", Duration::from_secs(10)), None);
        let gone = u32::MAX / 2;
        assert_eq!((command_of(gone), session_of(gone)), (None, None));
        assert_eq!(variable_of(gone, "PATH", Duration::from_secs(10)), None);
        assert_eq!(parse_variable("AB=1\0A=x=y\0B=", "A").as_deref(), Some("x=y"));
        assert_eq!(parse_variable("AB=1\0A=x=y\0B=", "B").as_deref(), Some(""));
    }

    #[test]
    fn the_smallest_bound_of_memory_counts() {
        assert!(memory_bytes().is_some_and(|b| b > 64 << 20));
        let read = |path: &str| match path {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_string()),
            "/sys/fs/cgroup/a/memory.max" => Some("1048576\n".to_string()),
            "/sys/fs/cgroup/memory.max" => Some("4194304\n".to_string()),
            _ => None,
        };
        assert_eq!(memory_limits("12:cpu:/x\n0::/a/b\n", read), [1 << 20, 4 << 20]);
        assert_eq!(memory_limits("0::/\n", read), [4 << 20]);
        assert!(memory_limits("0::/c\n", |_| None).is_empty() && memory_limits("", read).is_empty());
    }

    #[test]
    fn status_text_is_understood() {
        let s = "Name:\tGroups: 1\nState:\tS (sleeping)\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t4 24 1000 \nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
        assert_eq!(parse_groups(s, 4, 8), Some(vec![4, 24, 1000]));
        assert_eq!((parse_groups(s, 2, 8), parse_groups(s, 4, 6)), (None, None));
        assert!(!parse_fatal(s));
        assert!(parse_fatal(&s.replace("ShdPnd:\t0000000000000000", "ShdPnd:\t0000000000000100")));
        assert!(parse_fatal(&s.replace("SigPnd:\t0000000000000000", "SigPnd:\t0000000000004100")));
        assert!(!parse_fatal(&s.replace("SigPnd:\t0000000000000000", "SigPnd:\t0000000000004000")));
        assert!(parse_fatal(&s.replace("S (sleeping)", "Z (zombie)")));
        assert_eq!(parse_groups("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\n", 0, 0), Some(vec![]));
    }
}
