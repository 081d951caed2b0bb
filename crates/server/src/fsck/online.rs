//! `nacre fsck --online`: targets that servers of this host have are checked by their servers, each as it is
//! at one moment.

use super::report::{Problem, Report};
use super::{EXIT_OPERATIONAL, FsckOptions, across};
use admin::local::{CheckOrder, CheckState, Daemon, DaemonReply, DaemonRequest};
use std::io::{IsTerminal, Write};
use std::time::Duration;
use world::sys;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a server said that it checks a target with.
pub(super) struct Checked {
    pub daemon: Daemon,
    pub label: String,
}

fn ask(d: &Daemon, label: &str, order: CheckOrder) -> Result<CheckState, String> {
    match d.ask(&DaemonRequest::Check { target: label.to_string(), order }).map_err(|f| f.to_string())? {
        DaemonReply::Check(s) => Ok(s),
        DaemonReply::Error { message, .. } => Err(format!("{label}: {message}")),
        other => Err(format!("{label}: unexpected answer {other:?}")),
    }
}

/// Those that are named, by label or folder; all of this host if none is.
fn chosen(paths: &[String]) -> Result<Vec<Checked>, String> {
    let mut out = Vec::new();
    for (daemon, t) in Daemon::served() {
        let named = |p: &String| {
            *p == t.label
                || sys::files::canonical(p).is_ok_and(|p| t.dir.starts_with(p.to_str().unwrap_or("\0")))
        };
        if paths.is_empty() || paths.iter().any(named) {
            out.push(Checked { daemon, label: t.label });
        }
    }
    out.sort_by(|a, b| a.label.cmp(&b.label));
    if out.is_empty() {
        return Err("no server of this host has such a target; without --online the folders of stopped ones are checked".into());
    }
    Ok(out)
}

/// Prints to `out`; returns the exit status.
pub fn run(opts: &FsckOptions, out: &mut (dyn Write + Send)) -> i32 {
    let mut report = Report::new(out, opts);
    match check(opts, &mut report) {
        Ok(()) => report.finish(),
        Err(e) => {
            report.failed(&e);
            EXIT_OPERATIONAL
        }
    }
}

fn check(opts: &FsckOptions, report: &mut Report<'_>) -> Result<(), String> {
    let all = chosen(&opts.paths)?;
    if opts.stop && opts.across {
        return across::stop(&all);
    }
    if opts.stop {
        for c in &all {
            // Never checked: nothing to stop.
            let _ = ask(&c.daemon, &c.label, CheckOrder::Stop);
        }
        return Ok(());
    }
    if opts.across {
        return across::check(&all, opts, report);
    }
    report.targets = all.iter().map(|c| c.label.clone()).collect();
    let live = !opts.quiet && !opts.json && std::io::stderr().is_terminal();
    for c in &all {
        report.say(&format!("{}: as it is now", c.label));
        let mut s = ask(&c.daemon, &c.label, CheckOrder::Start)?;
        while s.running {
            if live {
                eprint!("\r{}: {} records", c.label, s.looked);
            }
            sys::sleep(LOOK_EVERY);
            s = ask(&c.daemon, &c.label, CheckOrder::Look)?;
        }
        if live {
            eprint!("\r\x1b[K");
        }
        if let Some(why) = s.failed {
            return Err(format!("{}: {why}", c.label));
        }
        tell(&c.label, s, report);
    }
    report.note("objects are not compared with layouts while servers run; nacre scrub reads their bytes");
    Ok(())
}

fn tell(label: &str, s: CheckState, report: &mut Report<'_>) {
    report.totals.inodes += s.inodes;
    report.totals.names += s.names;
    report.totals.objects += s.objects;
    // Those that are told are counted as they are. What a server says of itself need not add up.
    report.totals.errors += s.errors.saturating_sub(s.problems.len() as u64);
    for p in s.problems {
        report.problem(Problem { fid: p.fid, path: p.path, ..Problem::new(label, p.kind, p.what) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::local::CheckProblem;

    #[test]
    fn a_server_that_counts_fewer_problems_than_it_tells_is_reported_with_those_that_it_tells() {
        let p = |n: u8| CheckProblem { kind: "name".into(), fid: None, path: None, what: n.to_string() };
        let state = CheckState { problems: vec![p(1), p(2)], errors: 1, ..CheckState::default() };
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, &FsckOptions::default());
        tell("scratch-MDT0000", state, &mut report);
        assert_eq!(report.totals.errors, 2);
    }
}
