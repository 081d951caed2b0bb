//! Parameters and statistics of a metadata target, as `lctl get_param` and `set_param` see them. Each is
//! declared once, here.

use crate::changelog::MDD;
use crate::lfsck::LFSCK;
use crate::mdt::Mdt;
use crate::osts::CREATE_COUNT_DEFAULT;
use crate::pools::{OstPool, is_spill_target};
use crate::rebalance::{THRESHOLD_DEFAULT, THRESHOLD_MAX};
use crate::recovery;
use crate::relayout::{MOVEMENTS_DEFAULT, MOVEMENTS_MAX};
use crate::settings::{
    CALLBACK_TIMEOUT_DEFAULT_S, DOM_DEFAULT_BYTES, NOSQUASH_DEFAULT, QOS_AGE_DEFAULT_S,
    QOS_PRIO_FREE_DEFAULT, QOS_THRESHOLD_DEFAULT, SQUASH_DEFAULT, TRASH_AGE_DEFAULT_S, TRASH_FREE_DEFAULT,
    TRASH_SPACE_DEFAULT, chprojid_gid, is_nosquash, is_squash, stripe_count,
};
use model::exports::Export;
use model::maintenance::Maintenance;
use model::param::{Decl, Param, Preset, Registry, Scope, Setting, Table, Tree, Value, ack_is_durable};
use model::{Errno, TargetId, jobs, limits};
use rpc::nrs;
use rpc::server::probes::{probe_interval_decl, probe_slow_decl, probe_stats_decl};
use rpc::server::recovery::{RECOVERY_HARD_DEFAULT_S, RECOVERY_TIME_DEFAULT_S};
use rpc::server::{evict_client_decl, eviction_count_decl};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::Op;
use wire::msg::statfs::{Statfs, StatfsReply};

/// Where new objects go: `lod.FSNAME-MDT0000-mdtlov`.
pub static LOD: Table<Mdt> = Table {
    scopes: &[Scope::Lod],
    params: &[
        Param::atomic(
            Decl::number(
                "stripesize",
                (limits::STRIPE_SIZE_MIN_BYTES, limits::STRIPE_SIZE_MAX_BYTES),
                "bytes",
                limits::STRIPE_SIZE_DEFAULT_BYTES,
                "stripe size of files for which neither they, their directory nor the root directory says one",
            )
            .in_steps(limits::STRIPE_SIZE_MIN_BYTES),
            0,
            |m, ()| &m.shared.settings.stripesize,
        ),
        Param::settable(
            Decl::words(
                "stripecount",
                "1",
                |text| stripe_count(text).map(drop),
                "stripe count of files for which nothing says one; -1: all OSTs",
            )
            .in_unit("stripes"),
            |m, ()| Value::Signed(m.shared.settings.stripecount().into()),
            |m, (), v| m.shared.settings.set_stripecount(v.text),
        ),
        Param::shown(
            Decl::text("stripeoffset", "first OST of new files; -1: the server chooses")
                .by_default(Preset::Words("-1")),
            |_, ()| "-1".into(),
        ),
        Param::shown(
            Decl::text("stripetype", "pattern of new files").by_default(Preset::Words("raid0")),
            |_, ()| "raid0".into(),
        ),
        Param::atomic(
            Decl::number(
                "qos_threshold_rr",
                (0, 100),
                "%",
                QOS_THRESHOLD_DEFAULT,
                "OSTs whose free space differs by less are used in turn",
            ),
            0,
            |m, ()| &m.shared.settings.qos_threshold_rr,
        ),
        Param::atomic(
            Decl::number(
                "qos_prio_free",
                (0, 100),
                "%",
                QOS_PRIO_FREE_DEFAULT,
                "weight of free space against an even spread when OSTs differ more",
            ),
            0,
            |m, ()| &m.shared.settings.qos_prio_free,
        ),
        Param::atomic(
            Decl::number(
                "qos_maxage",
                (1, 3600),
                "s",
                QOS_AGE_DEFAULT_S,
                "age at which an OST's free space is asked for again",
            ),
            0,
            |m, ()| &m.shared.settings.qos_maxage_s,
        ),
        Param::shown(Decl::gauge("numobd", "", "OSTs in the configuration"), |m, ()| {
            m.shared.osts.list().len().into()
        }),
        Param::shown(Decl::gauge("activeobd", "", "OSTs that are not deactivated"), |m, ()| {
            m.shared.osts.list().iter().filter(|(_, o)| o.configured && o.enabled).count().into()
        }),
        Param::shown(Decl::text("target_obd", "the OSTs, one a line"), |m, ()| target_obd(m).into()),
    ],
};

/// Of a pool: `lod.FSNAME-MDT0000-mdtlov.pool.POOL`.
pub static POOL: Table<Mdt, Arc<OstPool>> = Table {
    scopes: &[Scope::LodPool],
    params: &[
        Param::settable(
            Decl::words(
                "spill_target",
                "",
                is_spill_target,
                "pool that new objects go to when this one is too full; empty: it does not spill",
            ),
            |_, p| p.spill_target().into(),
            |m, p, v| m.shared.osts.pools.set_spill_target(p, v.text),
        ),
        Param::settable(
            Decl::number(
                "spill_threshold_pct",
                (0, 100),
                "%",
                0,
                "part of the pool's space in use (Use% of lfs df) from which on new objects go to its spill_target; 0: never",
            ),
            |_, p| Value::Number(p.spill_threshold_pct.load(Relaxed)),
            |_, p, v| {
                p.spill_threshold_pct.store(v.number, Relaxed);
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge("spill_is_active", "", "1: new objects go to the spill_target at the moment"),
            |m, p| u64::from(m.shared.osts.spills(p)).into(),
        ),
        Param::shown(
            Decl::counter("spill_hit", "files", "files that asked for this pool and went to another"),
            |_, p| p.spill_hit.load(Relaxed).into(),
        ),
    ],
};

/// One for each pool: `lod.FSNAME-MDT0000-mdtlov.pools.POOL`.
static POOLS: Table<Mdt, Arc<OstPool>> = Table {
    scopes: &[Scope::Lod],
    params: &[Param::shown(Decl::text("pools", "OSTs of each pool, one a line"), |m, p| {
        let uuid = |i: u16| format!("{}_UUID", TargetId::ost(i).label(&m.cfg.fsname));
        p.osts().into_iter().map(uuid).collect::<Vec<_>>().join("\n").into()
    })],
};

/// Under `mdt.FSNAME-MDT0000`.
pub static MDT: Table<Mdt> = Table {
    scopes: &[Scope::Mdt],
    params: &[
        Param::settable(
            Decl::words(
                "ack",
                "exec",
                |text| ack_is_durable(text).map(drop),
                "when changes are answered: exec (executed; clients send them again after a crash) or durable",
            ),
            |m, ()| if m.shared.settings.ack_durable.load(Relaxed) { "durable" } else { "exec" }.into(),
            |m, (), v| {
                m.shared.settings.ack_durable.store(ack_is_durable(v.text)?, Relaxed);
                Ok(())
            },
        ),
        Param::settable(
            Decl::words(
                "root_squash",
                SQUASH_DEFAULT,
                is_squash,
                "UID:GID that root of clients is; 0:0: root stays root",
            ),
            |m, ()| m.shared.settings.root_squash().into(),
            |m, (), v| m.shared.settings.set_root_squash(v.text),
        ),
        Param::settable(
            Decl::words(
                "nosquash_nids",
                NOSQUASH_DEFAULT,
                is_nosquash,
                "where root stays root all the same: NIDs such as 10.0.0.[1-5]@tcp, apart by blanks; NONE",
            ),
            |m, ()| m.shared.settings.nosquash_nids().into(),
            |m, (), v| m.shared.settings.set_nosquash_nids(v.text),
        ),
        Param::settable(
            Decl::words(
                "enable_chprojid_gid",
                "0",
                |text| chprojid_gid(text).map(drop),
                "who but root changes projects of what is his: members of this group; 0: nobody, -1: everybody",
            ),
            |m, ()| m.shared.settings.enable_chprojid_gid().into(),
            |m, (), v| m.shared.settings.set_enable_chprojid_gid(v.text),
        ),
        Param::settable(
            model::maintenance::decl(),
            |m, ()| m.peers.maintenance().maintenance().text().into(),
            |m, (), v| {
                let ordered = Maintenance::parse(v.text)?;
                if ordered.is_about(&m.cfg.fsname) {
                    m.peers.maintenance().set(ordered, None, m.world.now());
                }
                Ok(())
            },
        ),
        Param::atomic(
            Decl::number(
                "recovery_time_soft",
                (1, 3600),
                "s",
                RECOVERY_TIME_DEFAULT_S,
                "how long after a restart clients may take to come back before they are evicted",
            ),
            0,
            |m, ()| &m.shared.settings.recovery_time_s,
        ),
        Param::atomic(
            Decl::number(
                "recovery_time_hard",
                (1, 86_400),
                "s",
                RECOVERY_HARD_DEFAULT_S,
                "how long that may be put off while clients come back and go on with their recovery",
            ),
            0,
            |m, ()| &m.shared.settings.recovery_hard_s,
        ),
        Param::atomic(
            Decl::number(
                "lock_callback_timeout",
                (1, 3600),
                "s",
                CALLBACK_TIMEOUT_DEFAULT_S,
                "how long a client may take to give back a lease that others need before it is evicted",
            ),
            0,
            |m, ()| &m.shared.settings.callback_timeout_s,
        ),
        Param::shown(
            Decl::gauge("lease_count", "", "files on which clients have leases, over all clients"),
            |m, ()| m.shared.leases.total().into(),
        ),
        Param::atomic(
            Decl::number(
                "dom_stripesize",
                (0, limits::MDT_DATA_MAX_BYTES),
                "bytes",
                DOM_DEFAULT_BYTES,
                "so much of a file lies with its inode where nothing asks for objects; 0: new files get objects at once",
            )
            .in_steps(limits::STRIPE_SIZE_MIN_BYTES),
            0,
            |m, ()| &m.shared.settings.dom_stripesize,
        ),
        Param::atomic(
            Decl::number(
                "trash_max_age",
                (0, 10 * 365 * 86_400),
                "s",
                TRASH_AGE_DEFAULT_S,
                "age at which what lies in the trash is removed for good; 0: never by its age",
            ),
            0,
            |m, ()| &m.shared.settings.trash_max_age_s,
        ),
        Param::atomic(
            Decl::number(
                "trash_max_space",
                (0, 100),
                "%",
                TRASH_SPACE_DEFAULT,
                "part of the OSTs' space that the trash may take before its oldest files go; 100: any",
            ),
            0,
            |m, ()| &m.shared.settings.trash_max_space,
        ),
        Param::atomic(
            Decl::number(
                "trash_min_free",
                (0, 100),
                "%",
                TRASH_FREE_DEFAULT,
                "part of an OST's space that must be free, or the oldest files in the trash go; 0: none",
            ),
            0,
            |m, ()| &m.shared.settings.trash_min_free,
        ),
        Param::settable(
            Decl::number(
                "movements_max",
                (1, MOVEMENTS_MAX),
                "files",
                MOVEMENTS_DEFAULT,
                "files that are moved to other objects at once (lfs migrate); others wait for their turn",
            ),
            |m, ()| m.shared.movements.at_once().into(),
            |m, (), v| {
                m.shared.movements.set_at_once(v.number);
                Ok(())
            },
        ),
        Param::atomic(
            Decl::number(
                "movements_bandwidth",
                (0, 1 << 20),
                "MiB/s",
                0,
                "what all movements copy in a second, at most, while nobody waits for them; 0: no bound",
            ),
            0,
            |m, ()| &m.shared.movements.bandwidth_mb,
        ),
        Param::shown(
            Decl::text(
                "movements",
                "files that are moved or wait for that: state, OSTs from and to, bytes done of all, since when, for whom",
            ),
            |m, ()| m.shared.movements.text().into(),
        ),
        Param::settable(
            Decl::number(
                "rebalance_threshold",
                (0, THRESHOLD_MAX),
                "%",
                THRESHOLD_DEFAULT,
                "files are moved from the fullest to the emptiest OST, beside all else, when these differ by more; 0: never",
            ),
            |m, ()| m.shared.rebalance.threshold().into(),
            |m, (), v| {
                m.shared.rebalance.set_threshold(v.number);
                Ok(())
            },
        ),
        Param::shown(
            Decl::text("rebalance", "what moves in the background: state, how far OSTs differ, files and bytes moved"),
            |m, ()| m.shared.rebalance.text(m.shared.movements.background_rate()).into(),
        ),
        Param::settable(
            evict_client_decl(),
            |_, ()| "".into(),
            |m, (), v| m.peers.evict_client(v.text),
        ),
        Param::shown(eviction_count_decl(), |m, ()| m.peers.eviction_count().into()),
        Param::atomic(probe_interval_decl(), 0, |m, ()| &m.probes.interval_s),
        Param::atomic(probe_slow_decl(), 0, |m, ()| &m.probes.slow_ms),
        Param::settable(
            probe_stats_decl(),
            |m, ()| Value::Counters(m.probes.stats.read(m.world.wall())),
            |m, (), _| {
                m.probes.stats.clear(m.world.wall());
                Ok(())
            },
        ),
        Param::shown(Decl::text("recovery_status", "how far recovery after the last restart came"), |m, ()| {
            recovery::status(m).into()
        }),
        Param::shown(Decl::gauge("num_exports", "", "clients that this target knows"), |m, ()| {
            m.core.read().clients.len().into()
        }),
        Param::shown(Decl::gauge("instance", "", "epoch of the target: grows at each start"), |m, ()| {
            m.shared.epoch.into()
        }),
        Param::shown(Decl::text("uuid", "name of the target"), |m, ()| {
            format!("{}_UUID", TargetId::mdt(m.cfg.index).label(&m.cfg.fsname)).into()
        }),
        Param::shown(Decl::gauge("open_files", "", "files that clients have open"), |m, ()| {
            m.core.read().opens.total().into()
        }),
        Param::shown(Decl::gauge("filestotal", "", "inodes that fit in, about"), |m, ()| {
            space(m).files.into()
        }),
        Param::shown(Decl::gauge("filesfree", "", "inodes that still fit in, about"), |m, ()| {
            space(m).files_free.into()
        }),
        Param::settable(
            Decl::counters("md_stats", "operations with their times in microseconds; writing anything clears them"),
            stats,
            clear_stats,
        ),
        Param::settable(Decl::counters("stats", "the same as md_stats, under its newer name"), stats, clear_stats),
        Param::settable(
            jobs::stats_decl(),
            |m, ()| Value::Jobs(m.stats.jobs.read(m.world.wall())),
            |m, (), v| m.stats.jobs.forget(v.text),
        ),
        Param::atomic(jobs::cleanup_decl(), 0, |m, ()| &m.stats.jobs.cleanup_s),
    ],
};

/// Under `mdt.FSNAME-MDT0000.exports.NID`.
pub static EXPORTS: Table<Mdt, Arc<Export<Op>>> = Table {
    scopes: &[Scope::MdtExport],
    params: &[
        Param::settable(
            Decl::counters("stats", "operations of these clients; writing anything clears them"),
            |m, e| Value::Counters(e.stats.read(m.world.wall())),
            |m, e, _| {
                e.stats.clear(m.world.wall());
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge(
                "slots_low",
                "slots",
                "The fewest slots that a session from this address had free; at 0 it had to wait.",
            ),
            |m, e| m.peers.slots_low(e.addr).into(),
        ),
        Param::shown(Decl::text("uuid", "the clients at this address"), |m, e| uuids_at(m, e).into()),
    ],
};

/// Of the session with an OST: `osp.FSNAME-OST0000-osc-MDT0000`.
pub static OSP: Table<Mdt, u16> = Table {
    scopes: &[Scope::Osp],
    params: &[
        Param::settable(
            Decl::flag("active", true, "0: no new objects on this OST"),
            |m, ost| m.shared.osts.get(*ost).is_some_and(|o| o.configured && o.enabled).into(),
            |m, ost, v| {
                m.set_ost_enabled(*ost, v.is_on());
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "max_create_count",
                (0, CREATE_COUNT_DEFAULT),
                "objects",
                CREATE_COUNT_DEFAULT,
                "0: no new objects on this OST, and those that are there stay in use; objects are not made ahead: more means nothing",
            ),
            |m, ost| m.shared.osts.get(*ost).map_or(0, |o| o.max_create_count).into(),
            |m, ost, v| {
                m.shared.osts.set_max_create_count(*ost, v.number);
                m.review_osts();
                Ok(())
            },
        ),
        Param::shown(Decl::text("state", "state of the session with the OST"), |m, ost| {
            let import = m.shared.osts.get(*ost).and_then(|o| o.import);
            import.map_or_else(|| "NEW".into(), |i| format!("{:?}", i.state()).to_uppercase()).into()
        }),
        Param::shown(Decl::gauge("connected", "", "1: the session with the OST is up"), |m, ost| {
            let import = m.shared.osts.get(*ost).and_then(|o| o.import);
            import.is_some_and(|i| i.state() == rpc::ImportState::Full).into()
        }),
        Param::shown(
            Decl::text(
                "passed_over",
                "why the OST gets no new objects, or only where there are too few others; empty: it gets some",
            ),
            |m, ost| m.shared.osts.why_passed_over(*ost).into(),
        ),
        Param::shown(
            Decl::gauge(
                "destroys_pending",
                "objects",
                "removed objects that the OST has not been told of yet",
            ),
            |m, ost| m.outbox_pending(*ost).into(),
        ),
    ],
};

/// What `lctl` can ask of MDTs.
pub fn declare(to: &mut Registry) {
    to.add(&LOD);
    to.add(&POOL);
    to.add(&POOLS);
    to.add(&MDT);
    to.add(&MDD);
    to.add(&LFSCK);
    to.add(&LDLM);
    to.add(&EXPORTS);
    to.add(&OSP);
}

/// What clients hold here: `ldlm.namespaces.mdt-FSNAME-MDTxxxx_UUID.*`.
static LDLM: Table<Mdt> = Table {
    scopes: &[Scope::LdlmMdt],
    params: &[
        Param::shown(
            Decl::gauge(
                "lock_count",
                "",
                "Leases on names and attributes of files that clients have, and locks of their programs (flock, POSIX ranges).",
            ),
            |m, ()| (m.shared.leases.total() + m.locks.count().0).into(),
        ),
        Param::shown(
            Decl::gauge("lock_waiting_count", "", "Locks of programs that are waited for."),
            |m, ()| m.locks.count().1.into(),
        ),
    ],
};

/// The parameters that a glob selects.
pub fn tree<'a>(mdt: &'a Mdt, pattern: &'a str) -> Tree<'a> {
    let fs = &mdt.cfg.fsname;
    let me = TargetId::mdt(mdt.cfg.index);
    let mut tree = Tree::matching(pattern);
    let lod = format!("lod.{fs}-{me}-mdtlov");
    tree.add(&lod, &LOD, mdt);
    for p in mdt.shared.osts.pools.list() {
        tree.add_of(&format!("{lod}.pool.{}", p.name), &POOL, mdt, &p);
        tree.add_named(format!("{lod}.pools.{}", p.name), &POOLS.params[0], mdt, &p);
    }
    tree.add(&format!("mdt.{fs}-{me}"), &MDT, mdt);
    tree.add(&format!("mdd.{fs}-{me}"), &MDD, mdt);
    tree.add(&format!("mdd.{fs}-{me}"), &LFSCK, mdt);
    tree.add(&format!("ldlm.namespaces.mdt-{fs}-{me}_UUID"), &LDLM, mdt);
    tree.add("mds.MDS.mdt", &nrs::TABLE, mdt.peers.nrs());
    for (i, _) in mdt.shared.osts.list() {
        tree.add_of(&format!("osp.{fs}-{}-osc-{me}", TargetId::ost(i)), &OSP, mdt, &i);
    }
    for (nid, e) in mdt.stats.exports.list() {
        tree.add_of(&format!("mdt.{fs}-{me}.exports.{nid}"), &EXPORTS, mdt, &e);
    }
    tree
}

fn stats(mdt: &Mdt, _: &()) -> Value {
    Value::Counters(mdt.stats.all.read(mdt.world.wall()))
}

fn clear_stats(mdt: &Mdt, _: &(), _: Setting<'_>) -> Result<(), Errno> {
    mdt.stats.all.clear(mdt.world.wall());
    Ok(())
}

/// Room and inodes of an MDT as `statfs` tells them; zeros if its disk does not answer.
pub fn space(mdt: &Mdt) -> StatfsReply {
    crate::ops::statfs::run(mdt, Statfs { flags: 0 }).unwrap_or_default()
}

fn target_obd(mdt: &Mdt) -> String {
    let mut s = String::new();
    for (i, o) in mdt.shared.osts.list() {
        let state = if o.configured && o.enabled { "ACTIVE" } else { "INACTIVE" };
        let _ = writeln!(s, "{i}: {}_UUID {state}", TargetId::ost(i).label(&mdt.cfg.fsname));
    }
    s
}

/// Clients that first came from this address, a line each.
fn uuids_at(mdt: &Mdt, e: &Export<Op>) -> String {
    let here = e.addr.to_string();
    let core = mdt.core.read();
    let all = core.clients.iter().filter(|(_, c)| c.address == here);
    all.map(|(id, _)| id.to_string()).collect::<Vec<_>>().join("\n")
}
