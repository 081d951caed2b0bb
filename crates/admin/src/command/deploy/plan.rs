//! `nacre deploy plan`: what is wrong, and what `apply` would do. Changes nothing.

use super::checks::{Problem, Severity};
use super::file::Cluster;
use super::host::{Real, typed};
use super::steps::{self, Plan};
use super::{EXIT_WRONG, cluster, found, no_host, wishes};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::{output, say};
use serde_json::{Value, json};

/// A line of what is wrong, and what to do.
pub fn problem_text(p: &Problem) -> String {
    let word = match p.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("{word}: {}: {}\n    {}", p.host, p.what, p.help)
}

/// As programs read it.
pub fn json_of(c: &Cluster, plan: &Plan) -> Value {
    let step = |s: &steps::Step| {
        json!({"stage": s.stage, "host": s.host, "what": s.what, "command": s.command,
               "typed": typed(c.host(&s.host), &s.command)})
    };
    json!({"fsname": c.fsname, "problems": plan.problems, "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
           "notes": plan.notes, "partial": plan.partial})
}

/// The lines alone, stage after stage.
pub fn commands(c: &Cluster, plan: &Plan) {
    let mut stage = None;
    for s in &plan.steps {
        if stage.replace(s.stage) != Some(s.stage) {
            say!("# {}", s.stage.words());
        }
        say!("{}", typed(c.host(&s.host), &s.command));
    }
}

/// `1 step`, `2 steps`.
pub fn counted(n: usize) -> String {
    if n == 1 { "1 step".into() } else { format!("{n} steps") }
}

fn people(c: &Cluster, plan: &Plan) {
    plan.problems.iter().for_each(|p| say!("{}", problem_text(p)));
    let mut stage = None;
    for s in &plan.steps {
        if stage.replace(s.stage) != Some(s.stage) {
            say!("{}:", s.stage.words());
        }
        say!("  {}: {}", s.host, s.what);
    }
    plan.notes.iter().for_each(|n| say!("note: {n}"));
    let ends = match (plan.has_errors(), plan.steps.len(), plan.partial) {
        (true, ..) => "nothing is done before the errors are mended".to_string(),
        (_, 0, false) => format!("{} is as the file says: nothing to do", c.fsname),
        (_, n, partial) => {
            let more = if partial { ", and what follows from them" } else { "" };
            let n = counted(n);
            format!("{n}{more}, {} at one time: nacre deploy apply does them", c.at_once)
        }
    };
    say!("{ends}");
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let c = cluster(p)?;
    let plan = steps::plan(&c, &found(p, &c, &Real)?, &wishes(p)).map_err(no_host)?;
    match (p.has("json"), p.has("commands")) {
        (true, _) => output::json(&json_of(&c, &plan)),
        (_, true) => {
            output::flush();
            plan.problems.iter().for_each(|x| eprintln!("{}", problem_text(x)));
            commands(&c, &plan);
        }
        _ => people(&c, &plan),
    }
    Ok(if plan.has_errors() { EXIT_WRONG } else { 0 })
}
