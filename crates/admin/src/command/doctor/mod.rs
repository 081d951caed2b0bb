//! `nacre doctor`: what is wrong right now, as far as this host can know, and what helps.

mod checks;
mod facts;
mod load;
mod rates;

#[cfg(test)]
mod tests;

use super::with_page;
use crate::command::status;
use crate::failure::Failure;
use crate::getopt::{self, flag};
use crate::health::Severity;
use crate::{EXIT_USAGE, output, say};
use checks::{CHECKS, Finding};
use facts::Facts;
use serde_json::{Value, json};
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre doctor [--json] [--quiet] [MOUNT...]
       nacre doctor --list [--json]

Looks for what is wrong right now, and says which object it is and which
command helps. It asks the servers of this host (as root), and the file systems
that are mounted at these places (all that are mounted here without any) with
their targets. What could not be looked at is said. nacre-doctor(8) has the
checks and their limits.

      --json     one JSON document
  -q, --quiet    nothing but what is wrong
      --list     the checks

exit status: 0 nothing is wrong, 1 warnings, 2 errors, 4 wrong usage
";

/// Everything that the checks found, and what they could not look at.
struct Report {
    found: Vec<(&'static str, Finding)>,
    not_looked: Vec<(&'static str, &'static str)>,
}

impl Report {
    fn of(f: &Facts) -> Report {
        let mut r = Report { found: Vec::new(), not_looked: Vec::new() };
        for c in CHECKS {
            match c.needs.missing(f) {
                Some(why) => r.not_looked.push((c.name, why)),
                None => r.found.extend((c.run)(f).into_iter().map(|finding| (c.name, finding))),
            }
        }
        // The order of the table within each.
        r.found.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
        r
    }

    fn count(&self, of: Severity) -> usize {
        self.found.iter().filter(|(_, f)| f.severity == of).count()
    }

    fn exit_code(&self) -> i32 {
        match self.found.iter().map(|(_, f)| f.severity).max() {
            None => 0,
            Some(Severity::Warning) => 1,
            Some(Severity::Error) => 2,
        }
    }

    fn lines(&self, quiet: bool) -> Vec<String> {
        let mut out = Vec::new();
        for (check, f) in &self.found {
            out.push(format!("{}: {check}: {}: {}", f.severity.word(), f.object, f.what));
            out.push(format!("    try: {}", f.help));
        }
        if quiet {
            return out;
        }
        for (check, why) in &self.not_looked {
            out.push(format!("not looked at: {check}: {why}"));
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let looked = CHECKS.len() - self.not_looked.len();
        let checks = format!("{looked} of {} checks", CHECKS.len());
        out.push(match (errors, warnings) {
            (0, 0) => format!("nothing is wrong: {checks}"),
            _ => format!("{errors} errors, {warnings} warnings: {checks}"),
        });
        out
    }

    fn json(&self) -> Value {
        let found = |(check, f): &(&str, Finding)| {
            json!({"check": check, "severity": f.severity.word(), "object": f.object, "what": f.what,
                   "help": f.help})
        };
        let not = |(check, why): &(&str, &str)| json!({"check": check, "why": why});
        json!({"errors": self.count(Severity::Error), "warnings": self.count(Severity::Warning),
               "findings": self.found.iter().map(found).collect::<Vec<_>>(),
               "not_looked_at": self.not_looked.iter().map(not).collect::<Vec<_>>()})
    }
}

/// What `nacre doctor --json` says of this host and all that is mounted on it.
pub fn query() -> Result<Value, Failure> {
    Ok(Report::of(&facts::gather(&status::chosen(&[])?)).json())
}

fn list(as_json: bool) {
    if as_json {
        let one = |c: &checks::Check| json!({"check": c.name, "about": c.about});
        output::json(&json!(CHECKS.iter().map(one).collect::<Vec<_>>()));
        return;
    }
    CHECKS.iter().for_each(|c| say!("{:<12} {}", c.name, c.about));
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json"), flag('q', "quiet"), flag('\0', "list")])?;
    if p.has("list") {
        if !p.operands.is_empty() {
            return Err(Failure::usage("--list takes no mount"));
        }
        list(p.has("json"));
        return Ok(0);
    }
    let report = Report::of(&facts::gather(&status::chosen(&p.operands)?));
    if p.has("json") {
        output::json(&report.json());
    } else {
        report.lines(p.has("quiet")).iter().for_each(|l| say!("{l}"));
    }
    Ok(report.exit_code())
}

/// The command: arguments behind `doctor`. Returns the exit status: 2 as well for what it cannot find.
pub fn main(args: &[OsString]) -> i32 {
    let code = |f: &Failure| if matches!(f, Failure::Usage(_)) { EXIT_USAGE } else { 2 };
    with_page(("nacre doctor", USAGE), args, code, run)
}
