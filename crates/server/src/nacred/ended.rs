//! How a server ends, what those who look after it shall make of that, and how it starts again by itself.

use super::{Node, Options};
use std::ffi::OsString;
use std::path::PathBuf;
use world::sys::{self, files, process};

/// Exit statuses beside 0 (told to end) and 1 (may be better at the next start).
pub const DISK: i32 = 74;
/// The MGS does not want the target: no start will change that.
pub const REFUSED: i32 = 78;

/// In the environment of a server that somebody looks after who is not its parent: its exit status is left in
/// a file.
pub const WATCHED: &str = "NACRE_WATCHED";
/// How often this process started again by itself.
const AGAIN: &str = "NACRE_STARTED_AGAIN";

/// Why a node cannot go on.
pub enum Why {
    /// Its host or the process stood still, or a disk stalled, and no target has another reason.
    OutOfTime,
    Disk,
    Refused,
}

impl Why {
    pub fn status(&self) -> i32 {
        match self {
            Why::OutOfTime => 1,
            Why::Disk => DISK,
            Why::Refused => REFUSED,
        }
    }
}

fn file(pid: u32) -> PathBuf {
    sys::control::run_dir().join(format!("nacred-{pid}.ended"))
}

/// For whoever looks after this process: how it ends.
pub fn leave(status: i32) {
    assert!((0..=255).contains(&status), "an exit status has its byte");
    if std::env::var_os(WATCHED).is_none() {
        return;
    }
    let path = file(std::process::id());
    if let Err(e) = files::replace(&path, status.to_string().as_bytes()) {
        tracing::warn!("cannot write '{}', the exit status will not be known: {e}", path.display());
    }
}

/// The exit status that a watched server left; `None`: it was killed. Once.
pub fn take(pid: u32) -> Option<i32> {
    let path = file(pid);
    let status = files::read_to_string(&path).ok()?.trim().parse().ok();
    let _ = files::remove_file(&path);
    status
}

/// How often this process started again by itself.
pub fn starts_again() -> u32 {
    std::env::var(AGAIN).ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Whether nobody took any of the targets since their leases ended.
pub async fn is_still_own(node: &Node) -> bool {
    for t in &node.targets {
        match t.is_still_own().await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(e) => {
                tracing::error!("{}: cannot look whose it is: {e}", t.label());
                return false;
            }
        }
    }
    true
}

/// An ordinary start in the same process: nothing in memory is left, the epoch is raised, the journal
/// replayed, clients are waited for. Returns only if that failed.
pub fn start_again(args: &[OsString]) -> std::io::Error {
    // Clients are there; that they were not to be waited for was said of another start.
    let args: Vec<OsString> = args.iter().filter(|a| *a != Options::ABORT_RECOV).cloned().collect();
    process::become_anew("nacred", &args, &[(AGAIN, (starts_again() + 1).to_string())])
}
