//! Parameters of `osc.*`: one object target.

use super::{DIRTY_DEFAULT_MB, Osc};
use crate::session::params::{conn_uuid, server_uuid};
use crate::session::{Checksums, PAGE_BYTES, RPCS_IN_FLIGHT_DEFAULT, RPCS_IN_FLIGHT_HELP};
use model::Errno;
use model::limits::{RPC_BULK_DEFAULT_BYTES, RPC_BULK_MAX_BYTES, RPCS_IN_FLIGHT_MAX};
use model::param::{Decl, Param, Scope, Setting, Table, Value};
use std::sync::atomic::Ordering::Relaxed;

const PAGES_MAX: u64 = (RPC_BULK_MAX_BYTES / PAGE_BYTES) as u64;
const PAGES_DEFAULT: u64 = (RPC_BULK_DEFAULT_BYTES / PAGE_BYTES) as u64;

pub(crate) static TABLE: Table<Osc> = Table {
    scopes: &[Scope::Osc],
    params: &[
        Param::shown(
            Decl::text("ost_server_uuid", "UUID of the target and state of the session."),
            |o, ()| server_uuid(&o.target).into(),
        ),
        Param::shown(Decl::text("ost_conn_uuid", "NID the target is reached at."), |o, ()| {
            conn_uuid(&o.target).into()
        }),
        Param::settable(
            Decl::number(
                "max_rpcs_in_flight",
                (1, RPCS_IN_FLIGHT_MAX),
                "requests",
                RPCS_IN_FLIGHT_DEFAULT as u64,
                RPCS_IN_FLIGHT_HELP,
            ),
            |o, ()| o.target.turns.limit().into(),
            |o, (), v| {
                o.target.turns.set_limit(v.number as usize, &o.cx.world);
                o.set_locked_rpcs(v.number as usize);
                Ok(())
            },
        ),
        Param::settable(
            Decl::flag(
                "checksums",
                true,
                "Data on the wire has checksums of blocks from end to end; 0: only each message as a whole.",
            ),
            |o, ()| o.target.checksums.on().into(),
            |o, (), v| {
                o.target.checksums.set_on(v.is_on());
                Ok(())
            },
        ),
        Param::settable(
            Decl::words(
                "checksum_type",
                "crc32c",
                Checksums::is_kind,
                "How data is summed on the wire: crc32, adler or crc32c (in hardware; as it is stored).",
            ),
            |o, ()| o.target.checksums.kinds_text().into(),
            |o, (), v| if o.target.checksums.set_kind(v.text) { Ok(()) } else { Err(Errno::EINVAL) },
        ),
        Param::shown(
            Decl::counter(
                "checksum_errors",
                "requests",
                "Requests sent again because their data changed on the way.",
            ),
            |o, ()| o.target.checksums.errors.load(Relaxed).into(),
        ),
        Param::settable(
            Decl::number(
                "max_dirty_mb",
                (1, 1 << 16),
                "MiB",
                DIRTY_DEFAULT_MB,
                "Bytes for this target that may be kept unwritten.",
            ),
            |o, ()| (o.max_dirty.load(Relaxed) >> 20).into(),
            |o, (), v| {
                o.max_dirty.store(v.number << 20, Relaxed);
                o.drained.notify_waiters();
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge("cur_dirty_bytes", "", "Bytes for this target that are not written yet."),
            |o, ()| o.unwritten.load(Relaxed).into(),
        ),
        Param::shown(
            Decl::gauge(
                "cur_grant_bytes",
                "",
                "Bytes that this target has promised room for and that are not used yet.",
            ),
            |o, ()| o.grant_left().into(),
        ),
        Param::settable(
            Decl::number(
                "max_pages_per_rpc",
                (1, PAGES_MAX),
                "pages",
                PAGES_DEFAULT,
                "Most data in one request, in pages of 4 KiB; no more than the target's brw_size, whatever is set.",
            ),
            |o, ()| (o.target.bulk_bytes() / PAGE_BYTES).into(),
            set_pages,
        ),
        Param::settable(
            Decl::histogram(
                "rpc_stats",
                "Data requests by pages, number under way and offset. Writing anything clears it.",
            ),
            |o, ()| Value::Histograms(o.target.meter.data(o.cx.world.wall())),
            |o, (), _| {
                o.target.meter.clear_rpcs(o.cx.world.wall());
                Ok(())
            },
        ),
    ],
};

fn set_pages(o: &Osc, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    // The target may take more later, or in the same command line.
    o.target.set_bulk_bytes(v.number as usize * PAGE_BYTES);
    Ok(())
}
