//! Parameters and statistics of the changelog: `mdd.FSNAME-MDT0000`.

use super::{
    DENIED_NEXT_DEFAULT_S, MAX_IDLE_INDEXES_DEFAULT, MAX_IDLE_TIME_DEFAULT_S, MIN_GC_INTERVAL_DEFAULT_S,
    is_mask,
};
use crate::mdt::Mdt;
use model::changelog::Mask;
use model::param::{Decl, Param, Scope, Table, Value};
use std::sync::atomic::Ordering::Relaxed;

/// A hundred years.
const LONGEST_S: u64 = 100 * 366 * 86_400;

pub static MDD: Table<Mdt> = Table {
    scopes: &[Scope::Mdd],
    params: &[
        Param::settable(
            Decl::words(
                "changelog_mask",
                Mask::DEFAULT_WORDS,
                is_mask,
                "types that are recorded for consumers that were registered without a mask: words of lfs changelog, or +WORD and -WORD",
            ),
            |m, ()| m.shared.changelog.default_mask().into(),
            |m, (), v| m.shared.changelog.set_default_mask(v.text),
        ),
        Param::shown(
            Decl::text("changelog_current_mask", "types that are recorded now, for all consumers together"),
            |m, ()| m.shared.changelog.current_mask().into(),
        ),
        Param::shown(
            Decl::text(
                "changelog_users",
                "the newest record, and each consumer: the last record that it cleared, how many seconds ago, and its own mask",
            ),
            |m, ()| m.shared.changelog.users(m.world.wall().sec).into(),
        ),
        Param::shown(Decl::gauge("changelog_size", "bytes", "records that are not freed yet"), |m, ()| {
            m.shared.changelog.bytes().into()
        }),
        Param::settable(
            Decl::flag("changelog_gc", true, "1: consumers that are away for too long are dropped"),
            |m, ()| m.shared.changelog.limits.gc.load(Relaxed).into(),
            |m, (), v| {
                m.shared.changelog.limits.gc.store(v.is_on(), Relaxed);
                m.shared.changelog.look_again();
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "changelog_max_idle_time",
                (1, LONGEST_S),
                "s",
                MAX_IDLE_TIME_DEFAULT_S,
                "a consumer that has not cleared anything for longer, and for which records wait, is dropped",
            ),
            |m, ()| Value::Number(m.shared.changelog.limits.max_idle_time_s.load(Relaxed)),
            |m, (), v| {
                m.shared.changelog.limits.max_idle_time_s.store(v.number, Relaxed);
                m.shared.changelog.look_again();
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "changelog_max_idle_indexes",
                (1, u64::MAX),
                "records",
                MAX_IDLE_INDEXES_DEFAULT,
                "a consumer for which more records wait is dropped",
            ),
            |m, ()| Value::Number(m.shared.changelog.limits.max_idle_indexes.load(Relaxed)),
            |m, (), v| {
                m.shared.changelog.limits.max_idle_indexes.store(v.number, Relaxed);
                m.shared.changelog.look_again();
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "changelog_min_gc_interval",
                (0, LONGEST_S),
                "s",
                MIN_GC_INTERVAL_DEFAULT_S,
                "how long after one look at who is away for too long the next one is, at least",
            ),
            |m, ()| Value::Number(m.shared.changelog.limits.min_gc_interval_s.load(Relaxed)),
            |m, (), v| {
                m.shared.changelog.limits.min_gc_interval_s.store(v.number, Relaxed);
                m.shared.changelog.look_again();
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "changelog_max_bytes",
                (0, 1 << 50),
                "bytes",
                0,
                "room that records may take before the consumer that needs the oldest ones is dropped; 0: a quarter of what is free",
            ),
            |m, ()| Value::Number(m.shared.changelog.limits.max_bytes.load(Relaxed)),
            |m, (), v| {
                m.shared.changelog.limits.max_bytes.store(v.number, Relaxed);
                m.shared.changelog.look_again();
                Ok(())
            },
        ),
        Param::atomic(
            Decl::number(
                "changelog_deniednext",
                (0, LONGEST_S),
                "s",
                DENIED_NEXT_DEFAULT_S,
                "an open of the same file that is denied to the same user again within that time is not recorded",
            ),
            0,
            |m, ()| &m.shared.changelog.denied.next_s,
        ),
    ],
};
