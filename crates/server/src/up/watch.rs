//! `nacre watch`: what `nacre up` leaves behind. It starts servers again that were killed, and daemons of
//! mounts; not what was told to end, nor what ended for its disk, nor what somebody else started (an engine
//! of failover, a person).
//!
//! It holds nothing that is needed: servers do not notice when it ends, and the next `nacre up` starts it
//! anew. It does nothing while `nacre up` or `nacre down` works on the folder, and ends with `nacre down`.

use super::cluster::{self, Cluster, Node};
use super::probe::{self, Processes};
use super::start::{self, Started};
use super::{Result, UpError};
use crate::nacred::ended;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::files::{self, FileLock};
use world::sys::process::{self, SIGHUP, SIGINT, SIGKILL, SIGTERM};
use world::sys::{Deadline, mounts};

/// Name of the process.
pub const NAME: &str = "nacre-watch";
const LOOK: Duration = Duration::from_millis(500);
/// Whoever lived for so long had a good start.
const STEADY: Duration = Duration::from_secs(60);
/// Before the second attempt in a row; doubled for each more.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);
/// For a watcher to have looked at all processes.
const START_PATIENCE: Duration = Duration::from_secs(20);
const END_PATIENCE: Duration = Duration::from_secs(10);

fn book_file(dir: &Path) -> PathBuf {
    dir.join("watch.json")
}

fn lock_file(dir: &Path) -> PathBuf {
    dir.join("watch.lock")
}

/// Names that it makes in the folder of `nacre up`.
pub const OWN_NAMES: [&str; 2] = ["watch.json", "watch.lock"];

/// What `nacre status` tells of one server or mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How often it was started again.
    pub started_again: u32,
    /// How it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// It is not started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_alone: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// Who wrote it, after it knew all processes.
    watcher: u32,
    /// By label of the first target, or by mount point.
    pub told: BTreeMap<String, Told>,
}

impl Book {
    /// Empty if there is none.
    pub fn of(dir: &Path) -> Book {
        let text = files::read_to_string(book_file(dir)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn save(&self, dir: &Path) {
        let text = serde_json::to_string_pretty(self).expect("plain data encodes");
        if let Err(e) = files::replace(book_file(dir), text.as_bytes()) {
            tracing::warn!("cannot write '{}': {e}", book_file(dir).display());
        }
    }
}

/// One process that is looked after.
struct Kept {
    pid: Option<u32>,
    /// So that it does not stay a zombie.
    child: Option<Started>,
    /// When its life is one that counts as a good start.
    steady: Option<Deadline>,
    attempts: u32,
    not_before: Deadline,
}

fn pause(attempts: u32) -> Duration {
    match attempts {
        0 => Duration::ZERO,
        n => AGAIN_MOST.min(AGAIN_FIRST * 2u32.saturating_pow(n - 1)),
    }
}

impl Kept {
    /// `nacre up` started it just now: if it is not there it ended since.
    fn awaited() -> Kept {
        let now = Deadline::after(Duration::ZERO);
        Kept { pid: None, child: None, steady: None, attempts: 0, not_before: now }
    }

    fn adopt(&mut self, pid: u32) {
        assert!(pid > 0, "nobody is not looked after");
        self.pid = Some(pid);
        self.steady = Some(Deadline::after(STEADY));
    }

    /// It is gone: when may it be started?
    fn gone(&mut self) {
        self.pid = None;
        if let Some(mut c) = self.child.take() {
            c.reap();
        }
        if self.steady.take().is_some_and(|s| s.passed()) {
            self.attempts = 0;
        }
        self.not_before = Deadline::after(pause(self.attempts));
    }

    /// Its pause is over.
    fn is_due(&self) -> bool {
        self.pid.is_none() && self.not_before.passed()
    }
}

/// How a server ended, and whether it is started again.
fn judge(status: Option<i32>) -> (String, bool) {
    match status {
        None => ("killed".into(), true),
        Some(0) => ("told to end".into(), false),
        Some(ended::DISK) => ("its disk failed: mend it, run nacre fsck, then nacre up".into(), false),
        Some(ended::REFUSED) => ("the MGS refuses it".into(), false),
        Some(ended::REMOVED) => ("it was removed from the file system: its folder can go".into(), false),
        Some(n) => (format!("exit status {n}"), true),
    }
}

struct Watch {
    dir: PathBuf,
    exe: PathBuf,
    kept: BTreeMap<String, Kept>,
    book: Book,
}

impl Watch {
    fn round(&mut self, c: &Cluster) {
        let before = self.book.clone();
        self.book.watcher = std::process::id();
        let mut now = None;
        for n in c.nodes() {
            self.look_at_server(c, &n, &mut now);
        }
        let all =
            c.nodes().iter().all(|n| self.kept.get(&n.labels.join("+")).is_some_and(|k| k.pid.is_some()));
        for (i, m) in c.mounts.iter().enumerate() {
            self.look_at_mount(c, i, m, all, &mut now);
        }
        if self.book != before {
            self.book.save(&self.dir);
        }
    }

    fn look_at_server(&mut self, c: &Cluster, n: &Node, now: &mut Option<Processes>) {
        let name = n.labels.join("+");
        let k = self.kept.entry(name.clone()).or_insert_with(Kept::awaited);
        let told = self.book.told.entry(n.labels[0].clone()).or_default();
        if let Some(pid) = k.pid {
            if process::alive(pid) {
                return;
            }
            k.gone();
            let (how, again) = judge(ended::take(pid));
            tracing::warn!("{name} (pid {pid}) ended: {how}");
            (told.ended, told.left_alone) = (Some(how), !again);
        }
        let found = |p: &Processes| n.dirs.iter().find_map(|d| p.server(d));
        if let Some(pid) = found(now.get_or_insert_with(Processes::look)) {
            // Only what `nacre up` started: others have their own supervisor.
            if process::has_variable(pid, ended::WATCHED) {
                k.adopt(pid);
                told.left_alone = false;
            }
            return;
        }
        if told.left_alone || !k.is_due() {
            return;
        }
        let Some(_lock) = FileLock::try_take(&cluster::lock_file(&self.dir)).unwrap_or_default() else {
            return;
        };
        // Whoever had the lock until now may have started it.
        if found(&Processes::look()).is_some() {
            return;
        }
        assert!(k.pid.is_none(), "what runs is not started again");
        k.attempts += 1;
        match start::start_node(c, n, &self.exe, true) {
            Ok(s) => {
                tracing::warn!("{name}: started again as pid {}", s.pid());
                k.adopt(s.pid());
                k.child = Some(s);
                told.started_again += 1;
            }
            Err(e) => {
                tracing::error!("{name}: {e}");
                k.gone();
            }
        }
    }

    /// A mount whose daemon was killed is mounted again; one that was unmounted is not.
    fn look_at_mount(&mut self, c: &Cluster, i: usize, m: &Path, servers: bool, now: &mut Option<Processes>) {
        let name = m.display().to_string();
        let k = self.kept.entry(name.clone()).or_insert_with(Kept::awaited);
        let told = self.book.told.entry(name.clone()).or_default();
        if let Some(pid) = k.pid {
            if process::alive(pid) {
                return;
            }
            k.gone();
            told.ended = Some("its daemon ended".into());
        }
        let source = c.source();
        let ours = matches!(mounts::at(m), Ok(Some(x)) if x.fstype == admin::local::FSTYPE && x.source.starts_with(&source));
        if !ours {
            return;
        }
        if let Some(pid) = now.get_or_insert_with(Processes::look).client(&source, m) {
            return k.adopt(pid);
        }
        if !servers || !k.is_due() {
            return;
        }
        let Some(_lock) = FileLock::try_take(&cluster::lock_file(&self.dir)).unwrap_or_default() else {
            return;
        };
        if probe::mount_state(&source, m, LOOK) != probe::MountState::Dead {
            return;
        }
        assert!(k.pid.is_none(), "what runs is not started again");
        k.attempts += 1;
        match start::mount_again(c, i, m) {
            Ok(()) => {
                tracing::warn!("{name}: mounted again");
                told.started_again += 1;
            }
            Err(e) => tracing::error!("{name}: {e}"),
        }
        k.gone();
    }
}

/// `nacre watch --dir DIR`, until it is told to end or the folder is gone.
pub fn run(dir: &Path) -> Result<i32> {
    process::block_signals(&[SIGTERM, SIGINT, SIGHUP]);
    process::set_name(NAME);
    crate::log::start();
    if let Err(e) = process::spare_when_memory_is_short() {
        tracing::info!("cannot ask to be spared when memory is short: {e}");
    }
    let Cluster { dir, .. } = Cluster::require(dir)?;
    let lock = FileLock::try_take(&lock_file(&dir)).map_err(|e| UpError::io("cannot lock", &dir, &e))?;
    let Some(_one) = lock else { return Ok(0) };
    let exe = process::own_executable()
        .map_err(|e| UpError::new(format!("cannot find the program itself: {e}")))?;
    let mut book = Book::of(&dir);
    // Everything was up a moment ago.
    book.told.values_mut().for_each(|t| t.left_alone = false);
    let mut w = Watch { book, kept: BTreeMap::new(), exe, dir };
    tracing::info!("watching what 'nacre up' started in {}", w.dir.display());
    loop {
        match Cluster::load(&w.dir) {
            Ok(Some(c)) => w.round(&c),
            Ok(None) => return Ok(0),
            Err(e) => tracing::error!("{e}"),
        }
        if process::wait_signal(&[SIGTERM], LOOK).is_some() {
            return Ok(0);
        }
    }
}

/// Starts one, if none runs.
pub(super) fn ensure(c: &Cluster, exe: &Path) -> Result<()> {
    if Processes::look().watcher(&c.dir).is_some() {
        return Ok(());
    }
    let args = ["watch".into(), "--dir".into(), c.dir.clone().into_os_string()];
    let log = c.log_dir().join("watch.log");
    let d = process::Daemon { exe, arg0: NAME, args: &args, env: &[], log: &log };
    let started = process::spawn_detached(&d).map_err(|e| UpError::io("cannot start", exe, &e))?;
    // From now on it knows whom to miss.
    let looks = || (Book::of(&c.dir).watcher == started.pid()).then_some(());
    Deadline::after(START_PATIENCE)
        .wait_for(looks)
        .ok_or_else(|| UpError::new(format!("nothing watches: see '{}', or give --no-watch", log.display())))
}

/// Ends it, if one runs.
pub(super) fn end(c: &Cluster) -> Result<()> {
    let Some(pid) = Processes::look().watcher(&c.dir) else { return Ok(()) };
    for signal in [SIGTERM, SIGKILL] {
        let _ = process::kill(pid, signal);
        if Deadline::after(END_PATIENCE).wait_for(|| (!process::alive(pid)).then_some(())).is_some() {
            return Ok(());
        }
    }
    Err(UpError::new(format!("the watcher of '{}' (pid {pid}) cannot be killed", c.dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_for_its_disk_or_was_told_to_is_left_alone() {
        for (status, again) in [
            (None, true),
            (Some(0), false),
            (Some(1), true),
            (Some(ended::DISK), false),
            (Some(ended::REFUSED), false),
            (Some(ended::REMOVED), false),
        ] {
            assert_eq!(judge(status).1, again, "{status:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_minute() {
        let seconds: Vec<u64> = (0..10).map(|n| pause(n).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
