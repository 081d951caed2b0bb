//! What there is to tune on a host: settings of the kernel, queues of the disks under targets, our own
//! parameters. Files are read below a root, which tests put elsewhere.

use super::profile::{Profile, Rule, group, kernel, params, queue};
use crate::command::{get_param, set_param};
use crate::failure::Failure;
use model::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use world::sys::files;

/// Where a value is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A file below `/proc/sys` or `/sys`, from the root.
    File(String),
    /// A parameter of ours, by its whole name.
    Param(String),
}

impl Place {
    /// As people know it: `net.ipv4.tcp_rmem`, `sda/queue/scheduler`, `osc.demo-OST0000-osc-1.checksums`.
    pub fn shown(&self) -> String {
        match self {
            Place::Param(name) => name.clone(),
            Place::File(path) => match path.strip_prefix("proc/sys/") {
                Some(name) => name.replace('/', "."),
                None => path.strip_prefix("sys/block/").unwrap_or(path).to_string(),
            },
        }
    }

    /// The command that sets it by hand.
    pub fn by_hand(&self, value: &str) -> String {
        match self {
            Place::Param(name) => format!("lctl set_param {name}={value}"),
            Place::File(path) if path.starts_with("proc/sys/") => {
                format!("sysctl -w {}='{value}'", self.shown())
            }
            Place::File(path) => format!("echo '{value}' >/{path}"),
        }
    }
}

/// One line: a value, what it should be, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub place: Place,
    pub now: String,
    /// What is wanted, as people read it.
    pub wanted: String,
    /// What it is to be set to, if it is not so.
    pub better: Option<String>,
    pub why: &'static str,
}

/// What there is to say that no setting changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    pub about: String,
    pub text: String,
    pub is_bad: bool,
}

/// A host whose files lie below a folder: `/`, or a test's.
pub struct Host {
    pub root: PathBuf,
}

/// A disk under a target, and the folder in which a flush can be tried.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Disk {
    pub name: String,
    pub folder: PathBuf,
}

impl Host {
    pub fn read(&self, path: &str) -> Option<String> {
        let text = files::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_string())
    }

    pub fn list(&self, path: &str) -> Vec<String> {
        files::list(self.root.join(path)).unwrap_or_default()
    }

    fn is_there(&self, path: &str) -> bool {
        files::stat(&self.root.join(path), true).is_ok()
    }

    /// What it is now; `None`: there is no such thing here.
    pub fn value(&self, place: &Place) -> Option<String> {
        match place {
            Place::File(path) => self.read(path),
            Place::Param(name) => {
                get_param::matching(name).into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
            }
        }
        .map(|v| super::profile::chosen(v.trim()).to_string())
    }

    pub fn set(&self, place: &Place, value: &str) -> Result<(), Failure> {
        match place {
            Place::File(path) => {
                let at = self.root.join(path);
                let shown = format!("/{path}");
                files::overwrite(&at, value.as_bytes()).map_err(|e| Failure::io("cannot set", &shown, e))
            }
            Place::Param(name) => set_param::set_until_restart(name, value).map(drop),
        }
    }

    fn memory_kb(&self) -> u64 {
        let text = self.read("proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// A file that is not there is not to be tuned.
    fn item(&self, path: String, r: Rule, choices: Option<String>) -> Option<Item> {
        let now = self.read(&path)?;
        let better = r.want.better(&now, choices.as_deref().unwrap_or(&now));
        let now = super::profile::chosen(&now).to_string();
        Some(Item { place: Place::File(path), now, wanted: r.want.text(), better, why: r.why })
    }

    pub fn kernel(&self, p: Profile) -> Vec<Item> {
        let available = self.read("proc/sys/net/ipv4/tcp_available_congestion_control");
        let all = kernel(p, self.memory_kb()).into_iter();
        let one = |r: Rule| {
            let choices = available.clone().filter(|_| r.name.ends_with("congestion_control"));
            self.item(format!("proc/sys/{}", r.name), r, choices)
        };
        all.filter_map(one).collect()
    }

    pub fn is_rotational(&self, disk: &str) -> bool {
        self.read(&format!("sys/block/{disk}/queue/rotational")).as_deref() == Some("1")
    }

    /// Queues and groups of these disks.
    pub fn queues(&self, p: Profile, disks: &BTreeSet<Disk>) -> Vec<Item> {
        let names: BTreeSet<&str> = disks.iter().map(|d| d.name.as_str()).collect();
        let mut out = Vec::new();
        for disk in names {
            for r in queue(p, self.is_rotational(disk)) {
                out.extend(self.item(format!("sys/block/{disk}/queue/{}", r.name), r, None));
            }
            for r in group(p) {
                out.extend(self.item(format!("sys/block/{disk}/md/{}", r.name), r, None));
            }
        }
        out
    }

    /// The disks under a block device that is mounted: of a partition its disk, of a group or a mapping what
    /// it is made of, and itself.
    pub fn disks_of(&self, source: &str) -> BTreeSet<String> {
        let Some(name) = source.strip_prefix("/dev/") else { return BTreeSet::new() };
        let name = match name.strip_prefix("mapper/") {
            Some(mapped) => self
                .list("sys/block")
                .into_iter()
                .find(|d| self.read(&format!("sys/block/{d}/dm/name")).as_deref() == Some(mapped)),
            None => Some(name.to_string()),
        };
        let mut out = BTreeSet::new();
        if let Some(name) = name {
            self.add_disk(&name, &mut out, 0);
        }
        out
    }

    fn add_disk(&self, name: &str, out: &mut BTreeSet<String>, depth: usize) {
        // Groups of mappings of partitions: more storeys than anybody has.
        if depth > 8 || name.contains('/') || name.contains("..") {
            return;
        }
        if self.is_there(&format!("sys/block/{name}")) {
            out.insert(name.to_string());
            for below in self.list(&format!("sys/block/{name}/slaves")) {
                self.add_disk(&below, out, depth + 1);
            }
            return;
        }
        let whole = self
            .list("sys/block")
            .into_iter()
            .find(|d| self.is_there(&format!("sys/block/{d}/{name}/partition")));
        if let Some(whole) = whole {
            self.add_disk(&whole, out, depth + 1);
        }
    }

    /// Whether a partition and a group begin where writes of whole stripes can.
    pub fn alignment(&self, source: &str, disks: &BTreeSet<String>) -> Vec<Note> {
        let mut out = Vec::new();
        let Some(name) = source.strip_prefix("/dev/") else { return out };
        for d in disks {
            let part = format!("sys/block/{d}/{name}");
            let start = self.read(&format!("{part}/start")).and_then(|s| s.parse::<u64>().ok());
            let io = self
                .read(&format!("sys/block/{d}/queue/optimal_io_size"))
                .and_then(|s| s.parse::<u64>().ok());
            if let (Some(start), Some(io)) = (start, io.filter(|n| *n > 0))
                && (start * 512) % io != 0
            {
                let text = format!(
                    "the partition begins at byte {}, which is no multiple of the {io} bytes that the disk likes: \
                     every whole stripe becomes two parts; make it anew from sector 2048 or a multiple of {}",
                    start * 512,
                    io / 512
                );
                out.push(Note { about: name.to_string(), text, is_bad: true });
            }
            let md = |what: &str| self.read(&format!("sys/block/{d}/md/{what}"));
            let (Some(level), Some(chunk)) = (md("level"), md("chunk_size")) else { continue };
            let parity = match level.as_str() {
                "raid5" | "raid4" => 1,
                "raid6" => 2,
                _ => continue,
            };
            let all =
                md("raid_disks").and_then(|n| n.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
            let (data, chunk) = (all.saturating_sub(parity), chunk.parse::<u64>().unwrap_or(0));
            let stripe = data.saturating_mul(chunk);
            if stripe > 0 {
                let fits = (4u64 << 20).is_multiple_of(stripe);
                let text = if fits {
                    format!(
                        "{level}, {data} disks with data: a stripe of {stripe} bytes goes into 4 MiB without rest"
                    )
                } else {
                    format!(
                        "{level}, {data} disks with data: a stripe of {stripe} bytes does not go into 4 MiB without \
                         rest, so that requests end within one and parity is read first; 4, 8 or 16 disks with data do"
                    )
                };
                out.push(Note { about: d.clone(), text, is_bad: !fits });
            }
        }
        out
    }
}

/// Our own parameters; where nothing is mounted there are none.
pub fn own(p: Profile, read: impl Fn(&str) -> Vec<(String, String)>) -> Vec<Item> {
    let mut out = Vec::new();
    for r in params(p) {
        for (name, now) in read(r.name) {
            let now = now.trim().to_string();
            let better = r.want.better(&now, "");
            let place = Place::Param(name);
            out.push(Item { place, now, wanted: r.want.text(), better, why: r.why });
        }
    }
    out
}

/// The device that a folder lies on, if it is one of the kernel's block devices.
pub fn source_of(folder: &Path) -> Result<Option<String>, Failure> {
    let shown = folder.display().to_string();
    let real = files::canonical(folder).map_err(|e| Failure::io("cannot find", &shown, e))?;
    let at =
        world::sys::mounts::containing(&real).map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    Ok(at.map(|m| m.source).filter(|s| s.starts_with("/dev/")))
}

/// Whether a folder is a target of ours: nothing else is touched.
pub fn check_target(folder: &Path) -> Result<(), Failure> {
    if files::stat(&folder.join("superblock"), false).is_ok_and(|s| s.is_file()) {
        return Ok(());
    }
    let why = "no target of ours is there (mkfs.nacre makes one); disks of others are left alone";
    Err(Failure::explained("cannot tune", &folder.display().to_string(), Errno::EINVAL, why))
}
