//! A run: its workers, its phases, what it measured, what it leaves behind.

use crate::args::Common;
use crate::crew::{Crew, Kind, Stop};
use crate::hist::Histogram;
use crate::link::{Order, Report};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::{files, load};

/// Width of a point in the plot against time, in seconds.
const SAMPLE_SECONDS: f64 = 0.25;
const MIB: f64 = (1 << 20) as f64;

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    MibPerSecond,
    OpsPerSecond,
}

impl Unit {
    pub fn text(self) -> &'static str {
        match self {
            Unit::MibPerSecond => "MiB/s",
            Unit::OpsPerSecond => "ops/s",
        }
    }

    fn rate(self, steps: f64, bytes: f64, seconds: f64) -> f64 {
        let amount = if self == Unit::MibPerSecond { bytes / MIB } else { steps };
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    }
}

/// Microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// One phase, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub phase: String,
    pub iteration: usize,
    pub procs: usize,
    /// Transfers or operations.
    pub steps: u64,
    pub bytes: u64,
    /// From the first process' begin to the last one's end.
    pub seconds: f64,
    pub rate: f64,
    pub unit: &'static str,
    /// Longest of any process, in seconds.
    pub open_seconds: f64,
    pub move_seconds: f64,
    pub close_seconds: f64,
    pub latency_us: Latency,
    /// Contents found wrong.
    pub wrong: u64,
    /// What the sweep varies, when there is one.
    pub sweep: Option<String>,
    /// (seconds from the begin, rate).
    pub samples: Vec<(f64, f64)>,
    /// Steps of each rank.
    #[serde(skip)]
    pub done: Vec<u64>,
    /// What each rank moved and when, in the order of the orders.
    #[serde(skip)]
    pub spans: Vec<Span>,
}

/// One rank's part of a phase, on the clock that all share.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub end: u64,
    pub steps: u64,
    pub bytes: u64,
}

/// Bytes or steps a second of some ranks together: from the first one's begin to the last one's end.
pub fn rate_of(spans: &[Span], unit: Unit) -> f64 {
    let start = spans.iter().map(|s| s.start).min().unwrap_or(0);
    let end = spans.iter().map(|s| s.end).max().unwrap_or(0);
    let (steps, bytes) = spans.iter().fold((0, 0), |n, s| (n.0 + s.steps, n.1 + s.bytes));
    unit.rate(steps as f64, bytes as f64, end.saturating_sub(start) as f64 / 1e9)
}

/// How a phase is called and counted.
pub struct Phase<'a> {
    pub name: &'a str,
    pub unit: Unit,
    /// Begins with empty caches, if the user wants that.
    pub cold: bool,
    /// Steps of all ranks if no limit ends them before; for the progress bar.
    pub goal: u64,
}

/// Rates over time, from the workers' progress.
struct Samples {
    unit: Unit,
    begin: u64,
    last: Vec<u64>,
    bins: Vec<(f64, f64)>,
}

impl Samples {
    fn new(unit: Unit, procs: usize) -> Samples {
        let begin = load::monotonic_ns();
        Samples { unit, begin, last: vec![begin; procs], bins: Vec::new() }
    }

    /// Spreads what a rank did evenly over the time since its last word.
    fn add(&mut self, rank: usize, ns: u64, steps: u64, bytes: u64) {
        let at = |t: u64| t.saturating_sub(self.begin) as f64 / 1e9 / SAMPLE_SECONDS;
        let (from, to) = (at(self.last[rank]), at(ns));
        self.last[rank] = self.last[rank].max(ns);
        if to <= from {
            return;
        }
        self.bins.resize(self.bins.len().max(to as usize + 1), (0.0, 0.0));
        for (i, bin) in self.bins.iter_mut().enumerate().skip(from as usize) {
            let share = (to.min(i as f64 + 1.0) - from.max(i as f64)).max(0.0) / (to - from);
            bin.0 += share * steps as f64;
            bin.1 += share * bytes as f64;
        }
    }

    fn rates(&self, seconds: f64) -> Vec<(f64, f64)> {
        let mut out = Vec::new();
        for (i, (steps, bytes)) in self.bins.iter().enumerate() {
            let from = i as f64 * SAMPLE_SECONDS;
            let width = SAMPLE_SECONDS.min(seconds - from);
            // the rest of a sample at the end is too short to say anything
            if width >= SAMPLE_SECONDS / 4.0 {
                out.push((from + width / 2.0, self.unit.rate(*steps, *bytes, width)));
            }
        }
        out
    }
}

pub struct Run<'a> {
    pub common: &'a Common,
    pub crew: Crew,
    pub stop: &'a Stop,
    pub procs: usize,
    pub iteration: usize,
    /// Folders whose file systems are measured.
    pub folders: Vec<PathBuf>,
    pub rows: Vec<Row>,
    pub sweep: Option<String>,
}

impl<'a> Run<'a> {
    pub fn start(common: &'a Common, stop: &'a Stop, folders: Vec<PathBuf>) -> Result<Run<'a>> {
        let procs = common.procs;
        let kind = match (&common.program, common.threads) {
            (_, true) => Kind::Thread,
            (Some(p), false) => Kind::Process(p.clone()),
            (None, false) => Kind::Process(world::sys::process::own_executable()?),
        };
        for f in &folders {
            let s = files::stat(f, true).with_context(|| format!("'{}'", f.display()))?;
            if !s.is_dir() {
                bail!("'{}' is no directory", f.display());
            }
        }
        let crew = Crew::start(procs, &kind, stop)?;
        Ok(Run { common, crew, stop, procs, iteration: 0, folders, rows: Vec::new(), sweep: None })
    }

    /// So many times the same, until one fails.
    pub fn repeat(&mut self, count: u32, mut once: impl FnMut(&mut Run<'a>) -> Result<()>) -> Result<()> {
        for i in 0..count as usize {
            self.iteration = i;
            once(self)?;
        }
        Ok(())
    }

    /// What was measured. Nobody works any more: files may go.
    pub fn end(self) -> Vec<Row> {
        let Run { rows, crew, .. } = self;
        drop(crew);
        rows
    }

    /// Empties caches as the user asked: flush, hook, kernel.
    fn cool(&self, phase: &str) -> Result<()> {
        let c = self.common;
        if !c.drop_caches && c.hook.is_none() {
            return Ok(());
        }
        for f in &self.folders {
            load::sync_filesystem(f).with_context(|| format!("flush '{}'", f.display()))?;
        }
        if let Some(h) = &c.hook {
            let dir = self.folders[0].display().to_string();
            let env = [("NACRE_BENCH_PHASE", phase), ("NACRE_BENCH_DIR", dir.as_str())];
            let status = load::shell(h, &env).context("start the hook")?;
            if status != 0 {
                bail!("the hook '{h}' ended with status {status}");
            }
        }
        if c.drop_caches {
            load::drop_kernel_caches().context("empty the kernel's caches (--drop-caches needs root)")?;
        }
        Ok(())
    }

    /// Runs one phase on these ranks and keeps what it measured.
    pub fn phase(&mut self, p: &Phase<'_>, orders: &[(usize, Order)]) -> Result<Row> {
        if p.cold {
            self.cool(p.name)?;
        }
        if self.stop.wanted() {
            bail!("interrupted");
        }
        let bar = Bar::new(self.common, p);
        let mut samples = Samples::new(p.unit, self.procs);
        let (mut steps, mut bytes) = (0u64, 0u64);
        let reports = self.crew.run(orders, &mut |rank, ns, s, b| {
            steps += s;
            bytes += b;
            if s > 0 {
                samples.add(rank, ns, s, b);
            }
            bar.show(steps, bytes, ns.saturating_sub(samples.begin) as f64 / 1e9);
        });
        bar.clear();
        let reports = reports.with_context(|| p.name.to_string())?;
        let row = self.row(p, orders, &reports, &samples);
        self.rows.push(row.clone());
        if let Some(first) = reports.iter().find_map(|r| r.first_wrong.as_ref()) {
            eprintln!("nacre bench: {}: {} wrong: {first}", p.name, row.wrong);
        }
        Ok(row)
    }

    fn row(&self, p: &Phase<'_>, orders: &[(usize, Order)], reports: &[Report], samples: &Samples) -> Row {
        let start = reports.iter().map(|r| r.start).min().unwrap_or(0);
        let end = reports.iter().map(|r| r.end).max().unwrap_or(0);
        let seconds = end.saturating_sub(start) as f64 / 1e9;
        let longest = |f: fn(&Report) -> u64| reports.iter().map(f).max().unwrap_or(0) as f64 / 1e9;
        let mut h = Histogram::default();
        for r in reports {
            h.merge(&r.latency);
        }
        let steps: u64 = reports.iter().map(|r| r.steps).sum();
        let bytes: u64 = reports.iter().map(|r| r.bytes).sum();
        let mut done = vec![0; self.procs];
        for ((rank, _), r) in orders.iter().zip(reports) {
            done[*rank] = r.steps;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        Row {
            phase: p.name.to_string(),
            iteration: self.iteration,
            procs: orders.len(),
            steps,
            bytes,
            seconds,
            rate: p.unit.rate(steps as f64, bytes as f64, seconds),
            unit: p.unit.text(),
            open_seconds: longest(|r| r.opened - r.start),
            move_seconds: longest(|r| r.moved - r.opened),
            close_seconds: longest(|r| r.end - r.moved),
            latency_us: Latency {
                mean: h.mean() / 1e3,
                p50: us(h.quantile(0.5)),
                p99: us(h.quantile(0.99)),
                max: us(h.max),
            },
            wrong: reports.iter().map(|r| r.wrong).sum(),
            sweep: self.sweep.clone(),
            samples: samples.rates(seconds),
            done,
            spans: reports
                .iter()
                .map(|r| Span { start: r.start, end: r.end, steps: r.steps, bytes: r.bytes })
                .collect(),
        }
    }
}

/// A line that changes while a phase runs, on a terminal only.
pub struct Bar {
    bar: Option<ProgressBar>,
    unit: Unit,
    name: String,
}

impl Bar {
    pub fn new(c: &Common, p: &Phase<'_>) -> Bar {
        let bar = (!c.quiet && std::io::stderr().is_terminal()).then(|| {
            let b = ProgressBar::new(p.goal);
            if let Ok(s) = ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {percent}%") {
                b.set_style(s);
            }
            b.enable_steady_tick(Duration::from_millis(100));
            b
        });
        Bar { bar, unit: p.unit, name: p.name.to_string() }
    }

    pub fn show(&self, steps: u64, bytes: u64, seconds: f64) {
        if let Some(b) = &self.bar {
            let rate = self.unit.rate(steps as f64, bytes as f64, seconds);
            b.set_position(steps);
            b.set_message(format!("{} {seconds:.0} s, {rate:.0} {}", self.name, self.unit.text()));
        }
    }

    pub fn clear(&self) {
        if let Some(b) = &self.bar {
            b.finish_and_clear();
        }
    }
}

/// Keeps how far a time limit let the processes come, for a later run: IOR's and mdtest's status files.
pub fn write_status(path: &Path, steps: u64) -> Result<()> {
    files::replace(path, format!("{steps}\n").as_bytes())
        .with_context(|| format!("write '{}'", path.display()))
}

/// What [`write_status`] kept; `None` if there is no such file.
pub fn read_status(path: &Path) -> Result<Option<u64>> {
    match files::read_to_string(path) {
        Ok(t) => {
            let n = t.trim().parse();
            Ok(Some(n.with_context(|| format!("'{}' holds no number", path.display()))?))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("read '{}'", path.display())),
    }
}
