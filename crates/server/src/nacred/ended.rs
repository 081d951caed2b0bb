//! How a server ends, what those who look after it shall make of that, and how it starts again by itself.

use std::ffi::OsString;
use std::path::PathBuf;
use world::BoxFuture;
use world::future::join_all;
use world::sys::{self, files, process};

/// Exit statuses beside 0 (told to end) and 1 (may be better at the next start).
pub const DISK: i32 = 74;
/// The MGS does not want the target: no start will change that.
pub const REFUSED: i32 = 78;
/// Its targets were taken out of the file system for good (`nacre remove`): there is nothing left to serve.
pub const REMOVED: i32 = 79;

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
    Removed,
}

impl Why {
    pub fn status(&self) -> i32 {
        match self {
            Why::OutOfTime => 1,
            Why::Disk => DISK,
            Why::Refused => REFUSED,
            Why::Removed => REMOVED,
        }
    }
}

/// Why a node does not start, in words for its administrator.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct StartError {
    pub text: String,
    /// Exit status.
    pub status: i32,
    /// Another server of this host has its address: that one may take the target.
    pub has_neighbour: bool,
}

impl StartError {
    pub fn new(text: impl Into<String>) -> StartError {
        StartError { text: text.into(), status: 1, has_neighbour: false }
    }

    /// The disk said so: another start may believe what it has not written.
    pub fn disk(text: String) -> StartError {
        StartError { text, status: DISK, has_neighbour: false }
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

/// Whether all targets of a node are still its own. They are asked at the same time: each may have to wait
/// for a term.
pub async fn is_all_own(asked: Vec<BoxFuture<bool>>) -> bool {
    join_all(asked).await.into_iter().all(|own| own)
}

/// An ordinary start in the same process: nothing in memory is left, the epoch is raised, the journal
/// replayed. Returns only if that failed.
pub fn start_again(args: &[OsString]) -> std::io::Error {
    process::become_anew("nacred", args, &[(AGAIN, (starts_again() + 1).to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use world::sync::Notify;

    /// A node with an MGT and an MDT whose heartbeats were on their way when its clocks stopped waited for
    /// two terms, and one of sixteen OSTs would have for sixteen.
    #[test]
    fn targets_are_asked_at_the_same_time() {
        let (_world, runtime) = world::real::start(1).expect("threads");
        let (one, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let ask = |mine: &Arc<Notify>, its: &Arc<Notify>, own: bool| -> BoxFuture<bool> {
            let (mine, its) = (mine.clone(), its.clone());
            Box::pin(async move {
                mine.notify_one();
                its.notified().await;
                own
            })
        };
        let both = |own| vec![ask(&one, &other, true), ask(&other, &one, own)];
        assert!(runtime.block_on(is_all_own(both(true))));
        assert!(!runtime.block_on(is_all_own(both(false))));
        assert!(runtime.block_on(is_all_own(Vec::new())));
    }
}
