//! Who did what by the console: a line each, in a file of its owner's that does not grow without bound.

use crate::session::Who;
use model::mutex::Mutex;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use world::sys::files;

/// A file of this size becomes the old one; there is one old one.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Of one line, whatever was typed.
const FIELD_MAX_BYTES: usize = 1024;
/// Lines that a page shows.
pub const SHOWN_MAX: usize = 200;

pub struct Audit {
    file: PathBuf,
    writing: Mutex<()>,
}

fn short(text: &str) -> &str {
    let mut end = text.len().min(FIELD_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What is written about one order.
pub struct Line<'a> {
    pub name: &'a str,
    pub role: &'a str,
    pub action: &'a str,
    /// What it was done to, and how.
    pub object: &'a str,
    /// `done`, or why not.
    pub result: &'a str,
}

impl<'a> Line<'a> {
    pub fn of(who: &'a Who, action: &'a str, object: &'a str, result: &'a str) -> Line<'a> {
        Line { name: &who.name, role: who.role.word(), action, object, result }
    }
}

impl Audit {
    /// Of a console that keeps its state in `folder`.
    pub fn of(folder: &Path) -> Audit {
        Audit { file: folder.join("audit.log"), writing: Mutex::new(()) }
    }

    fn old(&self) -> PathBuf {
        self.file.with_extension("log.1")
    }

    /// The error is a sentence: what cannot be written down is not done.
    pub fn write(&self, now: i64, l: &Line<'_>) -> Result<(), String> {
        let row = json!({"time": now, "name": short(l.name), "role": l.role, "action": l.action,
                         "object": short(l.object), "result": short(l.result)});
        let failed = |e: std::io::Error| format!("cannot write '{}': {e}", self.file.display());
        let _one = self.writing.lock();
        if files::stat(&self.file, true).is_ok_and(|s| s.size >= FILE_MAX_BYTES) {
            files::rename(&self.file, &self.old()).map_err(failed)?;
        }
        let mut f = files::open_private_log(&self.file).map_err(failed)?;
        f.write_all(format!("{row}\n").as_bytes()).map_err(failed)
    }

    /// The last lines, the newest first.
    pub fn newest(&self) -> Vec<Value> {
        let _one = self.writing.lock();
        let mut out = Vec::new();
        for file in [&self.file, &self.old()] {
            let text = files::read_to_string(file).unwrap_or_default();
            let rows = text.lines().rev().filter_map(|l| serde_json::from_str(l).ok());
            out.extend(rows.take(SHOWN_MAX - out.len()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scratch;

    #[test]
    fn the_audit_keeps_the_last_lines_in_bounded_files_of_its_owners() {
        let dir = Scratch::new("audit");
        let a = Audit::of(dir.path());
        let object = "x".repeat(5000);
        for n in 0..2000 {
            let line =
                Line { name: "ann", role: "operator", action: "lfsck", object: &object, result: "done" };
            a.write(n, &line).unwrap();
        }
        let all = a.newest();
        assert_eq!((all.len(), &all[0]["time"], &all[1]["time"]), (SHOWN_MAX, &json!(1999), &json!(1998)));
        assert_eq!(all[0]["object"].as_str().map(str::len), Some(FIELD_MAX_BYTES));
        for name in ["audit.log", "audit.log.1"] {
            let s = files::stat(&dir.path().join(name), true).unwrap();
            assert!(s.size < FILE_MAX_BYTES + 4096 && s.mode & 0o777 == 0o600, "{name}: {}", s.size);
        }
        assert_eq!(files::list(dir.path()).unwrap().len(), 2);
    }
}
