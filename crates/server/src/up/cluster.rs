//! `cluster.json`: what `nacre up` made in its folder.

use super::{Result, UpError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use world::sys::files::{self, FileLock};

const VERSION: u32 = 1;
const FILE: &str = "cluster.json";
/// Where the metrics are, for Prometheus (`file_sd_configs`).
const METRICS_FILE: &str = "metrics.json";
/// So many mounts tell theirs: their addresses are the last ones of the block.
const MOUNTS_TOLD_MAX: usize = 50;

/// One file system of this machine. Node 0 has MGT and MDT0000, node i OST i−1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub version: u32,
    pub fsname: String,
    /// `127.x.y.0`: node i answers at the address i + 1 above it.
    pub block: Ipv4Addr,
    pub port: u16,
    /// Those that were removed are among them: their numbers are not given again.
    pub osts: u16,
    /// OSTs that were taken out of the file system for good.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<u16>,
    /// Absolute.
    pub mounts: Vec<PathBuf>,
    /// Mount options of last time.
    #[serde(default)]
    pub options: String,
    /// Port of the metrics of servers and mounts, if they tell any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<u16>,
    /// Port of the console, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard: Option<u16>,
    #[serde(skip)]
    pub dir: PathBuf,
}

/// One server process.
#[derive(Clone, Debug)]
pub struct Node {
    pub number: u16,
    /// `mgs+mds` or `oss`.
    pub role: &'static str,
    pub addr: Ipv4Addr,
    /// Folders of its targets.
    pub dirs: Vec<PathBuf>,
    pub labels: Vec<String>,
}

impl Node {
    pub fn nid(&self) -> String {
        format!("{}@tcp", self.addr)
    }
}

pub fn lock_file(dir: &Path) -> PathBuf {
    dir.join("up.lock")
}

/// Held while one `nacre up`, `down` or `wipe` works on a folder.
pub fn lock(dir: &Path) -> Result<FileLock> {
    FileLock::take(&lock_file(dir)).map_err(|e| UpError::io("cannot lock", dir, &e))
}

impl Cluster {
    pub fn new(dir: PathBuf, fsname: String, block: Ipv4Addr, osts: u16) -> Cluster {
        let port = model::limits::PORT;
        Cluster {
            version: VERSION,
            fsname,
            block,
            port,
            osts,
            removed: BTreeSet::new(),
            mounts: Vec::new(),
            options: String::new(),
            metrics: None,
            dashboard: None,
            dir,
        }
    }

    /// `None` if the folder has none.
    pub fn load(dir: &Path) -> Result<Option<Cluster>> {
        let path = dir.join(FILE);
        let text = match files::read_to_string(&path) {
            Ok(t) => t,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(UpError::io("cannot read", &path, &e)),
        };
        let mut c: Cluster = serde_json::from_str(&text)
            .map_err(|e| UpError::new(format!("'{}' is damaged: {e}", path.display())))?;
        if c.version != VERSION {
            return Err(UpError::new(format!(
                "'{}' is of version {}, this program knows version {VERSION}: use the Nacre that made it",
                path.display(),
                c.version
            )));
        }
        if let Some(n) = c.removed.iter().find(|n| **n >= c.osts) {
            let text = format!("'{}' is damaged: there never was an OST {n}", path.display());
            return Err(UpError::new(text));
        }
        c.dir = dir.to_path_buf();
        Ok(Some(c))
    }

    /// As [`Cluster::load`], and the folder must have one.
    pub fn require(dir: &Path) -> Result<Cluster> {
        let real = files::canonical(dir).map_err(|e| UpError::io("cannot find", dir, &e))?;
        Cluster::load(&real)?
            .ok_or_else(|| UpError::new(format!("'{}' has no file system made by 'nacre up'", dir.display())))
    }

    pub fn save(&self) -> Result<()> {
        assert!(self.dir.is_absolute(), "a file system's folder means the same everywhere");
        let path = self.dir.join(FILE);
        let text = serde_json::to_string_pretty(self).expect("plain data encodes");
        files::replace(&path, text.as_bytes()).map_err(|e| UpError::io("cannot write", &path, &e))
    }

    /// A node's OST was taken out of the file system: it is not started any more.
    pub fn note_removed(&mut self, n: &Node) -> Result<()> {
        assert!(n.number > 0, "MGT and MDT stay");
        self.removed.insert(n.number - 1);
        self.save()
    }

    /// An OST that was removed is one again when its folder holds a target made with `mkfs.nacre --replace`.
    pub fn note_replaced(&mut self, replaces: impl Fn(&Path) -> bool) -> Result<()> {
        let all = self.nodes_ever();
        let back = |ost: &u16| all[usize::from(*ost) + 1].dirs.iter().any(|d| replaces(d));
        let still: BTreeSet<u16> = self.removed.iter().copied().filter(|o| !back(o)).collect();
        if still == self.removed {
            return Ok(());
        }
        self.removed = still;
        self.save()
    }

    /// How many OSTs the file system has.
    pub fn osts_in_use(&self) -> usize {
        usize::from(self.osts) - self.removed.len()
    }

    pub fn address(&self, number: u16) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.block) + u32::from(number) + 1)
    }

    /// Of all targets that are part of the file system.
    pub fn nodes(&self) -> Vec<Node> {
        let mut all = self.nodes_ever();
        all.retain(|n| n.number == 0 || !self.removed.contains(&(n.number - 1)));
        all
    }

    fn nodes_ever(&self) -> Vec<Node> {
        let dir = |n: &str| self.dir.join(n);
        let mds = Node {
            number: 0,
            role: "mgs+mds",
            addr: self.address(0),
            dirs: vec![dir("mgt"), dir("mdt0000")],
            labels: vec!["MGS".to_string(), format!("{}-MDT0000", self.fsname)],
        };
        let ost = |i: u16| Node {
            number: i + 1,
            role: "oss",
            addr: self.address(i + 1),
            dirs: vec![dir(&format!("ost{i:04x}"))],
            labels: vec![format!("{}-OST{i:04x}", self.fsname)],
        };
        let all: Vec<Node> = std::iter::once(mds).chain((0..self.osts).map(ost)).collect();
        let labelled = |n: &Node| !n.dirs.is_empty() && n.dirs.len() == n.labels.len();
        assert!(all.iter().all(labelled), "each folder of a node has its label");
        all
    }

    /// Where a node's metrics are, if they are told.
    pub fn metrics_of(&self, n: &Node) -> Option<SocketAddr> {
        self.metrics.map(|port| SocketAddr::new(n.addr.into(), port))
    }

    /// The same of a mount by its place among them.
    pub fn metrics_of_mount(&self, number: usize) -> Option<SocketAddr> {
        let from_end = u32::try_from(number).ok().filter(|n| (*n as usize) < MOUNTS_TOLD_MAX)?;
        let addr = Ipv4Addr::from(u32::from(self.block) + 254 - from_end);
        assert!(addr > self.address(self.osts), "mounts and servers have addresses of their own");
        self.metrics.map(|port| SocketAddr::new(addr.into(), port))
    }

    /// Where the console is, if there is one.
    pub fn dashboard_at(&self) -> Option<SocketAddr> {
        self.dashboard.map(|port| SocketAddr::new(self.address(0).into(), port))
    }

    /// Names them for Prometheus, or takes that away.
    pub fn save_metrics(&self) -> Result<()> {
        let path = self.dir.join(METRICS_FILE);
        if self.metrics.is_none() {
            return match files::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(UpError::io("cannot remove", &path, &e))
                }
                _ => Ok(()),
            };
        }
        let nodes = self.nodes();
        let mut all: Vec<SocketAddr> = nodes.iter().filter_map(|n| self.metrics_of(n)).collect();
        all.extend((0..self.mounts.len()).filter_map(|i| self.metrics_of_mount(i)));
        let doc = serde_json::json!([{"targets": all, "labels": {"job": "nacre", "fsname": self.fsname}}]);
        files::replace(&path, format!("{doc:#}\n").as_bytes())
            .map_err(|e| UpError::io("cannot write", &path, &e))
    }

    /// First column of /proc/mounts.
    pub fn source(&self) -> String {
        format!("{}@tcp:/{}", self.address(0), self.fsname)
    }

    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Names that `nacre up` makes in its folder.
    pub fn own_names(&self) -> Vec<String> {
        let mut out =
            vec![FILE.to_string(), METRICS_FILE.to_string(), "up.lock".to_string(), "log".to_string()];
        out.push(super::rootless::RUN.to_string());
        out.extend(super::watch::OWN_NAMES.map(String::from));
        out.push(super::dashboard::OWN_NAME.to_string());
        for n in self.nodes_ever() {
            out.extend(n.dirs.iter().filter_map(|d| Some(d.file_name()?.to_string_lossy().into_owned())));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_mounts_tell_their_metrics_at_addresses_of_their_own() {
        let mut c = Cluster::new("/d".into(), "demo".into(), Ipv4Addr::new(127, 1, 2, 0), 200);
        assert_eq!((c.metrics_of(&c.nodes()[0]), c.metrics_of_mount(0)), (None, None));
        c.metrics = Some(9169);
        let mut all: BTreeSet<SocketAddr> = c.nodes().iter().filter_map(|n| c.metrics_of(n)).collect();
        assert_eq!(all.len(), 201);
        all.extend((0..MOUNTS_TOLD_MAX + 1).filter_map(|i| c.metrics_of_mount(i)));
        assert_eq!(all.len(), 201 + MOUNTS_TOLD_MAX);
        assert!(all.iter().all(|a| a.ip().is_loopback() && a.port() == 9169));
        assert_eq!(c.metrics_of_mount(0).map(|a| a.to_string()).as_deref(), Some("127.1.2.254:9169"));
    }
}
