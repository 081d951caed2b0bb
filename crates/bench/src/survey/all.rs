//! `nacre survey all`: the surveys one behind the other, bottom up, on a mounted file system: what each layer
//! can, what that lets the next one expect, and which one holds the others up.

use super::grid::{self, Point};
use super::knobs::Knobs;
use super::ost::{mark, mount_of};
use super::{Asked, Output, mds, obdfilter, sgpdd};
use crate::bars::{Bars, Group};
use crate::crew::Stop;
use admin::command::osts;
use admin::local::Daemon;
use anyhow::{Context, Result, bail};
use model::TargetKind;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use world::sys::cgroup::Bounded;
use world::sys::files;

pub const VARIABLES: &[&str] =
    &["size", "thrlo", "thrhi", "nodes", "clients", "file_count", "memory", "rslt"];
const SURVEY: &str = "all-survey";
/// MiB of each OST.
const DEFAULT_MB: u64 = 256;
/// Less than this share of what lies below is lost is noise.
const LOSS_MIN: f64 = 0.1;
/// Reads above what storage has by this factor come from memory.
const FROM_MEMORY: f64 = 1.25;
const MEMORY_MIN: u64 = 128 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    Storage,
    Objects,
    Network,
    Client,
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Name::Storage => "storage",
            Name::Objects => "objects",
            Name::Network => "network",
            Name::Client => "client",
        }
    }

    /// What is to be looked at if it is this one that holds the others up.
    fn look_at(self) -> &'static str {
        match self {
            Name::Storage => "the disks: more or faster ones, or more OSTs (nacre survey sgpdd)",
            Name::Objects => "the servers: processors, checksums, journal, memory (nacre survey obdfilter)",
            Name::Network => "the links and switches between client and servers (nacre lst)",
            Name::Client => "this client: its processors, max_rpcs_in_flight, more clients at once",
        }
    }
}

/// What a layer can, in MiB/s of all OSTs together.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    pub name: Name,
    pub write: Option<f64>,
    pub read: Option<f64>,
    /// OSTs (of the network, nodes) that are not like the others, and how: `demo-OST0003 write slow`.
    pub outliers: Vec<String>,
    /// Why there is no figure, or what it stands for.
    pub note: Option<String>,
}

impl Layer {
    fn of(&self, test: &str) -> Option<f64> {
        if test == "write" { self.write } else { self.read }
    }

    fn without(name: Name, note: String) -> Layer {
        Layer { name, write: None, read: None, outliers: Vec::new(), note: Some(note) }
    }

    /// The best of the grid; outliers are those of that point.
    fn best(name: Name, devices: &[String], points: &[Point]) -> Layer {
        let mut layer = Layer { name, write: None, read: None, outliers: Vec::new(), note: None };
        for test in ["write", "read"] {
            let found = points.iter().flat_map(|p| &p.tests).filter(|m| m.test == test && m.failed.is_none());
            let Some(m) = found.max_by(|a, b| a.rate.total_cmp(&b.rate)) else { continue };
            *(if test == "write" { &mut layer.write } else { &mut layer.read }) = Some(m.rate);
            for (device, rate) in devices.iter().zip(&m.each) {
                let marked = mark(*rate, &m.each);
                if !marked.is_empty() {
                    layer.outliers.push(format!("{device} {test} {marked}"));
                }
            }
        }
        layer
    }

    /// Of some OSTs, as if all were like them.
    fn scaled(mut self, here: usize, all: usize) -> Layer {
        if here < all && here > 0 && self.write.or(self.read).is_some() {
            let factor = all as f64 / here as f64;
            (self.write, self.read) = (self.write.map(|r| r * factor), self.read.map(|r| r * factor));
            self.note = Some(format!("{here} of {all} OSTs measured, the others taken to be like them"));
        }
        self
    }
}

/// One direction: what was to be expected, what came of it, and what holds it up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub test: &'static str,
    /// The least that a layer below the client has, and which one.
    pub estimate: f64,
    pub bound_by: Name,
    pub measured: f64,
    pub share: f64,
    /// The layer that loses most of what lies below it; if none loses anything, that of the estimate.
    pub bottleneck: Name,
    pub loses: f64,
}

/// `None`: the client, or all below it, was not measured.
pub fn judge(test: &'static str, layers: &[Layer]) -> Option<Verdict> {
    let known: Vec<(Name, f64)> =
        layers.iter().filter_map(|l| Some((l.name, l.of(test)?))).filter(|(_, r)| *r > 0.0).collect();
    let ((client, measured), below) = known.split_last()?;
    if *client != Name::Client {
        return None;
    }
    let (bound_by, estimate) = below.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (mut least, mut worst) = (f64::INFINITY, (bound_by, 0.0));
    for (name, rate) in &known {
        let loss = if least.is_finite() { 1.0 - rate / least } else { 0.0 };
        if loss > worst.1 {
            worst = (*name, loss);
        }
        least = least.min(*rate);
    }
    let (bottleneck, loses) = if worst.1 < LOSS_MIN { (bound_by, 0.0) } else { worst };
    assert!(estimate > 0.0 && (0.0..=1.0).contains(&loses), "{known:?}");
    Some(Verdict {
        test,
        estimate,
        bound_by,
        measured: *measured,
        share: measured / estimate,
        bottleneck,
        loses,
    })
}

/// What the whole installation can for more clients like this one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    pub test: &'static str,
    pub clients: u64,
    pub rate: f64,
    /// With more clients than these it is the servers that bound it.
    pub enough: u64,
}

/// Servers are bounded by storage and objects, each client by what it reached or its link, the slower one.
fn ceiling(v: &Verdict, layers: &[Layer], clients: u64) -> Ceiling {
    let servers = layers.iter().filter(|l| matches!(l.name, Name::Storage | Name::Objects));
    let servers = servers.filter_map(|l| l.of(v.test)).fold(f64::INFINITY, f64::min);
    let servers = if servers.is_finite() { servers } else { v.estimate };
    let rate = servers.min(v.measured * clients as f64);
    Ceiling { test: v.test, clients, rate, enough: ((servers / v.measured).ceil() as u64).max(1) }
}

/// The OSTs of a mount, and those of them whose servers are here.
struct Topology {
    /// Labels, with the network address that serves each.
    osts: BTreeMap<String, String>,
    /// Labels and folders.
    here: BTreeMap<String, PathBuf>,
    /// Daemons that serve those.
    pids: BTreeSet<u32>,
    /// Folders on one device count once.
    disks: BTreeMap<u64, Vec<String>>,
}

impl Topology {
    fn find(mount: &Path) -> Result<Topology> {
        let all = osts::targets(mount).map_err(|e| anyhow::anyhow!("{e}"))?;
        let active = all.iter().filter(|t| t.target.kind == TargetKind::Ost && t.active);
        let osts: BTreeMap<String, String> = active.map(|t| (t.label().to_string(), t.nid.clone())).collect();
        if osts.is_empty() {
            bail!("'{}' has no active OST", mount.display());
        }
        let (mut here, mut pids, mut disks) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        for status in Daemon::statuses() {
            for t in status.targets.iter().filter(|t| osts.contains_key(&t.label)) {
                let stat = files::stat(Path::new(&t.dir), true);
                let stat = stat.with_context(|| format!("{}: '{}'", t.label, t.dir))?;
                disks.entry(stat.dev).or_insert_with(Vec::new).push(t.label.clone());
                here.insert(t.label.clone(), PathBuf::from(&t.dir));
                pids.insert(status.pid);
            }
        }
        Ok(Topology { osts, here, pids, disks })
    }

    fn servers(&self) -> usize {
        self.osts.values().collect::<BTreeSet<_>>().len()
    }

    fn text(&self, mount: &Path) -> String {
        let mut o = format!(
            "{}: {} at {}, {} of them on this host",
            mount.display(),
            count(self.osts.len(), "OST", "OSTs"),
            count(self.servers(), "address", "addresses"),
            self.here.len()
        );
        for shared in self.disks.values().filter(|l| l.len() > 1) {
            // writing to a String cannot fail
            let _ = write!(o, "; {} share a file system", shared.join(", "));
        }
        o
    }
}

/// What is asked for, read before anything is measured.
struct Plan {
    megabytes: u64,
    threads: (u64, u64),
    nodes: Vec<String>,
    clients: u64,
    files: u64,
    memory: Option<u64>,
}

impl Plan {
    fn new(k: &Knobs) -> Result<Plan> {
        let threads = k.doubling("thr", (1, 4), 1..=1024)?;
        let memory = k.text("memory").map(|text| {
            let bytes = admin::size::parse_bytes(text.trim(), 1).filter(|b| *b >= MEMORY_MIN);
            bytes.with_context(|| format!("memory='{text}': a size from {} MiB, as 4G", MEMORY_MIN >> 20))
        });
        Ok(Plan {
            megabytes: k.number("size", DEFAULT_MB, 4..=1 << 20)?,
            threads: (threads[0], *threads.last().context("threads")?),
            nodes: k.words("nodes", ""),
            clients: k.number("clients", 1, 1..=1 << 20)?,
            files: k.number("file_count", 20_000, 64..=1 << 32)?,
            memory: memory.transpose()?,
        })
    }

    /// The variables of one of the surveys.
    fn knobs(&self, known: &[&str], more: &[(&str, String)]) -> Result<Knobs> {
        let (low, high) = self.threads;
        let all =
            [("size", self.megabytes.to_string()), ("thrlo", low.to_string()), ("thrhi", high.to_string())];
        let operands: Vec<String> = all.iter().chain(more).map(|(k, v)| format!("{k}={v}")).collect();
        Knobs::new(known, &operands, |_| None)
    }
}

/// The chain: it measures layer by layer, and keeps what it found.
struct Chain<'a> {
    asked: &'a Asked,
    stop: &'a Stop,
    plan: Plan,
    mount: PathBuf,
    topology: Topology,
    out: Output<'a>,
    layers: Vec<Layer>,
    points: BTreeMap<&'static str, Vec<Point>>,
    failed: bool,
}

impl Chain<'_> {
    /// The same flags, other variables; what is written are files that the survey makes itself.
    fn asked(&self, knobs: Knobs) -> Asked {
        let mut flags = self.asked.flags.clone();
        (flags.destroy, flags.plot, flags.operands) = (true, None, Vec::new());
        Asked { flags, knobs, network: self.asked.network }
    }

    /// One layer, or why there is none of it. An error: the user stopped it.
    fn layer(&mut self, name: Name, done: Result<(Vec<String>, Vec<Point>)>, all: usize) -> Result<()> {
        let layer = match done {
            Ok((devices, points)) => {
                self.failed |= !grid::is_well(&points);
                let layer = Layer::best(name, &devices, &points).scaled(devices.len(), all);
                self.points.insert(name.word(), points);
                layer
            }
            Err(e) if self.stop.wanted() => return Err(e),
            Err(e) => {
                self.failed = true;
                eprintln!("{SURVEY}: {}: {e:#}", name.word());
                Layer::without(name, format!("{e:#}"))
            }
        };
        self.layers.push(layer);
        Ok(())
    }

    /// Files beside the targets, on what these lie on: one in each folder, all at once.
    fn storage(&mut self) -> Result<()> {
        self.out.line("\nStorage below the OSTs of this host, one file in each folder:");
        let name = format!("survey.{}", std::process::id());
        let at: Vec<String> =
            self.topology.here.values().map(|d| d.join(&name).display().to_string()).collect();
        if let Some(odd) = at.iter().find(|p| p.contains(char::is_whitespace)) {
            self.layers.push(Layer::without(Name::Storage, format!("'{odd}' has a blank in its name")));
            return Ok(());
        }
        let knobs = self.plan.knobs(
            sgpdd::VARIABLES,
            &[("scsidevs", at.join(" ")), ("crglo", "1".into()), ("crghi", "1".into())],
        )?;
        let asked = self.asked(knobs);
        let done = sgpdd::prepare(&asked).and_then(|p| sgpdd::points(&asked, self.stop, &p, &self.out));
        let labels = self.topology.here.keys().cloned().collect();
        self.layer(Name::Storage, done.map(|points| (labels, points)), self.topology.osts.len())
    }

    fn objects(&mut self, name: Name, case: &str, targets: &[String], all: usize) -> Result<()> {
        let of_case =
            [("case", case.to_string()), ("targets", targets.join(" ")), ("tests_str", "write read".into())];
        let mut more = of_case.to_vec();
        if case != "network" {
            more.extend([("nobjlo", "1".to_string()), ("nobjhi", "1".to_string())]);
        }
        let asked = self.asked(self.plan.knobs(obdfilter::VARIABLES, &more)?);
        let prepared = obdfilter::Plan::new(&asked.knobs)
            .and_then(|plan| obdfilter::Found::new(&plan).map(|found| (plan, found)));
        let done = prepared.and_then(|p| {
            let names = p.1.names();
            obdfilter::points(&asked, self.stop, &p, &self.out).map(|points| (names, points))
        });
        self.layer(name, done, all)
    }

    fn data(&mut self) -> Result<()> {
        let all = self.topology.osts.len();
        let here: Vec<String> = self.topology.here.keys().cloned().collect();
        if here.is_empty() {
            for name in [Name::Storage, Name::Objects] {
                let why = "this host serves none of its OSTs: run the survey on a server that mounts it, too";
                self.layers.push(Layer::without(name, why.into()));
            }
        } else {
            self.storage()?;
            self.out.line("\nObjects in the servers of this host, without clients and network:");
            self.objects(Name::Objects, "disk", &here, all)?;
        }
        if self.plan.nodes.is_empty() {
            let why = "not measured: nodes=\"HOST...\" names hosts that run 'lst serve'";
            self.layers.push(Layer::without(Name::Network, why.into()));
        } else {
            self.out.line("\nNetwork between this host and nodes:");
            let nodes = self.plan.nodes.clone();
            self.objects(Name::Network, "network", &nodes, nodes.len())?;
        }
        self.out.line("\nObjects through the client of this host:");
        let labels: Vec<String> = self.topology.osts.keys().cloned().collect();
        self.objects(Name::Client, "netdisk", &labels, all)
    }

    fn names(&mut self) -> Result<()> {
        self.out.line("\nNames:");
        let operands = [format!("file_count={}", self.plan.files)];
        let asked = self.asked(Knobs::new(mds::VARIABLES, &operands, |_| None)?);
        let done = mds::Plan::new(&asked.knobs)
            .and_then(|plan| mds::points(&asked, self.stop, (&plan, &self.mount), &self.out));
        match done {
            Ok(points) => {
                self.failed |= !grid::is_well(&points);
                self.points.insert("names", points);
            }
            Err(e) if self.stop.wanted() => return Err(e),
            Err(e) => {
                self.failed = true;
                eprintln!("{SURVEY}: names: {e:#}");
            }
        }
        Ok(())
    }

    /// What all of it says.
    fn conclude(&self) -> (Vec<Verdict>, Vec<Ceiling>) {
        self.out.line("");
        self.out.line(table(&self.layers).trim_end());
        let verdicts: Vec<Verdict> =
            ["write", "read"].into_iter().filter_map(|test| judge(test, &self.layers)).collect();
        let mut ceilings = Vec::new();
        for v in &verdicts {
            self.out.line(&sentence(v));
            let c = ceiling(v, &self.layers, self.plan.clients);
            self.out.line(&format!(
                "{}: {} like this one: {:.0} MiB/s at most; from {} on the servers are the limit",
                c.test,
                count(c.clients as usize, "client", "clients"),
                c.rate,
                c.enough
            ));
            ceilings.push(c);
        }
        let read = |name| self.layers.iter().find(|l| l.name == name).and_then(|l| l.read);
        if let (Some(disk), Some(top)) = (read(Name::Storage), read(Name::Objects).or(read(Name::Client)))
            && top > disk * FROM_MEMORY
        {
            self.out.line(
                "read: more than storage has: servers answer from memory. With size= above their memory, or \
                 memory=SIZE, disks are read",
            );
        }
        (verdicts, ceilings)
    }
}

fn count(n: usize, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}

fn figure(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |r| format!("{r:.2}"))
}

/// A line for each layer, with what it keeps of the least below it.
fn table(layers: &[Layer]) -> String {
    let mut o = format!(
        "{:<9} {:>12} {:>12} {:>8} {:>8}  in MiB/s, and of the least below\n",
        "layer", "write", "read", "write", "read"
    );
    for (i, l) in layers.iter().enumerate() {
        let kept = |test: &str| {
            let least = layers[..i].iter().filter_map(|b| b.of(test)).fold(f64::INFINITY, f64::min);
            l.of(test).filter(|_| least.is_finite() && least > 0.0).map(|r| r / least)
        };
        let line = format!(
            "{:<9} {:>12} {:>12} {:>8} {:>8}  {}",
            l.name.word(),
            figure(l.write),
            figure(l.read),
            figure(kept("write")),
            figure(kept("read")),
            l.note.iter().chain(&l.outliers).cloned().collect::<Vec<_>>().join("; ")
        );
        // writing to a String cannot fail
        let _ = writeln!(o, "{}", line.trim_end());
    }
    o
}

fn sentence(v: &Verdict) -> String {
    let what = match v.loses {
        0.0 => "no layer above it loses anything".to_string(),
        lost => format!("it loses {:.0} % of what lies below it", lost * 100.0),
    };
    format!(
        "{}: {:.2} MiB/s, {:.2} of the {:.2} that {} lets expect. Bottleneck: {} ({what}). Look at {}",
        v.test,
        v.measured,
        v.share,
        v.estimate,
        v.bound_by.word(),
        v.bottleneck.word(),
        v.bottleneck.look_at()
    )
}

fn csv(layers: &[Layer]) -> String {
    let mut o = "layer,write_mib_s,read_mib_s\n".to_string();
    for l in layers {
        // writing to a String cannot fail
        let _ = writeln!(o, "{},{},{}", l.name.word(), figure(l.write), figure(l.read));
    }
    o
}

fn picture(layers: &[Layer]) -> String {
    let groups = layers.iter().map(|l| Group {
        name: l.name.word().into(),
        values: vec![l.write.unwrap_or(0.0), l.read.unwrap_or(0.0)],
    });
    crate::bars::svg(&Bars {
        title: "What each layer can".into(),
        y_label: "MiB/s".into(),
        series: vec!["write".into(), "read".into()],
        groups: groups.collect(),
    })
}

pub fn run(asked: &Asked, stop: &Stop) -> Result<bool> {
    let plan = Plan::new(&asked.knobs)?;
    let mount = mount_of(asked)?;
    let topology = Topology::find(&mount)?;
    let pids: Vec<u32> = topology.pids.iter().copied().collect();
    if plan.memory.is_some() && pids.is_empty() {
        bail!("memory: no daemon of this host serves an OST of '{}'", mount.display());
    }
    let bounded = plan.memory.map(|bytes| Bounded::new(&pids, bytes)).transpose();
    let bounded = bounded.context("memory: bound the servers of this host")?;
    let out = Output::begin(SURVEY, asked, &format!("on {}", mount.display()));
    out.line(&topology.text(&mount));
    if let Some(b) = &bounded {
        out.line(&format!("memory of servers here: {} bytes", b.bound().context("memory")?));
    }
    let (layers, points) = (Vec::new(), BTreeMap::new());
    let mut chain = Chain { asked, stop, plan, mount, topology, out, layers, points, failed: false };
    chain.data()?;
    chain.names()?;
    drop(bounded);
    let (verdicts, ceilings) = chain.conclude();
    let document: Value = json!({
        "survey": SURVEY, "version": admin::VERSION, "time": world::sys::wall_seconds(),
        "inventory": crate::inventory::here(), "parameters": asked.knobs.json(), "mount": chain.mount,
        "unit": "MiB/s", "osts": chain.topology.osts, "here": chain.topology.here,
        "memory": chain.plan.memory, "layers": chain.layers, "verdicts": verdicts, "ceilings": ceilings,
        "points": chain.points,
        "names": chain.points.get("names").map(|p| grid::best(p)),
    });
    chain.out.finish(&document, &csv(&chain.layers), || picture(&chain.layers))?;
    Ok(!chain.failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::grid::Measured;

    fn layer(name: Name, write: f64, read: f64) -> Layer {
        let rate = |r: f64| (r > 0.0).then_some(r);
        Layer { name, write: rate(write), read: rate(read), outliers: Vec::new(), note: None }
    }

    fn layers() -> Vec<Layer> {
        vec![
            layer(Name::Storage, 1000.0, 2000.0),
            layer(Name::Objects, 500.0, 1950.0),
            Layer::without(Name::Network, "not measured".into()),
            layer(Name::Client, 480.0, 900.0),
        ]
    }

    #[test]
    fn the_layer_that_loses_most_is_the_bottleneck() {
        let write = judge("write", &layers()).unwrap();
        assert_eq!((write.estimate, write.bound_by, write.bottleneck), (500.0, Name::Objects, Name::Objects));
        assert!((write.share - 0.96).abs() < 1e-9 && (write.loses - 0.5).abs() < 1e-9, "{write:?}");
        let read = judge("read", &layers()).unwrap();
        assert_eq!((read.estimate, read.bound_by, read.bottleneck), (1950.0, Name::Objects, Name::Client));
        let even = [
            layer(Name::Storage, 100.0, 0.0),
            layer(Name::Objects, 99.0, 0.0),
            layer(Name::Client, 101.0, 0.0),
        ];
        let even = judge("write", &even).unwrap();
        assert_eq!((even.bottleneck, even.loses), (Name::Objects, 0.0), "where nobody loses it is the least");
        assert!(sentence(&even).contains("no layer above it loses anything"), "{}", sentence(&even));
        assert_eq!(judge("write", &layers()[..3]), None, "without a client there is nothing to say");
        assert_eq!(judge("read", &[layer(Name::Client, 1.0, 1.0)]), None);
    }

    #[test]
    fn more_clients_get_what_servers_have() {
        let l = layers();
        let read = judge("read", &l).unwrap();
        let of = |clients| ceiling(&read, &l, clients);
        assert_eq!((of(1).rate, of(2).rate, of(64).rate), (900.0, 1800.0, 1950.0));
        assert_eq!(of(1).enough, 3);
    }

    #[test]
    fn the_table_shows_what_each_layer_keeps() {
        let mut all = layers();
        all[3].outliers.push("demo-OST0003 write slow".into());
        let expected = "\
layer            write         read    write     read  in MiB/s, and of the least below
storage        1000.00      2000.00        -        -
objects         500.00      1950.00     0.50     0.97
network              -            -        -        -  not measured
client          480.00       900.00     0.96     0.46  demo-OST0003 write slow
";
        assert_eq!(table(&all), expected);
    }

    #[test]
    fn some_osts_stand_for_all_and_outliers_are_named() {
        let tests =
            vec![Measured::of("write", 220.0, vec![100.0, 20.0, 100.0]), Measured::failed("read", "failed")];
        let p = Point { total_kib: 1, request_kib: 1, groups: 3, threads: 3, tests };
        let names: Vec<String> = (0..3).map(|n| format!("d-OST000{n}")).collect();
        let l = Layer::best(Name::Storage, &names, &[p]).scaled(3, 6);
        assert_eq!((l.write, l.read), (Some(440.0), None));
        assert_eq!(l.outliers, ["d-OST0001 write slow"]);
        assert!(l.note.is_some_and(|n| n.starts_with("3 of 6 OSTs")));
    }

    #[test]
    fn mistakes_have_words() {
        let says = |words: &[&str], part: &str| {
            let text = match Knobs::of_words(VARIABLES, words).and_then(|k| Plan::new(&k)) {
                Ok(_) => panic!("{words:?}"),
                Err(e) => format!("{e:#}"),
            };
            assert!(text.contains(part), "{text}");
        };
        says(&["memory=lots"], "a size from 128 MiB");
        says(&["memory=1M"], "a size from 128 MiB");
        says(&["clients=0"], "from 1 to");
        says(&["nodez=x"], "'nodez' is no variable");
    }
}
