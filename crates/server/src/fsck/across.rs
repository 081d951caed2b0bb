//! `nacre fsck --online --across` and `--repair`: each metadata target of this host checks its whole file
//! system while it is used. The same check as that of `lctl lfsck_start`.

use super::FsckOptions;
use super::online::Checked;
use super::report::{Problem, Report};
use admin::command::lfsck::{UNDER_WAY, field, is_under_way};
use admin::live::ProgressLine;
use admin::local::{DaemonReply, DaemonRequest};
use model::Errno;
use serde::Deserialize;
use std::time::Duration;
use world::sys;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const PARTS: [&str; 2] = ["namespace", "layout"];

/// A line of `mdd.*.lfsck`.
#[derive(Deserialize)]
struct Line {
    kind: String,
    fid: Option<String>,
    action: String,
    what: String,
}

fn metadata(all: &[Checked]) -> Result<Vec<&Checked>, String> {
    let mdts: Vec<&Checked> = all.iter().filter(|c| c.label.contains("-MDT")).collect();
    if mdts.is_empty() {
        return Err("no metadata target among them: a file system is checked where its MDT is served".into());
    }
    Ok(mdts)
}

fn order(c: &Checked, text: &str) -> Result<(), String> {
    let r = DaemonRequest::SetParam { name: format!("mdd.{}.lfsck", c.label), value: text.into() };
    match c.daemon.ask(&r).map_err(|f| f.to_string())? {
        DaemonReply::Error { errno, .. } if Errno(errno) == Errno::EALREADY => {
            let none = "no check of the whole file system is under way";
            Err(format!("{}: {}", c.label, if text == "stop" { none } else { UNDER_WAY }))
        }
        DaemonReply::Error { message, .. } => Err(format!("{}: {message}", c.label)),
        _ => Ok(()),
    }
}

fn shown(c: &Checked, name: &str) -> Result<String, String> {
    let r = DaemonRequest::GetParam { pattern: format!("mdd.{}.{name}", c.label) };
    match c.daemon.ask(&r).map_err(|f| f.to_string())? {
        DaemonReply::Params(p) => Ok(p.into_iter().next().map(|(_, v)| v).unwrap_or_default()),
        DaemonReply::Error { message, .. } => Err(format!("{}: {message}", c.label)),
        other => Err(format!("{}: unexpected answer {other:?}", c.label)),
    }
}

pub fn stop(all: &[Checked]) -> Result<(), String> {
    for c in metadata(all)? {
        order(c, "stop")?;
    }
    Ok(())
}

pub fn check(all: &[Checked], opts: &FsckOptions, report: &mut Report<'_>) -> Result<(), String> {
    let mdts = metadata(all)?;
    report.targets = mdts.iter().map(|c| c.label.clone()).collect();
    for c in mdts {
        let how = if opts.repair { "and mended, while it is used" } else { "while it is used" };
        report.say(&format!("{}: the whole file system is checked {how}", c.label));
        order(c, if opts.repair { "start orphan reset" } else { "start orphan dryrun reset" })?;
        for part in PARTS {
            let line = ProgressLine::for_terminal(opts.quiet || opts.json);
            let mut text = shown(c, &format!("lfsck_{part}"))?;
            while field(&text, "status").is_some_and(is_under_way) {
                let n = field(&text, "checked_phase1").unwrap_or("0");
                line.show(|| format!("{}: {part}: {n} records", c.label));
                sys::sleep(LOOK_EVERY);
                text = shown(c, &format!("lfsck_{part}"))?;
            }
            line.clear();
            part_over(&c.label, part, &text, report)?;
        }
        tell(c, &shown(c, "lfsck")?, opts.repair, report);
    }
    Ok(())
}

fn part_over(label: &str, part: &str, text: &str, report: &mut Report<'_>) -> Result<(), String> {
    let n = |name: &str| field(text, name).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    match field(text, "status").unwrap_or("") {
        "completed" => {}
        "partial" => report.note(&format!("{label}: some OSTs did not answer, and are not compared")),
        other => return Err(format!("{label}: the check of {part} is {other}: its server's log says why")),
    }
    match part {
        "namespace" => {
            report.totals.inodes += n("inodes");
            report.totals.names += n("names");
        }
        _ => report.totals.objects += n("checked_phase1"),
    }
    // Those that are told are counted as they are told.
    report.totals.errors += n("found");
    report.totals.repaired += n("repaired") + n("quarantined");
    Ok(())
}

fn tell(c: &Checked, lines: &str, repair: bool, report: &mut Report<'_>) {
    let told: Vec<Line> = lines.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let mended = |l: &Line| repair && l.action != "left";
    report.totals.errors = report.totals.errors.saturating_sub(told.len() as u64);
    let repaired = told.iter().filter(|l| mended(l)).count() as u64;
    report.totals.repaired = report.totals.repaired.saturating_sub(repaired);
    for l in told {
        let done = mended(&l);
        report.problem(Problem { fid: l.fid, ..Problem::new(&c.label, l.kind, l.what) }.repaired(done));
    }
    if !lines.trim().is_empty() {
        report.note(&format!("{}: all that was ever found is in lfsck.log in the target's folder", c.label));
    }
}
