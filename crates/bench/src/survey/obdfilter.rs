//! `obdfilter-survey`: the object path of OSTs: objects and threads, on the server without network
//! (`case=disk`), through the client of a mount (`case=netdisk`), or the transport alone (`case=network`).

use super::grid::{self, Measured, Point, Shape};
use super::knobs::Knobs;
use super::{Asked, NetworkLoad, Output, attempt};
use crate::args::Common;
use crate::crew::Stop;
use crate::layout::FileLayout;
use crate::link::{DataOrder, Order, Pace};
use crate::pattern;
use crate::run::{Bar, Phase, Unit};
use admin::command::{osts, setstripe};
use admin::local::{Daemon, DaemonReply, DaemonRequest, EchoOrder, EchoState};
use anyhow::{Context, Result, bail};
use model::{LayoutSpec, TargetKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::{self, files};

pub const VARIABLES: &[&str] =
    &["case", "targets", "size", "nobjlo", "nobjhi", "thrlo", "thrhi", "rszlo", "rszhi", "tests_str", "rslt"];
const SURVEY: &str = "obdfilter-survey";
pub const SHAPE: Shape = Shape { device: "ost", group: "obj", groups: "objects" };

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const TESTS: &[&str] = &["write", "rewrite", "read"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    Disk,
    NetDisk,
    Network,
}

impl Case {
    const ALL: [Case; 3] = [Case::Disk, Case::NetDisk, Case::Network];

    pub fn word(self) -> &'static str {
        match self {
            Case::Disk => "disk",
            Case::NetDisk => "netdisk",
            Case::Network => "network",
        }
    }
}

#[derive(Debug)]
pub struct Plan {
    pub case: Case,
    pub targets: Vec<String>,
    /// Of each target.
    pub bytes: u64,
    pub objects: Vec<u64>,
    pub threads: Vec<u64>,
    pub requests: Vec<u64>,
    pub tests: Vec<String>,
}

impl Plan {
    pub fn new(k: &Knobs) -> Result<Plan> {
        if let Some(o) = k.operands.first() {
            bail!("'{o}': targets stand in targets=\"FSNAME-OST0000 ...\"");
        }
        let word = k.text("case").unwrap_or("disk").trim();
        let case = Case::ALL.into_iter().find(|c| c.word() == word);
        let case = case.with_context(|| format!("case={word}: there are disk, netdisk and network"))?;
        let tests = k.words("tests_str", "write rewrite read");
        if let Some(t) = tests.iter().find(|t| !TESTS.contains(&t.as_str())) {
            bail!("tests_str: '{t}' is no test; there are {}", TESTS.join(", "));
        }
        if tests.first().is_some_and(|t| t != "write") {
            bail!("tests_str: objects are new, so that write comes first");
        }
        let target = |t: String| match t.split_once(':') {
            Some((host, _)) if case == Case::Disk && host != sys::hostname() => {
                bail!("targets: {t}: case=disk is run on {host} itself")
            }
            Some((host, _)) if case == Case::Network => Ok(host.to_string()),
            Some((_, name)) => Ok(name.to_string()),
            None => Ok(t),
        };
        Ok(Plan {
            case,
            targets: k.words("targets", "").into_iter().map(target).collect::<Result<_>>()?,
            bytes: k.number("size", 16_384, 1..=1 << 30)? * MIB,
            // the transport knows no objects
            objects: if case == Case::Network { vec![1] } else { k.doubling("nobj", (1, 16), 1..=4096)? },
            threads: k.doubling("thr", (1, 16), 1..=4096)?,
            requests: k.doubling("rsz", (1024, 1024), 4..=16_384)?.into_iter().map(|r| r * KIB).collect(),
            tests,
        })
    }

    /// Points of the grid: (request, objects, threads) of each target.
    fn steps(&self) -> Vec<(u64, u64, u64)> {
        let mut out = Vec::new();
        for request in &self.requests {
            for objects in &self.objects {
                for threads in self.threads.iter().filter(|t| t.is_multiple_of(*objects)) {
                    if self.bytes / request / threads > 0 {
                        out.push((*request, *objects, *threads));
                    }
                }
            }
        }
        out
    }
}

/// An OST that a daemon of this host serves; its echo objects go when this does.
pub struct Served {
    label: String,
    daemon: Daemon,
}

impl Served {
    fn echo(&self, order: EchoOrder) -> Result<EchoState> {
        match self.daemon.ask(&DaemonRequest::Echo { target: self.label.clone(), order }) {
            Ok(DaemonReply::Echo(s)) => Ok(s),
            Ok(DaemonReply::Error { message, .. }) => bail!("{message}"),
            Ok(other) => bail!("{}: unexpected answer {other:?}", self.label),
            Err(e) => bail!("{}: {e}", self.label),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(e) = self.echo(EchoOrder::Clean) {
            eprintln!("obdfilter-survey: {e:#}; the target removes echo objects itself in half a minute");
        }
    }
}

/// Those of `wanted` that daemons here serve, all OSTs here without any.
fn served(wanted: &[String]) -> Result<Vec<Served>> {
    let is_wanted = |label: &String| wanted.is_empty() || wanted.contains(label);
    let mut found: Vec<Served> = Daemon::served()
        .into_iter()
        .filter(|(_, t)| t.label.contains("-OST") && is_wanted(&t.label))
        .map(|(daemon, t)| Served { label: t.label, daemon })
        .collect();
    found.sort_by(|a, b| a.label.cmp(&b.label));
    if let Some(w) = wanted.iter().find(|w| !found.iter().any(|f| f.label == **w)) {
        bail!("no daemon on this host serves '{w}'; case=disk is run on the server that has it");
    }
    if found.is_empty() {
        bail!("no daemon on this host serves an OST; targets=\"FSNAME-OST0000 ...\" names those to survey");
    }
    Ok(found)
}

/// One test on all targets at once, in their servers.
fn on_servers(asked: &Asked, stop: &Stop, all: &[Served], name: &str, order: EchoOrder) -> Result<Measured> {
    let EchoOrder::Start { threads, bytes, request, .. } = &order else { bail!("a run begins with Start") };
    let (threads, request) = (u64::from(*threads), u64::from(*request));
    let goal = bytes / request / threads * threads * all.len() as u64;
    let test = name.rsplit(' ').next().unwrap_or(name);
    let common = Common { quiet: asked.flags.quiet, ..Common::default() };
    let bar = Bar::new(&common, &Phase { name, unit: Unit::MibPerSecond, cold: false, goal });
    let begun = sys::load::monotonic_ns();
    for s in all {
        s.echo(order.clone())?;
    }
    let states = loop {
        if stop.wanted() {
            bail!("interrupted");
        }
        let states = all.iter().map(|s| s.echo(EchoOrder::Look)).collect::<Result<Vec<_>>>()?;
        if states.iter().all(|s| !s.running) {
            break states;
        }
        let moved: u64 = states.iter().map(|s| s.bytes).sum();
        bar.show(moved / request, moved, sys::load::monotonic_ns().saturating_sub(begun) as f64 / 1e9);
        sys::sleep(LOOK_EVERY);
    };
    bar.clear();
    if let Some(why) = states.iter().find_map(|s| s.failed.clone()) {
        bail!("{why}");
    }
    let each: Vec<_> = states.iter().map(|s| (s.bytes, s.nanos)).collect();
    Ok(Measured::of_moved(test, &each))
}

/// The word that a line has for a failure.
fn word(e: &anyhow::Error) -> &'static str {
    if format!("{e:#}").contains("ENOMEM") { "ENOMEM" } else { "failed" }
}

fn point_of(plan: &Plan, devices: usize, (request, objects, threads): (u64, u64, u64)) -> Point {
    let n = devices as u64;
    Point {
        total_kib: plan.bytes / request / threads * threads * request * n / KIB,
        request_kib: request / KIB,
        groups: objects * n,
        threads: threads * n,
        tests: Vec::new(),
    }
}

fn disk_point(
    asked: &Asked,
    stop: &Stop,
    plan: &Plan,
    all: &[Served],
    step: (u64, u64, u64),
) -> Result<Point> {
    let (request, objects, threads) = step;
    let mut p = point_of(plan, all.len(), step);
    for test in &plan.tests {
        let order = EchoOrder::Start {
            write: test != "read",
            objects: u32::try_from(objects).context("nobj")?,
            threads: u32::try_from(threads).context("thr")?,
            bytes: plan.bytes,
            request: u32::try_from(request).context("rsz")?,
        };
        let name = format!("{} {test}", SHAPE.head(all.len(), &p));
        let done = on_servers(asked, stop, all, &name, order);
        p.tests.push(attempt((SURVEY, test), stop, done, word)?);
    }
    // new objects for the next line
    for s in all {
        s.echo(EchoOrder::Clean)?;
    }
    Ok(p)
}

/// Files with one object each, gone with the point.
struct Objects(Vec<PathBuf>);

impl Drop for Objects {
    fn drop(&mut self) {
        for f in &self.0 {
            if let Err(e) = files::remove_file(f) {
                eprintln!("obdfilter-survey: cannot remove '{}': {e}", f.display());
            }
        }
    }
}

fn net_point(
    asked: &Asked,
    stop: &Stop,
    plan: &Plan,
    (mount, targets): (&Path, &[(u16, String)]),
    step: (u64, u64, u64),
) -> Result<Point> {
    let (request, objects, threads) = step;
    let mut p = point_of(plan, targets.len(), step);
    let mut made = Objects(Vec::new());
    for (index, _) in targets {
        for n in 0..objects {
            let path = mount.join(format!("obdfilter_survey.{}.{index}.{n}", std::process::id()));
            let spec =
                LayoutSpec { stripe_count: 1, stripe_size: MIB, osts: vec![*index], ..LayoutSpec::default() };
            setstripe::create(&path, 0o600, &spec).map_err(|e| anyhow::anyhow!("{e}"))?;
            made.0.push(path);
        }
    }
    let procs = usize::try_from(threads).context("thr")? * targets.len();
    let common = Common { procs, threads: true, quiet: asked.flags.quiet, ..Common::default() };
    let count = plan.bytes / request / threads;
    let layout = FileLayout { procs: 1, block: request, transfer: request, segments: count, shared: true };
    for test in &plan.tests {
        let order = |rank: usize| {
            let (device, t) = (rank as u64 / threads, rank as u64 % threads);
            let company = threads / objects;
            let file = device * objects + t / company;
            Order::Data(DataOrder {
                path: made.0[file as usize].clone(),
                write: test != "read",
                layout,
                base: t % company * count * request,
                rank: 0,
                key: pattern::key(file),
                pace: Pace { count, seconds: 0.0, wear_out: false },
                shuffle: None,
                walk: crate::layout::Walk::Forward,
                direct: true,
                fsync: true,
                fsync_each: false,
                verify: false,
            })
        };
        if test == "read" {
            super::forget(SURVEY, mount);
        }
        let orders: Vec<(usize, Order)> = (0..procs).map(|r| (r, order(r))).collect();
        let name = format!("{} {test}", SHAPE.head(targets.len(), &p));
        let phase = Phase { name: &name, unit: Unit::MibPerSecond, cold: false, goal: count * procs as u64 };
        let done = super::phase(&common, stop, &phase, &orders);
        let done = done.map(|row| Measured::of_devices(test, &row, threads as usize));
        p.tests.push(attempt((SURVEY, test), stop, done, |_| "failed")?);
    }
    Ok(p)
}

fn network_point(asked: &Asked, stop: &Stop, plan: &Plan, step: (u64, u64, u64)) -> Result<Point> {
    let (request, _, threads) = step;
    let mut p = point_of(plan, plan.targets.len(), step);
    for test in &plan.tests {
        let load = NetworkLoad {
            hosts: plan.targets.clone(),
            write: test != "read",
            threads: u32::try_from(threads).context("thr")?,
            bytes: plan.bytes,
            request: u32::try_from(request).context("rsz")?,
        };
        let name = format!("{} {test}", SHAPE.head(plan.targets.len(), &p));
        let common = Common { quiet: asked.flags.quiet, ..Common::default() };
        let goal = p.total_kib * KIB / request;
        let bar = Bar::new(&common, &Phase { name: &name, unit: Unit::MibPerSecond, cold: false, goal });
        let begun = sys::load::monotonic_ns();
        let done = (asked.network)(&load, &|moved| {
            bar.show(moved / request, moved, sys::load::monotonic_ns().saturating_sub(begun) as f64 / 1e9);
            !stop.wanted()
        });
        bar.clear();
        if stop.wanted() {
            bail!("interrupted");
        }
        let done = done
            .map_err(anyhow::Error::msg)
            .map(|all| Measured::of_moved(test, &all.iter().map(|m| (m.bytes, m.nanos)).collect::<Vec<_>>()));
        p.tests.push(attempt((SURVEY, test), stop, done, |_| "failed")?);
    }
    Ok(p)
}

/// The mount of the file system that targets belong to, with their indices.
fn mounted(wanted: &[String]) -> Result<(PathBuf, Vec<(u16, String)>)> {
    let mut mounts = admin::local::mounts(true);
    if let Some(w) = wanted.first() {
        let fsname = w.rsplit_once("-OST").map_or(w.as_str(), |(f, _)| f);
        mounts.retain(|m| m.name.fsname == fsname);
    }
    let Some(m) = mounts.into_iter().next() else {
        bail!("case=netdisk goes through a mount on this host, and there is none of that file system");
    };
    let all = osts::targets(&m.dir).map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut found: Vec<(u16, String)> = all
        .into_iter()
        .filter(|t| t.target.kind == TargetKind::Ost && t.active)
        .map(|t| (t.target.index, t.label().to_string()))
        .filter(|(_, label)| wanted.is_empty() || wanted.contains(label))
        .collect();
    found.sort_unstable();
    if let Some(w) = wanted.iter().find(|w| !found.iter().any(|(_, label)| label == *w)) {
        bail!("'{}' has no active target '{w}'", m.dir.display());
    }
    Ok((m.dir, found))
}

/// What a case measures, found.
pub enum Found {
    Disk(Vec<Served>),
    Network(Vec<String>),
    /// A mount, and the indices and labels of its OSTs.
    NetDisk(PathBuf, Vec<(u16, String)>),
}

impl Found {
    pub fn new(plan: &Plan) -> Result<Found> {
        match plan.case {
            Case::Disk => Ok(Found::Disk(served(&plan.targets)?)),
            Case::Network if plan.targets.is_empty() => {
                bail!("targets: which hosts? Each runs 'lst serve' (nacre-lst(8))")
            }
            Case::Network => Ok(Found::Network(plan.targets.clone())),
            Case::NetDisk => mounted(&plan.targets).map(|(mount, targets)| Found::NetDisk(mount, targets)),
        }
    }

    pub fn names(&self) -> Vec<String> {
        match self {
            Found::Disk(all) => all.iter().map(|s| s.label.clone()).collect(),
            Found::Network(hosts) => hosts.clone(),
            Found::NetDisk(_, targets) => targets.iter().map(|(_, label)| label.clone()).collect(),
        }
    }

    fn point(&self, asked: &Asked, stop: &Stop, plan: &Plan, step: (u64, u64, u64)) -> Result<Point> {
        match self {
            Found::Disk(all) => disk_point(asked, stop, plan, all, step),
            Found::Network(_) => network_point(asked, stop, plan, step),
            Found::NetDisk(mount, targets) => net_point(asked, stop, plan, (mount, targets), step),
        }
    }
}

/// All points of the grid, with a line for each.
pub fn points(
    asked: &Asked,
    stop: &Stop,
    (plan, found): &(Plan, Found),
    out: &Output<'_>,
) -> Result<Vec<Point>> {
    let (steps, devices) = (plan.steps(), found.names().len());
    if steps.is_empty() {
        bail!("no point of the grid can be measured: thrhi is below nobjlo, or size is too small");
    }
    let mut points = Vec::new();
    for step in steps {
        let p = found.point(asked, stop, plan, step)?;
        out.line(&SHAPE.line(devices, &p));
        points.push(p);
    }
    Ok(points)
}

pub fn run(asked: &Asked, stop: &Stop) -> Result<bool> {
    let plan = Plan::new(&asked.knobs)?;
    let case = plan.case.word();
    let found = Found::new(&plan)?;
    let names = found.names();
    let out = Output::begin(SURVEY, asked, &format!("for case={case}"));
    let points = points(asked, stop, &(plan, found), &out)?;
    out.finish(&grid::document(SURVEY, asked, &names, &points), &grid::csv(SHAPE, &points), || {
        crate::heat::svg(&grid::heat(SURVEY, SHAPE, &points))
    })?;
    Ok(grid::is_well(&points))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Result<Plan> {
        Plan::new(&Knobs::of_words(VARIABLES, words)?)
    }

    #[test]
    fn a_published_line_is_understood() {
        let p = plan(&[
            "nobjlo=2",
            "nobjhi=16",
            "thrlo=2",
            "thrhi=64",
            "size=24576",
            "targets=FS-OST0000 FS-OST0001",
        ]);
        let p = p.unwrap();
        assert_eq!((p.case, p.targets.len(), p.bytes >> 30), (Case::Disk, 2, 24));
        assert_eq!(p.steps().len(), 6 + 5 + 4 + 3);
        let tests = vec![Measured::of("write", 123.45, vec![100.0, 140.0])];
        let point = Point { tests, ..point_of(&p, 2, (MIB, 2, 4)) };
        assert_eq!(
            SHAPE.line(2, &point),
            "ost  2 sz 50331648K rsz 1024K obj    4 thr    8 write   123.45 [  100.00,  140.00]"
        );
    }

    #[test]
    fn mistakes_have_words() {
        let says = |words: &[&str], part: &str| {
            let text = format!("{:#}", plan(words).unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        says(&["case=tape"], "disk, netdisk and network");
        says(&["tests_str=read"], "write comes first");
        says(&["tests_str=write erase"], "'erase' is no test");
        says(&["targets=oss7:a-OST0000"], "on oss7 itself");
        says(&["a-OST0000"], "targets=");
        let network = plan(&["case=network", "targets=10.0.0.1@tcp oss7:a-OST0000", "nobjhi=4"]).unwrap();
        assert_eq!((network.targets, network.objects), (vec!["10.0.0.1@tcp".into(), "oss7".into()], vec![1]));
        assert_eq!(plan(&["case=netdisk", "targets=oss7:a-OST0000"]).unwrap().targets, ["a-OST0000"]);
    }
}
