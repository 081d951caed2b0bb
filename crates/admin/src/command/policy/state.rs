//! What is kept of runs, in one directory: of a run that is not over its list and how far it came, of each
//! that is over a line, and a list of what was deleted.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | taken by who runs |
//! | `RULE.plan` | what the run is to do: [`PlanHeader`], then an [`Entry`] a line |
//! | `RULE.done` | what became of each of them, a line each in their order |
//! | `RULE.told` | when which user was told last |
//! | `RULE.deleted` | all that was deleted, unless the rule names another list |
//! | `history` | an [`FinishedRun`] a line |

use super::rules::{Entry, Rule};
use crate::failure::Failure;
use model::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use world::sys::files::{self, FileLock};

/// The first line of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanHeader {
    pub rule: String,
    /// Of the rule; another rule does not go on with it.
    pub text: String,
    pub action: String,
    /// Seconds since 1970: what ages are counted from.
    pub now: i64,
    pub files: u64,
    pub bytes: u64,
    /// Bytes that were to become free, if it is about space.
    pub needed: Option<u64>,
    pub has_more: bool,
}

/// What became of one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Deleted, or moved.
    Done,
    /// It is not what it was, and the rule is not about it any more.
    Changed,
    /// Somebody has it open, or uses it.
    Open,
    /// It is not there any more.
    Gone,
    Failed,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub outcome: Outcome,
    pub bytes: u64,
}

/// How often what became of files, and the space of those that were done.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub done: u64,
    pub bytes: u64,
    pub changed: u64,
    pub open: u64,
    pub gone: u64,
    pub failed: u64,
}

impl Tally {
    pub fn add(&mut self, s: &Step) {
        match s.outcome {
            Outcome::Done => {
                self.done += 1;
                self.bytes = self.bytes.saturating_add(s.bytes);
            }
            Outcome::Changed => self.changed += 1,
            Outcome::Open => self.open += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::Failed => self.failed += 1,
        }
    }

    pub fn steps(&self) -> u64 {
        self.done + self.changed + self.open + self.gone + self.failed
    }
}

/// A run of a rule that is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FinishedRun {
    pub rule: String,
    pub action: String,
    /// Seconds since 1970.
    pub began: i64,
    pub ended: i64,
    /// It did what it was to do; or why not.
    pub result: String,
    #[serde(flatten)]
    pub tally: Tally,
    /// More fitted than one run may take.
    pub has_more: bool,
}

/// The directory.
pub struct Store {
    dir: PathBuf,
}

/// A run that is not over.
pub struct Plan {
    pub head: PlanHeader,
    pub entries: Vec<Entry>,
    pub tally: Tally,
    /// It was ended before: what was under way then may have happened.
    pub is_resumed: bool,
    done: Option<Box<dyn Write + Send>>,
}

fn failed(path: &Path, e: io::Error) -> Failure {
    Failure::io("cannot use the state file", &path.display().to_string(), e)
}

/// `None`: there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match files::read(path) {
        Ok(t) => Ok(Some(t)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(path, e)),
    }
}

fn lines<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<Vec<T>, Failure> {
    let damaged = |_| {
        let why = "it is damaged: look what it has, and remove it";
        Failure::explained("cannot use the state file", &path.display().to_string(), Errno::EINVAL, why)
    };
    // What the end of an earlier run cut off was not done.
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    let each = text[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty());
    each.map(|l| serde_json::from_slice(l).map_err(damaged)).collect()
}

pub fn json_line(v: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(v).expect("it is plain data");
    line.push(b'\n');
    line
}

/// A line at the end of a file, which is made if missing.
pub fn append(path: &Path, line: &[u8]) -> Result<(), Failure> {
    files::open_log(path).and_then(|mut f| f.write_all(line)).map_err(|e| failed(path, e))
}

impl Store {
    pub fn new(dir: &Path) -> Store {
        Store { dir: dir.to_path_buf() }
    }

    fn path(&self, rule: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{rule}.{kind}"))
    }

    /// For a run; `EBUSY` while there is another.
    pub fn lock(&self) -> Result<FileLock, Failure> {
        files::create_dir_all(&self.dir).map_err(|e| failed(&self.dir, e))?;
        let shown = self.dir.display().to_string();
        match FileLock::try_take(&self.dir.join("lock")).map_err(|e| failed(&self.dir, e))? {
            Some(lock) => Ok(lock),
            None => {
                let why = "another run has it: see 'nacre policy status'";
                Err(Failure::explained("cannot use the state directory", &shown, Errno::EBUSY, why))
            }
        }
    }

    /// Whether somebody runs.
    pub fn is_locked(&self) -> Result<bool, Failure> {
        let path = self.dir.join("lock");
        if read(&path)?.is_none() {
            return Ok(false);
        }
        FileLock::try_take(&path).map(|l| l.is_none()).map_err(|e| failed(&path, e))
    }

    /// All runs that are not over.
    pub fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let names = match files::list(&self.dir) {
            Ok(names) => names,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&self.dir, e)),
        };
        let mut rules: Vec<&str> = names.iter().filter_map(|n| n.strip_suffix(".plan")).collect();
        rules.sort_unstable();
        let found = rules.into_iter().map(|r| self.plan_of(r)).collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    pub fn list_of(&self, rule: &Rule) -> PathBuf {
        rule.list.clone().unwrap_or_else(|| self.path(&rule.name, "deleted"))
    }

    /// A run of this rule that was ended; one of a rule of this name that said something else is over.
    pub fn unfinished(&self, rule: &Rule) -> Result<Option<Plan>, Failure> {
        match self.plan_of(&rule.name)? {
            Some(mut p) if p.head.text == rule.text => {
                p.is_resumed = true;
                let path = self.path(&rule.name, "done");
                self.cut(&path, p.tally.steps())?;
                p.done = Some(Box::new(files::open_log(&path).map_err(|e| failed(&path, e))?));
                Ok(Some(p))
            }
            Some(p) => {
                self.end(&p, p.head.now, "given up: the rule was changed")?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Half a line at the end is taken away, so that the next one is a line of its own.
    fn cut(&self, path: &Path, steps: u64) -> Result<(), Failure> {
        let Some(text) = read(path)? else { return Ok(()) };
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        if whole < text.len() {
            assert!(steps <= text.len() as u64, "a step has a line");
            files::replace(path, &text[..whole]).map_err(|e| failed(path, e))?;
        }
        Ok(())
    }

    /// What is known of a run that is not over.
    pub fn plan_of(&self, rule: &str) -> Result<Option<Plan>, Failure> {
        let path = self.path(rule, "plan");
        let Some(text) = read(&path)? else { return Ok(None) };
        let first = text.iter().position(|b| *b == b'\n').map_or(text.len(), |n| n + 1);
        let mut heads: Vec<PlanHeader> = lines(&path, &text[..first])?;
        let Some(head) = heads.pop() else { return Ok(None) };
        let entries: Vec<Entry> = lines(&path, &text[first..])?;
        let done = self.path(rule, "done");
        let steps: Vec<Step> = read(&done)?.map_or(Ok(Vec::new()), |t| lines(&done, &t))?;
        let mut tally = Tally::default();
        steps.iter().take(entries.len()).for_each(|s| tally.add(s));
        Ok(Some(Plan { head, entries, tally, is_resumed: false, done: None }))
    }

    /// The list is durable before anything of it is done.
    pub fn begin(&self, head: PlanHeader, entries: Vec<Entry>) -> Result<Plan, Failure> {
        let (path, done) = (self.path(&head.rule, "plan"), self.path(&head.rule, "done"));
        files::replace(&done, b"").map_err(|e| failed(&done, e))?;
        let mut text = json_line(&head);
        entries.iter().for_each(|e| text.extend(json_line(e)));
        files::replace(&path, &text).map_err(|e| failed(&path, e))?;
        let log = files::open_log(&done).map_err(|e| failed(&done, e))?;
        Ok(Plan { head, entries, tally: Tally::default(), is_resumed: false, done: Some(Box::new(log)) })
    }

    /// One step more.
    pub fn step(&self, p: &mut Plan, s: &Step) -> Result<(), Failure> {
        p.tally.add(s);
        let path = self.path(&p.head.rule, "done");
        match &mut p.done {
            Some(f) => f.write_all(&json_line(s)).map_err(|e| failed(&path, e)),
            None => append(&path, &json_line(s)),
        }
    }

    /// The run is over.
    pub fn end(&self, p: &Plan, now: i64, result: &str) -> Result<(), Failure> {
        let h = &p.head;
        self.remember(&FinishedRun {
            rule: h.rule.clone(),
            action: h.action.clone(),
            began: h.now,
            ended: now,
            result: result.to_string(),
            tally: p.tally.clone(),
            has_more: h.has_more,
        })?;
        for kind in ["plan", "done"] {
            let path = self.path(&h.rule, kind);
            match files::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&path, e)),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn remember(&self, e: &FinishedRun) -> Result<(), Failure> {
        append(&self.dir.join("history"), &json_line(e))
    }

    /// All runs that are over, the last one last.
    pub fn history(&self) -> Result<Vec<FinishedRun>, Failure> {
        let path = self.dir.join("history");
        read(&path)?.map_or(Ok(Vec::new()), |t| lines(&path, &t))
    }

    /// When which user was told last.
    pub fn told(&self, rule: &str) -> Result<BTreeMap<u32, i64>, Failure> {
        let path = self.path(rule, "told");
        let mut all = read(&path)?.map_or(Ok(Vec::new()), |t| lines(&path, &t))?;
        Ok(all.pop().unwrap_or_default())
    }

    pub fn set_told(&self, rule: &str, told: &BTreeMap<u32, i64>) -> Result<(), Failure> {
        let path = self.path(rule, "told");
        files::replace(&path, &json_line(told)).map_err(|e| failed(&path, e))
    }
}
