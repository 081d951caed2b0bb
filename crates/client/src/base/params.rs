//! Parameters of what all layers of a mount share.

use super::context::{Context, READ_AHEAD_DEFAULT_MB};
use super::jobid::{NAME_DEFAULT, VAR_DEFAULT, is_name, is_of_session, is_var};
use crate::R;
use model::Errno;
use model::param::{Decl, Param, Scope, Table};
use rpc::{AT_MAX_DEFAULT_S, AT_MIN_DEFAULT_S, STUCK_DEFAULT_S};

/// Without a device: `at_min`.
pub(crate) static MOUNT: Table<Context> = Table {
    scopes: &[Scope::Mount],
    params: &[
        Param::shown(Decl::text("version", "Version of this program."), |_, ()| {
            env!("CARGO_PKG_VERSION").into()
        }),
        Param::settable(
            Decl::words(
                "jobid_var",
                VAR_DEFAULT,
                is_var,
                "Where job ids of requests come from: disable, nodelocal, procname_uid, session, or a variable of the process' environment, as SLURM_JOB_ID.",
            ),
            |cx, ()| cx.jobids.var().into(),
            |cx, (), v| cx.jobids.set_var(v.text),
        ),
        Param::settable(
            Decl::words(
                "jobid_name",
                NAME_DEFAULT,
                is_name,
                "Job id with jobid_var=nodelocal, or with %j: %e program, %u user, %g group, %p process, %h host, %H its short name, %j the variable's value, %% a percent sign.",
            ),
            |cx, ()| cx.jobids.name().into(),
            |cx, (), v| {
                cx.jobids.set_name(v.text);
                Ok(())
            },
        ),
        Param::settable(
            Decl::order(
                "jobid_this_session",
                is_of_session,
                "With jobid_var=session: job ids of sessions, SESSION:JOBID each; lctl set_param puts its own session before a job id.",
            )
            .until_restart(),
            |cx, ()| cx.jobids.sessions().into(),
            |cx, (), v| cx.jobids.set_session(v.text),
        ),
        Param::settable(
            Decl::number(
                "at_min",
                (0, 3600),
                "s",
                AT_MIN_DEFAULT_S,
                "Requests may take so long at least before the server is asked whether it is at work on them.",
            ),
            |cx, ()| cx.adaptive.min_s().into(),
            |cx, (), v| {
                cx.adaptive.set_min_s(v.number);
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "at_max",
                (0, 3600),
                "s",
                AT_MAX_DEFAULT_S,
                "And so long at most, however long they took lately; 0: it is never asked.",
            ),
            |cx, ()| cx.adaptive.max_s().into(),
            |cx, (), v| {
                cx.adaptive.set_max_s(v.number);
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "stuck_request_timeout",
                (0, 86_400),
                "s",
                STUCK_DEFAULT_S,
                "A request that waits for longer is said in the log, once, with its job, its file and where it waits; 0: none is.",
            ),
            |cx, ()| cx.adaptive.stuck_s().into(),
            |cx, (), v| {
                cx.adaptive.set_stuck_s(v.number);
                Ok(())
            },
        ),
    ],
};

/// Of `llite.*`.
pub(crate) static LLITE: Table<Context> = Table {
    scopes: &[Scope::Llite],
    params: &[
        Param::atomic(
            Decl::number(
                "max_read_ahead_mb",
                (0, 1 << 20),
                "MiB",
                READ_AHEAD_DEFAULT_MB,
                "Bytes being read ahead at a time; 0: none.",
            ),
            20,
            |cx, ()| &cx.max_read_ahead,
        ),
        Param::settable(
            Decl::text(
                "write_errors",
                "Writes and operations that failed after they had been answered: when, file, object or what it was, bytes, why. Writing anything clears it.",
            )
            .cleared(),
            |cx, ()| cx.errors.text().into(),
            |cx, (), _| {
                cx.errors.clear();
                cx.told.acknowledge();
                Ok(())
            },
        ),
    ],
};

/// A value of `lru_size`: how much is kept that nobody uses. `None`: all of it is to be given back.
pub(crate) fn lru_size(text: &str, most: usize) -> R<Option<usize>> {
    if text == "clear" {
        return Ok(None);
    }
    let size: usize = text.parse().map_err(|_| Errno::EINVAL)?;
    if size > most { Err(Errno::ERANGE) } else { Ok(Some(size)) }
}
