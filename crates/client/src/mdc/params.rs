//! Parameters of `mdc.*`, one metadata target, and what the metadata targets of a mount share: its names,
//! attributes and small files in `llite.*`.

use super::{LRU_AGE_DEFAULT, Mdc, STATAHEAD_DEFAULT, Shared};
use crate::session::params::{conn_uuid, server_uuid};
use crate::session::{RPCS_IN_FLIGHT_DEFAULT, RPCS_IN_FLIGHT_HELP};
use model::Errno;
use model::limits::RPCS_IN_FLIGHT_MAX;
use model::param::{Decl, Field, Param, Scope, Setting, Table, Value};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) static TABLE: Table<Mdc> = Table {
    scopes: &[Scope::Mdc],
    params: &[
        Param::shown(
            Decl::text("mds_server_uuid", "UUID of the target and state of the session."),
            |m, ()| server_uuid(&m.target).into(),
        ),
        Param::shown(Decl::text("mds_conn_uuid", "NID the target is reached at."), |m, ()| {
            conn_uuid(&m.target).into()
        }),
        Param::settable(
            Decl::number(
                "max_rpcs_in_flight",
                (2, RPCS_IN_FLIGHT_MAX),
                "requests",
                RPCS_IN_FLIGHT_DEFAULT as u64,
                RPCS_IN_FLIGHT_HELP,
            ),
            |m, ()| m.target.turns.limit().into(),
            set_rpcs,
        ),
        Param::settable(
            Decl::number(
                "max_mod_rpcs_in_flight",
                (1, RPCS_IN_FLIGHT_MAX - 1),
                "requests",
                RPCS_IN_FLIGHT_DEFAULT as u64 - 1,
                "Requests that change something, of those under way at a time; fewer than max_rpcs_in_flight.",
            ),
            |m, ()| m.target.mod_turns.limit().into(),
            set_mod_rpcs,
        ),
        Param::settable(
            Decl::histogram(
                "rpc_stats",
                "Changing requests by number under way. Writing anything clears it.",
            ),
            |m, ()| Value::Histograms(m.target.meter.modifying(m.cx.world.wall())),
            |m, (), _| {
                m.target.meter.clear_rpcs(m.cx.world.wall());
                Ok(())
            },
        ),
    ],
};

/// Changing requests always leave room for another: those are pushed down with the limit of all.
fn set_rpcs(m: &Mdc, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    let (n, t) = (v.number as usize, &m.target);
    assert!(n >= 2, "there is room for a change and for another request");
    if t.mod_turns.limit() >= n {
        t.mod_turns.set_limit(n - 1, &m.cx.world);
    }
    t.turns.set_limit(n, &m.cx.world);
    Ok(())
}

fn set_mod_rpcs(m: &Mdc, _: &(), v: Setting<'_>) -> Result<(), Errno> {
    assert!(v.number >= 1, "changes get their turn, one at a time at least");
    if v.number as usize >= m.target.turns.limit() {
        return Err(Errno::ERANGE);
    }
    m.target.mod_turns.set_limit(v.number as usize, &m.cx.world);
    Ok(())
}

/// Of `llite.*`.
pub(crate) static LLITE: Table<Shared> = Table {
    scopes: &[Scope::Llite],
    params: &[
        Param::shown(
            Decl::fields(
                "meta_cache",
                "Names and attributes kept: answers from the cache and not, leases given back, fetched ahead.",
            ),
            |m, ()| {
                Value::Fields(vec![
                    counter("hits", &m.hits),
                    counter("misses", &m.misses),
                    counter("revoked", &m.revoked),
                    counter("fetched_ahead", &m.fetched_ahead),
                ])
            },
        ),
        Param::atomic(
            Decl::number(
                "statahead_max",
                (0, 1 << 20),
                "entries",
                STATAHEAD_DEFAULT as u64,
                "Entries of a directory fetched at most at a time because its names are looked up one by one; 0: none.",
            ),
            0,
            |m, ()| &m.statahead_max,
        ),
        Param::settable(
            Decl::fields(
                "statahead_stats",
                "Directories fetched ahead (total), in vain (wrong), entries fetched. Writing anything clears it.",
            )
            .cleared(),
            |m, ()| {
                Value::Fields(vec![
                    counter("statahead total", &m.ahead_runs),
                    counter("statahead wrong", &m.ahead_in_vain),
                    counter("entries", &m.fetched_ahead),
                ])
            },
            |m, (), _| {
                for c in [&m.ahead_runs, &m.ahead_in_vain, &m.fetched_ahead] {
                    c.store(0, Relaxed);
                }
                Ok(())
            },
        ),
        Param::shown(
            Decl::fields("md_writeback_stats", "Operations made here, how they were sent, and what was lost."),
            |m, ()| {
                Value::Fields(vec![
                    counter("executed", &m.executed),
                    counter("batches", &m.batches),
                    counter("directories_asked", &m.asked),
                    counter("directories_refused", &m.refused),
                    counter("lost", &m.lost),
                ])
            },
        ),
        Param::shown(
            Decl::fields(
                "small_files",
                "Reads of small files answered from memory, asked for, files fetched ahead; bytes kept.",
            ),
            |m, ()| {
                Value::Fields(vec![
                    counter("hits", &m.content_hits),
                    counter("misses", &m.content_misses),
                    counter("fetched_ahead", &m.content_ahead),
                    Field::gauge("bytes", m.content_bytes.load(Relaxed)),
                ])
            },
        ),
        Param::shown(Decl::gauge("open_files", "", "Files that are open on this mount."), |m, ()| {
            m.opens.len().into()
        }),
    ],
};

/// Leases on names and attributes, of `ldlm.namespaces.*`.
pub(crate) static LDLM: Table<Shared> = Table {
    scopes: &[Scope::Ldlm],
    params: &[Param::atomic(
        Decl::number(
            "lru_max_age",
            (1, u64::MAX),
            "ms",
            LRU_AGE_DEFAULT.as_millis() as u64,
            "Leases that were not used for so long are given back.",
        ),
        0,
        |m, ()| &m.max_age,
    )],
};

fn counter(name: &'static str, n: &AtomicU64) -> Field {
    Field::counter(name, n.load(Relaxed))
}
