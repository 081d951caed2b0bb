//! What was found: lines for people, or one JSON document.

use super::options::FsckOptions;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;

/// Exit statuses as fsck(8) has them.
pub const EXIT_CLEAN: i32 = 0;
pub const EXIT_CORRECTED: i32 = 1;
pub const EXIT_ERRORS_LEFT: i32 = 4;
pub const EXIT_OPERATIONAL: i32 = 8;
pub const EXIT_USAGE: i32 = 16;

/// Problems printed or listed; more are only counted.
const PROBLEMS_MAX: usize = 10_000;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub target: String,
    /// A short name for scripts: `leaked-object`, `wrong-nlink` …
    pub kind: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub what: String,
    pub repaired: bool,
}

impl Problem {
    pub fn new(target: &str, kind: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Problem {
        Problem {
            target: target.to_string(),
            kind: kind.into(),
            fid: None,
            object: None,
            path: None,
            what: what.into(),
            repaired: false,
        }
    }

    pub fn file(mut self, fid: model::Fid, path: Option<String>) -> Problem {
        self.fid = Some(fid.to_string());
        self.path = path;
        self
    }

    pub fn object(mut self, id: model::ObjectId) -> Problem {
        self.object = Some(id.to_string());
        self
    }

    pub fn repaired(mut self, yes: bool) -> Problem {
        self.repaired = yes;
        self
    }
}

#[derive(Default, Serialize)]
pub struct Totals {
    pub inodes: u64,
    pub names: u64,
    pub objects: u64,
    pub object_bytes: u64,
    pub errors: u64,
    pub repaired: u64,
}

pub struct Report<'a> {
    out: &'a mut (dyn Write + Send),
    json: bool,
    quiet: bool,
    problems: Vec<Problem>,
    notes: Vec<String>,
    pub targets: Vec<String>,
    pub totals: Totals,
}

impl<'a> Report<'a> {
    pub fn new(out: &'a mut (dyn Write + Send), opts: &FsckOptions) -> Report<'a> {
        Report {
            out,
            json: opts.json,
            quiet: opts.quiet,
            problems: Vec::new(),
            notes: Vec::new(),
            targets: Vec::new(),
            totals: Totals::default(),
        }
    }

    fn line(&mut self, text: &str) {
        // A reader that went away is no reason to stop checking: the exit status still counts.
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
    }

    /// Progress.
    pub fn say(&mut self, text: &str) {
        if !self.quiet && !self.json {
            self.line(text);
        }
    }

    /// Something worth knowing that is no error.
    pub fn note(&mut self, text: &str) {
        self.notes.push(text.to_string());
        self.say(&format!("note: {text}"));
    }

    pub fn problem(&mut self, p: Problem) {
        self.totals.errors += 1;
        self.totals.repaired += u64::from(p.repaired);
        if self.totals.errors > PROBLEMS_MAX as u64 {
            return;
        }
        if !self.json {
            let mut text = format!("{}: {}", p.target, p.what);
            for (name, value) in [("object", &p.object), ("file", &p.fid), ("path", &p.path)] {
                if let Some(v) = value {
                    text.push_str(&format!(", {name} {v}"));
                }
            }
            text.push_str(if p.repaired { " [repaired]" } else { "" });
            self.line(&text);
            if self.totals.errors == PROBLEMS_MAX as u64 {
                self.line("more problems are only counted");
            }
        }
        self.problems.push(p);
        assert!(self.problems.len() <= PROBLEMS_MAX, "problems that are told are bounded");
    }

    /// The summary; returns the exit status.
    pub fn finish(mut self) -> i32 {
        let t = &self.totals;
        assert!(t.repaired <= t.errors, "no more is repaired than was wrong");
        assert!(self.problems.len() as u64 <= t.errors, "each problem that is told is counted");
        let left = t.errors - t.repaired;
        let status = match (t.errors, left) {
            (0, _) => EXIT_CLEAN,
            (_, 0) => EXIT_CORRECTED,
            _ => EXIT_ERRORS_LEFT,
        };
        if self.json {
            let doc = serde_json::json!({
                "targets": self.targets,
                "problems": self.problems,
                "notes": self.notes,
                "totals": self.totals,
                "clean": t.errors == 0,
                "status": status,
            });
            self.line(&serde_json::to_string_pretty(&doc).expect("plain data encodes"));
            return status;
        }
        let verdict = match (t.errors, t.repaired) {
            (0, _) => "clean".to_string(),
            (e, 0) => format!("{e} errors; --repair mends what can be mended"),
            (e, r) if e == r => format!("{e} errors, all repaired"),
            (e, r) => format!("{e} errors, {r} repaired, {left} left"),
        };
        let text = format!(
            "nacre fsck: {} targets, {} inodes, {} names, {} objects with {} bytes: {verdict}",
            self.targets.len(),
            t.inodes,
            t.names,
            t.objects,
            t.object_bytes
        );
        self.line(&text);
        status
    }

    /// The check could not be made.
    pub fn failed(&mut self, why: &str) {
        if self.json {
            let doc = serde_json::json!({ "error": why, "status": EXIT_OPERATIONAL });
            self.line(&serde_json::to_string_pretty(&doc).expect("plain data encodes"));
        } else {
            self.line(&format!("nacre fsck: {why}"));
        }
    }
}
