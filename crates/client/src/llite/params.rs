//! The mount's part of the parameter tree: `osc.*`, `mdc.*`, `llite.*` and so on, under Lustre's names.
//!
//! Each storey declares its own in its `params.rs`; what is of the whole mount is here, with the walk through
//! all of them. Everything else (`lctl get_param`, `set_param`, `help_param`, permanent settings) is made
//! from the declarations.

use super::maintenance::maintained;
use super::probe::INTERVAL_DEFAULT_S;
use crate::base::params::lru_size;
use crate::base::pmqos::{self, DURATION_DEFAULT_US};
use crate::llite::RecentSpace;
use crate::lmv::ConfigOwner;
use crate::lov::CACHED_DEFAULT_MB;
use crate::mdc::LRU_FILES_DEFAULT;
use crate::{Admin, Fs, R, base, lov, mdc, osc, session};
use model::limits::LEASES_PER_CLIENT_MAX_FILES;
use model::maintenance::Maintenance;
use model::param::{
    Decl, Field, Item, PARAM_TEXT_MAX_BYTES, Param, ParamInfo, Preset, Registry, Scope, Setting, Table, Tree,
    Value,
};
use model::{Errno, Pool, TargetId, TargetKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is of the whole mount, of `llite.*`.
static LLITE: Table<Fs> = Table {
    scopes: &[Scope::Llite],
    params: &[
        Param::shown(Decl::text("uuid", "UUID under which the servers know this mount."), |fs, ()| {
            uuid_text(&fs.cx.uuid).into()
        }),
        Param::shown(Decl::text("fstype", "Type of the file system."), |_, ()| "nacre".into()),
        Param::shown(Decl::text("client_type", "Always local client."), |_, ()| "local client".into()),
        Param::settable(
            Decl::counters(
                "stats",
                "Calls by kind with their times in microseconds. Writing anything clears them.",
            ),
            |fs, ()| Value::Counters(fs.stats.read(fs.cx.world.wall())),
            |fs, (), _| {
                fs.stats.clear(fs.cx.world.wall());
                Ok(())
            },
        ),
        Param::settable(
            Decl::histogram(
                "extents_stats",
                "Sizes of reads and writes. Counted once something was written here; 0 or disable ends it.",
            )
            .by_default(Preset::Number(0)),
            |fs, ()| fs.stats.extents(fs.cx.world.wall()),
            |fs, (), v| {
                let wanted = !matches!(v.text, "0" | "disable" | "disabled" | "n");
                fs.stats.count_extents(wanted, fs.cx.world.wall());
                Ok(())
            },
        ),
        Param::atomic(
            Decl::number(
                "statfs_max_age",
                (0, 3600),
                "s",
                RecentSpace::MAX_AGE_DEFAULT_S,
                "How old the answer to statfs (df) may be; 0: the servers are always asked.",
            ),
            0,
            |fs, ()| &fs.recent_space.max_age_s,
        ),
        Param::settable(
            model::maintenance::decl(),
            |fs, ()| fs.cx.hold.maintenance().text().into(),
            |fs, (), v| {
                let m = Maintenance::parse(v.text)?;
                if m.is_about(&fs.cx.opt.fsname) {
                    maintained(fs, m);
                }
                Ok(())
            },
        ),
        Param::shown(
            Decl::text(
                "maintenance_held",
                "What this mount does about a maintenance: off (also where it is left alone), \
                        read-only, closed.",
            ),
            |fs, ()| fs.cx.hold.held().word().into(),
        ),
        Param::shown(
            Decl::gauge(
                "maintenance_quiet",
                "",
                "1: this mount holds a maintenance, and what began before it did is over and on the servers: \
                        it changes nothing any more. 0: something may go on, or nothing is held.",
            ),
            |fs, ()| u64::from(fs.cx.hold.is_quiet()).into(),
        ),
        Param::shown(
            Decl::text(
                "maintenance_waits",
                "What keeps this mount from being quiet: what began before, or writing back that failed and is \
                        tried again; nothing: it is quiet, or holds nothing.",
            ),
            |fs, ()| fs.cx.hold.waits().into(),
        ),
        Param::shown(
            Decl::gauge(
                "maintenance_lost",
                "",
                "How often writing back failed since the maintenance that this mount holds was ordered: that is \
                        lost, and told by fsync.",
            ),
            |fs, ()| fs.cx.hold.lost().into(),
        ),
        Param::settable(
            Decl::flag(
                "lazystatfs",
                true,
                "statfs (df) is answered within a second, with what is known of targets that are away; 0: it waits for them.",
            ),
            |fs, ()| fs.is_lazystatfs().into(),
            |fs, (), v| {
                fs.set_lazystatfs(v.is_on());
                Ok(())
            },
        ),
        Param::atomic_flag(
            Decl::flag(
                "list_layouts",
                true,
                "listxattr(2) names lustre.lov of files with objects and of directories with a default, so that copying \
                 programs bring layouts along; 0: it does not, for copies to file systems that refuse it.",
            ),
            |fs, ()| &fs.list_layouts,
        ),
        Param::settable(
            Decl::flag(
                "md_writeback",
                true,
                "Changes of names and small files are made here and told to the metadata server a little later, where no \
                 other client is active.",
            ),
            |fs, ()| fs.meta.executes().into(),
            |fs, (), v| {
                fs.lmv.set_md_writeback(v.is_on());
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge("md_pending_ops", "", "Operations that the metadata server has not heard of yet."),
            |fs, ()| fs.lmv.pending_load().0.into(),
        ),
        Param::shown(
            Decl::gauge("md_pending_bytes", "bytes", "What these operations and their data take."),
            |fs, ()| fs.lmv.pending_load().1.into(),
        ),
        Param::settable(
            Decl::number(
                "max_cached_mb",
                (64, 1 << 20),
                "MiB",
                CACHED_DEFAULT_MB,
                "Bytes of files kept in memory, read and written; half of it may be unwritten, a quarter be of small files.",
            ),
            |fs, ()| mb(&fs.lov.cache.max_cached).into(),
            |fs, (), v| {
                fs.lov.cache.max_cached.store(v.number << 20, Relaxed);
                fs.data.data_resized();
                Ok(())
            },
        ),
        Param::shown(
            Decl::fields("used_mb", "Bytes of files kept in memory: read, unwritten, of small files."),
            |fs, ()| {
                Value::Fields(vec![
                    Field::gauge("clean", mb(&fs.lov.cache.clean)),
                    Field::gauge("unwritten", mb(&fs.lov.cache.unwritten)),
                    Field::gauge("small", mb(&fs.meta.content_bytes)),
                ])
            },
        ),
    ],
};

/// Processors that stay awake, of `llite.*`.
static PMQOS: Table<Fs> = Table {
    scopes: &[Scope::Llite],
    params: &[
        Param::atomic(
            Decl::number(
                "probe_interval",
                (0, 86_400),
                "s",
                INTERVAL_DEFAULT_S,
                "From one look how fast one target, by chance, answers something cheap to the next, on an average: one that takes \
                 more than a second is an event (nacre events -c hang). 0: none.",
            ),
            0,
            |fs, ()| &fs.probes.interval_s,
        ),
        Param::settable(
            Decl::counters(
                "probe_stats",
                "What probes came to (probe_interval): answered, with how long that took; failed; slow: those of both that took more than a second, each of which is an event. Writing anything clears them.",
            ),
            |fs, ()| Value::Counters(fs.probes.stats.read(fs.cx.world.wall())),
            |fs, (), _| {
                fs.probes.stats.clear(fs.cx.world.wall());
                Ok(())
            },
        ),
        Param::atomic_flag(
            Decl::flag(
                "enable_pmqos",
                true,
                "The kernel is asked for shallow idle states of processors while this mount is busy (/dev/cpu_dma_latency).",
            ),
            |fs, ()| &fs.pmqos.enabled,
        ),
        Param::settable(
            Decl::words(
                "pmqos_latency_max_usec",
                "auto",
                |text| pmqos::latency_of(text).map(drop).ok_or(Errno::EINVAL),
                "Idle states may take so many microseconds to leave meanwhile; 0: none, processors poll. auto: 20; 0 in a \
                 virtual machine of up to 16 processors, where to be idle is to be taken off a processor of the host.",
            ),
            |fs, ()| fs.pmqos.latency_text().into(),
            |fs, (), v| if fs.pmqos.set_latency(v.text) { Ok(()) } else { Err(Errno::EINVAL) },
        ),
        Param::atomic(
            Decl::number(
                "pmqos_default_duration_usec",
                (1_000, 10_000_000),
                "usec",
                DURATION_DEFAULT_US,
                "How long that goes on at least; then it ends if fewer than 16 requests of the kernel came in 20 ms.",
            ),
            0,
            |fs, ()| &fs.pmqos.duration_us,
        ),
        Param::shown(
            Decl::text(
                "pmqos_stats",
                "Whether it is so now, the latency asked for, how often and how long it was.",
            ),
            |fs, ()| fs.pmqos.text().into(),
        ),
    ],
};

/// Leases on names and attributes, of `ldlm.namespaces.*`.
static LDLM: Table<Fs> = Table {
    scopes: &[Scope::Ldlm],
    params: &[
        Param::settable(
            Decl::words(
                "lru_size",
                "",
                |text| lru_size(text, LRU_FILES_MAX).map(drop),
                "Files of which names and attributes are kept; 0: the default; 'clear' gives all leases back now.",
            )
            .by_default(Preset::Number(LRU_FILES_DEFAULT as u64)),
            |fs, ()| fs.meta.lru_files.load(Relaxed).into(),
            set_lru_size,
        ),
        Param::shown(Decl::gauge("lock_count", "", "Files on which this mount has a lease."), |fs, ()| {
            fs.lmv.mdcs().iter().map(|m| m.meta.lease_count()).sum::<usize>().into()
        }),
    ],
};

/// The object targets together: `lov.*`.
static LOV: Table<Fs> = Table {
    scopes: &[Scope::Lov],
    params: &[
        Param::shown(Decl::gauge("numobd", "", "Object targets in the target map."), |fs, ()| {
            number_of(fs, TargetKind::Ost, false)
        }),
        Param::shown(Decl::gauge("activeobd", "", "Object targets that are not deactivated."), |fs, ()| {
            number_of(fs, TargetKind::Ost, true)
        }),
        Param::shown(
            Decl::text("target_obd", "The object targets with index, UUID and whether they are active."),
            |fs, ()| target_obd(fs, TargetKind::Ost).into(),
        ),
    ],
};

/// One for each OST pool: `lov.FSNAME-clilov-INSTANCE.pools.POOL`.
static POOLS: Table<Fs, Pool> = Table {
    scopes: &[Scope::Lov],
    params: &[Param::shown(Decl::text("pools", "Object targets of each OST pool, one a line."), |fs, p| {
        let uuid = |i: &u16| format!("{}_UUID", TargetId::ost(*i).label(&fs.cx.opt.fsname));
        p.osts.iter().map(uuid).collect::<Vec<_>>().join("\n").into()
    })],
};

/// The metadata targets together: `lmv.*`.
static LMV: Table<Fs> = Table {
    scopes: &[Scope::Lmv],
    params: &[
        Param::shown(Decl::gauge("numobd", "", "Metadata targets in the target map."), |fs, ()| {
            number_of(fs, TargetKind::Mdt, false)
        }),
        Param::shown(Decl::gauge("activeobd", "", "Metadata targets that are not deactivated."), |fs, ()| {
            number_of(fs, TargetKind::Mdt, true)
        }),
        Param::shown(
            Decl::text("target_obd", "The metadata targets with index, UUID and whether they are active."),
            |fs, ()| target_obd(fs, TargetKind::Mdt).into(),
        ),
    ],
};

/// What `lctl` can ask of mounts.
pub fn declare(to: &mut Registry) {
    to.add(&base::params::MOUNT);
    to.add(&base::params::LLITE);
    to.add(&session::params::SESSION);
    to.add(&session::params::CLIENT);
    to.add(&osc::params::TABLE);
    to.add(&osc::lru::LDLM);
    to.add(&mdc::params::TABLE);
    to.add(&mdc::params::LLITE);
    to.add(&mdc::params::LDLM);
    to.add(&lov::params::LLITE);
    for table in [&LLITE, &PMQOS, &LDLM, &LOV, &LMV] {
        to.add(table);
    }
    to.add(&POOLS);
}

fn mb(bytes: &AtomicU64) -> u64 {
    bytes.load(Relaxed) >> 20
}

/// Files of which leases are kept, at most.
const LRU_FILES_MAX: usize = LEASES_PER_CLIENT_MAX_FILES / 2;

fn set_lru_size(fs: &Fs, _: &(), v: Setting<'_>) -> R<()> {
    match lru_size(v.text, LRU_FILES_MAX)? {
        Some(0) => fs.lmv.set_lru_files(LRU_FILES_DEFAULT),
        Some(files) => fs.lmv.set_lru_files(files),
        None => fs.lmv.drop_leases(),
    }
    Ok(())
}

fn number_of(fs: &Fs, kind: TargetKind, active: bool) -> Value {
    fs.lmv.targets_of(kind).iter().filter(|t| !active || t.is_active()).count().into()
}

fn target_obd(fs: &Fs, kind: TargetKind) -> String {
    let line = |t: &std::sync::Arc<session::Target>| {
        let state = if t.is_active() { "ACTIVE" } else { "INACTIVE" };
        format!("{}: {}_UUID {state}", t.id.index, t.id.label(&fs.cx.opt.fsname))
    };
    fs.lmv.targets_of(kind).iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The parameters of the device of one target.
fn add_target(fs: &Fs, tree: &mut Tree<'_>, id: TargetId) {
    let label = id.label(&fs.cx.opt.fsname);
    let device = |kind: &str| format!("{kind}.{label}-{kind}-{}", fs.instance());
    let (device, t) = match id.kind {
        TargetKind::Ost => {
            let Some(o) = fs.lmv.known_osc(id.index) else { return };
            tree.add(&device("osc"), &osc::params::TABLE, o.clone());
            tree.add(&format!("ldlm.namespaces.{}", &device("osc")[4..]), &osc::lru::LDLM, o.clone());
            (device("osc"), o.target.clone())
        }
        _ => {
            let Some(m) = fs.lmv.mdcs().into_iter().find(|m| m.target.id == id) else { return };
            tree.add(&device("mdc"), &mdc::params::TABLE, m.clone());
            (device("mdc"), m.target.clone())
        }
    };
    tree.add(&device, &session::params::SESSION, t.clone());
    tree.add(&device, &session::params::CLIENT, t);
}

impl Fs {
    /// Every parameter this mount has now whose name matches the glob, in the tree's order.
    pub fn params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let (fs, inst) = (&self.cx.opt.fsname, self.instance());
        let mut tree = Tree::matching(pattern);
        tree.add("", &base::params::MOUNT, &*self.cx);
        tree.add("", &model::debug::TABLE, &model::debug::DEBUG);
        let llite = format!("llite.{fs}-{inst}");
        tree.add(&llite, &LLITE, self);
        tree.add(&llite, &PMQOS, self);
        tree.add(&llite, &base::params::LLITE, &*self.cx);
        tree.add(&llite, &mdc::params::LLITE, &*self.meta);
        tree.add(&llite, &lov::params::LLITE, &*self.lov);
        let lov = format!("lov.{fs}-clilov-{inst}");
        tree.add(&lov, &LOV, self);
        for p in self.config().pools() {
            tree.add_named(format!("{lov}.pools.{}", p.name), &POOLS.params[0], self, &p);
        }
        tree.add(&format!("lmv.{fs}-clilmv-{inst}"), &LMV, self);
        let ldlm = format!("ldlm.namespaces.{}-mdc-{inst}", TargetId::mdt(mdc::ROOT_MDT).label(fs));
        tree.add(&ldlm, &LDLM, self);
        tree.add(&ldlm, &mdc::params::LDLM, &*self.meta);
        if let Ok(m) = self.lmv.mgs() {
            tree.add(&format!("mgc.MGC{}", m.import.current_nid()), &session::params::SESSION, m);
        }
        for t in self.lmv.all_targets() {
            add_target(self, &mut tree, t.id);
        }
        tree
    }

    /// Parameters whose dotted names match the glob, with their values, in the tree's order.
    pub fn get_param(&self, pattern: &str) -> Vec<(String, String)> {
        self.params(pattern).texts()
    }

    /// What they mean, and what can be set.
    pub fn help_param(&self, pattern: &str) -> Vec<ParamInfo> {
        self.params(pattern).infos()
    }

    /// Sets a parameter, or all whose names match a glob. `ENOENT`: there is none; `EACCES`: it is read-only;
    /// `EINVAL`, `ERANGE`: not that value.
    pub fn set_param(&self, name: &str, value: &str) -> R<()> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::EINVAL);
        }
        self.params(name).set(value)
    }
}

impl Admin<'_> {
    /// Whether this setting gives all leases back: only then there is something to wait for
    /// ([`Admin::leases_dropped`]).
    pub fn clears_leases(self, name: &str, value: &str) -> bool {
        value == "clear" && self.0.get_param(name).iter().any(|(n, _)| n.ends_with(".lru_size"))
    }
}

impl ConfigOwner for Fs {
    /// A setting that `set_param -P` stored on the MGS, for all it names or `only` for some targets. It is
    /// for every node, so names that are not a mount's are passed over; a value that cannot be had is logged
    /// and does not fail a mount.
    fn permanent_param(&self, name: &str, value: &str, only: Option<&Vec<TargetId>>) {
        let tree = match only {
            None => self.params(name),
            Some(ids) => {
                let mut tree = Tree::matching(name);
                ids.iter().for_each(|id| add_target(self, &mut tree, *id));
                tree
            }
        };
        let apply = |i: &Item<'_>| match i.set(value) {
            Ok(()) => tracing::info!("permanent parameter {}={value}", i.name),
            Err(e) => tracing::warn!("permanent parameter {}={value} is ignored: {e}", i.name),
        };
        tree.items.iter().for_each(apply);
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub(crate) fn uuid_text(u: &[u8; 16]) -> String {
    let hex: String = u.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
