//! `sgpdd-survey`: storage without a file system of ours: devices or files, regions of them at once, threads.

use super::grid::{self, Measured, Point, Shape};
use super::knobs::Knobs;
use super::{Asked, Output, attempt};
use crate::args::Common;
use crate::crew::Stop;
use crate::inventory;
use crate::layout::FileLayout;
use crate::link::{DataOrder, Order, Pace};
use crate::pattern;
use crate::run::{Phase, Unit};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use world::sys::files;
use world::sys::load::{Buffer, LoadFile, OpenHow};
use world::sys::mounts;

pub const VARIABLES: &[&str] = &[
    "scsidevs",
    "rawdevs",
    "size",
    "crglo",
    "crghi",
    "thrlo",
    "thrhi",
    "rszlo",
    "rszhi",
    "tests_str",
    "rslt",
];
pub const SHAPE: Shape = Shape { device: "dev", group: "crg", groups: "regions" };

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const THREADS_MAX: u64 = 4096;
/// Of what the kernel says to be free, as buffers.
const MEMORY_SHARE: u64 = 2;

/// What to survey.
#[derive(Debug)]
pub struct Plan {
    pub devices: Vec<PathBuf>,
    /// Of each device.
    pub bytes: u64,
    pub regions: Vec<u64>,
    pub threads: Vec<u64>,
    pub requests: Vec<u64>,
    pub tests: Vec<String>,
}

impl Plan {
    pub fn new(k: &Knobs) -> Result<Plan> {
        let mut names = k.words("scsidevs", "");
        names.extend(k.words("rawdevs", ""));
        names.extend(k.operands.iter().cloned());
        if names.is_empty() {
            bail!("which devices? scsidevs=\"/dev/sdk /dev/sdw\", or files of any file system");
        }
        let absolute = |n: &String| files::absolute(n).with_context(|| format!("'{n}'"));
        let devices = names.iter().map(absolute).collect::<Result<Vec<_>>>()?;
        for (i, d) in devices.iter().enumerate() {
            if devices[..i].contains(d) {
                bail!("'{}' is named twice", d.display());
            }
        }
        let tests = k.words("tests_str", "write read");
        if let Some(t) = tests.iter().find(|t| !["write", "read"].contains(&t.as_str())) {
            bail!("tests_str: '{t}' is no test; there are write and read");
        }
        Ok(Plan {
            devices,
            bytes: k.number("size", 8192, 1..=1 << 40)? * MIB,
            regions: k.doubling("crg", (1, 256), 1..=THREADS_MAX)?,
            threads: k.doubling("thr", (1, THREADS_MAX), 1..=THREADS_MAX)?,
            requests: k.doubling("rsz", (1024, 1024), 4..=1 << 20)?.into_iter().map(|r| r * KIB).collect(),
            tests,
        })
    }

    pub fn writes(&self) -> bool {
        self.tests.iter().any(|t| t == "write")
    }
}

/// Where one thread works: thread `t` of `threads` takes turns with the others of its region.
fn share(bytes: u64, regions: u64, threads: u64, request: u64, t: u64) -> (u64, FileLayout) {
    assert!(threads.is_multiple_of(regions), "each region has as many threads");
    let company = threads / regions;
    let region = bytes / regions / request * request;
    let layout = FileLayout {
        procs: company,
        block: request,
        transfer: request,
        segments: region / request / company,
        shared: true,
    };
    (t / company * region, layout)
}

/// A device that was looked at: who made it, and how it is opened.
pub struct Device {
    path: PathBuf,
    /// It was not there before.
    made: bool,
    direct: bool,
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.made
            && let Err(e) = files::remove_file(&self.path)
        {
            eprintln!("sgpdd-survey: cannot remove '{}': {e}", self.path.display());
        }
    }
}

fn is_block(path: &Path) -> bool {
    files::stat(path, true).is_ok_and(|s| s.is_block_device())
}

/// Asks before what lies on devices is lost; those in use are never written.
fn may_destroy(plan: &Plan, word: bool) -> Result<()> {
    let mut held = Vec::new();
    for d in &plan.devices {
        let there = files::stat(d, true);
        if there.as_ref().is_ok_and(|s| s.is_dir()) {
            bail!("'{}' is a directory; name a device, or a file in it", d.display());
        }
        let device = is_block(d);
        if device {
            let real = files::canonical(d).with_context(|| format!("'{}'", d.display()))?;
            let used = mounts::list().context("read the table of mounts")?;
            if let Some(m) = used.iter().find(|m| files::canonical(&m.source).is_ok_and(|s| s == real)) {
                bail!("'{}' is mounted on '{}': it is not written", d.display(), m.dir.display());
            }
        }
        if plan.writes() && (device || there.is_ok_and(|s| s.size > 0)) {
            held.push(d.display().to_string());
        }
    }
    if held.is_empty() || word {
        return Ok(());
    }
    eprint!("sgpdd-survey: what lies on {} WILL BE LOST. Type 'destroy' to go on: ", held.join(", "));
    let _ = std::io::stderr().flush();
    let mut said = String::new();
    std::io::stdin().lock().read_line(&mut said).context("read the answer")?;
    if said.trim() != "destroy" {
        bail!("nothing was written (--destroy says so beforehand; tests_str=read only reads)");
    }
    Ok(())
}

/// Opens a device once: how it can be opened later, and whether it is large enough.
fn look_at(path: &Path, plan: &Plan, request: u64) -> Result<Device> {
    let (name, create) = (path.display(), plan.writes());
    let made = create && files::stat(path, true).is_err();
    let open = |direct| LoadFile::open(path, OpenHow { write: create, create, direct });
    let (file, direct) = match open(true) {
        Ok(f) => (f, true),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
            eprintln!(
                "sgpdd-survey: '{name}': its file system has no O_DIRECT, so memory is measured with it"
            );
            (open(false).with_context(|| format!("open '{name}'"))?, false)
        }
        Err(e) => return Err(e).with_context(|| format!("open '{name}'")),
    };
    let device = Device { path: path.to_path_buf(), made, direct };
    if is_block(path) || !create {
        let mut buf = Buffer::new(usize::try_from(request).context("request size")?);
        let last = plan.bytes / request * request - request;
        let got = file.read_at(&mut buf, last).with_context(|| format!("read '{name}' at {last}"))?;
        if (got as u64) < request {
            bail!("'{name}' is smaller than size={} MiB", plan.bytes / MIB);
        }
    }
    Ok(device)
}

/// One line.
fn point(asked: &Asked, stop: &Stop, plan: &Plan, devices: &[Device], at: (u64, u64, u64)) -> Result<Point> {
    let (request, regions, threads) = at;
    let (_, layout) = share(plan.bytes, regions, threads, request, 0);
    let n = devices.len() as u64;
    let mut p = Point {
        total_kib: layout.segments * threads * request * n / KIB,
        request_kib: request / KIB,
        groups: regions * n,
        threads: threads * n,
        tests: Vec::new(),
    };
    if inventory::memory_available().is_some_and(|m| threads * n * request > m / MEMORY_SHARE) {
        p.tests = plan.tests.iter().map(|t| Measured::failed(t, "ENOMEM")).collect();
        return Ok(p);
    }
    let procs = usize::try_from(threads * n).context("threads")?;
    let common = Common {
        procs,
        threads: true,
        quiet: asked.flags.quiet,
        json: asked.flags.json,
        ..Common::default()
    };
    for test in &plan.tests {
        let order = |rank: usize| {
            let d = rank / threads as usize;
            let (base, layout) = share(plan.bytes, regions, threads, request, rank as u64 % threads);
            Order::Data(DataOrder {
                path: devices[d].path.clone(),
                write: test == "write",
                layout,
                base,
                rank: rank as u64 % threads % layout.procs,
                key: pattern::key(d as u64),
                pace: Pace { count: layout.transfers(), seconds: 0.0, wear_out: false },
                shuffle: None,
                walk: crate::layout::Walk::Forward,
                direct: devices[d].direct,
                fsync: true,
                fsync_each: false,
                verify: false,
            })
        };
        let orders: Vec<(usize, Order)> = (0..procs).map(|r| (r, order(r))).collect();
        let name = format!("{} {test}", SHAPE.head(devices.len(), &p));
        let goal = layout.transfers() * threads * n;
        let phase = Phase { name: &name, unit: Unit::MibPerSecond, cold: false, goal };
        let done = super::phase(&common, stop, &phase, &orders);
        let done = done.map(|row| Measured::of_devices(test, &row, threads as usize));
        p.tests.push(attempt(("sgpdd-survey", test), stop, done, |_| "failed")?);
    }
    Ok(p)
}

/// What is surveyed, looked at: it may be written, and is large enough.
pub fn prepare(asked: &Asked) -> Result<(Plan, Vec<Device>)> {
    let plan = Plan::new(&asked.knobs)?;
    may_destroy(&plan, asked.flags.destroy)?;
    let largest = plan.requests.iter().copied().max().unwrap_or(MIB);
    if plan.bytes < largest {
        bail!("size={} MiB is less than one request of {} KiB", plan.bytes / MIB, largest / KIB);
    }
    let devices = plan.devices.iter().map(|d| look_at(d, &plan, largest)).collect::<Result<Vec<_>>>()?;
    Ok((plan, devices))
}

/// All points of the grid, with a line for each.
pub fn points(
    asked: &Asked,
    stop: &Stop,
    (plan, devices): &(Plan, Vec<Device>),
    out: &Output<'_>,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for (request, regions, threads) in steps(plan) {
        let p = point(asked, stop, plan, devices, (request, regions, threads))?;
        out.line(&SHAPE.line(devices.len(), &p));
        points.push(p);
    }
    if points.is_empty() {
        bail!(
            "no point of the grid can be measured: thrhi is below crglo, or size is too small for so many threads"
        );
    }
    Ok(points)
}

pub fn run(asked: &Asked, stop: &Stop) -> Result<bool> {
    let prepared = prepare(asked)?;
    let names: Vec<String> = prepared.0.devices.iter().map(|d| d.display().to_string()).collect();
    let out = Output::begin("sgpdd-survey", asked, &format!("on {}", names.join(" ")));
    let points = points(asked, stop, &prepared, &out)?;
    out.finish(&grid::document("sgpdd-survey", asked, &names, &points), &grid::csv(SHAPE, &points), || {
        crate::heat::svg(&grid::heat("sgpdd-survey", SHAPE, &points))
    })?;
    Ok(grid::is_well(&points))
}

/// Points of the grid: fewer threads than regions leave regions idle, and a thread needs something to do.
fn steps(plan: &Plan) -> Vec<(u64, u64, u64)> {
    let mut out = Vec::new();
    for request in &plan.requests {
        for regions in &plan.regions {
            for threads in plan.threads.iter().filter(|t| t.is_multiple_of(*regions)) {
                if share(plan.bytes, *regions, *threads, *request, 0).1.segments > 0 {
                    out.push((*request, *regions, *threads));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(words: &[&str]) -> Result<Plan> {
        Plan::new(&Knobs::of_words(VARIABLES, words)?)
    }

    #[test]
    fn threads_share_a_device_without_overlap() {
        let (bytes, request) = (64 * MIB, MIB);
        for (regions, threads) in [(1, 1), (1, 8), (4, 4), (4, 16), (3, 6)] {
            let mut seen = BTreeSet::new();
            for t in 0..threads {
                let (base, l) = share(bytes, regions, threads, request, t);
                for n in 0..l.transfers() {
                    let at = base + l.offset(t % l.procs, n);
                    assert!(at + request <= bytes && at.is_multiple_of(request));
                    assert!(seen.insert(at), "{at} twice with {regions} regions and {threads} threads");
                }
            }
            assert!(seen.len() as u64 >= 64 - threads - regions, "{}", seen.len());
        }
    }

    #[test]
    fn a_published_line_is_understood() {
        let p =
            plan(&["size=24576", "crglo=1", "crghi=16", "thrlo=1", "thrhi=64", "scsidevs=/dev/sdk /dev/sdw"]);
        let p = p.unwrap();
        assert_eq!((p.devices.len(), p.bytes >> 30), (2, 24));
        let grid = steps(&p);
        assert_eq!(grid.len(), 7 + 6 + 5 + 4 + 3);
        assert!(grid.iter().all(|(r, crg, thr)| *r == MIB && thr >= crg));
    }

    #[test]
    fn mistakes_have_words() {
        let says = |words: &[&str], part: &str| {
            let text = format!("{:#}", plan(words).unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        says(&[], "which devices");
        says(&["/a", "/a"], "named twice");
        says(&["/a", "tests_str=erase"], "'erase' is no test");
        says(&["/a", "thrhi=5000"], "from 1 to 4096");
        says(&["/a", "boundary=3"], "'boundary' is no variable");
        assert!(steps(&plan(&["/a", "thrlo=1", "thrhi=2", "crglo=4"]).unwrap()).is_empty());
    }
}
