//! What the checks look at: asked once, of everybody on this host who can say something, and bounded in time.

use crate::command::status::ask_soon;
use crate::failure::Failure;
use crate::local::{self, Daemon, DaemonReply, DaemonRequest, DaemonStatus};
use client::control::{Reply, Request, Target, TargetSpace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use world::sys;

/// Parameters of daemons that checks look at. Those without a device are asked one by one: every daemon has
/// them.
const OF_DAEMONS: &[&str] = &[
    "obdfilter.*.stats",
    "obdfilter.*.checksum_errors",
    "obdfilter.*.scrub",
    "obdfilter.*.kbytes*",
    "osd-nacre.*.disk_*",
    "osd-nacre.*.quota_slave.enabled",
    "mdd.*.changelog_users",
    "osp.*.passed_over",
    "mdt.*.maintenance",
    "obdfilter.*.maintenance",
];
/// Of mounts.
const OF_MOUNTS: &[&str] = &[
    "osc.*.checksum_errors",
    "osc.*.waiting_requests",
    "mdc.*.waiting_requests",
    "mgc.*.waiting_requests",
    "llite.*.write_errors",
    "llite.*.maintenance",
];
/// Of targets, asked through mounts by root.
const OF_TARGETS: &[&str] = &["*.*.stats", "*.*.checksum_errors"];
/// Targets that are asked one after the other, each with a second of patience.
const TARGETS_ASKED_MAX: usize = 512;

pub type Params = BTreeMap<String, String>;

/// A daemon of this host.
#[derive(Clone)]
pub struct DaemonFacts {
    pub status: DaemonStatus,
    pub version: String,
    pub health: String,
}

/// A mount of this host.
#[derive(Clone)]
pub struct MountFacts {
    pub dir: PathBuf,
    pub targets: Vec<Target>,
    pub space: Vec<TargetSpace>,
    pub version: String,
    /// By how many seconds clocks of targets are before this host's, as far as their statistics say.
    pub ahead: BTreeMap<String, f64>,
}

/// A file that others must not read, or a folder that others must not write to.
#[derive(Clone)]
pub struct FileFacts {
    pub path: PathBuf,
    pub mode: u32,
    pub is_dir: bool,
}

/// The folder of a target.
#[derive(Clone)]
pub struct FolderFacts {
    pub label: String,
    pub dir: String,
    /// Of the file system that it lies on.
    pub device: u64,
    pub available: u64,
}

/// A cluster manager of this host.
#[derive(Clone)]
pub struct HaFacts {
    /// `Pacemaker`, `nacre ha controller (pid 12)`.
    pub who: String,
    pub has_fencing: bool,
}

#[derive(Clone, Default)]
pub struct Facts {
    pub now: i64,
    pub is_root: bool,
    pub daemons: Vec<DaemonFacts>,
    pub mounts: Vec<MountFacts>,
    /// Mounts and daemons that do not answer, and why.
    pub silent: Vec<(String, String)>,
    /// Of daemons, mounts and targets together; their names say whose they are.
    pub params: Params,
    pub files: Vec<FileFacts>,
    pub folders: Vec<FolderFacts>,
    /// Of `/`.
    pub system_device: Option<u64>,
    pub ha: Vec<HaFacts>,
}

impl Facts {
    /// Values of parameters by what stands before and behind the device: `("osc.", ".stats")`.
    pub fn each<'a>(&'a self, begin: &'a str, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.params.iter().filter_map(move |(name, value)| {
            let device = name.strip_prefix(begin)?.strip_suffix(end)?;
            Some((device, value.trim()))
        })
    }
}

fn text_of(r: Result<DaemonReply, Failure>) -> Params {
    match r {
        Ok(DaemonReply::Params(values)) => values.into_iter().collect(),
        _ => Params::new(),
    }
}

fn one(mut values: Params, name: &str) -> String {
    values.remove(name).map_or(String::new(), |v| v.trim().to_string())
}

fn ask_daemon(d: &Daemon) -> Result<(DaemonFacts, Params), Failure> {
    let ask = |pattern: &str| text_of(d.ask(&DaemonRequest::GetParam { pattern: pattern.into() }));
    let status = match d.ask(&DaemonRequest::Status)? {
        DaemonReply::Status(s) => s,
        _ => return Err(Failure::usage("it answers something else")),
    };
    let (version, health) = (one(ask("version"), "version"), one(ask("health_check"), "health_check"));
    let params = OF_DAEMONS.iter().flat_map(|p| ask(p)).collect();
    Ok((DaemonFacts { status, version, health }, params))
}

fn ask_params(dir: &Path, pattern: &str) -> Params {
    match local::ask(dir, &Request::GetParam { pattern: pattern.into() }) {
        Ok(Reply::Params(values)) => values.into_iter().collect(),
        _ => Params::new(),
    }
}

/// The clock of whoever made these statistics: their `snapshot_time`.
pub fn snapshot_time(stats: &str) -> Option<f64> {
    let line = stats.lines().find_map(|l| l.strip_prefix("snapshot_time"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn ask_mount(dir: &Path, as_root: bool) -> Result<(MountFacts, Params), Failure> {
    let (targets, space) = ask_soon(dir)?;
    let mut params: Params = OF_MOUNTS.iter().flat_map(|p| ask_params(dir, p)).collect();
    let version = one(ask_params(dir, "version"), "version");
    let mut ahead = BTreeMap::new();
    let answering = space.iter().filter(|s| as_root && s.errno.is_none() && s.target.active);
    for s in answering.take(TARGETS_ASKED_MAX) {
        for pattern in OF_TARGETS {
            let before = sys::wall_nanos();
            let Ok(values) = local::target_params(dir, s.target.target, pattern) else { break };
            let here = (before + sys::wall_nanos()) as f64 / 2e9;
            if let Some(there) = values.iter().find_map(|(_, v)| snapshot_time(v)) {
                ahead.insert(s.target.label().to_string(), there - here);
            }
            params.extend(values);
        }
    }
    Ok((MountFacts { dir: dir.to_path_buf(), targets, space, version, ahead }, params))
}

/// Files directly in a target's folder, with the folder itself, and the host's own tables.
fn look_at_files(folders: &[FolderFacts]) -> Vec<FileFacts> {
    const FILES_MAX: usize = 64;
    let mut out = Vec::new();
    let mut look = |path: PathBuf| {
        if let Ok(s) = sys::files::stat(&path, false)
            && (s.is_dir() || s.is_file())
        {
            out.push(FileFacts { path, mode: s.mode & 0o7777, is_dir: s.is_dir() });
        }
    };
    for f in folders {
        look(PathBuf::from(&f.dir));
        let names = sys::files::list(&f.dir).unwrap_or_default();
        names.iter().take(FILES_MAX).for_each(|n| look(Path::new(&f.dir).join(n)));
    }
    out
}

fn look_at_folder(label: &str, dir: &str) -> Option<FolderFacts> {
    let device = sys::files::stat(Path::new(dir), true).ok()?.dev;
    let available = sys::mounts::available_bytes(Path::new(dir)).ok()?;
    Some(FolderFacts { label: label.into(), dir: dir.into(), device, available })
}

/// Whether the configuration of Pacemaker has fences that may be used.
pub fn cib_fences(cib: &str) -> bool {
    let off = cib.split('<').any(|tag| {
        let value = |v: &str| tag.contains(&format!("value=\"{v}\""));
        tag.contains("name=\"stonith-enabled\"") && (value("false") || value("0") || value("no"))
    });
    !off && cib.contains("class=\"stonith\"")
}

fn look_at_ha() -> Vec<HaFacts> {
    const CIB: &str = "/var/lib/pacemaker/cib/cib.xml";
    let mut out = Vec::new();
    if let Ok(text) = sys::files::read_to_string(CIB)
        && text.contains(":nacre:")
    {
        out.push(HaFacts { who: "Pacemaker".into(), has_fencing: cib_fences(&text) });
    }
    for pid in sys::process::pids() {
        let args = sys::process::arguments(pid);
        let is = args.windows(2).any(|w| w[0] == "ha" && w[1] == "controller");
        if is && args.first().is_some_and(|a| a.ends_with("nacre")) {
            let has_fencing = args.iter().any(|a| a == "--fence" || a.starts_with("--fence="));
            out.push(HaFacts { who: format!("nacre ha controller (pid {pid})"), has_fencing });
        }
    }
    out
}

/// Everything that can be found out here. `chosen`: mounts.
pub fn gather(chosen: &[PathBuf]) -> Facts {
    let is_root = sys::euid() == 0;
    let system_device = sys::files::stat(Path::new("/"), true).ok().map(|s| s.dev);
    let mut facts = Facts { is_root, system_device, ..Facts::default() };
    let sockets = Daemon::all();
    for (d, said) in sockets.iter().zip(sys::at_once(&sockets, ask_daemon)) {
        match said {
            Ok((daemon, params)) => {
                facts.daemons.push(daemon);
                facts.params.extend(params);
            }
            Err(f) => facts.silent.push((d.socket.display().to_string(), f.to_string())),
        }
    }
    for (dir, said) in chosen.iter().zip(sys::at_once(chosen, |dir| ask_mount(dir, is_root))) {
        match said {
            Ok((mount, params)) => {
                facts.mounts.push(mount);
                facts.params.extend(params);
            }
            Err(f) => facts.silent.push((dir.display().to_string(), f.to_string())),
        }
    }
    let served = facts.daemons.iter().flat_map(|d| &d.status.targets).filter(|t| t.state != "removed");
    // A snapshot's lie with those of the file system, as they are to.
    let served = served.filter(|t| !t.is_of_snapshot());
    facts.folders = served.filter_map(|t| look_at_folder(&t.label, &t.dir)).collect();
    facts.files = look_at_files(&facts.folders);
    facts.ha = look_at_ha();
    facts.now = sys::wall_seconds();
    facts
}
