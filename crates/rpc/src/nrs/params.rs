//! `ost.OSS.ost_io.nrs_*` and `mds.MDS.mdt.nrs_*`: what `lctl` sets and shows of the order of requests.

use super::rules::{DEFAULT_RATE, Policy, parse_orders};
use super::{Nrs, PLACE_TIME_DEFAULT_MS, PLACE_TIME_MAX_MS, PLACES_DEFAULT, PLACES_MAX, bucket};
use crate::credits::{Role, SLOTS_MIN};
use model::Errno;
use model::limits::SLOTS_PER_SESSION;
use model::param::{Decl, Param, Preset, Registry, Scope, Table};
use std::sync::Arc;

fn is_policy(text: &str) -> Result<(), Errno> {
    Policy::parse(text).map(drop)
}

fn is_order(text: &str) -> Result<(), Errno> {
    parse_orders(text).map(drop)
}

const fn slots_max(name: &'static str, help: &'static str) -> Decl {
    let bounds = (SLOTS_MIN as u64, SLOTS_PER_SESSION as u64);
    Decl::number(name, bounds, "slots", SLOTS_PER_SESSION as u64, help)
}

fn set_slots(n: &Nrs, role: Role, slots: u64) -> Result<(), Errno> {
    n.credits().set_slots_max(role, slots);
    Ok(())
}

fn clear_low(n: &Nrs, role: Role) -> Result<(), Errno> {
    n.credits().clear_low(role);
    Ok(())
}

/// One table for targets of both kinds.
pub static TABLE: Table<Arc<Nrs>> = Table {
    scopes: &[Scope::OstIo, Scope::MdsMdt],
    params: &[
        Param::settable(
            Decl::number(
                "nrs_place_time",
                (1, PLACE_TIME_MAX_MS),
                "ms",
                PLACE_TIME_DEFAULT_MS,
                "When all places are taken and nobody was answered for so long, requests that are older keep no place from others any \
                 more; after ten times as long none does in any case. They go on.",
            ),
            |n, ()| n.place_ms().into(),
            |n, (), v| {
                n.set_place_ms(v.number);
                Ok(())
            },
        ),
        Param::settable(
            Decl::number(
                "nrs_places",
                (0, PLACES_MAX),
                "requests",
                0,
                "Requests that run before others have to wait for their turn; 0: 4 for each processor of the host, at least 16.",
            ),
            |n, ()| n.places_set().into(),
            |n, (), v| {
                n.set_places(v.number);
                Ok(())
            },
        ),
        Param::settable(
            Decl::order(
                "nrs_policies",
                is_policy,
                "In which order requests begin that have to wait: fair (the default: users share equally, and jobs within \
                 each), crrn (client addresses share equally), tbf [nid|jobid|opcode|uid|gid] (as fair, and everybody has \
                 the rate of nrs_tbf_rate, told apart by that), or fifo (none waits).",
            ),
            |n, ()| n.policies_text().into(),
            |n, (), v| n.set_policy(v.text),
        ),
        Param::shown(
            Decl::text(
                "nrs_stats",
                "Places, requests that wait and that went ahead, and for each user and job how many waited and how long. YAML.",
            ),
            |n, ()| n.stats_text().into(),
        ),
        Param::settable(
            Decl::number(
                "nrs_tbf_rate",
                (1, bucket::RATE_MAX),
                "requests/s",
                DEFAULT_RATE,
                "Rate of those for whom no rule of nrs_tbf_rule is, if nrs_policies is tbf.",
            ),
            |n, ()| n.default_rate().into(),
            |n, (), v| n.order(&format!("change default rate={}", v.number)),
        ),
        Param::settable(
            Decl::order(
                "nrs_tbf_rule",
                is_order,
                "How often requests may begin: 'start NAME CONDITION rate=N [rank=OTHER]', 'change NAME [rate=N] [rank=OTHER]' \
                 or 'stop NAME', several apart by ';'. N requests a second for each user, job, address or message of \
                 CONDITION, which has jobid={dd.* cp.1}, uid={500 600-610}, gid={...}, nid={10.0.0.[1-9]@tcp} and \
                 opcode={ost_read mds_*}; '&' between two: both, ',': one of them. The first rule that fits counts; a new \
                 one comes first, or before OTHER. NAME has up to 15 letters, digits, '_', '-' and '.'.",
            ),
            |n, ()| n.rules_text().into(),
            |n, (), v| n.order(v.text),
        ),
        Param::settable(
            Decl::gauge(
                "slots_low_client",
                "slots",
                "The fewest slots that the session of a client had free since this was cleared; at 0 it had to wait. \
                 Writing anything clears it.",
            )
            .cleared(),
            |n, ()| n.credits().slots_low(Role::Client).into(),
            |n, (), _| clear_low(n, Role::Client),
        ),
        Param::settable(
            Decl::gauge(
                "slots_low_server",
                "slots",
                "The fewest slots that the session of another target's server had free since this was cleared. Writing \
                 anything clears it.",
            )
            .cleared(),
            |n, ()| n.credits().slots_low(Role::Server).into(),
            |n, (), _| clear_low(n, Role::Server),
        ),
        Param::settable(
            slots_max(
                "slots_max_client",
                "Requests that the session of a client may have under way, one for itself among them: it holds from the \
                 next answer on, and who wants more waits on his side (max_rpcs_in_flight).",
            ),
            |n, ()| n.credits().slots_max(Role::Client).into(),
            |n, (), v| set_slots(n, Role::Client, v.number),
        ),
        Param::settable(
            slots_max("slots_max_server", "The same of the session of another target's server."),
            |n, ()| n.credits().slots_max(Role::Server).into(),
            |n, (), v| set_slots(n, Role::Server, v.number),
        ),
        Param::settable(
            Decl::number(
                "threads_max",
                (1, PLACES_MAX),
                "requests",
                PLACES_DEFAULT,
                "Requests that run at a time before others wait for their turn, as threads do in Lustre: sets nrs_places, and \
                 shows what it comes to.",
            )
            .by_default(Preset::Host("4 for each processor, at least 16")),
            |n, ()| n.places_now().into(),
            |n, (), v| {
                n.set_places(v.number);
                Ok(())
            },
        ),
        Param::shown(
            Decl::gauge(
                "threads_started",
                "requests",
                "Requests that have a place and run now; at threads_max others wait. No thread belongs to one.",
            ),
            |n, ()| n.running_now().into(),
        ),
    ],
};

/// What `lctl` can ask of the order of requests.
pub fn declare(to: &mut Registry) {
    to.add(&TABLE);
}
