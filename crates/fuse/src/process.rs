//! What is known of the process that waits for an answer, from /proc.
//!
//! Only files of /proc are read that take no lock of the process they are about. `stat`, `cmdline`, `stack`
//! and others wait for an execve(2) that is under way, and that may be waiting for us: it closes the
//! descriptors that are not passed on, and each FLUSH has to be answered first.

use world::sys::files::read_to_string;
use world::sys::process::state;

/// What a look at a waiting thread found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lives,
    /// It is being killed, is exiting, or its process is gone: nobody wants the answer.
    Dying,
    /// The thread is gone, and of which process it was is not known: one that goes on may want the answer.
    Unknown,
}

fn hex_field(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|v| u64::from_str_radix(v.trim(), 16).ok()).unwrap_or(0)
}

fn number_field(status: &str, key: &str) -> Option<u32> {
    status.lines().find_map(|l| l.strip_prefix(key))?.trim().parse().ok()
}

/// Signals whose default action ends the process: all but those that stop it, continue it or are ignored.
fn deadly(signals: u64) -> u64 {
    let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH, libc::SIGSTOP, libc::SIGTSTP]
        .into_iter()
        .chain([libc::SIGTTIN, libc::SIGTTOU]);
    harmless.fold(signals, |s, n| s & !(1 << (n - 1)))
}

/// Judges by the text of /proc/TID/status: a pending signal that will end the process counts as its end.
/// SIGKILL cannot be blocked; others count if they are neither blocked nor ignored nor caught.
fn dying_by_status(status: &str) -> bool {
    let state = status.lines().find_map(|l| l.strip_prefix("State:")).unwrap_or("").trim();
    if state.starts_with('Z') || state.starts_with('X') {
        return true;
    }
    let pending = hex_field(status, "SigPnd:") | hex_field(status, "ShdPnd:");
    let kill = 1u64 << (libc::SIGKILL - 1);
    let survived = hex_field(status, "SigBlk:") | hex_field(status, "SigIgn:") | hex_field(status, "SigCgt:");
    pending & kill != 0 || deadly(pending) & !survived != 0
}

/// The same text says that the thread is on its way out: it has no memory any more when its descriptors are
/// closed. Threads of the kernel never have any; their parent is number 2.
fn exiting_by_status(status: &str) -> bool {
    let of_kernel = number_field(status, "PPid:").is_none_or(|p| p == 0 || p == 2);
    !of_kernel && !status.lines().any(|l| l.starts_with("VmSize:"))
}

/// The process of a thread, 0 if there is no such thread.
pub fn process_of(tid: u32) -> u32 {
    read_to_string(format!("/proc/{tid}/status")).ok().and_then(|s| number_field(&s, "Tgid:")).unwrap_or(0)
}

/// What a thread does at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// It runs, or waits for nothing but a processor.
    pub runs: bool,
    /// Nanoseconds of processor time that it has used, as of its last clock tick; `None` if this kernel does
    /// not say.
    pub ran_ns: Option<u64>,
}

/// What thread `tid` does; `None` if there is no such thread.
pub fn activity(tid: u32) -> Option<Activity> {
    let runs = state(tid)? == 'R';
    let schedstat = read_to_string(format!("/proc/{tid}/schedstat")).ok();
    let ran_ns = schedstat.and_then(|s| s.split_ascii_whitespace().next()?.parse().ok());
    Some(Activity { runs, ran_ns })
}

/// The number of this thread.
#[cfg(test)]
pub fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Whether thread `tid` of process `pid` (0 if not known) still wants its answer. A thread that ended alone
/// leaves the question to its process: asynchronous I/O outlives the thread that began it.
pub fn fate(tid: u32, pid: u32) -> Fate {
    let one = |id: u32| match read_to_string(format!("/proc/{id}/status")) {
        Ok(s) if dying_by_status(&s) || exiting_by_status(&s) => Some(Fate::Dying),
        Ok(_) => Some(Fate::Lives),
        Err(_) => None,
    };
    match one(tid) {
        Some(f) => f,
        None if pid == 0 => Fate::Unknown,
        None if pid == tid => Fate::Dying,
        None => one(pid).unwrap_or(Fate::Dying),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "State:\tD (disk sleep)\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n",
            0
        )
    }

    fn bit(n: i32) -> u64 {
        1 << (n - 1)
    }

    #[test]
    fn only_deadly_signals_end_a_wait() {
        assert!(dying_by_status(&status(bit(libc::SIGKILL), u64::MAX, 0, 0)));
        assert!(dying_by_status(&status(bit(libc::SIGTERM), 0, 0, 0)));
        assert!(!dying_by_status(&status(bit(libc::SIGTERM), bit(libc::SIGTERM), 0, 0)));
        assert!(!dying_by_status(&status(bit(libc::SIGINT), 0, bit(libc::SIGINT), 0)));
        assert!(!dying_by_status(&status(bit(libc::SIGALRM), 0, 0, bit(libc::SIGALRM))));
        assert!(!dying_by_status(&status(bit(libc::SIGCHLD) | bit(libc::SIGSTOP), 0, 0, 0)));
        assert!(!dying_by_status(&status(0, 0, 0, 0)));
        assert!(dying_by_status("State:\tZ (zombie)\n"));
    }

    #[test]
    fn who_has_no_memory_any_more_is_on_its_way_out() {
        let status = |ppid, vm| format!("State:\tD (disk sleep)\nPPid:\t{ppid}\n{vm}Threads:\t1\n");
        assert!(exiting_by_status(&status(1, "")));
        assert!(!exiting_by_status(&status(1, "VmSize:\t    8 kB\n")));
        assert!(!exiting_by_status(&status(2, "")), "a thread of the kernel");
        assert!(!exiting_by_status("nonsense"));
        assert_eq!(fate(2, 0), Fate::Lives);
    }

    #[test]
    fn this_thread_runs() {
        let first = activity(this_thread()).unwrap();
        assert!(first.runs && activity(u32::MAX).is_none());
        // Counted at clock ticks: so many looks take longer than one.
        let goes_on = |_| activity(this_thread()).unwrap().ran_ns != first.ran_ns;
        assert!(first.ran_ns.is_none() || (0..1_000_000).any(goes_on), "it uses no time");
    }

    #[test]
    fn living_and_gone_threads() {
        let me = std::process::id();
        assert_eq!(fate(me, me), Fate::Lives);
        assert_eq!(process_of(me), me);
        assert_eq!(fate(u32::MAX, 0), Fate::Unknown);
        assert_eq!(fate(u32::MAX, u32::MAX), Fate::Dying);
        assert_eq!(fate(u32::MAX, me), Fate::Lives);
    }
}
