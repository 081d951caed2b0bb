//! What one host has, as `nacre deploy facts` tells it there.

use crate::failure::Failure;
use crate::getopt::{Opt, Parsed, flag, value};
use crate::local::{Daemon, DaemonReply, DaemonRequest, DaemonStatus, FSTYPE};
use crate::{output, say};
use mgs::restore::{ConfigAnswer, ConfigOrder, Shown};
use model::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::format::Superblock;
use world::World;
use world::sys::{self, files, mounts, process};

pub const OPTS: &[Opt] = &[
    value('\0', "dir"),
    value('\0', "device"),
    value('\0', "file"),
    value('\0', "reach"),
    flag('\0', "json"),
];

/// How long another host may take to answer, or a mount.
const PATIENCE: Duration = Duration::from_secs(2);
/// A file is read up to that.
const FILE_MAX_BYTES: u64 = 64 << 10;
/// Names that a folder may hold beside a target's own.
const HARMLESS: [&str; 2] = ["lost+found", "log"];

/// An address of an interface that is up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub address: std::net::IpAddr,
    pub mtu: Option<u32>,
}

/// What a target's superblock says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Label {
    pub label: String,
    pub fsname: String,
    pub uuid: String,
    pub with_mgt: bool,
    pub first_time: bool,
    pub mgs_nids: Vec<String>,
    pub service_nids: Vec<String>,
    pub domain: String,
}

/// What is in a folder that is to be a target's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Folder {
    Missing,
    Empty,
    /// A target's files without its superblock: an interrupted mkfs.nacre.
    HalfMade,
    /// Something else, for example this.
    Foreign(String),
    Target(Label),
    /// Why it cannot be looked at.
    Unreadable(String),
}

/// A folder, and the room where it lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FolderFact {
    pub holds: Folder,
    pub available_bytes: u64,
}

/// A device that a target is to lie on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFact {
    pub is_there: bool,
    /// What blkid(8) finds on it; empty: nothing.
    pub holds: String,
    pub mounted_at: Option<String>,
}

/// A mount of Nacre.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountFact {
    pub source: String,
    pub dir: String,
    /// `up`, `dead` (its daemon is gone), `waiting` (its servers are away).
    pub state: String,
}

/// All of a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    pub hostname: String,
    pub kernel: String,
    /// Of Nacre.
    pub version: String,
    /// Vendor, product and version of the firmware, as far as the host tells.
    pub firmware: String,
    pub euid: u32,
    /// Its clock, in microseconds since 1970.
    pub clock_us: i64,
    pub interfaces: Vec<Interface>,
    pub folders: BTreeMap<String, FolderFact>,
    pub devices: BTreeMap<String, DeviceFact>,
    pub files: BTreeMap<String, Option<String>>,
    pub daemons: Vec<DaemonStatus>,
    pub mounts: Vec<MountFact>,
    /// What the MGS keeps, if it is here and active.
    pub config: Option<Shown>,
    /// Addresses that were asked for: `None` if they answer, else why not.
    pub reach: BTreeMap<String, Option<String>>,
}

impl Facts {
    /// What a folder that was asked for holds.
    pub fn folder(&self, dir: &str) -> Option<&Folder> {
        self.folders.get(dir).map(|f| &f.holds)
    }

    /// State of a target, by its label and folder, as the daemon here that has it says.
    pub fn served(&self, label: &str, dir: &str) -> Option<&str> {
        let all = self.daemons.iter().flat_map(|d| &d.targets);
        all.filter(|t| t.state != "removed")
            .find(|t| t.label == label && t.dir == dir)
            .map(|t| t.state.as_str())
    }

    /// The daemon here that has any of these folders.
    pub fn daemon_of(&self, dirs: &[&str]) -> Option<&DaemonStatus> {
        self.daemons.iter().find(|d| d.targets.iter().any(|t| dirs.contains(&t.dir.as_str())))
    }
}

fn label(s: &Superblock) -> Label {
    let words = |all: &[model::HostNid]| all.iter().map(ToString::to_string).collect();
    Label {
        label: s.target.label(&s.fsname),
        fsname: s.fsname.clone(),
        uuid: s.target_uuid.iter().map(|b| format!("{b:02x}")).collect(),
        with_mgt: s.with_mgt,
        first_time: s.first_time,
        mgs_nids: words(&s.mgs_nids),
        service_nids: words(&s.service_nids),
        domain: model::domain::text(&s.domain),
    }
}

/// What a folder holds.
pub fn folder(world: &World, dir: &str) -> Folder {
    let names = match files::list(dir) {
        Ok(n) => n,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Folder::Missing,
        Err(e) => return Folder::Unreadable(e.to_string()),
    };
    let own = |n: &&String| crate::command::mkfs::OWN_NAMES.contains(&n.as_str());
    let foreign = names.iter().find(|n| !own(n) && !HARMLESS.contains(&n.as_str()));
    let has_label = names.iter().any(|n| n.starts_with("superblock"));
    match (foreign, has_label, names.iter().any(|n| own(&n))) {
        (_, true, _) => match Superblock::read(world, dir) {
            Ok(s) => Folder::Target(label(&s)),
            Err(e) => Folder::Unreadable(e.to_string()),
        },
        (Some(f), false, _) => Folder::Foreign(f.clone()),
        (None, false, true) => Folder::HalfMade,
        (None, false, false) => Folder::Empty,
    }
}

/// Of a folder that may not be there yet: of what it will lie in.
fn room(dir: &str) -> u64 {
    let mut at: Option<&Path> = Some(Path::new(dir));
    while let Some(p) = at {
        if let Ok(n) = mounts::available_bytes(p) {
            return n;
        }
        at = p.parent();
    }
    0
}

fn device(name: &str) -> DeviceFact {
    let path = Path::new(name);
    if !files::stat(path, true).is_ok_and(|s| s.is_block_device()) {
        return DeviceFact::default();
    }
    let real = files::canonical(path).unwrap_or_else(|_| path.to_path_buf());
    let all = mounts::list().unwrap_or_default();
    let at =
        all.into_iter().find(|m| m.source == name || files::canonical(&m.source).is_ok_and(|p| p == real));
    let found = process::run_within("blkid", &["-p", "-o", "value", "-s", "TYPE", name], PATIENCE * 5);
    let holds = match found {
        Ok(f) if f.status == Some(0) => f.out.trim().to_string(),
        // blkid(8): nothing that it knows.
        Ok(f) if f.status == Some(2) => String::new(),
        Ok(f) => format!("? ({})", f.last_words()),
        Err(e) => format!("? ({e})"),
    };
    DeviceFact { is_there: true, holds, mounted_at: at.map(|m| m.dir.display().to_string()) }
}

fn mount_state(dir: &Path) -> &'static str {
    let (tx, rx) = std::sync::mpsc::channel();
    let dir: PathBuf = dir.to_path_buf();
    // Left behind if it waits: it ends with this program.
    let started = sys::thread("statfs", move || drop(tx.send(mounts::total_bytes(&dir))));
    match started.ok().and_then(|()| rx.recv_timeout(PATIENCE).ok()) {
        Some(Ok(_)) => "up",
        Some(Err(e)) if e.raw_os_error() == Some(Errno::ENOTCONN.0) => "dead",
        _ => "waiting",
    }
}

fn our_mounts() -> Vec<MountFact> {
    let mut all = mounts::list().unwrap_or_default();
    all.retain(|m| m.fstype == FSTYPE);
    let states = sys::at_once(&all, |m| mount_state(&m.dir));
    let fact = |(m, state): (mounts::Mount, &str)| MountFact {
        source: m.source,
        dir: m.dir.display().to_string(),
        state: state.to_string(),
    };
    all.into_iter().zip(states).map(fact).collect()
}

fn config() -> Option<Shown> {
    Daemon::of_mgs().iter().find_map(|d| match d.ask_if_there(&DaemonRequest::Config(ConfigOrder::Show)) {
        Ok(Some(DaemonReply::Config(ConfigAnswer::Shown(s)))) => Some(s),
        _ => None,
    })
}

fn interfaces() -> Vec<Interface> {
    let mtu =
        |name: &str| files::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok();
    let all = sys::interface_addresses().unwrap_or_default().into_iter();
    all.map(|(name, address)| Interface { mtu: mtu(&name), name, address }).collect()
}

fn firmware() -> String {
    let read = |n: &str| files::read_to_string(format!("/sys/class/dmi/id/{n}")).unwrap_or_default();
    let parts = ["sys_vendor", "product_name", "bios_version"].map(|n| read(n).trim().to_string());
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" ")
}

fn text_of(path: &str) -> Option<String> {
    let size = files::stat(Path::new(path), true).ok()?.size;
    (size <= FILE_MAX_BYTES).then(|| files::read_to_string(path).ok()).flatten()
}

/// Of this host, what the command line asks for.
fn take(world: &World, p: &Parsed) -> Result<Facts, Failure> {
    let mut asked: Vec<(String, SocketAddr)> = Vec::new();
    for text in p.values("reach") {
        let at = text.parse().map_err(|_| Failure::usage(format!("--reach '{text}': ADDRESS:PORT")))?;
        asked.push((text.to_string(), at));
    }
    let answers = sys::at_once(&asked, |(_, at)| sys::reach(*at, PATIENCE).err().map(|e| e.to_string()));
    let fact = |d: &str| FolderFact { holds: folder(world, d), available_bytes: room(d) };
    Ok(Facts {
        hostname: sys::hostname(),
        kernel: sys::kernel(),
        version: crate::VERSION.into(),
        firmware: firmware(),
        euid: sys::euid(),
        interfaces: interfaces(),
        folders: p.values("dir").map(|d| (d.to_string(), fact(d))).collect(),
        devices: p.values("device").map(|d| (d.to_string(), device(d))).collect(),
        files: p.values("file").map(|f| (f.to_string(), text_of(f))).collect(),
        daemons: Daemon::statuses(),
        mounts: our_mounts(),
        config: config(),
        reach: asked.into_iter().map(|(text, _)| text).zip(answers).collect(),
        // Last: who asks compares it with the moment of the answer.
        clock_us: i64::try_from(sys::wall_nanos() / 1000).unwrap_or(i64::MAX),
    })
}

/// Prints them.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    let f = take(&world, p)?;
    if p.has("json") {
        say!("{}", serde_json::to_string(&f).expect("plain data encodes"));
    } else {
        say!("host {}, kernel {}, Nacre {}, firmware {}", f.hostname, f.kernel, f.version, f.firmware);
        f.interfaces
            .iter()
            .for_each(|i| say!("interface {} {} mtu {}", i.name, i.address, i.mtu.unwrap_or(0)));
        f.folders
            .iter()
            .for_each(|(d, x)| say!("folder {d}: {:?}, {} bytes free", x.holds, x.available_bytes));
        f.devices.iter().for_each(|(d, x)| say!("device {d}: {x:?}"));
        f.mounts.iter().for_each(|m| say!("mount {} {} {}", m.dir, m.source, m.state));
        f.daemons.iter().for_each(|d| say!("server pid {} at {}", d.pid, d.nids.join(",")));
        f.reach.iter().for_each(|(a, why)| say!("{a}: {}", why.as_deref().unwrap_or("answers")));
    }
    output::flush();
    Ok(0)
}
