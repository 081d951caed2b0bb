//! `nacre policy`: rules about files, in one file: which are told to whom, moved or deleted, and when.

mod actor;
mod gather;
mod parse;
mod rules;
mod run;
mod select;
mod show;
mod state;
#[cfg(test)]
mod tests;

use super::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::interrupt;
use crate::live::ProgressLine;
use crate::{output, say};
use actor::Mounts;
use model::Errno;
use model::mutex::Mutex;
pub(super) use parse::{FILE_MAX_BYTES, Mistake, absolute, rule_name, without_comment, words};
use rules::Rule;
use run::{Came, Progress, Worker};
use serde_json::{Value, json};
use state::Store;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use world::sys::files;

const USAGE: &str = "\
usage: nacre policy check [FILE] [--json]
       nacre policy run [FILE] [--dry-run] [--rule NAME]... [--state DIR]
                        [--json] [-q]
       nacre policy status [--state DIR] [--json]
       nacre policy history [-n COUNT] [--rule NAME] [--state DIR] [--json]

Rules about files: reports them, purges them, tells their users, moves them to
a pool, or lists them for an archive. FILE says which, when and in which order
(nacre-policy(8); without one /etc/nacre/policy.conf).

check: whether FILE is right, and what its rules say.
run: does what is due, one rule after the other. A file is looked at again
right before something is done to it, and by the metadata server inside the
transaction that deletes it. A run that was ended goes on where it was.
status: runs that are not over. history: those that are.

      --dry-run      shows what would be done, and does nothing
      --rule NAME    this rule alone; may be given again
      --state DIR    what runs keep (/var/lib/nacre/policy)
  -n, --count COUNT  the last so many runs (20)
      --json         one JSON document
  -q, --quiet        no progress

exit status: 0, or the errno of the first failure, 4 wrong usage, 22 mistakes
in FILE, 130 interrupted
";

const OPTS: &[Opt] = &[
    flag('\0', "dry-run"),
    value('\0', "rule"),
    value('\0', "state"),
    value('n', "count"),
    flag('\0', "json"),
    flag('q', "quiet"),
];

const FILE_DEFAULT: &str = "/etc/nacre/policy.conf";
const STATE_DEFAULT: &str = "/var/lib/nacre/policy";
const COUNT_DEFAULT: u64 = 20;
const COUNT_MAX: u64 = 1_000_000;

/// The options that each subcommand takes, and whether it takes a file.
const SUBCOMMANDS: &[(&str, &[&str], bool)] = &[
    ("check", &["json"], true),
    ("run", &["dry-run", "rule", "state", "json", "quiet"], true),
    ("status", &["state", "json"], false),
    ("history", &["count", "rule", "state", "json"], false),
];

/// Everything that is wrong in a file, a line each.
fn mistakes(file: &Path, wrong: &[Mistake]) -> Failure {
    let line = |m: &Mistake| format!("{}:{}: {}", file.display(), m.line, m.text);
    let lines: Vec<String> = wrong.iter().map(line).collect();
    Failure::Op { text: lines.join("\n"), errno: Errno::EINVAL }
}

/// The rules of a file, as `parse` reads them.
pub(super) fn read_rules<R>(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<Vec<R>, Vec<Mistake>>,
) -> Result<Vec<R>, Failure> {
    let shown = file.display().to_string();
    let text = files::read(file).map_err(|e| Failure::io("cannot read", &shown, e))?;
    let text = String::from_utf8(text)
        .map_err(|_| Failure::explained("cannot read", &shown, Errno::EINVAL, "it is no text in UTF-8"))?;
    parse(&text).map_err(|wrong| mistakes(file, &wrong))
}

fn read(file: &Path) -> Result<Vec<Rule>, Failure> {
    read_rules(file, parse::parse)
}

fn check(p: &Parsed, file: &Path) -> Result<i32, Failure> {
    let rules = read(file)?;
    if p.has("json") {
        let rows: Vec<Value> = rules.iter().map(show::rule_row).collect();
        output::json(&json!({"file": file.display().to_string(), "rules": rows}));
    } else {
        rules.iter().for_each(|r| say!("{}", show::rule_line(r)));
    }
    Ok(0)
}

/// The rules that were named, or all of them.
fn chosen(p: &Parsed, file: &Path) -> Result<Vec<Rule>, Failure> {
    let rules = read(file)?;
    let named: Vec<&str> = p.values("rule").collect();
    if let Some(n) = named.iter().find(|n| !rules.iter().any(|r| r.name == **n)) {
        return Err(Failure::usage(format!("there is no rule '{n}' in {}", file.display())));
    }
    Ok(rules.into_iter().filter(|r| named.is_empty() || named.contains(&r.name.as_str())).collect())
}

fn run(p: &Parsed, file: &Path, store: &Store) -> Result<i32, Failure> {
    let (rules, is_dry) = (chosen(p, file)?, p.has("dry-run"));
    let _lock = if is_dry { None } else { Some(store.lock()?) };
    let progress = Arc::new(Progress::default());
    let line = Arc::new(ProgressLine::for_terminal(p.has("quiet") || p.has("json")));
    let (shown, ticking) = (progress.clone(), line.clone());
    let tick = move || {
        let [seen, done, of] = [&shown.seen, &shown.done, &shown.of].map(|n| n.load(Relaxed));
        ticking.show(|| match of {
            0 => format!("{seen} files looked at"),
            _ => format!("{seen} files looked at, {done} of {of} done"),
        });
    };
    let errors = Mutex::new(FirstError::default());
    let (came, signalled) = interrupt::guarded(tick, |interrupt| {
        let context = Mounts { interrupt, progress: &progress };
        let worker = Worker { context: &context, store, interrupt, progress: &progress, errors: &errors };
        run_all(&rules, &worker, is_dry)
    });
    line.clear();
    if p.has("json") {
        let rows: Vec<Value> = came.iter().map(|(r, c)| show::came_row(r, c)).collect();
        let complete = signalled.is_none() && errors.lock().exit_code() == 0;
        output::json(&json!({"dry_run": is_dry, "complete": complete, "rules": rows}));
    } else {
        came.iter().for_each(|(r, c)| output::bytes(show::came_text(r, c, is_dry).as_bytes()));
    }
    let mut errors = errors.into_inner();
    if let Some(code) = signalled {
        errors.interrupted("nacre policy", code);
    }
    Ok(errors.exit_code())
}

/// One rule after the other, until somebody stops it. A rule that fails is told; the others have their turn.
fn run_all<'r>(rules: &'r [Rule], worker: &Worker<'_>, is_dry: bool) -> Vec<(&'r Rule, Came)> {
    let mut out = Vec::new();
    for rule in rules {
        if worker.interrupt.stopped() {
            break;
        }
        match if is_dry { worker.dry(rule) } else { worker.run(rule) } {
            Ok(came) => out.push((rule, came)),
            Err(f) => worker.errors.lock().report(&format!("nacre policy: rule '{}'", rule.name), &f),
        }
    }
    out
}

fn status(p: &Parsed, store: &Store) -> Result<i32, Failure> {
    let plans = store.plans()?;
    let is_running = store.is_locked()?;
    if p.has("json") {
        let rows: Vec<Value> = plans.iter().map(|p| show::plan_row(p, is_running)).collect();
        output::json(&json!({"running": is_running, "runs": rows}));
    } else if plans.is_empty() {
        say!("{}", if is_running { "a run looks for files" } else { "no run is under way" });
    } else {
        plans.iter().for_each(|p| say!("{}", show::plan_line(p, is_running)));
    }
    Ok(0)
}

fn history(p: &Parsed, store: &Store) -> Result<i32, Failure> {
    let count = p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT) as usize;
    let mut all = store.history()?;
    if let Some(rule) = p.value("rule") {
        all.retain(|e| e.rule == rule);
    }
    let from = all.len().saturating_sub(count);
    if p.has("json") {
        output::json(&json!({"runs": &all[from..]}));
    } else {
        all[from..].iter().for_each(|e| say!("{}", show::ended_line(e)));
    }
    Ok(0)
}

/// Runs that are not over, and the last `count` that are, newest first: `nacre policy status --json` and
/// `nacre policy history --json` of the folder that they keep their state in without a word.
pub fn query(count: usize) -> Result<Value, Failure> {
    let store = Store::new(Path::new(STATE_DEFAULT));
    let is_running = store.is_locked()?;
    let rows: Vec<Value> = store.plans()?.iter().map(|p| show::plan_row(p, is_running)).collect();
    let mut ended = store.history()?;
    ended.reverse();
    ended.truncate(count);
    Ok(json!({"running": is_running, "runs": rows, "ended": ended}))
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage("say what: nacre policy check|run|status|history"));
    };
    let what = what.to_string_lossy();
    let Some((name, options, takes_file)) = SUBCOMMANDS.iter().find(|(n, ..)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: nacre policy check|run|status|history")));
    };
    let p = getopt::parse(rest, OPTS)?;
    p.only(options, &format!("nacre policy {name}"))?;
    if p.operands.len() > usize::from(*takes_file) {
        let what = if *takes_file { "one file of rules" } else { "no file" };
        return Err(Failure::usage(format!("'nacre policy {name}' takes {what}")));
    }
    let file = p.operands.first().map_or_else(|| PathBuf::from(FILE_DEFAULT), PathBuf::from);
    let store = Store::new(Path::new(p.value("state").unwrap_or(STATE_DEFAULT)));
    match *name {
        "check" => check(&p, &file),
        "run" => run(&p, &file, &store),
        "status" => status(&p, &store),
        _ => history(&p, &store),
    }
}

/// The command: arguments behind `policy`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre policy", USAGE), args, Failure::exit_code, command)
}
