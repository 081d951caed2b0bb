//! The parameters of a target, `obdfilter.FSNAME-OSTxxxx.*`, declared once.

use crate::service::Ost;
use crate::space::Space;
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamKind, glob_match};
use model::{Errno, limits};
use rpc::Service;
use rpc::server::recovery::RECOVERY_TIME_DEFAULT_S;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Settings that an administrator may change while the target runs.
pub struct Settings {
    pub read_only: AtomicBool,
    pub no_create: AtomicBool,
    pub degraded: AtomicBool,
    /// MiB; 0: the rule in `space`.
    pub reserved_mb: AtomicU64,
    /// Seconds that a restarted target waits for its clients.
    pub recovery_time_s: AtomicU64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            read_only: AtomicBool::default(),
            no_create: AtomicBool::default(),
            degraded: AtomicBool::default(),
            reserved_mb: AtomicU64::default(),
            recovery_time_s: AtomicU64::new(RECOVERY_TIME_DEFAULT_S),
        }
    }
}

impl Settings {
    /// The reserve in bytes, if it was set.
    pub fn reserve(&self) -> Option<u64> {
        match self.reserved_mb.load(Relaxed) {
            0 => None,
            mb => Some(mb << 20),
        }
    }
}

const COUNT: ParamKind = ParamKind::Number { min: 0, max: u64::MAX };

const fn decl(
    name: &'static str,
    kind: ParamKind,
    unit: &'static str,
    default: &'static str,
    writable: bool,
    description: &'static str,
) -> ParamDecl {
    ParamDecl { name, kind, unit, default, writable, description }
}

static DECLARATIONS: [ParamDecl; 20] = [
    decl("blocksize", COUNT, "bytes", "4096", false, "Block size that statfs reports."),
    decl("brw_size", COUNT, "MiB", "4", false, "Bulk that a client sends in one RPC."),
    decl("checksum_type", ParamKind::Text, "", "[crc32c]", false, "Checksum of bulk data on the wire."),
    decl(
        "degraded",
        ParamKind::Flag,
        "",
        "0",
        true,
        "The storage below is degraded: new files avoid this OST.",
    ),
    decl("filesfree", COUNT, "files", "", false, "Objects that can still be made."),
    decl("filestotal", COUNT, "files", "", false, "Objects that fit."),
    decl("fstype", ParamKind::Text, "", "nacre", false, "Format of the storage below."),
    decl("instance", COUNT, "", "", false, "Epoch of the target: grows with each start."),
    decl("kbytesavail", COUNT, "KiB", "", false, "Space for data: free space without the reserve."),
    decl("kbytesfree", COUNT, "KiB", "", false, "Free space of the disk."),
    decl("kbytestotal", COUNT, "KiB", "", false, "Size of the disk."),
    decl("no_create", ParamKind::Flag, "", "0", true, "New files get no objects on this OST."),
    decl("num_exports", COUNT, "clients", "", false, "Clients the target knows."),
    decl("readonly", ParamKind::Flag, "", "0", true, "Changes are refused with EROFS."),
    decl("recovery_status", ParamKind::Text, "", "", false, "How far recovery after the last restart came."),
    decl(
        "recovery_time_soft",
        ParamKind::Number { min: 1, max: 3600 },
        "s",
        "15",
        true,
        "How long after a restart clients may take to come back before they are evicted.",
    ),
    decl(
        "reserved_mb",
        ParamKind::Number { min: 0, max: 1 << 20 },
        "MiB",
        "0",
        true,
        "Space kept back for journal and table; 0: 2 % of the disk, 32 MiB to 1 GiB.",
    ),
    decl(
        "stats",
        ParamKind::Text,
        "",
        "",
        true,
        "Counters of operations; writing `clear` sets them to zero.",
    ),
    decl("sync_journal", ParamKind::Flag, "", "1", false, "Changes are on disk before they are answered."),
    decl("uuid", ParamKind::Text, "", "", false, "Name of the target for its clients."),
];

/// Every parameter of an OST: type, unit, range, default, description.
pub fn declarations() -> &'static [ParamDecl] {
    &DECLARATIONS
}

impl Ost {
    /// Full name of a parameter: `obdfilter.FSNAME-OST0000.NAME`.
    fn full_name(&self, decl: &ParamDecl) -> String {
        format!("obdfilter.{}.{}", self.label(), decl.name)
    }

    /// (samples, sum) of one counter of `stats`; zeros if there is none of this name.
    pub fn counter(&self, name: &str) -> (u64, u64) {
        self.stats.total(name)
    }

    /// Values of the parameters that a glob selects, sorted by name.
    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        DECLARATIONS
            .iter()
            .map(|d| (d, self.full_name(d)))
            .filter(|(_, name)| glob_match(pattern, name))
            .map(|(d, name)| (name, self.value(d.name)))
            .collect()
    }

    /// Sets the parameters that a glob selects and returns their new values. `ENOENT`: there is none,
    /// `EACCES`: it cannot be set, `EINVAL`, `ERANGE`: not with this value. Nothing is set then.
    pub fn set_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let chosen: Vec<&ParamDecl> =
            DECLARATIONS.iter().filter(|d| glob_match(pattern, &self.full_name(d))).collect();
        if chosen.is_empty() {
            return Err(Errno::ENOENT);
        }
        for d in &chosen {
            if !d.writable {
                return Err(Errno::EACCES);
            }
            if d.kind == ParamKind::Text {
                if !matches!(value.trim(), "clear" | "0") {
                    return Err(Errno::EINVAL);
                }
            } else {
                d.parse(value)?;
            }
        }
        let mut out = Vec::new();
        for d in chosen {
            self.set_one(d, value);
            out.push((self.full_name(d), self.value(d.name)));
        }
        Ok(out)
    }

    fn set_one(&self, d: &ParamDecl, value: &str) {
        let s = &self.settings;
        let n = d.parse(value).unwrap_or(0);
        match d.name {
            "readonly" => s.read_only.store(n == 1, Relaxed),
            "no_create" => s.no_create.store(n == 1, Relaxed),
            "degraded" => s.degraded.store(n == 1, Relaxed),
            "recovery_time_soft" => s.recovery_time_s.store(n, Relaxed),
            "reserved_mb" => s.reserved_mb.store(n, Relaxed),
            "stats" => self.stats.clear(self.world.now(), self.world.wall()),
            other => unreachable!("{other} is declared writable and has no setter"),
        }
    }

    fn value(&self, name: &str) -> String {
        let s = &self.settings;
        let space = self.space.now().unwrap_or_default();
        let kib = |bytes: u64| (bytes >> 10).to_string();
        let flag = |b: &AtomicBool| u8::from(b.load(Relaxed)).to_string();
        match name {
            "blocksize" => "4096".into(),
            "brw_size" => (limits::RPC_BULK_DEFAULT_BYTES >> 20).to_string(),
            "checksum_type" => "[crc32c]".into(),
            "degraded" => flag(&s.degraded),
            "filesfree" => space.files_free.to_string(),
            "filestotal" => space.files.to_string(),
            "fstype" => "nacre".into(),
            "instance" => self.db.epoch().to_string(),
            "kbytesavail" => kib(space.available.saturating_sub(Space::reserve(space.total, s.reserve()))),
            "kbytesfree" => kib(space.free),
            "kbytestotal" => kib(space.total),
            "no_create" => flag(&s.no_create),
            "num_exports" => self.clients.len().to_string(),
            "readonly" => u8::from(s.read_only.load(Relaxed) || self.db.stopped().is_some()).to_string(),
            "recovery_status" => self.recovery.status(s.recovery_time_s.load(Relaxed), self.last_committed()),
            "recovery_time_soft" => s.recovery_time_s.load(Relaxed).to_string(),
            "reserved_mb" => s.reserved_mb.load(Relaxed).to_string(),
            "stats" => self.stats.text(self.world.now(), self.world.wall()),
            "sync_journal" => "1".into(),
            "uuid" => format!("{}_UUID", self.label()),
            other => unreachable!("{other} is declared and has no value"),
        }
    }
}
