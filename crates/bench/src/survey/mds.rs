//! `mds-survey`: names in directories of a mounted file system, made, looked at and removed by more and more
//! threads.

use super::grid::{Measured, Point};
use super::knobs::Knobs;
use super::ost::mount_of;
use super::{Asked, Output, attempt};
use crate::args::Common;
use crate::crew::Stop;
use crate::layout::TreeLayout;
use crate::link::{NamesOrder, NamesVerb, Order, Pace};
use crate::plot::{Chart, Series};
use crate::run::{Phase, Row, Unit};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use world::sys::{files, load};

pub const VARIABLES: &[&str] = &[
    "targets",
    "file_count",
    "dir_count",
    "thrlo",
    "thrhi",
    "stripe_count",
    "tests_str",
    "start_number",
    "rslt",
];

/// Each with what it is here; of Lustre's, setxattr has none.
const TESTS: &[(&str, NamesVerb)] = &[
    ("create", NamesVerb::Create),
    ("lookup", NamesVerb::Stat),
    ("md_getattr", NamesVerb::Stat),
    ("destroy", NamesVerb::Remove),
];
const DIRS_MAX: u64 = 1 << 16;

#[derive(Debug)]
pub struct Plan {
    pub files: u64,
    pub dirs: u64,
    pub threads: Vec<u64>,
    pub tests: Vec<(&'static str, NamesVerb)>,
    /// Of the names, so that two surveys in a directory do not meet.
    pub start: u64,
}

impl Plan {
    pub fn new(k: &Knobs) -> Result<Plan> {
        if k.number("stripe_count", 0, 0..=2000)? > 0 {
            bail!(
                "stripe_count: files of this survey have no objects; nacre bench mdtest -w writes into them"
            );
        }
        let mut tests = Vec::new();
        for word in k.words("tests_str", "create lookup md_getattr destroy") {
            let found = TESTS.iter().find(|(name, _)| *name == word);
            let known = || TESTS.iter().map(|t| t.0).collect::<Vec<_>>().join(" ");
            tests
                .push(*found.with_context(|| {
                    format!("tests_str: '{word}' is not measured; there are {}", known())
                })?);
        }
        let dirs = k.number("dir_count", 4, 1..=DIRS_MAX)?;
        let plan = Plan {
            files: k.number("file_count", 100_000, 1..=1 << 32)?,
            dirs,
            threads: k.doubling("thr", (4.max(dirs), 32.max(dirs)), 1..=4096)?,
            tests,
            start: k.number("start_number", 2, 0..=1 << 40)?,
        };
        if let Some(t) = plan.threads.iter().find(|t| **t > plan.files) {
            bail!("file_count={} leaves some of {t} threads without a file", plan.files);
        }
        Ok(plan)
    }

    /// Files of each thread.
    fn each(&self, threads: u64) -> u64 {
        self.files / threads
    }
}

/// The directories of a survey, gone with it.
struct Dirs {
    top: PathBuf,
    each: Vec<PathBuf>,
}

impl Dirs {
    fn make(mount: &Path, plan: &Plan) -> Result<Dirs> {
        let top = mount.join(format!("mds_survey.{}", std::process::id()));
        load::mkdir(&top).with_context(|| format!("make '{}'", top.display()))?;
        let mut dirs = Dirs { top, each: Vec::new() };
        for n in 0..plan.dirs {
            let d = dirs.top.join(format!("dir{}", plan.start + n));
            load::mkdir(&d).with_context(|| format!("make '{}'", d.display()))?;
            dirs.each.push(d);
        }
        Ok(dirs)
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        if let Err(e) = files::remove_tree(&self.top) {
            eprintln!("mds-survey: cannot remove '{}': {e}", self.top.display());
        }
    }
}

/// `mdt 1 file 100000 dir 4 thr 4`, without the tests.
fn head(p: &Point, files: u64) -> String {
    format!("mdt 1 file {files:>7} dir {:>4} thr {:>4}", p.groups, p.threads)
}

fn line(p: &Point, files: u64) -> String {
    let mut o = head(p, files);
    for m in &p.tests {
        // writing to a String cannot fail
        let _ = match &m.failed {
            Some(word) => write!(o, " {} {word}", m.test),
            None => write!(o, " {} {:>8.2} [{:>8.2},{:>8.2}]", m.test, m.rate, m.min, m.max),
        };
    }
    o
}

/// The rate with the least and the most of it in a quarter of a second, as far as it took that long.
fn measured(test: &str, row: &Row) -> Measured {
    let each: Vec<f64> = row.samples.iter().map(|s| s.1).collect();
    Measured::of(test, row.rate, if each.is_empty() { vec![row.rate] } else { each })
}

fn point(asked: &Asked, stop: &Stop, plan: &Plan, dirs: &Dirs, threads: u64) -> Result<Point> {
    let mut p = Point { total_kib: 0, request_kib: 0, groups: plan.dirs, threads, tests: Vec::new() };
    let procs = usize::try_from(threads).context("threads")?;
    let common = Common { procs, threads: true, quiet: asked.flags.quiet, ..Common::default() };
    let each = plan.each(threads);
    for (test, verb) in &plan.tests {
        let order = |t: usize| {
            let root = dirs.each[t % dirs.each.len()].clone();
            let pace = Pace { count: each, seconds: 0.0, wear_out: false };
            Order::Names(NamesOrder {
                verb: *verb,
                folders: false,
                root,
                tree: TreeLayout { depth: 0, branch: 1, leaves_only: false, items: each },
                rank: t as u64,
                procs: threads,
                pace,
                shuffle: None,
                write_bytes: 0,
                read_bytes: 0,
                fsync: false,
                verify: false,
            })
        };
        let orders: Vec<(usize, Order)> = (0..procs).map(|t| (t, order(t))).collect();
        let name = format!("{} {test}", head(&p, each * threads));
        let phase = Phase { name: &name, unit: Unit::OpsPerSecond, cold: false, goal: each * threads };
        let done = super::phase(&common, stop, &phase, &orders).map(|row| measured(test, &row));
        p.tests.push(attempt(("mds-survey", test), stop, done, |_| "failed")?);
    }
    Ok(p)
}

/// `targets=FS-MDT0000` names a mounted file system; else the operand does, or it is the only one.
fn mount(asked: &Asked) -> Result<PathBuf> {
    let targets = asked.knobs.words("targets", "");
    let [target] = targets.as_slice() else {
        if targets.len() > 1 {
            bail!("targets: one metadata target at a time, not {}", targets.len());
        }
        return mount_of(asked);
    };
    let (fsname, _) =
        target.rsplit_once("-MDT").with_context(|| format!("targets='{target}': FSNAME-MDT0000"))?;
    let mut mounts = admin::local::mounts(true);
    mounts.retain(|m| m.name.fsname == fsname);
    let found = mounts.first().with_context(|| format!("'{fsname}' is not mounted on this host"))?;
    Ok(found.dir.clone())
}

/// More and more threads, with a line for each number of them.
pub fn points(
    asked: &Asked,
    stop: &Stop,
    (plan, dir): (&Plan, &Path),
    out: &Output<'_>,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for threads in &plan.threads {
        // fresh names each time
        let dirs = Dirs::make(dir, plan)?;
        let p = point(asked, stop, plan, &dirs, *threads)?;
        out.line(&line(&p, plan.each(*threads) * threads));
        points.push(p);
    }
    Ok(points)
}

pub fn run(asked: &Asked, stop: &Stop) -> Result<bool> {
    let plan = Plan::new(&asked.knobs)?;
    let dir = mount(asked)?;
    let out = Output::begin("mds-survey", asked, &format!("on {}", dir.display()));
    let points = points(asked, stop, (&plan, &dir), &out)?;
    let document = json!({
        "survey": "mds-survey", "version": admin::VERSION, "time": world::sys::wall_seconds(),
        "inventory": crate::inventory::here(), "parameters": asked.knobs.json(), "mount": dir,
        "files": plan.files, "unit": "ops/s", "points": points, "best": super::grid::best(&points),
    });
    let mut csv = "dirs,threads,test,rate_ops_s,min,max\n".to_string();
    for p in &points {
        for m in &p.tests {
            let _ = writeln!(
                csv,
                "{},{},{},{:.2},{:.2},{:.2}",
                p.groups, p.threads, m.test, m.rate, m.min, m.max
            );
        }
    }
    out.finish(&document, &csv, || crate::plot::svg(&chart(&points)))?;
    Ok(super::grid::is_well(&points))
}

fn chart(points: &[Point]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for p in points {
        for m in p.tests.iter().filter(|m| m.failed.is_none()) {
            let i = series.iter().position(|s| s.name == m.test).unwrap_or_else(|| {
                series.push(Series { name: m.test.clone(), points: Vec::new() });
                series.len() - 1
            });
            series[i].points.push((p.threads as f64, m.rate));
        }
    }
    Chart {
        title: "mds-survey".into(),
        x_label: "threads".into(),
        y_label: "ops/s".into(),
        log_x: true,
        x_is_size: false,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Result<Plan> {
        Plan::new(&Knobs::of_words(VARIABLES, words)?)
    }

    #[test]
    fn variables_and_lines_are_the_classical_ones() {
        let p = plan(&["file_count=1000", "thrlo=2", "thrhi=8", "tests_str=create lookup destroy"]).unwrap();
        assert_eq!((p.dirs, p.threads, p.tests.len()), (4, vec![2, 4, 8], 3));
        let tests = vec![Measured::of("create", 5652.05, vec![999.01, 46_940.48])];
        let p = Point { total_kib: 0, request_kib: 0, groups: 4, threads: 4, tests };
        assert_eq!(
            line(&p, 100_000),
            "mdt 1 file  100000 dir    4 thr    4 create  5652.05 [  999.01,46940.48]"
        );
    }

    #[test]
    fn mistakes_have_words() {
        let says = |words: &[&str], part: &str| {
            let text = format!("{:#}", plan(words).unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        says(&["tests_str=create setxattr"], "'setxattr' is not measured");
        says(&["stripe_count=1"], "mdtest -w");
        says(&["file_count=8"], "without a file");
        says(&["dir_count=0"], "from 1 to");
    }
}
