//! What is known of the process that waits for an answer, from /proc.

use world::sys::files::read_to_string;

/// What a look at a waiting thread found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lives,
    /// It is being killed, is exiting, or is gone: nobody wants the answer.
    Dying,
}

const PF_EXITING: u32 = 0x4;

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

/// Bit field `flags` of /proc/TID/stat says that the thread is on its way out of the kernel.
fn exiting_by_stat(stat: &str) -> bool {
    // The command's name may hold blanks and parentheses: fields count from the last one. State is field 3.
    let after = stat.rsplit_once(')').map_or("", |(_, r)| r);
    let flags = after.split_ascii_whitespace().nth(6).and_then(|f| f.parse::<u32>().ok());
    flags.is_some_and(|f| f & PF_EXITING != 0)
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
    /// Clock ticks of processor time that it has used.
    pub ticks: u64,
}

/// From the text of /proc/TID/task/TID/stat.
fn activity_by_stat(stat: &str) -> Option<Activity> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let runs = fields.next()? == "R";
    // Fields 14 and 15: in the program, in the kernel.
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(Activity { runs, ticks: user + kernel })
}

/// What thread `tid` does; `None` if there is no such thread.
pub fn activity(tid: u32) -> Option<Activity> {
    let stat = read_to_string(format!("/proc/{tid}/task/{tid}/stat")).ok()?;
    // What cannot be read runs: whoever asks looks again.
    Some(activity_by_stat(&stat).unwrap_or(Activity { runs: true, ticks: 0 }))
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
        Ok(s) if dying_by_status(&s) => Some(Fate::Dying),
        Ok(_) => match read_to_string(format!("/proc/{id}/stat")) {
            Ok(s) if exiting_by_stat(&s) => Some(Fate::Dying),
            _ => Some(Fate::Lives),
        },
        Err(_) => None,
    };
    match one(tid) {
        Some(f) => f,
        None if pid != 0 && pid != tid => one(pid).unwrap_or(Fate::Dying),
        None => Fate::Dying,
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
    fn exit_flag_is_read_behind_the_name() {
        assert!(exiting_by_stat("7 (a) b (c) D 1 7 7 0 -1 4194308 1 2 3"));
        assert!(!exiting_by_stat("7 (a) b (c) D 1 7 7 0 -1 4194304 1 2 3"));
        assert!(!exiting_by_stat("nonsense"));
    }

    #[test]
    fn activity_is_read_behind_the_name() {
        let stat = |state| format!("7 (a) b (c) {state} 1 7 7 0 -1 4194304 1 2 3 4 31 11 0 0 20");
        assert_eq!(activity_by_stat(&stat("R")), Some(Activity { runs: true, ticks: 42 }));
        assert_eq!(activity_by_stat(&stat("S")), Some(Activity { runs: false, ticks: 42 }));
        assert_eq!(activity_by_stat("nonsense"), None);
        assert!(activity(this_thread()).is_some_and(|a| a.runs) && activity(u32::MAX).is_none());
    }

    #[test]
    fn living_and_gone_threads() {
        let me = std::process::id();
        assert_eq!(fate(me, me), Fate::Lives);
        assert_eq!(process_of(me), me);
        assert_eq!(fate(u32::MAX, 0), Fate::Dying);
        assert_eq!(fate(u32::MAX, me), Fate::Lives);
    }
}
