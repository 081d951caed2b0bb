//! `nacre bench ior`: large files, as IOR writes and reads them.

use crate::args::IorArgs;
use crate::crew::Stop;
use crate::layout::{FileLayout, Walk};
use crate::link::{DataOrder, Order, Pace};
use crate::pattern;
use crate::report;
use crate::run::{Phase, Row, Run, Unit, read_status, write_status};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use world::sys::files;

/// Longest single read or write.
const TRANSFER_MAX: u64 = 1 << 30;
const NAME: &str = "nacre-bench.ior";

/// A file (or one for each process) and how to move it.
#[derive(Clone, Debug)]
pub struct DataPlan {
    pub layout: FileLayout,
    /// The file's path through each directory; of process 0's when each has its own, without the rank.
    pub bases: Vec<PathBuf>,
    pub shuffle: bool,
    pub walk: Walk,
    pub direct: bool,
    pub fsync: bool,
    pub fsync_each: bool,
    pub verify: bool,
    /// Distance of the process whose part is read.
    pub read_from: usize,
    pub seconds: f64,
    pub wear_out: bool,
    /// Transfers of each process that exist, once known.
    pub limit: Option<Vec<u64>>,
}

impl DataPlan {
    fn path(&self, worker: usize, owner: usize) -> PathBuf {
        let base = &self.bases[worker % self.bases.len()];
        if self.layout.shared {
            return base.clone();
        }
        let mut name = base.as_os_str().to_os_string();
        name.push(format!(".{owner:08}"));
        PathBuf::from(name)
    }

    fn order(&self, worker: usize, write: bool) -> Order {
        let procs = self.layout.procs as usize;
        let owner = if write { worker } else { (worker + self.read_from) % procs };
        let known = self.limit.as_ref().filter(|_| !write).map(|l| l[owner]);
        let all = self.layout.transfers();
        Order::Data(DataOrder {
            path: self.path(worker, owner),
            write,
            layout: self.layout,
            base: 0,
            rank: owner as u64,
            key: pattern::key(if self.layout.shared { 0 } else { owner as u64 }),
            pace: Pace {
                count: known.unwrap_or(all).min(all),
                seconds: self.seconds,
                wear_out: self.wear_out,
            },
            // the same order for who reads it: a limit then means the same transfers
            shuffle: self.shuffle.then_some(owner as u64 + 1),
            walk: self.walk,
            direct: self.direct,
            fsync: self.fsync,
            fsync_each: self.fsync_each,
            verify: self.verify,
        })
    }

    /// Writes, or reads, as all processes together. Remembers how far a limited write came.
    pub fn phase(&mut self, run: &mut Run<'_>, name: &str, write: bool) -> Result<Row> {
        let procs = self.layout.procs as usize;
        let orders: Vec<(usize, Order)> = (0..procs).map(|r| (r, self.order(r, write))).collect();
        let goal = self.layout.transfers() * self.layout.procs;
        let row = run.phase(&Phase { name, unit: Unit::MibPerSecond, cold: !write, goal }, &orders)?;
        if write {
            self.limit = Some(row.done.clone());
        }
        Ok(row)
    }

    /// Removes the files; those that do not exist are no error.
    pub fn remove(&self) -> Result<()> {
        let owners = if self.layout.shared { 1 } else { self.layout.procs as usize };
        for owner in 0..owners {
            let path = self.path(0, owner);
            match files::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("remove '{}'", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Paths of `name` through each directory, and the directories to be measured.
pub fn bases(dirs: &[PathBuf], given: Option<&Path>, default: &str) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let absolute = |p: &Path| files::absolute(p).with_context(|| format!("'{}'", p.display()));
    if !dirs.is_empty() {
        let name = given.unwrap_or(Path::new(default));
        if name.is_absolute() {
            bail!("'{}' must be relative when directories are given", name.display());
        }
        let dirs = dirs.iter().map(|d| absolute(d)).collect::<Result<Vec<_>>>()?;
        return Ok((dirs.iter().map(|d| d.join(name)).collect(), dirs));
    }
    let Some(path) = given else { bail!("which directory?") };
    let path = absolute(path)?;
    let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    Ok((vec![path], vec![dir]))
}

impl IorArgs {
    /// Takes in what can be said in more than one way, and refuses what makes no sense.
    pub fn settle(mut self) -> Result<IorArgs> {
        if !self.api.eq_ignore_ascii_case("posix") {
            bail!("-a {}: only POSIX is built in", self.api);
        }
        for d in std::mem::take(&mut self.directives) {
            let (key, value) = d.split_once('=').with_context(|| format!("-O {d}: KEY=VALUE is expected"))?;
            match key.to_ascii_lowercase().as_str() {
                "stonewallingwearout" => self.wear_out = value != "0",
                "stonewallingstatusfile" => self.status_file = Some(value.into()),
                "useo_direct" => self.direct = value != "0",
                _ => bail!("-O {key} is not known here"),
            }
        }
        if let Some(n) = self.tasks {
            self.common.procs = n;
        }
        self.common.dirs.append(&mut self.directories);
        if !self.write && !self.read {
            (self.write, self.read) = (true, true);
        }
        if self.transfer == 0 || self.transfer > TRANSFER_MAX {
            bail!("-t: 1 byte to 1 GiB");
        }
        if self.block == 0 || !self.block.is_multiple_of(self.transfer) {
            bail!("-b {}: must be a multiple of the transfer size, {}", self.block, self.transfer);
        }
        let total =
            self.block.checked_mul(self.segments).and_then(|n| n.checked_mul(self.common.procs as u64));
        if total.is_none_or(|t| t > i64::MAX as u64) {
            bail!("that is more than a file can hold");
        }
        if !(0.0..=1e9).contains(&self.deadline) {
            bail!("-D: seconds, 0 for no limit");
        }
        Ok(self)
    }

    pub fn layout(&self) -> FileLayout {
        FileLayout {
            procs: self.common.procs as u64,
            block: self.block,
            transfer: self.transfer,
            segments: self.segments,
            shared: !self.file_per_process,
        }
    }

    fn plan(&self) -> Result<(DataPlan, Vec<PathBuf>)> {
        let (bases, folders) = bases(&self.common.dirs, self.file.as_deref(), NAME)?;
        let plan = DataPlan {
            layout: self.layout(),
            bases,
            shuffle: self.random,
            walk: Walk::Forward,
            direct: self.direct,
            fsync: self.fsync,
            fsync_each: self.fsync_each,
            verify: self.verify,
            read_from: if self.reorder { self.offset % self.common.procs } else { 0 },
            seconds: self.deadline,
            wear_out: self.wear_out,
            limit: None,
        };
        Ok((plan, folders))
    }
}

fn iteration(a: &IorArgs, plan: &mut DataPlan, run: &mut Run<'_>) -> Result<()> {
    if a.write {
        if !a.existing {
            plan.remove()?;
        }
        let row = plan.phase(run, "write", true)?;
        report::ior_row(a, &row);
        if let (Some(f), true) = (&a.status_file, a.deadline > 0.0) {
            write_status(f, row.done.iter().copied().max().unwrap_or(0))?;
        }
    }
    if a.read {
        if !a.write
            && let Some(f) = &a.status_file
        {
            plan.limit = read_status(f)?.map(|n| vec![n; a.common.procs]);
        }
        let row = plan.phase(run, "read", false)?;
        report::ior_row(a, &row);
    }
    Ok(())
}

/// Waits so many seconds between repetitions.
fn rest(seconds: u64, stop: &Stop) -> Result<()> {
    let end = world::sys::Deadline::after(std::time::Duration::from_secs(seconds));
    if seconds > 0 && end.wait_for(|| stop.wanted().then_some(())).is_some() {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs with settled options; what was measured so far is lost when it fails.
pub fn run(a: &IorArgs, stop: &Stop, sweep: Option<String>) -> Result<Vec<Row>> {
    let (mut plan, folders) = a.plan()?;
    let mut run = Run::start(&a.common, stop, folders)?;
    run.sweep = sweep;
    report::ior_head(a);
    let mut result = run.repeat(a.iterations, |run| {
        plan.limit = None;
        rest(if run.iteration > 0 { a.delay } else { 0 }, stop)?;
        iteration(a, &mut plan, run)
    });
    let rows = run.end();
    let keep = a.keep_files || a.common.keep;
    // a run that only reads does not own the file it was pointed at until it has read it
    if !keep && (a.write || result.is_ok()) {
        result = result.and(plan.remove());
    }
    result.map(|()| rows)
}
