//! The parameters of a target, `obdfilter.FSNAME-OSTxxxx.*`: each is one entry of [`TABLE`].

use crate::scrub::Order;
use crate::service::Ost;
use crate::space::Space;
use model::exports::Export;
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamInfo, ParamValue, ack_is_durable, glob_match};
use model::{Errno, ObjectId, limits};
use rpc::server::recovery::{RECOVERY_HARD_DEFAULT_S, RECOVERY_TIME_DEFAULT_S};
use rpc::{ClientId, Service};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use wire::msg::notify::Notify;
use world::DiskSpace;

/// Group locks that are shown.
const GROUP_LINES_MAX: usize = 1000;

/// Most that can be kept back, MiB.
const RESERVED_MAX_MB: u64 = 1 << 20;

/// Settings that an administrator may change while the target runs.
pub struct Settings {
    pub read_only: AtomicBool,
    pub no_create: AtomicBool,
    pub degraded: AtomicBool,
    /// MiB; 0: the rule in `space`.
    pub reserved_mb: AtomicU64,
    /// Seconds that a restarted target waits for its clients.
    pub recovery_time_s: AtomicU64,
    pub recovery_hard_s: AtomicU64,
    /// Changes are answered when they are durable, not when they are executed.
    pub ack_durable: AtomicBool,
    /// MiB of data that clients put into one request.
    pub brw_mb: AtomicU64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            read_only: AtomicBool::default(),
            no_create: AtomicBool::default(),
            degraded: AtomicBool::default(),
            reserved_mb: AtomicU64::default(),
            recovery_time_s: AtomicU64::new(RECOVERY_TIME_DEFAULT_S),
            recovery_hard_s: AtomicU64::new(RECOVERY_HARD_DEFAULT_S),
            ack_durable: AtomicBool::default(),
            brw_mb: AtomicU64::new((limits::RPC_BULK_DEFAULT_BYTES >> 20) as u64),
        }
    }
}

impl Settings {
    /// The reserve in bytes, if it was set.
    pub fn reserve(&self) -> Option<u64> {
        match self.reserved_mb.load(Relaxed) {
            0 => None,
            mb => {
                assert!(mb <= RESERVED_MAX_MB, "a parameter's value is within its bounds");
                Some(mb << 20)
            }
        }
    }
}

/// An entry of the table: declaration, how to get it, how to set it.
pub struct Param {
    decl: ParamDecl,
    get: fn(&Ost) -> String,
    set: Option<fn(&Ost, ParamValue<'_>)>,
}

const fn ro(name: &'static str, unit: &'static str, help: &'static str, get: fn(&Ost) -> String) -> Param {
    Param { decl: ParamDecl::shown(name, unit, help), get, set: None }
}

const fn rw(decl: ParamDecl, get: fn(&Ost) -> String, set: fn(&Ost, ParamValue<'_>)) -> Param {
    Param { decl, get, set: Some(set) }
}

fn flag(b: &AtomicBool) -> String {
    u8::from(b.load(Relaxed)).to_string()
}

fn kib(bytes: u64) -> String {
    (bytes >> 10).to_string()
}

/// Every parameter of an OST, sorted by name.
pub static TABLE: &[Param] = &[
    rw(
        ParamDecl::text(
            "ack",
            "exec",
            "When changes are answered: exec (executed; clients send them again after a crash) or durable.",
        ),
        |o| if o.settings.ack_durable.load(Relaxed) { "durable" } else { "exec" }.into(),
        |o, v| o.settings.ack_durable.store(ack_is_durable(v.text) == Ok(true), Relaxed),
    ),
    ro("blocksize", "bytes", "Block size that statfs reports.", |_| "4096".into()),
    rw(
        ParamDecl::number(
            "brw_size",
            (1, (limits::RPC_BULK_MAX_BYTES >> 20) as u64),
            "MiB",
            "4",
            "Most data that clients put into one request; they are told at once.",
        ),
        |o| o.settings.brw_mb.load(Relaxed).to_string(),
        |o, v| {
            o.settings.brw_mb.store(v.number, Relaxed);
            o.peers.notify_all(Notify::BulkLimit { bytes: v.number << 20 });
        },
    ),
    rw(
        ParamDecl::text(
            "brw_stats",
            "",
            "Bulk reads and writes by size, number under way and time. Writing clears it.",
        ),
        |o| o.brw.text(o.world.wall()),
        |o, _| o.brw.clear(o.world.wall()),
    ),
    ro(
        "checksum_errors",
        "blocks",
        "Blocks found on disk with a checksum that differs, since the start: their readers got EIO.",
        |o| o.objects.counters.checksum_errors.load(Relaxed).to_string(),
    ),
    ro("checksum_type", "", "Checksum of blocks at rest.", |_| "[crc32c]".into()),
    rw(
        ParamDecl::flag("degraded", "0", "The storage below is degraded: new files avoid this OST."),
        |o| flag(&o.settings.degraded),
        |o, v| o.settings.degraded.store(v.number == 1, Relaxed),
    ),
    ro("filesfree", "files", "Objects that can still be made.", |o| o.space_now().files_free.to_string()),
    ro("filestotal", "files", "Objects that fit.", |o| o.space_now().files.to_string()),
    ro("fstype", "", "Format of the storage below.", |_| "nacre".into()),
    ro(
        "group_locks",
        "",
        "Group locks: file, object, group, how many wait for the object, and the client that holds it.",
        Ost::group_locks,
    ),
    ro("instance", "", "Epoch of the target: grows with each start.", |o| o.db.epoch().to_string()),
    ro("kbytesavail", "KiB", "Space for data: free space without the reserve.", |o| {
        let s = o.space_now();
        kib(s.available.saturating_sub(Space::reserve(s.total, o.settings.reserve())))
    }),
    ro("kbytesfree", "KiB", "Free space of the disk.", |o| kib(o.space_now().free)),
    ro("kbytestotal", "KiB", "Size of the disk.", |o| kib(o.space_now().total)),
    rw(
        ParamDecl::flag("no_create", "0", "New files get no objects on this OST."),
        |o| flag(&o.settings.no_create),
        |o, v| o.settings.no_create.store(v.number == 1, Relaxed),
    ),
    ro("num_exports", "clients", "Clients the target knows.", |o| o.clients.len().to_string()),
    rw(
        ParamDecl::flag("readonly", "0", "Changes are refused with EROFS."),
        |o| u8::from(o.settings.read_only.load(Relaxed) || o.db.stopped().is_some()).to_string(),
        |o, v| o.settings.read_only.store(v.number == 1, Relaxed),
    ),
    ro("recovery_status", "", "How far recovery after the last restart came.", |o| {
        o.recovery.status(o.last_committed())
    }),
    rw(
        ParamDecl::number(
            "recovery_time_hard",
            (1, 86_400),
            "s",
            "90",
            "How long that may be put off while clients come back and go on with their recovery.",
        ),
        |o| o.settings.recovery_hard_s.load(Relaxed).to_string(),
        |o, v| o.settings.recovery_hard_s.store(v.number, Relaxed),
    ),
    rw(
        ParamDecl::number(
            "recovery_time_soft",
            (1, 3600),
            "s",
            "15",
            "How long after a restart clients may take to come back before they are evicted.",
        ),
        |o| o.settings.recovery_time_s.load(Relaxed).to_string(),
        |o, v| o.settings.recovery_time_s.store(v.number, Relaxed),
    ),
    rw(
        ParamDecl::number(
            "reserved_mb",
            (0, RESERVED_MAX_MB),
            "MiB",
            "0",
            "Space kept back for journal and table; 0: 2 % of the disk, 32 MiB to 1 GiB.",
        ),
        |o| o.settings.reserved_mb.load(Relaxed).to_string(),
        |o, v| o.settings.reserved_mb.store(v.number, Relaxed),
    ),
    rw(
        ParamDecl::text(
            "scrub",
            "",
            "Reads and compares all data; written: start [MiB/s], restart [MiB/s] or stop. See nacre scrub.",
        ),
        |o| o.scrubber.text(),
        |o, v| {
            if let (Some(ost), Some(order)) = (o.me.upgrade(), Order::parse(v.text)) {
                ost.order_scrub(order);
            }
        },
    ),
    rw(
        ParamDecl::text(
            "stats",
            "",
            "Operations by kind with their times in microseconds. Writing clears them.",
        ),
        |o| o.stats.text(o.world.wall()),
        |o, _| o.stats.clear(o.world.wall()),
    ),
    ro("sync_journal", "", "Changes are on disk before they are answered.", |o| {
        flag(&o.settings.ack_durable)
    }),
    ro("uuid", "", "Name of the target for its clients.", |o| format!("{}_UUID", o.label())),
];

/// For each address that clients came from: `exports.NID.*`.
static EXPORT_TABLE: &[ExportParam] = &[
    ExportParam {
        decl: ParamDecl::text("stats", "", "Operations of these clients. Writing clears them."),
        get: |o, e| e.stats.text(o.world.wall()),
        clear: Some(|o, e| e.stats.clear(o.world.wall())),
    },
    ExportParam {
        decl: ParamDecl::shown("uuid", "", "The clients at this address."),
        get: |o, e| o.uuids_at(e.addr),
        clear: None,
    },
];

struct ExportParam {
    decl: ParamDecl,
    get: fn(&Ost, &Export) -> String,
    clear: Option<fn(&Ost, &Export)>,
}

/// One parameter of this target.
enum Item {
    Own(&'static Param),
    Export(&'static ExportParam, Arc<Export>),
}

impl Item {
    fn decl(&self) -> &'static ParamDecl {
        match self {
            Item::Own(p) => &p.decl,
            Item::Export(p, _) => &p.decl,
        }
    }

    fn value(&self, ost: &Ost) -> String {
        match self {
            Item::Own(p) => (p.get)(ost),
            Item::Export(p, e) => (p.get)(ost, e),
        }
    }

    fn set(&self, ost: &Ost, v: ParamValue<'_>) {
        match self {
            Item::Own(p) => (p.set.expect("declared writable"))(ost, v),
            Item::Export(p, e) => (p.clear.expect("declared writable"))(ost, e),
        }
    }
}

/// Every parameter of an OST: type, unit, range, default, description.
pub fn declarations() -> Vec<&'static ParamDecl> {
    assert!(
        TABLE.is_sorted_by(|a, b| a.decl.name < b.decl.name),
        "parameters have an order, and one name each"
    );
    TABLE.iter().map(|p| &p.decl).collect()
}

impl Ost {
    /// Clients that first came from this address, a line each.
    fn uuids_at(&self, addr: IpAddr) -> String {
        let here = addr.to_string();
        let all = self.clients.list().into_iter().filter(|(_, r)| r.address == here);
        all.map(|(c, _)| c.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// Group locks, a line each.
    fn group_locks(&self) -> String {
        let held = self.locks.table().groups();
        let clients: BTreeMap<_, _> = self.clients.list().into_iter().collect();
        let line = |(object, client, gid, waiting): &(ObjectId, ClientId, u64, usize)| {
            let (name, at) =
                clients.get(client).map_or(("?", "?"), |r| (r.name.as_str(), r.address.as_str()));
            format!(
                "file={} object={object} group={gid} waiting={waiting} client={client} '{name}' at {at}",
                object.origin
            )
        };
        let mut lines: Vec<String> = held.iter().take(GROUP_LINES_MAX).map(line).collect();
        if held.len() > GROUP_LINES_MAX {
            lines.push(format!("and {} more", held.len() - GROUP_LINES_MAX));
        }
        lines.join("\n")
    }

    /// Whether its data goes through the host's page cache.
    pub fn cache_use(&self) -> &store::object::CacheUse {
        self.objects.cache_use()
    }

    /// (samples, sum) of one counter of `stats`; zeros if there is none of this name.
    pub fn counter(&self, name: &str) -> (u64, u64) {
        self.stats.total(name)
    }

    fn space_now(&self) -> DiskSpace {
        self.space.now().unwrap_or_default()
    }

    /// The parameters that a glob selects, with their full names, sorted.
    fn items(&self, pattern: &str) -> Vec<(String, Item)> {
        let prefix = format!("obdfilter.{}", self.label());
        let own = TABLE.iter().map(|p| (format!("{prefix}.{}", p.decl.name), Item::Own(p)));
        let mut out: Vec<(String, Item)> = own.collect();
        for (nid, e) in self.exports.list() {
            let of = |p: &'static ExportParam| {
                (format!("{prefix}.exports.{nid}.{}", p.decl.name), Item::Export(p, e.clone()))
            };
            out.extend(EXPORT_TABLE.iter().map(of));
        }
        out.retain(|(n, _)| glob_match(pattern, n));
        out.sort_by(|a, b| a.0.cmp(&b.0));
        out
    }

    /// Values of the parameters that a glob selects, sorted by name.
    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        self.items(pattern).into_iter().map(|(n, i)| (n, i.value(self))).collect()
    }

    /// What they mean, and what can be set.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        self.items(pattern).into_iter().map(|(n, i)| i.decl().info(n)).collect()
    }

    /// Sets the parameters that a glob selects and returns their new values. `ENOENT`: there is none,
    /// `EACCES`: it cannot be set, `EINVAL`, `ERANGE`: not with this value. Nothing is set then.
    pub fn set_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let chosen = self.items(pattern);
        if chosen.is_empty() {
            return Err(Errno::ENOENT);
        }
        for (_, i) in &chosen {
            let v = i.decl().check(value)?;
            if i.decl().name == "ack" {
                ack_is_durable(v.text)?;
            }
            if i.decl().name == "scrub" {
                Order::parse(value).ok_or(Errno::EINVAL)?;
            }
        }
        for (_, i) in &chosen {
            i.set(self, i.decl().check(value)?);
        }
        Ok(chosen.into_iter().map(|(n, i)| (n, i.value(self))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for (d, settable) in TABLE
            .iter()
            .map(|p| (&p.decl, p.set.is_some()))
            .chain(EXPORT_TABLE.iter().map(|p| (&p.decl, p.clear.is_some())))
        {
            assert_eq!(settable, d.writable, "{}", d.name);
            assert!(d.description.ends_with('.'), "{} has no sentence", d.name);
            if d.writable && d.kind != model::param::ParamKind::Text {
                assert!(d.parse(d.default).is_ok(), "default of {}", d.name);
            }
        }
    }
}
