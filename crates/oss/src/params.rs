//! The parameters of a target, `obdfilter.FSNAME-OSTxxxx.*`: each is one entry of [`TABLE`], or of
//! [`EXPORTS`] if there is one for each address of clients.

use crate::scrub::Order;
use crate::service::Ost;
use crate::space::Space;
use crate::stats::OstCounter;
use model::exports::Export;
use model::maintenance::Maintenance;
use model::param::{
    Decl, PARAM_TEXT_MAX_BYTES, Param, ParamInfo, Registry, Scope, Setting, Table, Tree, Value,
    ack_is_durable,
};
use model::{Errno, ObjectId, jobs, limits};
use rpc::nrs;
use rpc::server::probes::{probe_interval_decl, probe_slow_decl, probe_stats_decl};
use rpc::server::recovery::{RECOVERY_HARD_DEFAULT_S, RECOVERY_TIME_DEFAULT_S};
use rpc::server::{evict_client_decl, eviction_count_decl};
use rpc::{ClientId, Service};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use wire::msg::notify::Notify;
use world::DiskSpace;

/// Group locks that are shown.
const GROUP_LINES_MAX: usize = 1000;

/// Objects that are counted, at most, whenever somebody looks.
const OBJECTS_COUNTED: usize = 10_000;

/// Most that can be kept back, MiB.
const RESERVED_MAX_MB: u64 = 1 << 20;

/// `brw_size` unless set otherwise.
const BRW_DEFAULT_MB: u64 = (limits::RPC_BULK_DEFAULT_BYTES >> 20) as u64;

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
            brw_mb: AtomicU64::new(BRW_DEFAULT_MB),
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

fn kib(bytes: u64) -> Value {
    (bytes >> 10).into()
}

fn is_ack(text: &str) -> Result<(), Errno> {
    ack_is_durable(text).map(drop)
}

fn is_order(text: &str) -> Result<(), Errno> {
    Order::parse(text).map(drop).ok_or(Errno::EINVAL)
}

fn set_ack(o: &Ost, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    o.settings.ack_durable.store(ack_is_durable(v.text)?, Relaxed);
    Ok(())
}

/// Clients are told at once.
fn set_brw_size(o: &Ost, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    o.settings.brw_mb.store(v.number, Relaxed);
    o.peers.notify_all(Notify::BulkLimit { bytes: v.number << 20 });
    Ok(())
}

fn set_scrub(o: &Ost, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    if let Some(order) = Order::parse(v.text) {
        o.scrubber.order(order);
    }
    Ok(())
}

/// What the host keeps in memory, also as `osd-nacre.LABEL.*`, as newer releases of Lustre name it.
pub static CACHES: Table<Ost> = Table {
    scopes: &[Scope::Obdfilter, Scope::OsdNacre],
    params: &[
        Param::atomic_flag(
            Decl::flag(
                "read_cache_enable",
                false,
                "1: what is read in pieces of 2 MiB and more stays in the host's memory from its first read on; 0: from its second. What is there is read from there in any case.",
            ),
            |o: &Ost, ()| &o.cache_use().reads,
        ),
        Param::atomic(
            Decl::number(
                "readcache_max_filesize",
                (0, u64::MAX),
                "bytes",
                u64::MAX,
                "Objects that are longer do not stay in the host's memory, whatever read_cache_enable and writethrough_cache_enable say.",
            ),
            0,
            |o: &Ost, ()| &o.cache_use().file_max_bytes,
        ),
        Param::atomic_flag(
            Decl::flag(
                "writethrough_cache_enable",
                false,
                "1: what is written in pieces of 2 MiB and more stays in the host's memory for readers on other clients; 0: it goes to the disk directly.",
            ),
            |o: &Ost, ()| &o.cache_use().writes,
        ),
    ],
};

/// Every parameter of an OST, sorted by name.
pub static TABLE: Table<Ost> = Table {
    scopes: &[Scope::Obdfilter],
    params: &[
        Param::settable(
            Decl::words(
                "ack",
                "exec",
                is_ack,
                "When changes are answered: exec (executed; clients send them again after a crash) or durable.",
            ),
            |o, ()| if o.settings.ack_durable.load(Relaxed) { "durable" } else { "exec" }.into(),
            set_ack,
        ),
        Param::shown(Decl::gauge("blocksize", "bytes", "Block size that statfs reports."), |_, ()| {
            4096u64.into()
        }),
        Param::settable(
            Decl::number(
                "brw_size",
                (1, (limits::RPC_BULK_MAX_BYTES >> 20) as u64),
                "MiB",
                BRW_DEFAULT_MB,
                "Most data that clients put into one request; they are told at once.",
            ),
            |o, ()| o.settings.brw_mb.load(Relaxed).into(),
            set_brw_size,
        ),
        Param::settable(
            Decl::histogram(
                "brw_stats",
                "Bulk reads and writes by size, number under way and time. Writing clears it.",
            ),
            |o, ()| Value::Histograms(o.brw.histograms(o.world.wall())),
            |o, (), _| {
                o.brw.clear(o.world.wall());
                Ok(())
            },
        ),
        Param::shown(
            Decl::counter(
                "checksum_errors",
                "blocks",
                "Blocks found on disk with a checksum that differs, since the start: their readers got EIO.",
            ),
            |o, ()| o.objects.counters.checksum_errors.load(Relaxed).into(),
        ),
        Param::shown(Decl::text("checksum_type", "Checksum of blocks at rest."), |_, ()| "[crc32c]".into()),
        Param::atomic_flag(
            Decl::flag("degraded", false, "The storage below is degraded: new files avoid this OST."),
            |o, ()| &o.settings.degraded,
        ),
        Param::shown(Decl::gauge("filesfree", "files", "Objects that can still be made."), |o, ()| {
            o.disk_space().files_free.into()
        }),
        Param::shown(Decl::gauge("filestotal", "files", "Objects that fit."), |o, ()| {
            o.disk_space().files.into()
        }),
        Param::shown(Decl::text("fstype", "Format of the storage below."), |_, ()| "nacre".into()),
        Param::shown(
            Decl::text(
                "group_locks",
                "Group locks: file, object, group, how many wait for the object, and the client that holds it.",
            ),
            |o, ()| o.group_locks().into(),
        ),
        Param::shown(Decl::gauge("instance", "", "Epoch of the target: grows with each start."), |o, ()| {
            o.db.epoch().into()
        }),
        Param::atomic(jobs::cleanup_decl(), 0, |o, ()| &o.jobs.cleanup_s),
        Param::settable(
            jobs::stats_decl(),
            |o, ()| Value::Jobs(o.jobs.read(o.world.wall())),
            |o, (), v| o.jobs.forget(v.text),
        ),
        Param::shown(
            Decl::gauge("kbytesavail", "KiB", "Space for data: free space without the reserve."),
            |o, ()| {
                let s = o.disk_space();
                kib(s.available.saturating_sub(Space::reserve(s.total, o.settings.reserve())))
            },
        ),
        Param::shown(Decl::gauge("kbytesfree", "KiB", "Free space of the disk."), |o, ()| {
            kib(o.disk_space().free)
        }),
        Param::shown(Decl::gauge("kbytestotal", "KiB", "Size of the disk."), |o, ()| {
            kib(o.disk_space().total)
        }),
        Param::atomic_flag(
            Decl::flag("no_create", false, "New files get no objects on this OST."),
            |o, ()| &o.settings.no_create,
        ),
        Param::atomic(
            Decl::number(
                "lock_callback_timeout",
                (0, 3600),
                "s",
                0,
                "How long a client may take to give back a lock that others need before it is evicted; never less than 4 times ping_interval.",
            ),
            0,
            |o, ()| &o.locks.callback_timeout_s,
        ),
        Param::shown(Decl::gauge("num_exports", "clients", "Clients the target knows."), |o, ()| {
            o.clients.len().into()
        }),
        Param::shown(
            Decl::text("objects", "Objects that it stores, counted up to 10000; 10000+: there are more."),
            |o, ()| o.count_objects().into(),
        ),
        Param::settable(
            model::maintenance::decl(),
            |o, ()| o.maintenance().text().into(),
            |o, (), v| {
                o.set_maintenance(Maintenance::parse(v.text)?, None);
                Ok(())
            },
        ),
        Param::atomic(probe_interval_decl(), 0, |o, ()| &o.probes.interval_s),
        Param::atomic(probe_slow_decl(), 0, |o, ()| &o.probes.slow_ms),
        Param::settable(
            probe_stats_decl(),
            |o, ()| Value::Counters(o.probes.stats.read(o.world.wall())),
            |o, (), _| {
                o.probes.stats.clear(o.world.wall());
                Ok(())
            },
        ),
        Param::settable(
            Decl::flag("readonly", false, "Changes are refused with EROFS."),
            |o, ()| (o.settings.read_only.load(Relaxed) || o.db.stopped().is_some()).into(),
            |o, (), v| {
                o.settings.read_only.store(v.is_on(), Relaxed);
                Ok(())
            },
        ),
        Param::shown(
            Decl::text("recovery_status", "How far recovery after the last restart came."),
            |o, ()| o.recovery.status(o.last_committed()).into(),
        ),
        Param::atomic(
            Decl::number(
                "recovery_time_hard",
                (1, 86_400),
                "s",
                RECOVERY_HARD_DEFAULT_S,
                "How long that may be put off while clients come back and go on with their recovery.",
            ),
            0,
            |o, ()| &o.settings.recovery_hard_s,
        ),
        Param::atomic(
            Decl::number(
                "recovery_time_soft",
                (1, 3600),
                "s",
                RECOVERY_TIME_DEFAULT_S,
                "How long after a restart clients may take to come back before they are evicted.",
            ),
            0,
            |o, ()| &o.settings.recovery_time_s,
        ),
        Param::atomic(
            Decl::number(
                "reserved_mb",
                (0, RESERVED_MAX_MB),
                "MiB",
                0,
                "Space kept back for journal and table; 0: 2 % of the disk, 32 MiB to 1 GiB.",
            ),
            0,
            |o, ()| &o.settings.reserved_mb,
        ),
        Param::settable(
            Decl::order(
                "scrub",
                is_order,
                "Reads and compares all data; written: start [MiB/s], restart [MiB/s] or stop. See nacre scrub.",
            ),
            |o, ()| o.scrubber.text().into(),
            set_scrub,
        ),
        Param::settable(evict_client_decl(), |_, ()| "".into(), |o, (), v| o.peers.evict_client(v.text)),
        Param::shown(eviction_count_decl(), |o, ()| o.peers.eviction_count().into()),
        Param::shown(
            Decl::text("lfsck_layout", "How far a check of layouts has looked at this target's objects."),
            |o, ()| o.lfsck.text(o.world.wall().sec).into(),
        ),
        Param::settable(
            Decl::counters(
                "stats",
                "Operations by kind with their times in microseconds. Writing clears them.",
            ),
            |o, ()| Value::Counters(o.stats.read(o.world.wall())),
            |o, (), _| {
                o.stats.clear(o.world.wall());
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge("sync_journal", "", "Changes are on disk before they are answered."),
            |o, ()| o.settings.ack_durable.load(Relaxed).into(),
        ),
        Param::shown(
            Decl::gauge(
                "tot_granted",
                "bytes",
                "Space that is promised to clients for data that they keep, whether or not they keep some yet.",
            ),
            |o, ()| o.space.granted().into(),
        ),
        Param::shown(
            Decl::gauge("tot_pending", "bytes", "Data of writes that are under way at this moment."),
            |o, ()| o.space.pending().into(),
        ),
        Param::shown(Decl::text("uuid", "Name of the target for its clients."), |o, ()| {
            format!("{}_UUID", o.label()).into()
        }),
    ],
};

/// For each address that clients came from: `exports.NID.*`.
pub static EXPORTS: Table<Ost, Arc<Export<OstCounter>>> = Table {
    scopes: &[Scope::ObdfilterExport],
    params: &[
        Param::settable(
            Decl::counters("stats", "Operations of these clients. Writing clears them."),
            |o, e| Value::Counters(e.stats.read(o.world.wall())),
            |o, e, _| {
                e.stats.clear(o.world.wall());
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge(
                "slots_low",
                "slots",
                "The fewest slots that a session from this address had free; at 0 it had to wait.",
            ),
            |o, e| o.peers.slots_low(e.addr).into(),
        ),
        Param::shown(Decl::text("uuid", "The clients at this address."), |o, e| o.uuids_at(e.addr).into()),
    ],
};

/// What clients hold here: `ldlm.namespaces.filter-FSNAME-OSTxxxx_UUID.*`.
static LDLM: Table<Ost> = Table {
    scopes: &[Scope::LdlmOst],
    params: &[
        Param::shown(
            Decl::gauge(
                "lock_count",
                "",
                "Locks on ranges of objects that clients have, and requests that run under one.",
            ),
            |o, ()| o.locks.table().count().0.into(),
        ),
        Param::shown(
            Decl::gauge("lock_waiting_count", "", "Locks on ranges of objects that are waited for."),
            |o, ()| o.locks.table().count().1.into(),
        ),
    ],
};

/// What `lctl` can ask of OSTs.
pub fn declare(to: &mut Registry) {
    to.add(&TABLE);
    to.add(&LDLM);
    to.add(&CACHES);
    to.add(&EXPORTS);
}

impl Ost {
    /// Clients that first came from this address, a line each.
    fn uuids_at(&self, addr: IpAddr) -> String {
        let here = addr.to_string();
        let all = self.clients.list().into_iter().filter(|(_, r)| r.address == here);
        all.map(|(c, _)| c.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// How many objects there are, if they are few.
    fn count_objects(&self) -> String {
        match self.objects.list(None, OBJECTS_COUNTED + 1) {
            Ok(all) if all.len() > OBJECTS_COUNTED => format!("{OBJECTS_COUNTED}+"),
            Ok(all) => all.len().to_string(),
            Err(e) => {
                tracing::error!("objects of {} cannot be counted: {e}", self.label());
                "?".to_string()
            }
        }
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
        self.stats.total_of(name)
    }

    /// Room of the disk below; zeros if it does not answer.
    pub fn disk_space(&self) -> DiskSpace {
        self.space.now().unwrap_or_default()
    }

    /// The parameters that a glob selects, sorted by name.
    pub fn params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let prefix = format!("obdfilter.{}", self.label());
        assert!(prefix.contains("-OST"), "an object target is called after its index");
        let mut tree = Tree::matching(pattern);
        tree.add(&prefix, &TABLE, self);
        tree.add(&prefix, &CACHES, self);
        tree.add(&format!("ldlm.namespaces.filter-{}_UUID", self.label()), &LDLM, self);
        tree.add("ost.OSS.ost_io", &nrs::TABLE, self.peers.nrs());
        for (nid, e) in self.exports.list() {
            tree.add_of(&format!("{prefix}.exports.{nid}"), &EXPORTS, self, &e);
        }
        tree.sorted()
    }

    /// Values of the parameters that a glob selects, sorted by name.
    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        self.params(pattern).texts()
    }

    /// What they mean, and what can be set.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        self.params(pattern).infos()
    }

    /// Sets the parameters that a glob selects and returns their new values. `ENOENT`: there is none,
    /// `EACCES`: it cannot be set, `EINVAL`, `ERANGE`: not with this value. Nothing is set then.
    pub fn set_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let chosen = self.params(pattern);
        chosen.set(value)?;
        Ok(chosen.texts())
    }
}
