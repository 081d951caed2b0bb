//! Parameters of a mount's files: `llite.*`, as far as reading ahead is concerned.

use super::{Lov, READ_AHEAD_PER_FILE_DEFAULT_MB};
use model::param::{Decl, Param, Scope, Table, Value};

pub(crate) static LLITE: Table<Lov> = Table {
    scopes: &[Scope::Llite],
    params: &[
        Param::atomic(
            Decl::number(
                "max_read_ahead_per_file_mb",
                (0, 1 << 20),
                "MiB",
                READ_AHEAD_PER_FILE_DEFAULT_MB,
                "Largest window of read-ahead in one file; 0: none.",
            ),
            20,
            |lov, ()| &lov.read_ahead.max_per_file,
        ),
        Param::settable(
            Decl::counters(
                "read_ahead_stats",
                "Pages that reads found here or had to fetch, pages read ahead, and why not more. Writing anything clears it.",
            ),
            |lov, ()| Value::Counters(lov.read_ahead.stats.read(lov.cx.world.wall())),
            |lov, (), _| {
                lov.read_ahead.stats.clear(lov.cx.world.wall());
                Ok(())
            },
        ),
    ],
};
