//! The mount's part of the parameter tree: `osc.*`, `mdc.*`, `llite.*` and so on, under Lustre's names.
//!
//! Each parameter is one entry of [`TABLE`]: whose it is, its name, unit, bounds, default and help, how to get it
//! and how to set it. Everything else (`lctl get_param`, `set_param`, `help_param`, permanent settings) is made from
//! it.

use crate::session::{PAGE_BYTES, RPCS_IN_FLIGHT_DEFAULT, Target, state_name};
use crate::{Fs, R};
use model::estimate::ago_text;
use model::limits::{JOBID_MAX_BYTES, LEASES_PER_CLIENT_MAX_FILES, RPC_BULK_MAX_BYTES, SLOTS_PER_SESSION};
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamInfo, ParamValue, glob_match};
use model::{Errno, TargetId, TargetKind};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Whose parameter it is: the part of the name before the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// No device: `version`.
    Global,
    /// `llite.FS-INSTANCE`: the mount.
    Llite,
    /// `lov.FS-clilov-INSTANCE`: the object targets together.
    Lov,
    /// `lmv.FS-clilmv-INSTANCE`: the metadata targets together.
    Lmv,
    /// `mgc.MGCNID`.
    Mgc,
    /// `osc.FS-OSTxxxx-osc-INSTANCE`, one for each object target.
    Osc,
    /// `mdc.FS-MDTxxxx-mdc-INSTANCE`, one for each metadata target.
    Mdc,
    /// `ldlm.namespaces.FS-MDT0000-mdc-INSTANCE`: leases on names and attributes.
    Ldlm,
    /// Each of `osc` and `mdc`.
    Client,
    /// Each of `osc`, `mdc` and `mgc`.
    Session,
}

impl Owner {
    /// Whether an entry of this owner is one of `device`'s.
    fn covers(self, device: Owner) -> bool {
        match self {
            Owner::Client => matches!(device, Owner::Osc | Owner::Mdc),
            Owner::Session => matches!(device, Owner::Osc | Owner::Mdc | Owner::Mgc),
            o => o == device,
        }
    }
}

type MountGet = fn(&Fs) -> String;
type MountSet = fn(&Fs, ParamValue<'_>) -> R<()>;
type TargetGet = fn(&Fs, &Target) -> String;
type TargetSet = fn(&Fs, &Arc<Target>, ParamValue<'_>) -> R<()>;

#[derive(Clone, Copy)]
enum Access {
    Mount(MountGet, Option<MountSet>),
    Target(TargetGet, Option<TargetSet>),
}

/// An entry of the table.
pub(crate) struct Param {
    owner: Owner,
    decl: ParamDecl,
    access: Access,
}

const fn mount(owner: Owner, decl: ParamDecl, get: MountGet) -> Param {
    Param { owner, decl, access: Access::Mount(get, None) }
}

const fn mount_rw(owner: Owner, decl: ParamDecl, get: MountGet, set: MountSet) -> Param {
    Param { owner, decl, access: Access::Mount(get, Some(set)) }
}

const fn target(owner: Owner, decl: ParamDecl, get: TargetGet) -> Param {
    Param { owner, decl, access: Access::Target(get, None) }
}

const fn target_rw(owner: Owner, decl: ParamDecl, get: TargetGet, set: TargetSet) -> Param {
    Param { owner, decl, access: Access::Target(get, Some(set)) }
}

use Owner::{Client, Global, Ldlm, Llite, Lmv, Lov, Mdc, Osc, Session};

const fn number(
    name: &'static str,
    range: (u64, u64),
    unit: &'static str,
    default: &'static str,
    help: &'static str,
) -> ParamDecl {
    ParamDecl::number(name, range, unit, default, help)
}

const fn shown(name: &'static str, help: &'static str) -> ParamDecl {
    ParamDecl::shown(name, "", help)
}

const PAGES_MAX: u64 = (RPC_BULK_MAX_BYTES / PAGE_BYTES) as u64;
const RPCS: &str = "Requests to this target that are under way at a time.";
const _: () = assert!(RPCS_IN_FLIGHT_DEFAULT == 32, "the defaults below say so");

const AT_MIN: &str =
    "Requests may take so long at least before the server is asked whether it is at work on them.";
const AT_MAX: &str = "And so long at most, however long they took lately; 0: it is never asked.";

/// Every parameter of a mount.
pub(crate) const TABLE: &[Param] = &[
    mount(Global, shown("version", "Version of this program."), |_| env!("CARGO_PKG_VERSION").to_string()),
    mount_rw(
        Global,
        ParamDecl::text(
            "jobid_var",
            "disable",
            "Where the job id of requests comes from: disable or nodelocal.",
        ),
        |fs| fs.cx.jobid.var(),
        |fs, v| match v.text {
            "disable" | "nodelocal" => {
                fs.cx.jobid.set_var(v.text);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        },
    ),
    mount_rw(
        Global,
        ParamDecl::text(
            "jobid_name",
            "%u",
            "Job id with jobid_var=nodelocal: %u user, %g group, %p process, %% a percent sign.",
        ),
        |fs| fs.cx.jobid.name(),
        |fs, v| {
            if !(1..=JOBID_MAX_BYTES).contains(&v.text.len()) {
                return Err(Errno::EINVAL);
            }
            fs.cx.jobid.set_name(v.text);
            Ok(())
        },
    ),
    mount_rw(
        Global,
        number("at_min", (0, 3600), "s", "5", AT_MIN),
        |fs| fs.cx.adaptive.min_s().to_string(),
        |fs, v| {
            fs.cx.adaptive.set_min_s(v.number);
            Ok(())
        },
    ),
    mount_rw(
        Global,
        number("at_max", (0, 3600), "s", "600", AT_MAX),
        |fs| fs.cx.adaptive.max_s().to_string(),
        |fs, v| {
            fs.cx.adaptive.set_max_s(v.number);
            Ok(())
        },
    ),
    mount(Llite, shown("uuid", "UUID under which the servers know this mount."), |fs| uuid_text(&fs.cx.uuid)),
    mount(Llite, shown("fstype", "Type of the file system."), |_| "nacre".to_string()),
    mount(Llite, shown("client_type", "Always local client."), |_| "local client".to_string()),
    mount_rw(
        Llite,
        ParamDecl::text(
            "stats",
            "",
            "Calls by kind with their times in microseconds. Writing anything clears them.",
        ),
        |fs| fs.stats.text(fs.cx.world.wall()),
        |fs, _| {
            fs.stats.clear(fs.cx.world.wall());
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::text(
            "extents_stats",
            "0",
            "Sizes of reads and writes. Counted once something was written here; 0 or disable ends it.",
        ),
        |fs| fs.stats.extents_text(fs.cx.world.wall()),
        |fs, v| {
            fs.stats.count_extents(!matches!(v.text, "0" | "disable" | "disabled" | "n"), fs.cx.world.wall());
            Ok(())
        },
    ),
    mount(
        Llite,
        shown(
            "meta_cache",
            "Names and attributes kept: answers from the cache and not, leases given back, fetched ahead.",
        ),
        meta_cache,
    ),
    mount_rw(
        Llite,
        number(
            "statahead_max",
            (0, 1 << 20),
            "entries",
            "8192",
            "Entries of a directory fetched at most at a time because its names are looked up one by one; 0: none.",
        ),
        |fs| fs.meta.statahead_max.load(Relaxed).to_string(),
        |fs, v| {
            fs.meta.statahead_max.store(v.number, Relaxed);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::text(
            "statahead_stats",
            "",
            "Directories fetched ahead (total), in vain (wrong), entries fetched. Writing anything clears it.",
        ),
        statahead_stats,
        |fs, _| {
            for c in [&fs.meta.ahead_runs, &fs.meta.ahead_in_vain, &fs.meta.fetched_ahead] {
                c.store(0, Relaxed);
            }
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        number(
            "statfs_max_age",
            (0, 3600),
            "s",
            "1",
            "How old the answer to statfs (df) may be; 0: the servers are always asked.",
        ),
        |fs| fs.recent_space.max_age_s.load(Relaxed).to_string(),
        |fs, v| {
            fs.recent_space.max_age_s.store(v.number, Relaxed);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::flag(
            "lazystatfs",
            "1",
            "statfs (df) is answered within a second, with what is known of targets that are away; 0: it waits for them.",
        ),
        |fs| u8::from(fs.is_lazystatfs()).to_string(),
        |fs, v| {
            fs.set_lazystatfs(v.number == 1);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::flag(
            "enable_pmqos",
            "1",
            "The kernel is asked for shallow idle states of processors while this mount is busy (/dev/cpu_dma_latency).",
        ),
        |fs| u8::from(fs.wakeful.enabled.load(Relaxed)).to_string(),
        |fs, v| {
            fs.wakeful.enabled.store(v.number == 1, Relaxed);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::text(
            "pmqos_latency_max_usec",
            "auto",
            "Idle states may take so many microseconds to leave meanwhile; 0: none, processors poll. auto: 20; 0 in a \
             virtual machine of up to 16 processors, where to be idle is to be taken off a processor of the host.",
        ),
        |fs| fs.wakeful.latency_text(),
        |fs, v| if fs.wakeful.set_latency(v.text) { Ok(()) } else { Err(Errno::EINVAL) },
    ),
    mount_rw(
        Llite,
        number(
            "pmqos_default_duration_usec",
            (1_000, 10_000_000),
            "usec",
            "50000",
            "How long that goes on at least; then it ends if fewer than 16 requests of the kernel came in 20 ms.",
        ),
        |fs| fs.wakeful.duration_us.load(Relaxed).to_string(),
        |fs, v| {
            fs.wakeful.duration_us.store(v.number, Relaxed);
            Ok(())
        },
    ),
    mount(
        Llite,
        shown("pmqos_stats", "Whether it is so now, the latency asked for, how often and how long it was."),
        |fs| fs.wakeful.text(),
    ),
    mount_rw(
        Llite,
        ParamDecl::flag(
            "md_writeback",
            "1",
            "Changes of names and small files are made here and told to the metadata server a little later, where no \
             other client is active.",
        ),
        |fs| u8::from(fs.meta.executes()).to_string(),
        |fs, v| {
            fs.lmv.set_md_writeback(v.number == 1);
            Ok(())
        },
    ),
    mount(
        Llite,
        shown("md_pending_ops", "Operations that the metadata server has not heard of yet."),
        |fs| fs.lmv.pending_load().0.to_string(),
    ),
    mount(
        Llite,
        ParamDecl::shown("md_pending_bytes", "bytes", "What these operations and their data take."),
        |fs| fs.lmv.pending_load().1.to_string(),
    ),
    mount(
        Llite,
        shown("md_writeback_stats", "Operations made here, how they were sent, and what was lost."),
        writeback_stats,
    ),
    mount_rw(
        Ldlm,
        ParamDecl::text(
            "lru_size",
            "131072",
            "Files of which names and attributes are kept; 'clear' gives all leases back now.",
        ),
        |fs| fs.meta.lru_files.load(Relaxed).to_string(),
        |fs, v| {
            if v.text == "clear" {
                fs.lmv.drop_leases();
                return Ok(());
            }
            let files: usize = v.text.parse().map_err(|_| Errno::EINVAL)?;
            if files > LEASES_PER_CLIENT_MAX_FILES / 2 {
                return Err(Errno::ERANGE);
            }
            fs.lmv.set_lru_files(files);
            Ok(())
        },
    ),
    mount_rw(
        Ldlm,
        number(
            "lru_max_age",
            (1, u64::MAX),
            "ms",
            "3900000",
            "Leases that were not used for so long are given back.",
        ),
        |fs| fs.meta.max_age.load(Relaxed).to_string(),
        |fs, v| {
            fs.meta.max_age.store(v.number, Relaxed);
            Ok(())
        },
    ),
    mount(Ldlm, shown("lock_count", "Files on which this mount has a lease."), |fs| {
        fs.lmv.mdcs().iter().map(|m| m.meta.lease_count()).sum::<usize>().to_string()
    }),
    mount_rw(
        Llite,
        number(
            "max_cached_mb",
            (64, 1 << 20),
            "MiB",
            "1024",
            "Bytes of files kept in memory, read and written; half of it may be unwritten, a quarter be of small files.",
        ),
        |fs| mb(&fs.lov.cache.max_cached),
        |fs, v| {
            set_mb(&fs.lov.cache.max_cached, &v);
            fs.data.data_resized();
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        number("max_read_ahead_mb", (0, 1 << 20), "MiB", "256", "Bytes being read ahead at a time; 0: none."),
        |fs| mb(&fs.cx.max_read_ahead),
        |fs, v| {
            set_mb(&fs.cx.max_read_ahead, &v);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        number(
            "max_read_ahead_per_file_mb",
            (0, 1 << 20),
            "MiB",
            "32",
            "Largest window of read-ahead in one file; 0: none.",
        ),
        |fs| mb(&fs.lov.read_ahead.max_per_file),
        |fs, v| {
            set_mb(&fs.lov.read_ahead.max_per_file, &v);
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::text(
            "read_ahead_stats",
            "",
            "Pages that reads found here or had to fetch, pages read ahead, and why not more. Writing anything clears it.",
        ),
        |fs| fs.lov.read_ahead.stats.text(fs.cx.world.wall()),
        |fs, _| {
            fs.lov.read_ahead.stats.clear(fs.cx.world.wall());
            Ok(())
        },
    ),
    mount_rw(
        Llite,
        ParamDecl::text(
            "write_errors",
            "",
            "Writes and operations that failed after they had been answered: when, file, object or what it was, bytes, why. Writing anything clears it.",
        ),
        |fs| fs.cx.errors.text(),
        |fs, _| {
            fs.cx.errors.clear();
            fs.cx.told.acknowledge();
            Ok(())
        },
    ),
    mount(Llite, shown("used_mb", "Bytes of files kept in memory: read, unwritten, of small files."), |fs| {
        let (clean, unwritten) = (mb(&fs.lov.cache.clean), mb(&fs.lov.cache.unwritten));
        format!("clean: {clean}\nunwritten: {unwritten}\nsmall: {}", mb(&fs.meta.content_bytes))
    }),
    mount(
        Llite,
        shown(
            "small_files",
            "Reads of small files answered from memory, asked for, files fetched ahead; bytes kept.",
        ),
        small_files,
    ),
    mount(Llite, shown("open_files", "Files that are open on this mount."), |fs| {
        fs.meta.opens.len().to_string()
    }),
    mount(Lov, shown("numobd", "Object targets in the target map."), |fs| {
        number_of(fs, TargetKind::Ost, false)
    }),
    mount(Lov, shown("activeobd", "Object targets that are not deactivated."), |fs| {
        number_of(fs, TargetKind::Ost, true)
    }),
    mount(
        Lov,
        shown("target_obd", "The object targets with index, UUID and whether they are active."),
        |fs| target_obd(fs, TargetKind::Ost),
    ),
    mount(Lmv, shown("numobd", "Metadata targets in the target map."), |fs| {
        number_of(fs, TargetKind::Mdt, false)
    }),
    mount(Lmv, shown("activeobd", "Metadata targets that are not deactivated."), |fs| {
        number_of(fs, TargetKind::Mdt, true)
    }),
    mount(
        Lmv,
        shown("target_obd", "The metadata targets with index, UUID and whether they are active."),
        |fs| target_obd(fs, TargetKind::Mdt),
    ),
    target(Session, shown("state", "State of the session."), |_, t| {
        format!("current_state: {}", state_name(t.import.state()))
    }),
    target(
        Session,
        shown("import", "The session: target, state, addresses, requests, estimates of service times."),
        import_text,
    ),
    target(
        Session,
        shown(
            "timeouts",
            "When the server answered last; how long pings and requests took at worst, in seconds.",
        ),
        timeouts_text,
    ),
    target(Osc, shown("ost_server_uuid", "UUID of the target and state of the session."), server_uuid),
    target(Mdc, shown("mds_server_uuid", "UUID of the target and state of the session."), server_uuid),
    target(Osc, shown("ost_conn_uuid", "NID the target is reached at."), conn_uuid),
    target(Mdc, shown("mds_conn_uuid", "NID the target is reached at."), conn_uuid),
    target_rw(
        Client,
        ParamDecl::flag("active", "1", "0: calls to this target fail with EIO at once."),
        |_, t| u8::from(t.is_active()).to_string(),
        |_, t, v| {
            t.set_active(v.number == 1);
            Ok(())
        },
    ),
    target_rw(
        Osc,
        number("max_rpcs_in_flight", (1, SLOTS_PER_SESSION as u64), "requests", "32", RPCS),
        |_, t| t.turns.limit().to_string(),
        |fs, t, v| {
            t.turns.set_limit(v.number as usize, &fs.cx.world);
            osc(fs, t).set_locked_rpcs(v.number as usize);
            Ok(())
        },
    ),
    target_rw(
        Mdc,
        number("max_rpcs_in_flight", (2, SLOTS_PER_SESSION as u64), "requests", "32", RPCS),
        |_, t| t.turns.limit().to_string(),
        set_mdc_rpcs,
    ),
    target_rw(
        Mdc,
        number(
            "max_mod_rpcs_in_flight",
            (1, SLOTS_PER_SESSION as u64 - 1),
            "requests",
            "31",
            "Requests that change something, of those under way at a time; fewer than max_rpcs_in_flight.",
        ),
        |_, t| t.mod_turns.limit().to_string(),
        |fs, t, v| {
            if v.number as usize >= t.turns.limit() {
                return Err(Errno::ERANGE);
            }
            t.mod_turns.set_limit(v.number as usize, &fs.cx.world);
            Ok(())
        },
    ),
    target_rw(
        Osc,
        ParamDecl::flag(
            "checksums",
            "1",
            "Data on the wire has checksums of blocks from end to end; 0: only each message as a whole.",
        ),
        |_, t| u8::from(t.checksums.on()).to_string(),
        |_, t, v| {
            t.checksums.set_on(v.number == 1);
            Ok(())
        },
    ),
    target_rw(
        Osc,
        ParamDecl::text(
            "checksum_type",
            "crc32c",
            "How data is summed on the wire: crc32, adler or crc32c (in hardware; as it is stored).",
        ),
        |_, t| t.checksums.kinds_text(),
        |_, t, v| if t.checksums.set_kind(v.text.trim()) { Ok(()) } else { Err(Errno::EINVAL) },
    ),
    target(
        Osc,
        ParamDecl::shown(
            "checksum_errors",
            "requests",
            "Requests sent again because their data changed on the way.",
        ),
        |_, t| t.checksums.errors.load(Relaxed).to_string(),
    ),
    target_rw(
        Osc,
        number(
            "max_dirty_mb",
            (1, 1 << 16),
            "MiB",
            "256",
            "Bytes for this target that may be kept unwritten.",
        ),
        |fs, t| mb(&osc(fs, t).max_dirty),
        |fs, t, v| {
            set_mb(&osc(fs, t).max_dirty, &v);
            osc(fs, t).drained.notify_waiters();
            Ok(())
        },
    ),
    target(Osc, shown("cur_dirty_bytes", "Bytes for this target that are not written yet."), |fs, t| {
        osc(fs, t).unwritten.load(Relaxed).to_string()
    }),
    target(
        Osc,
        shown("cur_grant_bytes", "Bytes that this target has promised room for and that are not used yet."),
        |fs, t| osc(fs, t).grant_left().to_string(),
    ),
    target_rw(
        Osc,
        number(
            "max_pages_per_rpc",
            (1, PAGES_MAX),
            "pages",
            "1024",
            "Most data in one request, in pages of 4 KiB; at most the target's brw_size.",
        ),
        |_, t| (t.bulk_bytes() / PAGE_BYTES).to_string(),
        |_, t, v| {
            if v.number as usize * PAGE_BYTES > t.bulk_limit() {
                return Err(Errno::ERANGE);
            }
            t.set_bulk_bytes(v.number as usize * PAGE_BYTES);
            Ok(())
        },
    ),
    target_rw(
        Session,
        ParamDecl::text("stats", "", CLEARED_STATS),
        |fs, t| t.meter.stats_text(fs.cx.world.wall()),
        |fs, t, _| {
            t.meter.clear_stats(fs.cx.world.wall());
            Ok(())
        },
    ),
    target_rw(
        Osc,
        ParamDecl::text(
            "rpc_stats",
            "",
            "Data requests by pages, number under way and offset. Writing anything clears it.",
        ),
        |fs, t| t.meter.data_text(fs.cx.world.wall()),
        |fs, t, _| {
            t.meter.clear_rpcs(fs.cx.world.wall());
            Ok(())
        },
    ),
    target_rw(
        Mdc,
        ParamDecl::text(
            "rpc_stats",
            "",
            "Changing requests by number under way. Writing anything clears it.",
        ),
        |fs, t| t.meter.modify_text(fs.cx.world.wall()),
        |fs, t, _| {
            t.meter.clear_rpcs(fs.cx.world.wall());
            Ok(())
        },
    ),
];

const CLEARED_STATS: &str =
    "Requests by kind with their times in microseconds. Writing anything clears them.";

fn meta_cache(fs: &Fs) -> String {
    let m = &fs.meta;
    let n = |c: &AtomicU64| c.load(Relaxed);
    format!(
        "hits: {}\nmisses: {}\nrevoked: {}\nfetched_ahead: {}",
        n(&m.hits),
        n(&m.misses),
        n(&m.revoked),
        n(&m.fetched_ahead)
    )
}

fn statahead_stats(fs: &Fs) -> String {
    let n = |c: &AtomicU64| c.load(Relaxed);
    let m = &fs.meta;
    format!(
        "statahead total: {}\nstatahead wrong: {}\nentries: {}",
        n(&m.ahead_runs),
        n(&m.ahead_in_vain),
        n(&m.fetched_ahead)
    )
}

fn small_files(fs: &Fs) -> String {
    let m = &fs.meta;
    let n = |c: &AtomicU64| c.load(Relaxed);
    format!(
        "hits: {}\nmisses: {}\nfetched_ahead: {}\nbytes: {}",
        n(&m.content_hits),
        n(&m.content_misses),
        n(&m.content_ahead),
        n(&m.content_bytes)
    )
}

fn writeback_stats(fs: &Fs) -> String {
    let m = &fs.meta;
    let n = |c: &AtomicU64| c.load(Relaxed);
    format!(
        "executed: {}\nbatches: {}\ndirectories_asked: {}\ndirectories_refused: {}\nlost: {}",
        n(&m.executed),
        n(&m.batches),
        n(&m.asked),
        n(&m.refused),
        n(&m.lost)
    )
}

fn number_of(fs: &Fs, kind: TargetKind, active: bool) -> String {
    fs.lmv.targets_of(kind).iter().filter(|t| !active || t.is_active()).count().to_string()
}

fn target_obd(fs: &Fs, kind: TargetKind) -> String {
    let line = |t: &Arc<Target>| {
        let state = if t.is_active() { "ACTIVE" } else { "INACTIVE" };
        format!("{}: {}_UUID {state}", t.id.index, t.id.label(&fs.cx.opt.fsname))
    };
    fs.lmv.targets_of(kind).iter().map(line).collect::<Vec<_>>().join("\n")
}

fn server_uuid(fs: &Fs, t: &Target) -> String {
    format!("{}_UUID\t{}", t.id.label(&fs.cx.opt.fsname), state_name(t.import.state()))
}

/// Parameters of `osc.*` are those of object targets.
fn osc(fs: &Fs, t: &Target) -> Arc<crate::osc::Osc> {
    fs.lmv.known_osc(t.id.index).expect("an OST has an OSC")
}

fn conn_uuid(_: &Fs, t: &Target) -> String {
    t.import.current_nid().to_string()
}

/// Changing requests always leave room for another: those are pushed down with the limit of all.
fn set_mdc_rpcs(fs: &Fs, t: &Arc<Target>, v: ParamValue<'_>) -> R<()> {
    let n = v.number as usize;
    if t.mod_turns.limit() >= n {
        t.mod_turns.set_limit(n - 1, &fs.cx.world);
    }
    t.turns.set_limit(n, &fs.cx.world);
    Ok(())
}

/// YAML, with Lustre's words.
fn import_text(fs: &Fs, t: &Target) -> String {
    let label = t.id.label(&fs.cx.opt.fsname);
    let nids: Vec<String> = t.nids().iter().map(ToString::to_string).collect();
    let (in_flight, queued) = t.import.load();
    let now = fs.cx.world.now().seconds();
    let mut s = format!(
        "import:\n    name: {label}\n    target: {label}_UUID\n    state: {}\n    instance: {}\n    connection:\n       \
         failover_nids: [ {} ]\n       current_connection: {}\n    recoveries: {}\n    rpcs:\n       \
         inflight: {in_flight}\n       waiting: {queued}\n       avg_waittime: {} usec\n    service_estimates:\n       services: {:.3} sec\n       network: {:.3} sec\n    transactions:\n       \
         peer_committed: {}\n",
        state_name(t.import.state()),
        t.import.epoch(),
        nids.join(", "),
        t.import.current_nid(),
        t.recoveries.load(Relaxed),
        t.meter.mean_wait_us(),
        t.import.service().current(now).as_secs_f64(),
        t.import.network().current(now).as_secs_f64(),
        t.import.last_committed(),
    );
    let _ = write!(s, "{}", t.meter.averages());
    s.truncate(s.trim_end().len());
    s
}

/// As Lustre's file of this name.
fn timeouts_text(fs: &Fs, t: &Target) -> String {
    let (now, wall) = (fs.cx.world.now().seconds(), u64::try_from(fs.cx.world.wall().sec).unwrap_or(0));
    let ago = now.saturating_sub(t.import.heard().seconds());
    let portal = match t.id.kind {
        TargetKind::Ost => "portal 6",
        TargetKind::Mdt => "portal 12",
        TargetKind::Mgt => "portal 26",
    };
    let mut s = format!("{:<10} : {}, {} ago\n", "last reply", wall.saturating_sub(ago), ago_text(ago));
    s += &t.import.network().line("network", now, wall);
    s += &t.import.service().line(portal, now, wall);
    s.truncate(s.trim_end().len());
    s
}

/// One parameter of one device.
struct Item {
    name: String,
    param: &'static Param,
    target: Option<Arc<Target>>,
}

impl Item {
    fn value(&self, fs: &Fs) -> String {
        match (self.param.access, &self.target) {
            (Access::Mount(get, _), _) => get(fs),
            (Access::Target(get, _), Some(t)) => get(fs, t),
            (Access::Target(..), None) => unreachable!("{} belongs to a target", self.name),
        }
    }

    fn set(&self, fs: &Fs, value: &str) -> R<()> {
        let v = self.param.decl.check(value)?;
        match (self.param.access, &self.target) {
            (Access::Mount(_, Some(set)), _) => set(fs, v),
            (Access::Target(_, Some(set)), Some(t)) => set(fs, t, v),
            _ => Err(Errno::EACCES),
        }
    }
}

impl Fs {
    /// Every parameter this mount has now whose name matches the glob, in the tree's order.
    fn param_items(&self, pattern: &str) -> Vec<Item> {
        let (fs, inst) = (&self.cx.opt.fsname, self.instance());
        let mut devices: Vec<(Owner, String, Option<Arc<Target>>)> = vec![
            (Owner::Global, String::new(), None),
            (Owner::Llite, format!("llite.{fs}-{inst}."), None),
            (Owner::Lov, format!("lov.{fs}-clilov-{inst}."), None),
            (Owner::Lmv, format!("lmv.{fs}-clilmv-{inst}."), None),
        ];
        let mdt = TargetId::mdt(crate::mdc::ROOT_MDT).label(fs);
        devices.push((Owner::Ldlm, format!("ldlm.namespaces.{mdt}-mdc-{inst}."), None));
        if let Ok(m) = self.lmv.mgs() {
            devices.push((Owner::Mgc, format!("mgc.MGC{}.", m.import.current_nid()), Some(m)));
        }
        for t in self.lmv.all_targets() {
            let (owner, kind) =
                if t.id.kind == TargetKind::Ost { (Owner::Osc, "osc") } else { (Owner::Mdc, "mdc") };
            devices.push((owner, format!("{kind}.{}-{kind}-{inst}.", t.id.label(fs)), Some(t)));
        }
        let mut out = Vec::new();
        for (owner, prefix, target) in devices {
            for param in TABLE.iter().filter(|p| p.owner.covers(owner)) {
                let name = format!("{prefix}{}", param.decl.name);
                if glob_match(pattern, &name) {
                    out.push(Item { name, param, target: target.clone() });
                }
            }
        }
        out
    }

    /// Parameters whose dotted names match the glob, with their values, in the tree's order.
    pub fn get_param(&self, pattern: &str) -> Vec<(String, String)> {
        self.param_items(pattern).into_iter().map(|i| (i.name.clone(), i.value(self))).collect()
    }

    /// What they mean, and what can be set.
    pub fn help_param(&self, pattern: &str) -> Vec<ParamInfo> {
        self.param_items(pattern).into_iter().map(|i| i.param.decl.info(i.name)).collect()
    }

    /// Sets a parameter, or all whose names match a glob. `ENOENT`: there is none; `EACCES`: it is read-only;
    /// `EINVAL`, `ERANGE`: not that value.
    pub fn set_param(&self, name: &str, value: &str) -> R<()> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::EINVAL);
        }
        let hits = self.param_items(name);
        if hits.is_empty() {
            return Err(Errno::ENOENT);
        }
        hits.iter().try_for_each(|i| i.set(self, value))
    }

    /// A setting that `set_param -P` stored on the MGS, for all it names or `only` for some targets. It is for every
    /// node, so names that are not a mount's are passed over; a value that cannot be had is logged and does not fail
    /// a mount.
    pub(crate) fn apply_permanent_param(&self, name: &str, value: &str, only: Option<&Vec<TargetId>>) {
        let wanted = |i: &Item| only.is_none_or(|o| i.target.as_ref().is_some_and(|t| o.contains(&t.id)));
        let hits = self.param_items(name).into_iter().filter(wanted);
        for i in hits {
            match i.set(self, value) {
                Ok(()) => tracing::info!("permanent parameter {}={value}", i.name),
                Err(e) => tracing::warn!("permanent parameter {}={value} is ignored: {e}", i.name),
            }
        }
    }
}

fn mb(bytes: &AtomicU64) -> String {
    (bytes.load(Relaxed) >> 20).to_string()
}

fn set_mb(bytes: &AtomicU64, v: &ParamValue<'_>) {
    bytes.store(v.number << 20, Relaxed);
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub(crate) fn uuid_text(u: &[u8; 16]) -> String {
    let hex: String = u.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for p in TABLE {
            let d = &p.decl;
            let settable = matches!(p.access, Access::Mount(_, Some(_)) | Access::Target(_, Some(_)));
            assert_eq!(settable, d.writable, "{}", d.name);
            assert!(d.description.ends_with('.'), "{} has no sentence", d.name);
            if d.writable && d.kind != model::param::ParamKind::Text {
                assert!(d.parse(d.default).is_ok(), "default of {}", d.name);
            }
            let twins = TABLE.iter().filter(|q| q.decl.name == d.name && q.owner.covers(p.owner)).count();
            assert!(twins <= 1, "{} is there twice", d.name);
        }
    }
}
