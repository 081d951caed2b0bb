//! `lfs`: what users ask a mounted file system. Subcommands answer to any unambiguous beginning of their
//! name.

use crate::command::{
    changelog, check, data_version, df, fid2path, find, getname, getstripe, ladvise, migrate, osts, path2fid,
    pool, project, quota, setstripe, status, swap_layouts, sync,
};
use crate::failure::{Failure, FirstError};
use crate::{EXIT_USAGE, VERSION, say};
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};

/// Runs with the arguments behind the name. `Ok` carries the exit status of what was reported already.
type Run = fn(&[OsString]) -> Result<FirstError, Failure>;

pub struct Subcommand {
    pub name: &'static str,
    pub run: Run,
    /// Shown by `lfs help NAME` and for wrong arguments.
    pub usage: &'static str,
}

pub const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "changelog", run: changelog::run, usage: changelog::USAGE },
    Subcommand { name: "changelog_clear", run: changelog::run_clear, usage: changelog::USAGE_CLEAR },
    Subcommand { name: "check", run: check::run, usage: check::USAGE },
    Subcommand { name: "data_version", run: data_version::run, usage: data_version::USAGE },
    Subcommand { name: "df", run: df::run, usage: df::USAGE },
    Subcommand { name: "fid2path", run: fid2path::run, usage: fid2path::USAGE },
    Subcommand { name: "find", run: find::run, usage: find::USAGE },
    Subcommand { name: "getname", run: getname::run, usage: getname::USAGE },
    Subcommand { name: "getstripe", run: getstripe::run, usage: getstripe::USAGE },
    Subcommand { name: "ladvise", run: ladvise::run, usage: ladvise::USAGE },
    Subcommand { name: "mdts", run: osts::run_mdts, usage: osts::USAGE_MDTS },
    Subcommand { name: "osts", run: osts::run_osts, usage: osts::USAGE_OSTS },
    Subcommand { name: "path2fid", run: path2fid::run, usage: path2fid::USAGE },
    Subcommand { name: "migrate", run: migrate::run, usage: migrate::USAGE },
    Subcommand { name: "pool_list", run: pool::run_list, usage: pool::USAGE_LIST },
    Subcommand { name: "project", run: project::run, usage: project::USAGE },
    Subcommand { name: "quota", run: quota::run, usage: quota::USAGE },
    Subcommand { name: "setquota", run: quota::set::run, usage: quota::set::USAGE },
    Subcommand { name: "setstripe", run: setstripe::run, usage: setstripe::USAGE },
    Subcommand { name: "status", run: status::run, usage: status::USAGE },
    Subcommand { name: "swap_layouts", run: swap_layouts::run, usage: swap_layouts::USAGE },
    Subcommand { name: "sync", run: sync::run, usage: sync::USAGE },
];

const BUILTIN: &[&str] = &["exit", "help", "quit", "version"];

fn names() -> Vec<&'static str> {
    let mut all: Vec<&str> = SUBCOMMANDS.iter().map(|s| s.name).chain(BUILTIN.iter().copied()).collect();
    all.sort_unstable();
    all
}

/// The full name for a beginning of one.
pub fn resolve(given: &str, names: &[&'static str], program: &str) -> Result<&'static str, i32> {
    if let Some(n) = names.iter().find(|n| **n == given) {
        return Ok(n);
    }
    let hits: Vec<&str> = names.iter().filter(|n| n.starts_with(given)).copied().collect();
    match hits.as_slice() {
        [one] if !given.is_empty() => Ok(one),
        [] => {
            eprintln!("{program}: unknown command '{given}'. Try '{program} help'.");
            Err(EXIT_USAGE)
        }
        many => {
            eprintln!("{program}: ambiguous command '{given}': {}", many.join(", "));
            Err(EXIT_USAGE)
        }
    }
}

fn help(topic: Option<&str>) -> i32 {
    match topic {
        None => {
            say!("usage: lfs SUBCOMMAND [OPTIONS] ARGUMENTS\n\nSubcommands:");
            for n in names() {
                say!("  {n}");
            }
            say!("\n'lfs help SUBCOMMAND' shows how to use one.");
            0
        }
        Some(t) => match resolve(t, &names(), "lfs") {
            Err(code) => code,
            Ok(n) => {
                let usage = SUBCOMMANDS.iter().find(|s| s.name == n).map_or("no arguments", |s| s.usage);
                say!("{n}: {usage}");
                0
            }
        },
    }
}

fn one(args: &[OsString]) -> i32 {
    let Some(first) = args.first() else { return EXIT_USAGE };
    let first = first.to_string_lossy();
    let rest = &args[1..];
    let topic = rest.first().map(|t| t.to_string_lossy());
    match first.as_ref() {
        "--version" | "-V" => {
            say!("lfs {VERSION}");
            return 0;
        }
        "--help" | "-h" => return help(topic.as_deref()),
        "--list-commands" => {
            for n in names() {
                say!("{n}");
            }
            return 0;
        }
        _ => {}
    }
    let name = match resolve(&first, &names(), "lfs") {
        Ok(n) => n,
        Err(code) => return code,
    };
    match name {
        "version" => {
            say!("lfs {VERSION}");
            0
        }
        "help" => help(topic.as_deref()),
        "exit" | "quit" => 0,
        _ => {
            let sub = SUBCOMMANDS.iter().find(|s| s.name == name).expect("a resolved name is in the table");
            run_sub(sub, rest)
        }
    }
}

fn run_sub(sub: &Subcommand, args: &[OsString]) -> i32 {
    let help = |a: &OsString| a == "--help" || (a == "-h" && !matches!(sub.name, "df" | "quota"));
    if args.first().is_some_and(help) {
        say!("{}: {}", sub.name, sub.usage);
        return 0;
    }
    match (sub.run)(args) {
        Ok(first) => first.exit_code(),
        Err(f) => {
            let prefix = format!("lfs {}", sub.name);
            let mut all = FirstError::default();
            all.report(&prefix, &f);
            if matches!(f, Failure::Usage(_)) {
                eprintln!("usage: lfs {} {}", sub.name, sub.usage);
            }
            all.exit_code()
        }
    }
}

/// A prompt on a terminal, one command a line otherwise.
pub fn interactive(prompt: &str, mut run: impl FnMut(&[OsString]) -> i32) -> i32 {
    let tty = std::io::stdin().is_terminal();
    let mut last = 0;
    let stdin = std::io::stdin();
    loop {
        crate::output::flush();
        if tty {
            print!("{prompt}");
            let _ = std::io::stdout().flush();
        }
        let mut line = String::new();
        if stdin.lock().read_line(&mut line).unwrap_or(0) == 0 {
            return last;
        }
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match words.first() {
            None => {}
            Some(w) if w == "quit" || w == "exit" => return last,
            Some(_) => last = run(&words),
        }
    }
}

pub fn main(args: &[OsString]) -> i32 {
    if args.is_empty() { interactive("lfs > ", one) } else { one(args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_names_are_enough_when_clear() {
        let all = names();
        assert_eq!(resolve("gets", &all, "lfs"), Ok("getstripe"));
        assert_eq!(resolve("df", &all, "lfs"), Ok("df"));
        assert_eq!(resolve("get", &all, "lfs"), Err(EXIT_USAGE));
        assert_eq!(resolve("fi", &all, "lfs"), Err(EXIT_USAGE));
        assert_eq!(resolve("nope", &all, "lfs"), Err(EXIT_USAGE));
    }
}
