//! `-o` options of the mount helper.

use model::Errno;
use std::path::PathBuf;

/// Where and how to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
    /// First column of /proc/mounts: verbatim as the user gave it.
    pub source: String,
    pub dir: PathBuf,
    /// `MS_*` bits of mount(2).
    pub flags: u64,
}

/// Whom fcntl(2) and flock(2) locks keep out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileLocks {
    /// `flock`: everybody, on all mounts.
    #[default]
    Shared,
    /// `localflock`: users of this mount; no server is asked.
    Local,
    /// `noflock`: nobody gets one (`ENOSYS`).
    Refused,
}

/// What a list of options says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `MS_*` bits of mount(2).
    pub flags: u64,
    pub read_only: bool,
    pub remount: bool,
    /// `soft`: give up after `timeo`.
    pub soft: bool,
    /// `timeo=`, tenths of a second as with NFS.
    pub timeo_ds: Option<u64>,
    /// `retry=`: attempts to reach the MGS.
    pub retry: Option<u32>,
    /// `port=`: of the servers, for tests.
    pub port: Option<u16>,
    /// `bind=`: source address for connections.
    pub bind: Option<std::net::IpAddr>,
    /// `network=`: numbers of the networks whose addresses are used; empty: all.
    pub networks: Vec<u16>,
    /// `noreaddirplus`: do not ask for attributes along with directory pages.
    pub no_readdirplus: bool,
    /// `nokernel_cache`: names and attributes do not stay in the kernel.
    pub no_kernel_cache: bool,
    /// `nolazystatfs`: statfs(2) waits for all servers.
    pub no_lazystatfs: bool,
    /// `flock`, `localflock`, `noflock`.
    pub locks: FileLocks,
    /// `exclude=`: OSTs that this mount does not use, as they are written.
    pub exclude: Vec<String>,
    /// `metrics=`: address and port of its metrics.
    pub metrics: Option<std::net::SocketAddr>,
    /// `log=`: where the daemon's log goes.
    pub log: Option<PathBuf>,
}

impl Options {
    /// `soft,timeo=` as milliseconds; `timeo` alone changes nothing. Default 60 s.
    pub fn soft_timeout_ms(&self) -> Option<u64> {
        self.soft.then(|| self.timeo_ds.unwrap_or(600).saturating_mul(100).max(100))
    }
}

/// An option that cannot be taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionError {
    #[error("unknown mount option '{0}'")]
    Unknown(String),
    #[error("mount option '{0}' needs a value")]
    NoValue(String),
    #[error("mount option '{0}' takes no value")]
    Value(String),
    #[error("mount option '{0}': {1}")]
    Refused(&'static str, &'static str),
    #[error("mount option '{name}': '{value}' is not {expected}")]
    Bad { name: String, value: String, expected: &'static str },
}

impl OptionError {
    pub fn errno(&self) -> Errno {
        Errno::EINVAL
    }
}

/// Of [`Options::flags`]: reads leave access times as they are.
pub const NOATIME: u64 = libc::MS_NOATIME;

/// Options that set or clear a bit of mount(2): (name, bit, set).
const VFS: &[(&str, libc::c_ulong, bool)] = &[
    ("ro", libc::MS_RDONLY, true),
    ("rw", libc::MS_RDONLY, false),
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("noatime", libc::MS_NOATIME, true),
    ("atime", libc::MS_NOATIME, false),
    ("nodiratime", libc::MS_NODIRATIME, true),
    ("diratime", libc::MS_NODIRATIME, false),
    ("relatime", libc::MS_RELATIME, true),
    ("norelatime", libc::MS_RELATIME, false),
    ("nostrictatime", libc::MS_STRICTATIME, false),
    ("sync", libc::MS_SYNCHRONOUS, true),
    ("async", libc::MS_SYNCHRONOUS, false),
    ("dirsync", libc::MS_DIRSYNC, true),
    ("silent", libc::MS_SILENT, true),
    ("loud", libc::MS_SILENT, false),
];

/// Options of Lustre's that cannot be had, and what to use.
const REFUSED: &[(&str, &str)] = &[
    ("noacl", "the metadata server goes by the ACLs of files for every mount: remove them with setfacl -b"),
    ("nouser_xattr", "every mount has user attributes: chattr and setfattr rights decide who changes them"),
    ("abort_recov", "it is an option of a target: mount the target with it, or lctl abort_recovery"),
    ("errors", "it is an option of a target, not of a client"),
    ("nosvc", "it is an option of a target, not of a client"),
    ("nomgs", "it is an option of a target, not of a client"),
    ("no_create", "it is an option of a target, not of a client"),
];

const STRICTATIME: &str = "the metadata server takes the time of a read only as relatime has it (the first one after a change, and once a day), and none of directories: use relatime or noatime";

/// True of every mount anyway, or meant for mount(8), systemd and autofs.
const TAKEN_SILENTLY: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user",
    "nouser",
    "users",
    "nousers",
    "group",
    "nogroup",
    "owner",
    "noowner",
    "allow_other",
    "default_permissions",
    "user_xattr",
    "acl",
    "nolazytime",
    "hard",
    "verbose",
    "noverbose",
    "iversion",
    "noiversion",
    "nomand",
];

fn number<T: std::str::FromStr>(name: &str, value: &str, expected: &'static str) -> Result<T, OptionError> {
    let bad = || OptionError::Bad { name: name.to_string(), value: value.to_string(), expected };
    value.parse().map_err(|_| bad())
}

/// Reads a comma-separated list, later options before earlier ones. Unknown ones are an error that names
/// them.
pub fn parse(list: &str) -> Result<Options, OptionError> {
    let mut o = Options::default();
    for item in list.split(',').filter(|i| !i.is_empty()) {
        let (name, value) = match item.split_once('=') {
            Some((n, v)) => (n, Some(v)),
            None => (item, None),
        };
        if name.starts_with("x-") || name.starts_with("X-") || name == "comment" {
            continue;
        }
        match value {
            None => take_flag(&mut o, name)?,
            Some(v) => take_value(&mut o, name, v)?,
        }
    }
    o.read_only = o.flags & libc::MS_RDONLY != 0;
    Ok(o)
}

fn take_flag(o: &mut Options, name: &str) -> Result<(), OptionError> {
    if let Some((_, bit, set)) = VFS.iter().find(|(n, _, _)| *n == name) {
        let bit = *bit;
        o.flags = if *set { o.flags | bit } else { o.flags & !bit };
        return Ok(());
    }
    match name {
        "remount" => o.remount = true,
        "soft" => o.soft = true,
        "readdirplus" => o.no_readdirplus = false,
        "noreaddirplus" => o.no_readdirplus = true,
        "kernel_cache" => o.no_kernel_cache = false,
        "nokernel_cache" => o.no_kernel_cache = true,
        "lazystatfs" => o.no_lazystatfs = false,
        "nolazystatfs" => o.no_lazystatfs = true,
        "flock" => o.locks = FileLocks::Shared,
        "localflock" => o.locks = FileLocks::Local,
        "noflock" => o.locks = FileLocks::Refused,
        "strictatime" => return Err(OptionError::Refused("strictatime", STRICTATIME)),
        "timeo" | "retry" | "port" | "bind" | "network" | "log" | "exclude" | "metrics" => {
            return Err(OptionError::NoValue(name.to_string()));
        }
        _ if TAKEN_SILENTLY.contains(&name) => {}
        _ => return Err(refusal(name).unwrap_or_else(|| OptionError::Unknown(name.to_string()))),
    }
    if name == "hard" {
        o.soft = false;
    }
    Ok(())
}

fn refusal(name: &str) -> Option<OptionError> {
    REFUSED.iter().find(|(n, _)| *n == name).map(|(n, why)| OptionError::Refused(n, why))
}

/// `tcp1`, or several between colons; of other types there are none.
fn network(v: &str) -> Result<Vec<u16>, OptionError> {
    let one = |n: &str| {
        model::nid::parse_net(n).map_err(|_| OptionError::Bad {
            name: "network".into(),
            value: v.into(),
            expected: "a network: tcp, tcp1, tcp1:tcp (there is TCP only)",
        })
    };
    v.split(':').map(one).collect()
}

/// Where the metrics of the mount are.
fn metrics(v: &str) -> Result<std::net::SocketAddr, OptionError> {
    let bad = |expected| OptionError::Bad { name: "metrics".into(), value: v.into(), expected };
    model::metrics::address(v).map_err(bad)
}

fn take_value(o: &mut Options, name: &str, v: &str) -> Result<(), OptionError> {
    match name {
        "timeo" => o.timeo_ds = Some(number(name, v, "a number of tenths of a second")?),
        "retry" => o.retry = Some(number(name, v, "a number of attempts")?),
        "port" => o.port = Some(number(name, v, "a port number")?),
        "bind" => o.bind = Some(number(name, v, "an address")?),
        "network" => o.networks = network(v)?,
        "metrics" => o.metrics = Some(metrics(v)?),
        // Targets between colons.
        "exclude" => o.exclude.extend(v.split(':').filter(|t| !t.is_empty()).map(str::to_string)),
        "log" if v.is_empty() => return Err(OptionError::NoValue(name.to_string())),
        "log" => o.log = Some(PathBuf::from(v)),
        // What fuse(8) and older scripts pass along; the daemon decides itself.
        "max_read" | "subtype" | "fsname" => {}
        _ if take_flag(&mut Options::default(), name).is_ok() => {
            return Err(OptionError::Value(name.to_string()));
        }
        _ => return Err(refusal(name).unwrap_or_else(|| OptionError::Unknown(name.to_string()))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused_by_name() {
        let o = parse("rw,_netdev,ro,nosuid,soft,timeo=50,x-systemd.automount,noatime,suid").unwrap();
        assert!(o.read_only);
        assert_eq!(o.flags, libc::MS_RDONLY | libc::MS_NOATIME);
        assert_eq!(o.soft_timeout_ms(), Some(5000));
        assert_eq!(parse("timeo=50,hard").unwrap().soft_timeout_ms(), None);
        assert!(parse("").unwrap() == Options::default());
        assert!(parse("remount,rw").unwrap().remount);
        assert!(parse("nolazystatfs").unwrap().no_lazystatfs);
        assert!(!parse("nolazystatfs,lazystatfs").unwrap().no_lazystatfs);
        assert_eq!(parse("rw,frobnicate"), Err(OptionError::Unknown("frobnicate".into())));
        assert_eq!(parse("frob=1"), Err(OptionError::Unknown("frob".into())));
        let e = parse("strictatime").unwrap_err().to_string();
        assert!(e.contains("strictatime") && e.contains("relatime"), "{e}");
        for (list, locks) in [
            ("", FileLocks::Shared),
            ("localflock", FileLocks::Local),
            ("noflock", FileLocks::Refused),
            ("localflock,flock,user_xattr,_netdev", FileLocks::Shared),
        ] {
            assert_eq!(parse(list).unwrap().locks, locks, "{list}");
        }
        assert_eq!(parse("exclude=fs-OST0001:fs-OST0003").unwrap().exclude, ["fs-OST0001", "fs-OST0003"]);
        assert_eq!(parse("network=tcp1").unwrap().networks, [1]);
        assert_eq!(parse("network=tcp2:tcp").unwrap().networks, [2, 0]);
        assert_eq!(parse("metrics=127.0.0.1:9169").unwrap().metrics.unwrap().port(), 9169);
        for bad in ["metrics=0.0.0.0:9169", "metrics=127.0.0.1", "metrics=[::1]:0"] {
            let e = parse(bad).unwrap_err().to_string();
            assert!(e.contains("is not an address of this host and a port"), "{e}");
        }
        assert!(parse("network=o2ib").unwrap_err().to_string().contains("there is TCP only"));
        for (list, part) in [("noacl", "setfacl"), ("abort_recov", "of a target")] {
            let e = parse(list).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        }
        assert_eq!(parse("timeo"), Err(OptionError::NoValue("timeo".into())));
        assert_eq!(parse("ro=1"), Err(OptionError::Value("ro".into())));
        let e = parse("timeo=soon").unwrap_err().to_string();
        assert!(e.contains("timeo") && e.contains("soon"), "{e}");
    }
}
