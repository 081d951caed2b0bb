//! The state file of a scan: a line of JSON for each directory whose own files are done, so that a scan that
//! was ended goes on behind them.

use super::tally::Totals;
use crate::failure::Failure;
use model::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use world::sys::files;

/// What a scan is of: one of something else must not go on with its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subject {
    pub dir: String,
    pub xattr: String,
    pub kind: String,
    pub set: bool,
    pub since: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Bytes of the path below the directory of the scan.
    done: Vec<u8>,
    tally: Totals,
}

/// What was found by scans that were ended, and where this one writes.
pub struct State {
    path: PathBuf,
    out: Box<dyn Write + Send>,
    done: BTreeSet<PathBuf>,
}

impl State {
    /// Goes on with a state file, or begins one. What was found is added to `tally`.
    pub fn open(path: &Path, subject: &Subject, tally: &mut Totals) -> Result<State, Failure> {
        let shown = path.display().to_string();
        let failed = |e| Failure::io("cannot use the state file", &shown, e);
        let text = match files::read(path) {
            Ok(t) => t,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(failed(e)),
        };
        // What the end of an earlier scan cut off was not done.
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let mut lines = text[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let mut done = BTreeSet::new();
        let foreign = |why: &str| Failure::explained("cannot go on with", &shown, Errno::EINVAL, why);
        match lines.next().map(serde_json::from_slice::<Subject>) {
            None => {}
            Some(Ok(s)) if s == *subject => {}
            Some(Ok(_)) => {
                return Err(foreign("it is the state of another scan; remove it, or name another"));
            }
            Some(Err(_)) => return Err(foreign("it is no state of a scan")),
        }
        for l in lines {
            let line: Line = serde_json::from_slice(l).map_err(|_| foreign("it is damaged; remove it"))?;
            tally.add(&line.tally);
            done.insert(PathBuf::from(std::ffi::OsString::from_vec(line.done)));
        }
        if whole < text.len() {
            files::replace(path, &text[..whole]).map_err(failed)?;
        }
        let mut out = files::open_log(path).map_err(failed)?;
        if whole == 0 {
            let first = serde_json::to_string(subject).expect("it is plain data");
            writeln!(out, "{first}").map_err(failed)?;
        }
        Ok(State { path: path.to_path_buf(), out: Box::new(out), done })
    }

    /// Whether the files of a directory itself were done before.
    pub fn has(&self, dir: &Path) -> bool {
        self.done.contains(dir)
    }

    /// The files of a directory are done. A line is written at once: whatever ends the scan leaves it.
    pub fn done(&mut self, dir: &Path, tally: &Totals) -> std::io::Result<()> {
        let name: &OsStr = dir.as_os_str();
        let line = Line { done: name.as_bytes().to_vec(), tally: tally.clone() };
        let mut text = serde_json::to_vec(&line).expect("it is plain data");
        text.push(b'\n');
        self.out.write_all(&text)
    }

    /// The scan is complete: the next one begins anew.
    pub fn complete(self) -> std::io::Result<()> {
        files::remove_file(&self.path)
    }
}
