//! Parameters of each session, and what is the same for `osc` and `mdc`.

use super::{Target, state_name};
use crate::base::whose::Whose;
use model::TargetKind;
use model::estimate::ago_text;
use model::param::{Decl, Param, Scope, Table, Value};
use rpc::{ImportState, WAITING_MAX, Waiting};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::msg::connect::{FEATURE_NAMES, FEATURES_COMPAT};

/// Requests that wait for less are in no list.
const WAITS_FOR_LONG: Duration = Duration::from_secs(1);

/// Of every session.
pub(crate) static SESSION: Table<Target> = Table {
    scopes: &[Scope::Osc, Scope::Mdc, Scope::Mgc],
    params: &[
        Param::shown(Decl::text("state", "State of the session."), |t, ()| {
            format!("current_state: {}", state_name(t.import.state())).into()
        }),
        Param::shown(
            Decl::text(
                "import",
                "The session: target, state, addresses, requests, estimates of service times.",
            ),
            |t, ()| import_text(t).into(),
        ),
        Param::shown(
            Decl::text(
                "timeouts",
                "When the server answered last; how long pings and requests took at worst, in seconds.",
            ),
            |t, ()| timeouts_text(t).into(),
        ),
        Param::shown(
            Decl::text(
                "waiting_requests",
                "The oldest requests that wait for a second and more: verb, age in seconds, job, file, and where they wait.",
            ),
            |t, ()| waiting_text(t).into(),
        ),
        Param::shown(Decl::gauge("connected", "", "1: the session is up."), |t, ()| {
            (t.import.state() == ImportState::Full).into()
        }),
        Param::shown(
            Decl::gauge(
                "oldest_request",
                "s",
                "Age of the oldest request that waits for a second and more; 0: none.",
            ),
            |t, ()| {
                let all = t.import.waiting(WAITS_FOR_LONG);
                all.iter().map(|w| w.age.as_secs()).max().unwrap_or(0).into()
            },
        ),
        Param::settable(
            Decl::counters(
                "stats",
                "Requests by kind with their times in microseconds. Writing anything clears them.",
            ),
            |t, ()| Value::Counters(t.meter.stats(t.cx.world.wall())),
            |t, (), _| {
                t.meter.clear_stats(t.cx.world.wall());
                Ok(())
            },
        ),
    ],
};

/// Of sessions with targets of the file system.
pub(crate) static CLIENT: Table<Target> = Table {
    scopes: &[Scope::Osc, Scope::Mdc],
    params: &[Param::settable(
        Decl::flag("active", true, "0: calls to this target fail with EIO at once."),
        |t, ()| t.is_active().into(),
        |t, (), v| {
            t.set_active(v.is_on());
            Ok(())
        },
    )],
};

/// One request that waits.
pub(crate) fn waiting_line(w: &Waiting) -> String {
    let Whose { job, file } = Whose::of(w.op, &w.body);
    // A job's name may be anything; whoever reads the line goes by its spaces.
    let word = |s: &str| s.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
    let or_none = |s: &str| if s.is_empty() { "-".to_string() } else { word(s) };
    format!(
        "{} age={} job={} file={} waits_for={}",
        format!("{:?}", w.op).to_lowercase(),
        w.age.as_secs(),
        or_none(&job),
        or_none(&file.unwrap_or_default()),
        w.waits_for.word()
    )
}

fn waiting_text(t: &Target) -> String {
    let all = t.import.waiting(WAITS_FOR_LONG);
    assert!(all.len() <= WAITING_MAX, "a list of requests that wait has a bound");
    all.iter().map(waiting_line).collect::<Vec<_>>().join("\n")
}

/// UUID and state of the session, as in Lustre's `ost_server_uuid`.
pub(crate) fn server_uuid(t: &Target) -> String {
    format!("{}_UUID\t{}", t.id.label(&t.cx.opt.fsname), state_name(t.import.state()))
}

/// NID the target is reached at.
pub(crate) fn conn_uuid(t: &Target) -> String {
    t.import.current_nid().to_string()
}

/// YAML, with Lustre's words.
fn import_text(t: &Target) -> String {
    let label = t.id.label(&t.cx.opt.fsname);
    let nids: Vec<String> = t.nids().iter().map(ToString::to_string).collect();
    let (in_flight, queued) = t.import.load();
    // What both ends know: a server may know more.
    let agreed = t.import.peer_features() & FEATURES_COMPAT;
    let flags: Vec<&str> = FEATURE_NAMES.iter().filter(|(f, _)| agreed & f != 0).map(|(_, n)| *n).collect();
    let now = t.cx.world.now().seconds();
    let mut s = format!(
        "import:\n    name: {label}\n    target: {label}_UUID\n    state: {}\n    connect_flags: [ {} ]\n    instance: {}\n    connection:\n       \
         failover_nids: [ {} ]\n       current_connection: {}\n    recoveries: {}\n    rpcs:\n       \
         inflight: {in_flight}\n       waiting: {queued}\n       avg_waittime: {} usec\n    service_estimates:\n       services: {:.3} sec\n       network: {:.3} sec\n    transactions:\n       \
         last_replay: {}\n       peer_committed: {}\n",
        state_name(t.import.state()),
        flags.join(", "),
        t.import.epoch(),
        nids.join(", "),
        t.import.current_nid(),
        t.recoveries.load(Relaxed),
        t.meter.mean_wait_us(),
        t.import.service().current(now).as_secs_f64(),
        t.import.network().current(now).as_secs_f64(),
        t.import.last_replay(),
        t.import.last_committed(),
    );
    let _ = write!(s, "{}", t.meter.averages());
    s.truncate(s.trim_end().len());
    s
}

/// As Lustre's file of this name.
fn timeouts_text(t: &Target) -> String {
    let world = &t.cx.world;
    let (now, wall) = (world.now().seconds(), u64::try_from(world.wall().sec).unwrap_or(0));
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
