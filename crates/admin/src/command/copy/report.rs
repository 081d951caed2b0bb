//! What a copy did, what went wrong, and how far it is.

use crate::live::ProgressLine;
use crate::pool::Stop;
use crate::size::human;
use model::Errno;
use model::mutex::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use world::sys;
use world::sys::load::monotonic_ns;
use world::sys::tree::{Folder, Kind, Listing};

/// Of each list; what comes later is only counted.
const LISTED_MAX: usize = 10_000;
/// Lines on standard error; what comes later is only counted, and listed with `--json`.
const SHOWN_MAX: u64 = 200;

/// Something that is not in DST as it is in SRC.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    pub path: PathBuf,
    /// What was done, or what differs.
    pub what: String,
    /// Of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The errno's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<&'static str>,
}

/// Counters that many threads add to.
#[derive(Default)]
pub struct Counts {
    /// Names that were looked at, folders among them.
    pub names: AtomicU64,
    pub files_copied: AtomicU64,
    pub bytes_copied: AtomicU64,
    pub folders_made: AtomicU64,
    pub symlinks_made: AtomicU64,
    /// FIFOs, sockets, devices.
    pub nodes_made: AtomicU64,
    pub hard_links_made: AtomicU64,
    /// That were there already, and the same.
    pub skipped: AtomicU64,
    pub bytes_skipped: AtomicU64,
    /// Of which only owner, permissions, times or extended attributes were set.
    pub attributes_set: AtomicU64,
    pub deleted: AtomicU64,
    pub files_verified: AtomicU64,
    pub bytes_verified: AtomicU64,
    /// Whose owner an ordinary user cannot give away.
    pub owners_not_kept: AtomicU64,
    /// Whose project this user cannot give.
    pub projects_not_kept: AtomicU64,
    pub errors: AtomicU64,
    pub differences: AtomicU64,
}

pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What there is to do, as far as it is counted.
#[derive(Default)]
struct Goal {
    names: AtomicU64,
    bytes: AtomicU64,
    complete: AtomicBool,
}

/// All names below a directory, and the bytes of files. What cannot be read is not counted.
fn count(top: Folder, goal: &Goal, stop: &Stop) -> io::Result<()> {
    let below = |f: Folder| -> io::Result<(Folder, Listing)> {
        let listing = f.list()?;
        Ok((f, listing))
    };
    let mut open = vec![below(top)?];
    while let Some((folder, listing)) = open.last_mut() {
        if stop.wanted() {
            return Err(Errno::ECANCELED.into());
        }
        let Some(name) = listing.next() else {
            open.pop();
            continue;
        };
        let name = name?;
        let Some(s) = folder.find(&name)? else { continue };
        add(&goal.names, 1);
        match s.kind() {
            Kind::File => add(&goal.bytes, s.size),
            Kind::Folder => {
                if let Ok(deeper) = folder.folder(&name).and_then(below) {
                    open.push(deeper);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What a run found, and its progress.
pub struct Report {
    pub counts: Counts,
    errors: Mutex<Vec<Problem>>,
    differences: Mutex<Vec<Problem>>,
    line: ProgressLine,
    /// Of the command, before what it has to say.
    name: &'static str,
    began_ns: u64,
    goal: Arc<Goal>,
}

impl Report {
    /// `line` shows how far it is; `name` is the command's.
    pub fn new(name: &'static str, line: ProgressLine) -> Report {
        Report {
            counts: Counts::default(),
            errors: Mutex::default(),
            differences: Mutex::default(),
            line,
            name,
            began_ns: monotonic_ns(),
            goal: Arc::default(),
        }
    }

    pub fn shows_progress(&self) -> bool {
        self.line.is_shown()
    }

    /// Counts what there is to do beside the work, for the time that is left to be told.
    pub fn count_in_background(&self, src: &Path, stop: &Stop) {
        let (goal, src, stop) = (self.goal.clone(), src.to_path_buf(), stop.clone());
        // Without it the progress lacks its end, and nothing else.
        let _ = sys::thread("count", move || {
            let Ok(top) = Folder::open(&src) else { return };
            if count(top, &goal, &stop).is_ok() {
                goal.complete.store(true, Ordering::Relaxed);
            }
        });
    }

    pub fn error(&self, path: &Path, what: &str, e: io::Error) {
        let errno = Errno::from(e);
        let problem = Problem {
            path: path.to_path_buf(),
            what: what.to_string(),
            errno: Some(errno.0),
            text: Some(errno.text()),
        };
        self.list(&self.errors, &self.counts.errors, problem, || {
            format!("cannot {what} '{}': {errno}", path.display())
        });
    }

    pub fn difference(&self, path: &Path, what: &str) {
        let problem = Problem { path: path.to_path_buf(), what: what.to_string(), errno: None, text: None };
        self.list(&self.differences, &self.counts.differences, problem, || {
            format!("'{}': {what}", path.display())
        });
    }

    /// Something that is to be known of all of it.
    pub fn note(&self, text: &str) {
        self.line.print(&format!("{}: {text}", self.name));
    }

    fn list(
        &self,
        list: &Mutex<Vec<Problem>>,
        counter: &AtomicU64,
        problem: Problem,
        line: impl Fn() -> String,
    ) {
        let before = counter.fetch_add(1, Ordering::Relaxed);
        let mut list = list.lock();
        if list.len() < LISTED_MAX {
            list.push(problem);
        }
        drop(list);
        let text = match before {
            n if n < SHOWN_MAX => line(),
            SHOWN_MAX => "more like this is counted only".to_string(),
            _ => return,
        };
        self.line.print(&format!("{}: {text}", self.name));
    }

    /// Shows how far it is.
    pub fn show(&self, phase: &str) {
        self.line.show(|| self.progress(phase));
    }

    fn progress(&self, phase: &str) -> String {
        let c = &self.counts;
        let names = get(&c.names);
        let bytes = get(&c.bytes_copied) + get(&c.bytes_verified);
        let seconds = self.seconds();
        let mut text = format!(
            "{phase}: {names} files, {}B, {}B/s",
            human(bytes, 1024),
            human((bytes as f64 / seconds.max(0.1)) as u64, 1024)
        );
        if self.goal.complete.load(Ordering::Relaxed) && phase == "copy" {
            let (files, all) = (get(&self.goal.names), get(&self.goal.bytes));
            // Names and bytes both take their time: the part that is done is taken as that of both together.
            let done = (names << 14) + bytes + get(&c.bytes_skipped);
            let left = ((files << 14) + all).saturating_sub(done);
            let eta = (left as f64 * seconds / done.max(1) as f64) as u64;
            text += &format!(" of {files} files, {}B; {}:{:02} left", human(all, 1024), eta / 60, eta % 60);
        }
        text
    }

    pub fn seconds(&self) -> f64 {
        monotonic_ns().saturating_sub(self.began_ns) as f64 / 1e9
    }

    pub fn clear(&self) {
        self.line.clear();
    }

    /// Whether everything is the same now, as far as anybody knows.
    pub fn is_same(&self) -> bool {
        get(&self.counts.errors) == 0 && get(&self.counts.differences) == 0
    }

    pub fn json(&self) -> Value {
        let c = &self.counts;
        json!({
            "same": self.is_same(),
            "seconds": self.seconds(),
            "names": get(&c.names),
            "files_copied": get(&c.files_copied),
            "bytes_copied": get(&c.bytes_copied),
            "folders_made": get(&c.folders_made),
            "symlinks_made": get(&c.symlinks_made),
            "nodes_made": get(&c.nodes_made),
            "hard_links_made": get(&c.hard_links_made),
            "skipped": get(&c.skipped),
            "bytes_skipped": get(&c.bytes_skipped),
            "attributes_set": get(&c.attributes_set),
            "deleted": get(&c.deleted),
            "files_verified": get(&c.files_verified),
            "bytes_verified": get(&c.bytes_verified),
            "owners_not_kept": get(&c.owners_not_kept),
            "projects_not_kept": get(&c.projects_not_kept),
            "error_count": get(&c.errors),
            "difference_count": get(&c.differences),
            "errors": *self.errors.lock(),
            "differences": *self.differences.lock(),
        })
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let c = &self.counts;
        let (bytes, seconds) = (get(&c.bytes_copied), self.seconds());
        let mut out = format!(
            "{} names: {} files copied ({}B, {}B/s), {} skipped, {} directories, {} symbolic links, {} hard links, \
             {} others made; {:.1} s\n",
            get(&c.names),
            get(&c.files_copied),
            human(bytes, 1024),
            human((bytes as f64 / seconds.max(0.001)) as u64, 1024),
            get(&c.skipped),
            get(&c.folders_made),
            get(&c.symlinks_made),
            get(&c.hard_links_made),
            get(&c.nodes_made),
            seconds
        );
        for (n, words) in [
            (&c.attributes_set, "had only their attributes set"),
            (&c.deleted, "deleted at the destination"),
            (&c.files_verified, "files read back and compared"),
            (&c.owners_not_kept, "belong to you now: only root can give files away"),
            (&c.projects_not_kept, "are of another project: only root can give files to it"),
            (&c.differences, "differ"),
            (&c.errors, "errors"),
        ] {
            if get(n) > 0 {
                out += &format!("{} {words}\n", get(n));
            }
        }
        out
    }
}
