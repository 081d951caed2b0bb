//! What `cluster.toml` describes, once it is read and found to make sense.

use model::{HostNid, TargetId, TargetKind};
use serde::Serialize;
use std::collections::BTreeMap;

/// How commands reach a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// It is this host.
    Local,
    /// As `ssh(1)` is told: `root@oss1`.
    Ssh(String),
    /// Words before each command: `ip netns exec oss1`.
    Exec(Vec<String>),
}

/// What a host is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Mgs,
    Mdt,
    Ost,
    Client,
    Monitor,
}

impl Role {
    pub const ALL: [(&'static str, Role); 5] = [
        ("mgs", Role::Mgs),
        ("mdt", Role::Mdt),
        ("ost", Role::Ost),
        ("client", Role::Client),
        ("monitor", Role::Monitor),
    ];

    pub fn word(self) -> &'static str {
        Role::ALL.iter().find(|(_, r)| *r == self).map_or("", |(w, _)| w)
    }
}

/// One host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Host {
    pub name: String,
    pub nids: Vec<String>,
    pub roles: Vec<Role>,
    pub transport: Transport,
    /// The failure domain that its targets stand in, if they say nothing: `rack1/oss1`.
    pub domain: Option<String>,
    /// Where it stands, for people: `room 2, rack 1, unit 12`.
    pub location: Option<String>,
    /// Line of the file.
    pub line: usize,
}

impl Host {
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Addresses without their networks; names of hosts are left out.
    pub fn addresses(&self) -> Vec<std::net::IpAddr> {
        let read = |n: &String| n.parse::<HostNid>().ok()?.address().map(|n| n.addr);
        self.nids.iter().filter_map(read).collect()
    }
}

/// A disk that a target lies on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Disk {
    pub device: String,
    pub fstype: String,
    /// The folder that it is mounted at.
    pub mount: String,
}

/// One target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlannedTarget {
    /// `demo-OST0003`, `MGS`.
    pub label: String,
    #[serde(skip)]
    pub id: TargetId,
    /// An MDT whose folder holds the MGT as well.
    pub with_mgt: bool,
    /// Names of its servers; the first one is its home.
    pub hosts: Vec<String>,
    pub dir: String,
    pub disk: Option<Disk>,
    pub domain: Option<String>,
    /// As behind `--param` of mkfs.nacre.
    pub params: Vec<(String, String)>,
    pub line: usize,
}

impl PlannedTarget {
    pub fn home(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }

    pub fn is_mgs(&self) -> bool {
        self.id.kind == TargetKind::Mgt || self.with_mgt
    }

    /// What its daemon calls it, and with which folders: an MDT with the MGT is two.
    pub fn served_as(&self) -> Vec<(String, String)> {
        let mut out = vec![(self.label.clone(), self.dir.clone())];
        if self.with_mgt {
            out.push(("MGS".into(), format!("{}/{}", self.dir, crate::command::mkfs::MGT_SUBDIR)));
        }
        out
    }
}

/// One mount on each of some hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlannedMount {
    pub hosts: Vec<String>,
    pub dir: String,
    /// Without a slash; empty: the whole file system.
    pub subdir: String,
    pub options: String,
    pub line: usize,
}

/// What is promised of a network.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Network {
    /// That each interface on it must have; `None`: all the same.
    pub mtu: Option<u32>,
    pub line: usize,
}

/// Who starts servers and mounts, also after a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Units: `nacre-target@FSNAME`, a mount unit for each mount.
    Systemd,
    /// `nacre ha start` and `mount.nacre`; nobody starts them after a boot.
    Process,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cluster {
    pub fsname: String,
    pub service: Service,
    pub port: u16,
    /// Port of the servers' metrics; mounts have those above it.
    pub metrics: Option<u16>,
    /// Where a monitoring host finds the addresses of metrics, for Prometheus.
    pub monitor_file: String,
    /// Steps at one time, at most.
    pub at_once: usize,
    pub networks: BTreeMap<String, Network>,
    pub hosts: Vec<Host>,
    /// In the order in which they are started: MGT, MDTs, OSTs.
    pub targets: Vec<PlannedTarget>,
    pub mounts: Vec<PlannedMount>,
    pub pools: BTreeMap<String, Vec<u16>>,
    /// Permanent parameters.
    pub params: BTreeMap<String, String>,
}

impl Cluster {
    /// The host of that name, which the reader has checked to be there.
    pub fn host(&self, name: &str) -> &Host {
        let found = self.hosts.iter().find(|h| h.name == name);
        found.unwrap_or_else(|| unreachable!("the reader lets no target name a host that is not there"))
    }

    /// The target that has the MGS.
    pub fn mgs(&self) -> &PlannedTarget {
        let found = self.targets.iter().find(|t| t.is_mgs());
        found.unwrap_or_else(|| unreachable!("the reader lets no file pass without an MGS"))
    }

    /// Addresses of the MGS, as `--mgsnode` takes them: of one host with commas, of hosts with colons.
    pub fn mgs_nids(&self) -> String {
        self.nids_of(&self.mgs().hosts)
    }

    /// Of some hosts, in their order.
    pub fn nids_of(&self, hosts: &[String]) -> String {
        hosts.iter().map(|h| self.host(h).nids.join(",")).collect::<Vec<_>>().join(":")
    }

    /// What is mounted.
    pub fn source(&self, m: &PlannedMount) -> String {
        let below = if m.subdir.is_empty() { String::new() } else { format!("/{}", m.subdir) };
        format!("{}:/{}{below}", self.mgs_nids(), self.fsname)
    }

    /// Targets whose home is this host.
    pub fn homes(&self, host: &str) -> impl Iterator<Item = &PlannedTarget> {
        self.targets.iter().filter(move |t| t.home() == host)
    }

    /// Targets that this host may serve.
    pub fn may_serve(&self, host: &str) -> impl Iterator<Item = &PlannedTarget> {
        self.targets.iter().filter(move |t| t.hosts.iter().any(|h| h == host))
    }

    /// Mounts of this host.
    pub fn mounts_of(&self, host: &str) -> impl Iterator<Item = &PlannedMount> {
        self.mounts.iter().filter(move |m| m.hosts.iter().any(|h| h == host))
    }

    /// Where a host's server tells its metrics.
    pub fn metrics_of(&self, host: &Host) -> Option<String> {
        let (port, at) = (self.metrics?, host.addresses().first().copied()?);
        Some(std::net::SocketAddr::new(at, port).to_string())
    }

    /// Where the mount of that number does on this host.
    pub fn metrics_of_mount(&self, host: &Host, number: usize) -> Option<String> {
        let at = host.addresses().first().copied()?;
        let port = usize::from(self.metrics?) + 1 + number;
        Some(std::net::SocketAddr::new(at, u16::try_from(port).ok()?).to_string())
    }
}
