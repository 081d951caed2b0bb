//! `nacre bench mdtest`: many small files and directories, as mdtest makes them.

use crate::args::MdtestArgs;
use crate::crew::Stop;
use crate::ior::bases;
use crate::layout::TreeLayout;
use crate::link::{NamesOrder, NamesVerb, Order, Pace};
use crate::report;
use crate::run::{Phase, Row, Run, Unit, read_status, write_status};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use world::sys::files;

const NAME: &str = "nacre-bench.mdtest";
/// Inside the directory to work in.
const TOP: &str = "test-dir.0-0";
/// Directories of a tree at most.
const FOLDERS_MAX: u64 = 10_000_000;
/// Bytes of a file at most.
const FILE_MAX: u64 = 1 << 30;

/// The names of a run and what to do with them.
#[derive(Clone, Debug)]
pub struct NamesPlan {
    pub tree: TreeLayout,
    pub unique: bool,
    pub procs: usize,
    /// The directory to work in, through each mount.
    pub bases: Vec<PathBuf>,
    pub write_bytes: u64,
    pub read_bytes: u64,
    pub fsync: bool,
    pub verify: bool,
    pub random: bool,
    pub shift: usize,
    /// For creating.
    pub seconds: f64,
    /// Items of each process that exist.
    pub items: u64,
    /// Finding looks at all that is in the directory to work in, not only at the trees.
    pub find_everything: bool,
}

impl NamesPlan {
    fn root(&self, worker: usize, owner: usize) -> PathBuf {
        let tree = if self.unique { format!("mdtest_tree.{owner}.0") } else { "mdtest_tree.0".to_string() };
        self.top(worker).join(tree)
    }

    pub fn top(&self, worker: usize) -> PathBuf {
        self.bases[worker % self.bases.len()].join(TOP)
    }

    fn order(&self, worker: usize, verb: NamesVerb, folders: bool) -> Order {
        // mdtest's distances: who creates, stats, reads, removes what whom made
        let times = match verb {
            NamesVerb::Stat => 1,
            NamesVerb::Read => 2,
            NamesVerb::Remove => 3,
            _ => 0,
        };
        let owner = (worker + times * self.shift) % self.procs;
        let is_tree = matches!(verb, NamesVerb::MakeTree | NamesVerb::RemoveTree);
        let count = if is_tree { self.tree.folders().unwrap_or(0) } else { self.items };
        let seconds = if verb == NamesVerb::Create { self.seconds } else { 0.0 };
        let root = match (verb, self.find_everything) {
            (NamesVerb::Find, true) => self.bases[worker % self.bases.len()].clone(),
            (NamesVerb::Find, false) => self.top(worker),
            _ => self.root(worker, owner),
        };
        Order::Names(NamesOrder {
            verb,
            folders,
            root,
            tree: self.tree,
            rank: owner as u64,
            procs: self.procs as u64,
            pace: Pace { count, seconds, wear_out: true },
            shuffle: (self.random && verb == NamesVerb::Stat).then_some(owner as u64 + 1),
            write_bytes: if folders { 0 } else { self.write_bytes },
            read_bytes: self.read_bytes,
            fsync: self.fsync,
            verify: self.verify,
        })
    }

    /// One phase of all processes; the trees of a run that shares one are made and removed by the first
    /// alone.
    pub fn phase(&mut self, run: &mut Run<'_>, name: &str, verb: NamesVerb, folders: bool) -> Result<Row> {
        let is_tree = matches!(verb, NamesVerb::MakeTree | NamesVerb::RemoveTree);
        let ranks = if is_tree && !self.unique { 1 } else { self.procs };
        let orders: Vec<(usize, Order)> = (0..ranks).map(|r| (r, self.order(r, verb, folders))).collect();
        let cold = matches!(verb, NamesVerb::Stat | NamesVerb::Read | NamesVerb::Remove | NamesVerb::Find);
        let each = if is_tree { self.tree.folders().unwrap_or(0) } else { self.items };
        let goal = each * ranks as u64;
        let row = run.phase(&Phase { name, unit: Unit::OpsPerSecond, cold, goal }, &orders)?;
        if verb == NamesVerb::Create {
            self.items = row.done.iter().copied().max().unwrap_or(0);
        }
        Ok(row)
    }

    pub fn make_top(&self) -> Result<()> {
        let top = self.top(0);
        files::create_dir_all(&top).with_context(|| format!("make '{}'", top.display()))
    }

    /// The empty directories above the trees.
    pub fn remove_top(&self, base_too: bool) {
        let _ = files::remove_dir(self.top(0));
        if base_too {
            let _ = files::remove_dir(&self.bases[0]);
        }
    }

    /// Everything below the directory to work in that a run makes.
    pub fn remove_all(&self) -> Result<()> {
        let top = self.top(0);
        match files::remove_tree(&top) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("remove '{}'", top.display()))
            }
            _ => Ok(()),
        }
    }
}

impl MdtestArgs {
    /// Takes in what can be said in more than one way, and refuses what makes no sense.
    pub fn settle(mut self) -> Result<MdtestArgs> {
        self.common.dirs.append(&mut self.directories);
        // published lines end in -r and mean: everything, and leave nothing behind
        if self.remove && !(self.create || self.stat || self.read) && !self.left_behind() {
            eprintln!("nacre bench mdtest: -r: nothing was left behind, so all phases are run");
            self.remove = false;
        }
        if self.files_only && self.directories_only {
            bail!("-F and -D leave nothing to do");
        }
        if !(self.create || self.stat || self.read || self.remove) {
            (self.create, self.stat, self.read, self.remove) = (true, true, true, true);
        }
        let folders = self.tree().folders().filter(|n| *n <= FOLDERS_MAX);
        let Some(folders) = folders else {
            bail!("-z {} -b {}: too many directories", self.depth, self.branch)
        };
        if let Some(each) = self.items_per_directory {
            // as mdtest counts: of directories that get any
            let homes = if self.leaves_only { self.branch.checked_pow(self.depth) } else { Some(folders) };
            self.items = homes.and_then(|n| each.checked_mul(n)).context("-I: too many items")?;
        }
        if self.items > 1 << 40 {
            bail!("too many items");
        }
        if self.write_bytes > FILE_MAX || self.read_bytes > FILE_MAX {
            bail!("-w and -e: up to 1 GiB; nacre bench ior is for larger files");
        }
        if self.verify && self.read_bytes > self.write_bytes && self.create {
            bail!("-e: more is to be read than written");
        }
        if !(0.0..=1e9).contains(&self.deadline) {
            bail!("-W: seconds, 0 for no limit");
        }
        Ok(self)
    }

    /// Whether an earlier run's trees are there.
    fn left_behind(&self) -> bool {
        let found = bases(&self.common.dirs, self.dir.as_deref(), NAME);
        found.is_ok_and(|(bases, _)| files::stat(&bases[0].join(TOP), true).is_ok())
    }

    fn tree(&self) -> TreeLayout {
        TreeLayout {
            depth: self.depth,
            branch: self.branch,
            leaves_only: self.leaves_only,
            items: self.items,
        }
    }

    fn plan(&self) -> Result<(NamesPlan, Vec<PathBuf>)> {
        let (bases, folders) = bases(&self.common.dirs, self.dir.as_deref(), NAME)?;
        let plan = NamesPlan {
            tree: self.tree(),
            unique: self.unique,
            procs: self.common.procs,
            bases,
            write_bytes: self.write_bytes,
            read_bytes: self.read_bytes,
            fsync: self.fsync,
            verify: self.verify,
            random: self.random,
            shift: self.shift,
            seconds: self.deadline,
            items: self.items,
            find_everything: false,
        };
        Ok((plan, folders))
    }
}

fn iteration(a: &MdtestArgs, plan: &mut NamesPlan, run: &mut Run<'_>) -> Result<()> {
    let mut one = |plan: &mut NamesPlan, name: &str, verb, folders| -> Result<Row> {
        let row = plan.phase(run, name, verb, folders)?;
        report::mdtest_progress(a, &row);
        Ok(row)
    };
    if a.create {
        plan.make_top()?;
        one(plan, "Tree creation", NamesVerb::MakeTree, false)?;
    }
    for folders in [true, false] {
        let skip = if folders { a.files_only } else { a.directories_only };
        if skip {
            continue;
        }
        plan.items = a.items;
        let what = if folders { "Directory" } else { "File" };
        if a.create {
            one(plan, &format!("{what} creation"), NamesVerb::Create, folders)?;
            if let (Some(f), true) = (&a.status_file, a.deadline > 0.0) {
                write_status(f, plan.items)?;
            }
        } else if let Some(n) = a.status_file.as_ref().map(|f| read_status(f)).transpose()?.flatten() {
            plan.items = n.min(a.items);
        }
        if a.stat {
            one(plan, &format!("{what} stat"), NamesVerb::Stat, folders)?;
        }
        if a.read && !folders {
            one(plan, "File read", NamesVerb::Read, folders)?;
        }
        if a.remove {
            one(plan, &format!("{what} removal"), NamesVerb::Remove, folders)?;
        }
    }
    if a.remove {
        one(plan, "Tree removal", NamesVerb::RemoveTree, false)?;
    }
    Ok(())
}

/// Runs with settled options; what was measured so far is lost when it fails.
pub fn run(a: &MdtestArgs, stop: &Stop, sweep: Option<String>) -> Result<Vec<Row>> {
    let (mut plan, mut folders) = a.plan()?;
    let made_base = a.create && files::stat(&plan.bases[0], true).is_err();
    if a.common.dirs.is_empty() {
        // -d is itself on the file system to be measured
        folders = plan.bases.clone();
        if a.create {
            let base = &plan.bases[0];
            files::create_dir_all(base).with_context(|| format!("make '{}'", base.display()))?;
        }
    }
    let mut run = Run::start(&a.common, stop, folders)?;
    run.sweep = sweep;
    report::mdtest_head(a);
    let mut result = run.repeat(a.iterations, |run| iteration(a, &mut plan, run));
    let rows = run.end();
    if a.remove && !a.common.keep {
        if a.create && result.is_err() {
            let cleaned = plan.remove_all();
            result = result.and(cleaned);
        }
        plan.remove_top(made_base);
    }
    result.map(|()| {
        report::mdtest_summary(a, &rows);
        rows
    })
}
