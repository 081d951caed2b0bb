//! `nacre deploy wipe`: undoes what `apply` made, with all files.

use super::apply::told_line;
use super::checks::ProblemList;
use super::facts::Folder;
use super::file::{Cluster, PlannedMount, Role, Service};
use super::gather::{self, Found};
use super::host::Real;
use super::plan::{commands, json_of, problem_text};
use super::run::{self, Done};
use super::steps::{Plan, Stage, Step, stage_of};
use super::{EXIT_WRONG, cluster, service};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::interrupt;
use crate::live::ProgressLine;
use crate::shell::quoted;
use crate::{output, say};
use model::{Errno, TargetKind};
use serde_json::json;
use std::io::IsTerminal;

fn step(plan: &mut Plan, stage: Stage, host: &str, what: String, command: String) {
    assert!(!command.is_empty(), "a step does something");
    plan.steps.push(Step { stage, host: host.to_string(), what, command });
}

/// Those of the file that are there, and others of the same file system.
fn unmount(plan: &mut Plan, c: &Cluster, host: &str, found: &Found) {
    let Some(f) = found.facts(host) else { return };
    let sources: Vec<String> = c.mounts.iter().map(|m| c.source(m)).collect();
    let whole = format!("{}:/{}", c.mgs_nids(), c.fsname);
    for m in &f.mounts {
        let below = m.source.strip_prefix(&whole).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        if !below && !sources.contains(&m.source) {
            continue;
        }
        let known = c.mounts_of(host).find(|p| p.dir == m.dir).cloned();
        let planned = known.unwrap_or_else(|| PlannedMount {
            hosts: vec![host.to_string()],
            dir: m.dir.clone(),
            subdir: String::new(),
            options: String::new(),
            line: 0,
        });
        step(plan, Stage::Unmount, host, format!("unmount {}", m.dir), service::unmount(c, &planned));
    }
}

fn stop(plan: &mut Plan, c: &Cluster, host: &str, found: &Found, keep_mgt: bool) {
    let Some(f) = found.facts(host) else { return };
    for d in &f.daemons {
        let ours = |t: &&crate::local::DaemonTarget| {
            c.targets.iter().find(|p| {
                let mgt_stays = keep_mgt && p.id.kind == TargetKind::Mgt;
                !mgt_stays && p.served_as().iter().any(|(l, dir)| *l == t.label && *dir == t.dir)
            })
        };
        let here: Vec<_> = d.targets.iter().filter_map(|t| Some((t, ours(&t)?))).collect();
        if here.is_empty() {
            continue;
        }
        let stage = match here.iter().map(|(_, p)| stage_of(p)).min() {
            Some(Stage::Mgs) => Stage::StopMgs,
            Some(Stage::Mdts) => Stage::StopMdts,
            _ => Stage::StopOsts,
        };
        let dirs: Vec<String> = here.iter().map(|(t, _)| t.dir.clone()).collect();
        let labels: Vec<&str> = here.iter().map(|(t, _)| t.label.as_str()).collect();
        // The MDT ends before the OSTs that it asks.
        let has_mdt = here.iter().any(|(_, p)| p.id.kind == TargetKind::Mdt);
        let stage = if has_mdt { Stage::StopMdts } else { stage };
        step(plan, stage, host, format!("end the server of {}", labels.join(", ")), service::stop(c, &dirs));
    }
}

fn erase(plan: &mut Plan, problems: &mut ProblemList, c: &Cluster, found: &Found, keep_mgt: bool) {
    for t in &c.targets {
        let (host, Some(holds)) = (c.host(t.home()), found.facts(t.home()).and_then(|f| f.folder(&t.dir)))
        else {
            continue;
        };
        match holds {
            Folder::Missing | Folder::Empty => {}
            Folder::Target(_) if keep_mgt && t.id.kind == TargetKind::Mgt => {}
            Folder::Target(l) if l.label != t.label => {
                let what = format!("{} holds {}, not {}", t.dir, l.label, t.label);
                problems.error(host, what, "it is left alone: take it out of the file to wipe the rest");
            }
            Folder::Foreign(name) => {
                plan.notes.push(format!("{}: {} holds '{name}' and is left alone", host.name, t.dir))
            }
            Folder::Unreadable(why) => {
                problems.error(
                    host,
                    format!("{} cannot be looked at: {why}", t.dir),
                    "mend it, or take it out of the file",
                );
            }
            Folder::Target(_) | Folder::HalfMade => {
                let command = format!("nacre deploy erase --fsname={} {}", c.fsname, quoted(&t.dir));
                step(plan, Stage::Erase, &host.name, format!("remove {} from {}", t.label, t.dir), command);
            }
        }
    }
}

/// What undoes the file.
pub fn plan(c: &Cluster, found: &Found) -> Plan {
    let (mut plan, mut problems) = (Plan::default(), ProblemList::default());
    let others: Vec<&str> = found
        .config(c)
        .map(|s| s.file_systems.iter().map(|f| f.fsname.as_str()).filter(|n| *n != c.fsname).collect())
        .unwrap_or_default();
    let own_mgt = c.mgs().id.kind == TargetKind::Mgt;
    if let Some(name) = others.first() {
        if own_mgt {
            plan.notes
                .push(format!("the MGS serves '{name}' as well: it stays, and knows {} still", c.fsname));
        } else {
            let what = format!("the MGS in the folder of {} serves '{name}' as well", c.mgs().label);
            problems.error(c.host(c.mgs().home()), what, "wipe that one first");
        }
    }
    let keep_mgt = own_mgt && !others.is_empty();
    for h in &c.hosts {
        if let Some(Err(why)) = found.0.get(&h.name) {
            problems.error(
                h,
                format!("it cannot be asked: {why}"),
                "take it out of the file to wipe the rest",
            );
        }
        unmount(&mut plan, c, &h.name, found);
        stop(&mut plan, c, &h.name, found, keep_mgt);
        let Some(f) = found.facts(&h.name) else { continue };
        let mut files: Vec<&str> =
            f.files.iter().filter(|(_, t)| t.is_some()).map(|(p, _)| p.as_str()).collect();
        files.retain(|p| h.has(Role::Monitor) && **p == c.monitor_file || c.service == Service::Systemd);
        if !files.is_empty() {
            let all: Vec<String> = files.iter().map(|p| quoted(p)).collect();
            let what = format!("remove {}", files.join(", "));
            let mut command = format!("rm -f {}", all.join(" "));
            if c.service == Service::Systemd {
                let unit = service::unit(c);
                command = format!(
                    "{{ systemctl disable {unit} 2>/dev/null; {command} && systemctl daemon-reload; }}"
                );
            }
            step(&mut plan, Stage::Tidy, &h.name, what, command);
        }
    }
    erase(&mut plan, &mut problems, c, found, keep_mgt);
    if c.targets.iter().any(|t| t.disk.is_some()) {
        let note = "file systems on disks stay, empty and mounted, with their lines in /etc/fstab";
        plan.notes.push(note.into());
    }
    plan.problems = problems.0;
    plan.steps.sort_by_key(|s| s.stage);
    plan
}

/// Whether an operator at a terminal types the file system's name.
fn confirmed(c: &Cluster, plan: &Plan) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        let why = "say --yes: it removes all files";
        return Err(Failure::explained("cannot wipe", &c.fsname, Errno::ECANCELED, why));
    }
    for s in &plan.steps {
        say!("{}: {}", s.host, s.what);
    }
    crate::put!("All files of {} will be gone. Type its name to go on: ", c.fsname);
    output::flush();
    let mut line = String::new();
    Ok(std::io::BufRead::read_line(&mut std::io::stdin().lock(), &mut line).is_ok()
        && line.trim() == c.fsname)
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let c = cluster(p)?;
    let todo = plan(&c, &gather::ask(&c, &Real));
    if p.has("commands") {
        match p.has("json") {
            true => output::json(&json_of(&c, &todo)),
            false => commands(&c, &todo),
        }
        return Ok(if todo.has_errors() { EXIT_WRONG } else { 0 });
    }
    if todo.has_errors() {
        todo.problems.iter().for_each(|x| eprintln!("{}", problem_text(x)));
        eprintln!("nacre deploy wipe: nothing is done before the errors are mended");
        return Ok(EXIT_WRONG);
    }
    if !todo.steps.is_empty() && !p.has("yes") && !confirmed(&c, &todo)? {
        eprintln!("nacre deploy wipe: nothing was done");
        return Ok(EXIT_WRONG);
    }
    let quiet = p.has("quiet") || p.has("json");
    let line = ProgressLine::for_terminal(quiet);
    let told = |d: &Done, n: usize, of: usize| {
        if !quiet {
            line.print(&told_line(d, n, of));
        }
    };
    let (done, signalled) = interrupt::guarded(|| {}, |stop| run::all(&c, &Real, &todo.steps, stop, &told));
    line.clear();
    let is_well = done.len() == todo.steps.len() && done.iter().all(|d| d.error.is_none());
    if p.has("json") {
        output::json(&json!({"fsname": c.fsname, "ok": is_well, "done": done, "notes": todo.notes}));
    } else {
        todo.notes.iter().for_each(|n| say!("note: {n}"));
        match is_well {
            true if done.is_empty() => say!("nothing of {} is there", c.fsname),
            true => say!("{} is gone, with all its files", c.fsname),
            false => eprintln!(
                "nacre deploy wipe: it is not all gone; mend what failed and run it again: it goes on"
            ),
        }
    }
    Ok(signalled.unwrap_or(if is_well { 0 } else { EXIT_WRONG }))
}
