//! The file of a daemon's events: what happened before it started again is known then, too. It is written by
//! a thread of its own: whoever says something waits for no disk.

use super::lines;
use model::events::{EVENTS, Event, KEPT_MAX};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use world::sys::{self, files};

/// Events that wait for the disk; those that come then are in memory only.
const WAITING_MAX: usize = 1000;
/// The file is made anew, with what is in memory, when it has so many bytes.
const FILE_MAX_BYTES: u64 = 2 << 20;

static WRITER: OnceLock<SyncSender<Job>> = OnceLock::new();

enum Job {
    Keep(Event),
    /// From now on in this file.
    Into(PathBuf),
}

/// Starts the thread, once in a process. It also says what was held back when that is due.
pub(super) fn start() {
    let (tx, rx) = sync_channel(WAITING_MAX);
    if WRITER.set(tx).is_err() {
        return;
    }
    if let Err(e) = sys::thread("events", move || work(&rx)) {
        tracing::warn!("events are kept in memory only: {e}");
    }
}

/// An event for the file, if there is one.
pub(super) fn keep(event: Event) {
    if let Some(tx) = WRITER.get() {
        // A disk that is behind, or gone: it is in memory.
        let _ = tx.try_send(Job::Keep(event));
    }
}

/// Events of this daemon go to this file from now on; those that are there already are known again.
pub fn keep_in(path: PathBuf) {
    if let Some(tx) = WRITER.get() {
        let _ = tx.try_send(Job::Into(path));
    }
}

fn work(rx: &Receiver<Job>) {
    let mut file: Option<Keeper> = None;
    loop {
        match rx.recv_timeout(lines::TICK) {
            Ok(Job::Keep(e)) => {
                if let Some(k) = &mut file
                    && let Err(why) = k.add(&e)
                {
                    let at = k.path.display().to_string();
                    file = None;
                    tracing::warn!("events are kept in memory only: cannot write '{at}': {why}");
                }
            }
            Ok(Job::Into(path)) => match Keeper::open(&path) {
                Ok(k) => file = Some(k),
                Err(e) => tracing::warn!("events are kept in memory only: '{}': {e}", path.display()),
            },
            Err(RecvTimeoutError::Timeout) => lines::tell(false),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Keeper {
    path: PathBuf,
    file: Box<dyn Write + Send>,
    bytes: u64,
}

impl Keeper {
    fn open(path: &Path) -> io::Result<Keeper> {
        let text = match files::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        // A line that was cut short, or is of a later version, is no event.
        let earlier: Vec<Event> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        EVENTS.recall(earlier);
        Keeper::anew(path)
    }

    /// A file with everything that is in memory, and nothing else: also what this process has said before it
    /// knew where to. It is its owner's alone, as everything in a target's folder.
    fn anew(path: &Path) -> io::Result<Keeper> {
        let mut text = String::new();
        let mut after = 0;
        for _ in 0..KEPT_MAX {
            let part = EVENTS.read(after);
            let Some(last) = part.events.last() else { break };
            after = last.seq;
            text.extend(part.events.iter().map(line_of));
        }
        assert!(after == 0 || !text.is_empty(), "what was read is written");
        files::replace_private(path, text.as_bytes())?;
        let file = Box::new(files::open_log(path)?);
        Ok(Keeper { path: path.into(), file, bytes: text.len() as u64 })
    }

    fn add(&mut self, e: &Event) -> io::Result<()> {
        self.line(&line_of(e))?;
        if self.bytes > FILE_MAX_BYTES {
            *self = Keeper::anew(&self.path)?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

fn line_of(e: &Event) -> String {
    format!("{}\n", serde_json::to_string(e).expect("plain data encodes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use model::events::Kind;

    #[test]
    fn what_was_kept_is_known_again_and_a_line_that_was_cut_is_passed_over() {
        let path = std::env::temp_dir().join(format!("nacre-events-{}", std::process::id()));
        let at = Timestamp { sec: 5, nsec: 0 };
        let text = |n: u32| format!("event {n}");
        let mut k = Keeper::open(&path).unwrap();
        for n in 0..5 {
            k.add(&EVENTS.keep(at, Kind::TargetServed, "info", "t-OST0000", &text(n), 0)).unwrap();
        }
        k.line("{\"seq\":").unwrap();
        drop(k);
        let before = EVENTS.read(0).events.len();
        let k = Keeper::open(&path).unwrap();
        let all = EVENTS.read(0).events;
        assert_eq!(all.len(), before + 5);
        assert_eq!(all[4].text, text(4));
        assert_eq!(files::stat(&path, true).unwrap().mode & 0o777, 0o600);
        let kept = files::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), all.len());
        assert!(kept.lines().all(|l| serde_json::from_str::<Event>(l).is_ok()));
        drop(k);
        files::remove_file(&path).unwrap();
    }
}
