//! `nacre bench io500`: the phases of IO500 in their order, and its score.

use crate::args::Io500Args;
use crate::crew::Stop;
use crate::ior::{DataPlan, bases};
use crate::layout::{FileLayout, TreeLayout};
use crate::link::NamesVerb;
use crate::mdtest::NamesPlan;
use crate::report;
use crate::run::{Row, Run};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use world::sys::files;

const NAME: &str = "nacre-bench.io500";
const HARD_TRANSFER: u64 = 47_008;
const HARD_FILE: u64 = 3901;

/// Geometric means: GiB/s, thousand operations a second, and of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub bandwidth: f64,
    pub metadata: f64,
    pub total: f64,
}

fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() || values.iter().any(|v| *v <= 0.0) {
        return 0.0;
    }
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

pub fn score(rows: &[Row]) -> Score {
    let of = |unit: &str, scale: f64| -> Vec<f64> {
        rows.iter().filter(|r| r.unit == unit).map(|r| r.rate / scale).collect()
    };
    let bandwidth = geometric_mean(&of("MiB/s", 1024.0));
    let metadata = geometric_mean(&of("ops/s", 1000.0));
    Score { bandwidth, metadata, total: (bandwidth * metadata).sqrt() }
}

impl Io500Args {
    pub fn settle(mut self) -> Result<Io500Args> {
        self.common.dirs.append(&mut self.directories);
        if self.common.dirs.is_empty() {
            bail!("which directory?");
        }
        if self.easy_transfer == 0 || self.easy_block < self.easy_transfer {
            bail!("--easy-block must hold at least one --easy-transfer");
        }
        self.easy_block -= self.easy_block % self.easy_transfer;
        if !(self.seconds > 0.0 && self.seconds <= 1e6) {
            bail!("--seconds: more than 0");
        }
        Ok(self)
    }

    fn data(&self, bases: &[PathBuf], name: &str, layout: FileLayout) -> DataPlan {
        DataPlan {
            layout,
            bases: bases.iter().map(|b| b.join(name)).collect(),
            walk: crate::layout::Walk::Forward,
            shuffle: false,
            direct: false,
            fsync: true,
            fsync_each: false,
            verify: false,
            read_from: 1 % self.common.procs,
            seconds: self.seconds,
            wear_out: true,
            limit: None,
        }
    }

    fn names(&self, bases: &[PathBuf], name: &str, unique: bool, items: u64, bytes: u64) -> NamesPlan {
        NamesPlan {
            tree: TreeLayout { depth: 0, branch: 1, leaves_only: false, items },
            unique,
            procs: self.common.procs,
            bases: bases.iter().map(|b| b.join(name)).collect(),
            write_bytes: bytes,
            read_bytes: bytes,
            fsync: false,
            verify: false,
            random: false,
            shift: 1 % self.common.procs,
            seconds: self.seconds,
            items,
            find_everything: false,
        }
    }
}

struct Plans {
    easy: DataPlan,
    hard: DataPlan,
    md_easy: NamesPlan,
    md_hard: NamesPlan,
}

fn sequence(run: &mut Run<'_>, p: &mut Plans, base: &Path) -> Result<()> {
    for plan in [&p.md_easy, &p.md_hard] {
        plan.make_top()?;
    }
    // making and removing the few directories is no phase of IO500
    let quiet = |run: &mut Run<'_>, plan: &mut NamesPlan, verb| -> Result<()> {
        plan.phase(run, "trees", verb, false)?;
        run.rows.pop();
        Ok(())
    };
    quiet(run, &mut p.md_easy, NamesVerb::MakeTree)?;
    quiet(run, &mut p.md_hard, NamesVerb::MakeTree)?;
    let c = run.common;
    let say = |row: Row| report::io500_row(c, &row);
    say(p.easy.phase(run, "ior-easy-write", true)?);
    say(p.md_easy.phase(run, "mdtest-easy-write", NamesVerb::Create, false)?);
    say(p.hard.phase(run, "ior-hard-write", true)?);
    say(p.md_hard.phase(run, "mdtest-hard-write", NamesVerb::Create, false)?);
    // what was written must be read whole: only writing has a time limit
    (p.easy.seconds, p.hard.seconds) = (0.0, 0.0);
    say(find(run, p, base)?);
    say(p.easy.phase(run, "ior-easy-read", false)?);
    say(p.md_easy.phase(run, "mdtest-easy-stat", NamesVerb::Stat, false)?);
    say(p.hard.phase(run, "ior-hard-read", false)?);
    say(p.md_hard.phase(run, "mdtest-hard-stat", NamesVerb::Stat, false)?);
    say(p.md_easy.phase(run, "mdtest-easy-delete", NamesVerb::Remove, false)?);
    say(p.md_hard.phase(run, "mdtest-hard-read", NamesVerb::Read, false)?);
    say(p.md_hard.phase(run, "mdtest-hard-delete", NamesVerb::Remove, false)?);
    Ok(())
}

/// All names of the run, the data files too.
fn find(run: &mut Run<'_>, p: &Plans, base: &Path) -> Result<Row> {
    let mut all = p.md_easy.clone();
    let up = |b: &PathBuf| b.parent().unwrap_or(base).to_path_buf();
    all.bases = p.md_easy.bases.iter().map(up).collect();
    all.items = p.md_easy.items + p.md_hard.items;
    all.find_everything = true;
    all.phase(run, "find", NamesVerb::Find, false)
}

/// Runs with settled options, and removes all it made.
pub fn run(a: &Io500Args, stop: &Stop) -> Result<Vec<Row>> {
    let (bases, folders) = bases(&a.common.dirs, None, NAME)?;
    let mut run = Run::start(&a.common, stop, folders)?;
    let base = bases[0].clone();
    if files::stat(&base, false).is_ok() {
        bail!("'{}' exists: another run, or what one left behind", base.display());
    }
    files::create_dir_all(&base).with_context(|| format!("make '{}'", base.display()))?;
    let procs = a.common.procs as u64;
    let easy =
        FileLayout { procs, block: a.easy_block, transfer: a.easy_transfer, segments: 1, shared: false };
    let hard = FileLayout {
        procs,
        block: HARD_TRANSFER,
        transfer: HARD_TRANSFER,
        segments: a.hard_segments,
        shared: true,
    };
    let mut plans = Plans {
        easy: a.data(&bases, "ior-easy", easy),
        hard: a.data(&bases, "ior-hard", hard),
        md_easy: a.names(&bases, "mdtest-easy", true, a.easy_files, 0),
        md_hard: a.names(&bases, "mdtest-hard", false, a.hard_files, HARD_FILE),
    };
    report::io500_head(a);
    let mut result = sequence(&mut run, &mut plans, &base);
    let rows = run.end();
    if !a.common.keep {
        let cleaned = files::remove_tree(&base).with_context(|| format!("remove '{}'", base.display()));
        result = result.and(cleaned);
    }
    result.map(|()| {
        report::io500_score(a, &score(&rows));
        rows
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[1.0, 4.0, 16.0]) - 4.0).abs() < 1e-9);
        assert_eq!(geometric_mean(&[1.0, 0.0]), 0.0);
        assert_eq!(geometric_mean(&[]), 0.0);
    }
}
