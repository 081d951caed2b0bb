//! `nacre userdir`: directories of users and groups, with owner, mode, limits, project, pool and layout in
//! one step, by options or by rules in a file.

mod account;
mod list;
mod login;
mod make;
mod remove;
mod rules;
#[cfg(test)]
mod tests;

use super::policy::read_rules;
use super::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::interrupt;
use crate::live::ProgressLine;
use crate::{output, say};
use account::{Account, Of};
use make::{Came, MountSite};
use model::Errno;
use remove::{Progress, Removal};
use rules::{Plan, Rule, Settings};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use world::sys::files;

const USAGE: &str = "\
usage: nacre userdir add {--user USER|--group GROUP} [--under DIR] [OPTIONS]
                         [--dry-run] [--json] [DIR]
       nacre userdir remove [--user USER|--group GROUP] [--quota] [--yes]
                         [--dry-run] [--json] [-q] [DIR]...
       nacre userdir list [--json] [DIR]...
       nacre userdir check [FILE] [--json]
       nacre userdir login [--timeout SECONDS]

Directories of users and groups, in one step with owner, mode, limits, project,
pool and layout. What options do not say the rules in a file do (--file FILE;
/etc/nacre/userdir.conf if it is there): nacre-userdir(8).

add: makes the directory DIR (a path, or a name in --under; by default named as
its owner), or sets what is there; without DIR and --under those of all rules
that fit. It shows itself when all of it is set, and run again it goes on.
remove: says what is in it, and with --yes removes it. Goes on after a stop.
list: the directories in DIR, or where rules say, with what their owners may have.
check: whether FILE is right, and what its rules say.
login: for pam_exec(8): makes what rules say for PAM_USER, in a bounded time.

      --mode MODE           0700; of a group 2770
      --gid GROUP           of the directory (the user's)
      --quota-space LIMIT   HARD, or SOFT:HARD, as 900G:1T
      --quota-inodes LIMIT
      --limits WHOSE        user, group, project (if there is one), or directory
      --project ID          a number, a name, or {id}: the user's number
      --pool POOL
      --stripe OPTIONS      those of lfs setstripe, as '-c 4 -S 4M'
      --quota               limits of its user, group and project go, too, if it
                            has none of its own
      --yes                 removes it
      --dry-run             shows what would be done
      --timeout SECONDS     that a login waits at most (10)
      --json                one JSON document
  -q, --quiet               no progress

exit status: 0, or the errno of the first failure, 4 wrong usage, 22 mistakes
in FILE, 110 a login was not waited for, 125 nothing was removed without --yes,
130 interrupted
";

const OPTS: &[Opt] = &[
    value('\0', "user"),
    value('\0', "group"),
    value('\0', "under"),
    value('\0', "file"),
    value('\0', "mode"),
    value('\0', "gid"),
    value('\0', "limits"),
    value('\0', "quota-space"),
    value('\0', "quota-inodes"),
    value('\0', "project"),
    value('\0', "pool"),
    value('\0', "stripe"),
    flag('\0', "quota"),
    flag('\0', "yes"),
    flag('\0', "dry-run"),
    value('\0', "timeout"),
    flag('\0', "worker"),
    flag('\0', "json"),
    flag('q', "quiet"),
];

const FILE_DEFAULT: &str = "/etc/nacre/userdir.conf";

/// Each with the options that mean something to it, and how many operands it takes.
const SUBCOMMANDS: &[(&str, &[&str], usize)] = &[
    (
        "add",
        &[
            "user",
            "group",
            "under",
            "file",
            "mode",
            "gid",
            "limits",
            "quota-space",
            "quota-inodes",
            "project",
            "pool",
            "stripe",
            "dry-run",
            "json",
        ],
        1,
    ),
    ("remove", &["user", "group", "under", "file", "quota", "yes", "dry-run", "json", "quiet"], usize::MAX),
    ("list", &["file", "json"], usize::MAX),
    ("check", &["json"], 1),
    ("login", &["file", "timeout", "worker"], 0),
];

/// Options that settings are made of, and the keys that they have in rules.
const SETTINGS: &[(&str, &str)] = &[
    ("under", "under"),
    ("mode", "mode"),
    ("gid", "gid"),
    ("limits", "limits"),
    ("quota-space", "space"),
    ("quota-inodes", "inodes"),
    ("project", "project"),
    ("pool", "pool"),
    ("stripe", "stripe"),
];

/// Those of the file that was named, or of the usual one if there is one.
fn rules_of(p: &Parsed) -> Result<Vec<Rule>, Failure> {
    let file = p.value("file").map(Path::new);
    if file.is_none() && files::stat(Path::new(FILE_DEFAULT), true).is_err() {
        return Ok(Vec::new());
    }
    read_rules(file.unwrap_or(Path::new(FILE_DEFAULT)), rules::parse)
}

fn account(p: &Parsed) -> Result<Option<Account>, Failure> {
    match (p.value("user"), p.value("group")) {
        (Some(_), Some(_)) => Err(Failure::usage("a directory is a user's or a group's: --user or --group")),
        (Some(u), None) => Account::find(Of::User, u).map(Some),
        (None, Some(g)) => Account::find(Of::Group, g).map(Some),
        (None, None) => Ok(None),
    }
}

/// What options and DIR say.
fn given(p: &Parsed) -> Result<Settings, Failure> {
    let mut s = Settings::default();
    let mut set = |option: &str, key: &str, value: &str| match s.set(key, value) {
        Ok(_) => Ok(()),
        Err(why) => Err(Failure::usage(format!("{option}: {why}"))),
    };
    for (option, key) in SETTINGS {
        if let Some(value) = p.value(option) {
            let value = if *key == "under" { absolute(value)? } else { value.to_string() };
            set(&format!("--{option}"), key, &value)?;
        }
    }
    let Some(dir) = p.operands.first() else { return Ok(s) };
    let dir = dir.to_str().ok_or_else(|| Failure::usage("DIR is no readable text"))?;
    if dir.contains('/') && p.has("under") {
        return Err(Failure::usage(format!("with --under DIR is a name, not '{dir}'")));
    }
    if dir.contains('/') {
        let (under, name) = split(dir)?;
        set("DIR", "under", &under)?;
        set("DIR", "name", &name)?;
    } else {
        set("DIR", "name", dir)?;
    }
    Ok(s)
}

fn absolute(path: &str) -> Result<String, Failure> {
    let made = files::absolute(path).map_err(|e| Failure::io("cannot find", path, e))?;
    Ok(made.display().to_string())
}

fn split(path: &str) -> Result<(String, String), Failure> {
    let whole = PathBuf::from(absolute(path)?);
    let (Some(under), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(Failure::usage(format!("'{path}' is no path of a directory in another")));
    };
    Ok((under.display().to_string(), name.to_string_lossy().into_owned()))
}

/// What is to be made for somebody: where options say, or at all places of rules that fit.
fn plans(rules: &[Rule], a: &mut Account, given: &Settings) -> Result<Vec<Plan>, Failure> {
    let fitting = rules::fitting(rules, a);
    let is_meant = |r: &&&Rule| given.under.is_none() || given.under == r.settings.under;
    let mut meant: Vec<Settings> = fitting.iter().filter(is_meant).map(|r| r.settings.clone()).collect();
    if meant.is_empty() {
        meant.push(Settings::default());
    }
    meant.into_iter().map(|s| given.clone().over(s).plan(a)).collect()
}

fn add(p: &Parsed) -> Result<i32, Failure> {
    let mut a = account(p)?.ok_or_else(|| Failure::usage("whose directory? --user or --group"))?;
    let plans = plans(&rules_of(p)?, &mut a, &given(p)?)?;
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for plan in &plans {
        let path = plan.under.join(&plan.name);
        let came = match p.has("dry-run") {
            true => MountSite::open(&plan.under).map(|_| "would be made"),
            false => MountSite::open(&plan.under).and_then(|s| make::make(plan, &s, false)).map(Came::word),
        };
        match came {
            Ok(word) if p.has("json") => rows.push(json!({"path": path, "uid": plan.uid, "gid": plan.gid,
                "mode": format!("{:04o}", plan.mode), "project": plan.project, "came": word})),
            Ok(word) => say!("{}: {word}", path.display()),
            Err(f) => errors.report("nacre userdir", &f),
        }
    }
    if p.has("json") {
        output::json(&json!({"directories": rows}));
    }
    Ok(errors.exit_code())
}

/// Where the directories are that are to go, and their names.
fn doomed(p: &Parsed) -> Result<Vec<(PathBuf, String)>, Failure> {
    if let Some(mut a) = account(p)? {
        if p.operands.len() > 1 {
            return Err(Failure::usage("several directories are named by their paths alone"));
        }
        let all = plans(&rules_of(p)?, &mut a, &given(p)?)?;
        return Ok(all.into_iter().map(|plan| (plan.under, plan.name)).collect());
    }
    if p.operands.is_empty() || p.has("under") {
        return Err(Failure::usage("which directory? A path, or --user or --group"));
    }
    let one = |o: &OsString| {
        let (under, name) = split(&o.to_string_lossy())?;
        Ok((PathBuf::from(under), name))
    };
    p.operands.iter().map(one).collect()
}

fn remove(p: &Parsed) -> Result<i32, Failure> {
    let all = doomed(p)?;
    let (progress, line) = (
        Arc::new(Progress::default()),
        Arc::new(ProgressLine::for_terminal(p.has("quiet") || p.has("json"))),
    );
    let (shown, ticking) = (progress.clone(), line.clone());
    let tick = move || {
        let [seen, removed] = [&shown.seen, &shown.removed].map(|n| n.load(Relaxed));
        ticking.show(|| format!("{seen} files looked at, {removed} removed"));
    };
    let mut rows = Vec::new();
    let (mut errors, signalled) = interrupt::guarded(tick, |interrupt| {
        let mut errors = FirstError::default();
        for (under, name) in &all {
            if interrupt.stopped() {
                break;
            }
            match remove_one(p, under, name, interrupt, &progress) {
                Ok((row, looked)) => {
                    rows.push(row);
                    if looked != 0 {
                        errors.ended(looked);
                    }
                }
                Err(f) => errors.report("nacre userdir", &f),
            }
        }
        errors
    });
    line.clear();
    if p.has("json") {
        output::json(&json!({"dry_run": p.has("dry-run"), "directories": rows}));
    }
    if let Some(code) = signalled {
        errors.interrupted("nacre userdir", code);
    }
    Ok(errors.exit_code())
}

fn remove_one(
    p: &Parsed,
    under: &Path,
    name: &str,
    interrupt: &interrupt::Interrupt,
    progress: &Progress,
) -> Result<(Value, i32), Failure> {
    let mut removal = Removal::find(under, name)?;
    let path = under.join(name);
    let (contents, looked) = removal.contents(under, interrupt, progress)?;
    let looked = looked.exit_code();
    if !p.has("json") {
        output::bytes(contents.text(&path).as_bytes());
        if removal.is_begun {
            say!("  an earlier run began to remove it");
        }
        output::flush();
    }
    let mut row = contents.row(&path);
    row["removed"] = json!(false);
    if p.has("dry-run") || interrupt.stopped() {
        return Ok((row, looked));
    }
    if !p.has("yes") {
        let why = "--yes removes all of it";
        return Err(Failure::explained(
            "nothing was removed of",
            &path.display().to_string(),
            Errno::ECANCELED,
            why,
        ));
    }
    removal.run(under, p.has("quota"), interrupt, progress)?;
    row["removed"] = json!(true);
    if !p.has("json") {
        say!("  removed");
    }
    Ok((row, looked))
}

fn list(p: &Parsed) -> Result<i32, Failure> {
    let mut unders: Vec<PathBuf> = p.operands.iter().map(PathBuf::from).collect();
    if unders.is_empty() {
        for under in rules_of(p)?.into_iter().filter_map(|r| r.settings.under) {
            if !unders.contains(&under) {
                unders.push(under);
            }
        }
    }
    if unders.is_empty() {
        return Err(Failure::usage(format!(
            "the directories in which one? There are no rules in {FILE_DEFAULT}"
        )));
    }
    let mut errors = FirstError::default();
    let rows = list::rows(&unders, &mut errors)?;
    match p.has("json") {
        true => output::json(&list::json(&rows)),
        false => output::bytes(list::text(&rows).as_bytes()),
    }
    Ok(errors.exit_code())
}

/// One line of a rule, as `check` shows it.
fn rule_line(r: &Rule) -> String {
    let under = r.settings.under.as_deref().unwrap_or(Path::new(""));
    let name = r.settings.name.as_deref().unwrap_or("{name}");
    let who = |what: &str, all: &[String]| match all {
        [] => String::new(),
        all => format!(" {what} {}", all.join(" or ")),
    };
    let s = &r.settings;
    let limit = |what: &str, l: Option<model::quota::LimitChange>| match l {
        None => String::new(),
        Some(l) => format!(", {what} {}", l.hard.map(|n| crate::size::human(n, 1024)).unwrap_or_default()),
    };
    format!(
        "{}: {} of each {}{}{}{}{}",
        r.name,
        under.join(name).display(),
        r.of.word(),
        who("named", &r.users),
        who("in group", &r.groups),
        limit("space", s.space),
        limit("inodes", s.inodes)
    )
}

fn check(p: &Parsed) -> Result<i32, Failure> {
    let file = p.operands.first().map_or_else(|| PathBuf::from(FILE_DEFAULT), PathBuf::from);
    let rules = read_rules(&file, rules::parse)?;
    if p.has("json") {
        let row = |r: &Rule| {
            json!({"name": r.name, "of": r.of.word(), "users": r.users, "groups": r.groups,
                                   "under": r.settings.under})
        };
        output::json(&json!({"file": file, "rules": rules.iter().map(row).collect::<Vec<_>>()}));
    } else {
        rules.iter().for_each(|r| say!("{}", rule_line(r)));
    }
    Ok(0)
}

fn at_login(p: &Parsed, args: &[OsString]) -> Result<i32, Failure> {
    let seconds = p.number("timeout", login::TIMEOUT_MAX_S)?.unwrap_or(login::TIMEOUT_DEFAULT_S);
    if !p.has("worker") {
        return login::watched(args, seconds);
    }
    let Some(user) = login::user()? else { return Ok(0) };
    let mut errors = FirstError::default();
    login::work(&rules_of(p)?, &user, &mut errors)?;
    Ok(errors.exit_code())
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    const ALL: &str = "nacre userdir add|remove|list|check|login";
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {ALL}")));
    };
    let what = what.to_string_lossy();
    let Some((name, options, operands)) = SUBCOMMANDS.iter().find(|(n, ..)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: {ALL}")));
    };
    let p = getopt::parse(rest, OPTS)?;
    p.only(options, &format!("nacre userdir {name}"))?;
    if p.operands.len() > *operands {
        let extra = p.operands[*operands].to_string_lossy();
        return Err(Failure::usage(format!("'{extra}' is one too many for 'nacre userdir {name}'")));
    }
    match *name {
        "add" => add(&p),
        "remove" => remove(&p),
        "list" => list(&p),
        "check" => check(&p),
        _ => at_login(&p, rest),
    }
}

/// The command: arguments behind `userdir`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre userdir", USAGE), args, Failure::exit_code, command)
}
