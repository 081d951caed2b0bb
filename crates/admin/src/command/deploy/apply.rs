//! `nacre deploy apply`: asks, plans, does, and asks again, until there is nothing more to do.

use super::file::Cluster;
use super::gather;
use super::host::{Hosts, Real};
use super::plan::{counted, problem_text};
use super::run::{self, Done};
use super::steps::{self, Plan, Wishes};
use super::{EXIT_WRONG, cluster, no_host, wishes};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::{output, say};
use serde_json::json;

/// Rounds of asking and doing; the first brings disks and the MGS, the second the rest, the last one looks.
const ROUNDS_MAX: usize = 6;

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// All is as the file says.
    AsTheFileSays,
    /// Errors that keep it from doing anything more.
    Wrong,
    /// A step failed.
    Failed,
    /// It was told to stop.
    Interrupted,
    /// Steps are left that were done already and brought nothing.
    Stuck,
}

/// What was done, and how it ended.
#[derive(Debug)]
pub struct Report {
    pub done: Vec<Done>,
    /// Of the last look.
    pub plan: Plan,
    /// Of all looks.
    pub notes: Vec<String>,
    pub end: End,
}

/// Does all of it. `told` hears of each step.
///
/// # Errors
/// A host that is wished something about is not in the file.
pub fn apply(
    c: &Cluster,
    hosts: &dyn Hosts,
    wishes: &Wishes,
    stop: &Interrupt,
    told: run::Told<'_>,
) -> Result<Report, String> {
    let (mut done, mut notes): (Vec<Done>, Vec<String>) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS_MAX {
        let plan = steps::plan(c, &gather::ask(c, hosts), wishes)?;
        for n in &plan.notes {
            if !notes.contains(n) {
                notes.push(n.clone());
            }
        }
        let end = match (plan.has_errors(), plan.steps.is_empty(), stop.stopped()) {
            (_, _, true) => Some(End::Interrupted),
            (true, ..) => Some(End::Wrong),
            (_, true, _) if plan.partial => Some(End::Stuck),
            (_, true, _) => Some(End::AsTheFileSays),
            // The same again would bring the same.
            _ if plan.steps.iter().all(|s| done.iter().any(|d| d.step == *s)) => Some(End::Stuck),
            _ => None,
        };
        if let Some(end) = end {
            return Ok(Report { done, plan, notes, end });
        }
        let some = run::all(c, hosts, &plan.steps, stop, told);
        let failed = some.iter().any(|d| d.error.is_some());
        done.extend(some);
        if failed || stop.stopped() {
            let end = if stop.stopped() { End::Interrupted } else { End::Failed };
            return Ok(Report { done, plan, notes, end });
        }
    }
    let plan = steps::plan(c, &gather::ask(c, hosts), wishes)?;
    Ok(Report { done, plan, notes, end: End::Stuck })
}

/// What happened, in a line.
pub fn told_line(d: &Done, n: usize, of: usize) -> String {
    match &d.error {
        None => format!("[{n}/{of}] {}: {} ({:.1} s)", d.step.host, d.step.what, d.seconds),
        Some(why) => {
            format!("[{n}/{of}] {}: {}: FAILED: {why}\n    {}", d.step.host, d.step.what, d.step.command)
        }
    }
}

fn people(c: &Cluster, r: &Report) {
    r.plan.problems.iter().for_each(|p| eprintln!("{}", problem_text(p)));
    r.notes.iter().for_each(|n| say!("note: {n}"));
    match r.end {
        End::AsTheFileSays if r.done.is_empty() => say!("{} is as the file says: nothing was done", c.fsname),
        End::AsTheFileSays => {
            say!("{} is as the file says, after {}", c.fsname, counted(r.done.len()));
            let mut all = c.mounts.iter().flat_map(|m| m.hosts.iter().map(move |h| (h, &m.dir)));
            if let Some((host, dir)) = all.next() {
                say!("try it on {host}: lfs df {dir}");
            }
        }
        End::Wrong => eprintln!("nacre deploy apply: nothing more is done before the errors are mended"),
        End::Failed => eprintln!("nacre deploy apply: a step failed; mend it and run it again: it goes on"),
        End::Interrupted => eprintln!("nacre deploy apply: interrupted; run it again: it goes on"),
        End::Stuck => {
            for s in &r.plan.steps {
                eprintln!("left: {}: {}", s.host, s.what);
            }
            eprintln!(
                "nacre deploy apply: what is left was tried and is not there: see the logs of these hosts"
            );
        }
    }
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let (c, wishes) = (cluster(p)?, wishes(p));
    let quiet = p.has("quiet") || p.has("json");
    let line = ProgressLine::for_terminal(quiet);
    let told = |d: &Done, n: usize, of: usize| {
        if !quiet {
            line.print(&told_line(d, n, of));
        }
        line.show(|| format!("{} of {of}", n));
    };
    line.show(|| format!("asking {} hosts", c.hosts.len()));
    let (r, signalled) = interrupt::guarded(|| {}, |stop| apply(&c, &Real, &wishes, stop, &told));
    line.clear();
    let r = r.map_err(no_host)?;
    let is_well = matches!(r.end, End::AsTheFileSays);
    if p.has("json") {
        let end = format!("{:?}", r.end);
        output::json(
            &json!({"fsname": c.fsname, "ok": is_well, "end": end, "done": r.done, "problems": r.plan.problems,
                             "left": if is_well { Vec::new() } else { r.plan.steps.clone() }, "notes": r.notes}),
        );
    } else {
        people(&c, &r);
    }
    Ok(signalled.unwrap_or(if is_well { 0 } else { EXIT_WRONG }))
}
