//! One look at everything that `nacre top` shows: what the commands and the console ask.

use super::rows::{Facts, Look, View};
use crate::command::jobs;
use crate::query::{self, Stats};
use crate::rates::{Totals, io_times};
use model::mutex::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use world::sys;

/// What connections are called when all is well.
const CONNECTED: [&str; 2] = ["FULL", "IDLE"];

fn facts_of(t: &Value) -> Facts {
    let connection = t["connection"].as_str().unwrap_or_default();
    let state = if t["active"] == false {
        "inactive".to_string()
    } else if !t["errno"].is_null() {
        "away".to_string()
    } else if CONNECTED.contains(&connection) {
        "up".to_string()
    } else {
        connection.to_lowercase()
    };
    let number = |n: &str| t[n].as_u64().unwrap_or(0);
    Facts { state, used: number("used_bytes"), available: number("available_bytes") }
}

/// The metadata targets and OSTs of the mounted file systems, and those of this host's daemons: those know
/// best how they are.
fn facts(overview: &Value, servers: &Value) -> BTreeMap<String, Facts> {
    let list = |v: &Value, name: &str| v[name].as_array().cloned().unwrap_or_default();
    let is_shown = |label: &str| label.contains("-MDT") || label.contains("-OST");
    let mut out = BTreeMap::new();
    for t in overview.as_array().into_iter().flatten().flat_map(|f| list(f, "targets")) {
        match t["label"].as_str() {
            Some(label) if is_shown(label) => drop(out.insert(label.to_string(), facts_of(&t))),
            _ => {}
        }
    }
    for t in servers.as_array().into_iter().flatten().flat_map(|d| list(d, "targets")) {
        match (t["label"].as_str(), t["state"].as_str()) {
            (Some(label), Some(state)) if is_shown(label) => {
                out.entry(label.to_string()).or_insert_with(Facts::default).state = state.to_string();
            }
            _ => {}
        }
    }
    out
}

/// What is asked for: one question each, which go out at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Facts,
    Stats,
    Times,
    Jobs,
    Clients,
}

fn questions(views: &[View]) -> Vec<Question> {
    let any = |of: &[View]| views.iter().any(|v| of.contains(v));
    // Totals of all targets stand above every view.
    let all = [
        (any(&[View::Targets]), Question::Facts),
        (true, Question::Stats),
        (any(&[View::Targets, View::Latencies]), Question::Times),
        (any(&[View::Jobs]), Question::Jobs),
        (any(&[View::Clients]), Question::Clients),
    ];
    all.into_iter().filter(|(asked, _)| *asked).map(|(_, q)| q).collect()
}

fn parsed_jobs(stats: &Stats, missing: &mut BTreeSet<String>) -> BTreeMap<String, jobs::Jobs> {
    let mut out = BTreeMap::new();
    for (label, text) in &stats.texts {
        let mut of_target = jobs::Jobs::new();
        match jobs::add(label, text, &mut of_target) {
            Ok(()) => drop(out.insert(label.clone(), of_target)),
            Err(_) => drop(missing.insert(label.clone())),
        }
    }
    out
}

/// Asks everybody. It may have to wait as long as a server that does not answer has it.
pub fn look(views: &[View]) -> Look {
    let out = Mutex::new((Look::default(), BTreeSet::<String>::new()));
    // The moment that counts is that of the statistics.
    sys::at_once(&questions(views), |q| match q {
        Question::Facts => {
            let all = facts(&query::overview().unwrap_or_default(), &query::servers());
            out.lock().0.facts = all;
        }
        Question::Stats => {
            let (s, at_ns) = (query::stats(), sys::load::monotonic_ns());
            let mut out = out.lock();
            out.0.at_ns = at_ns;
            out.0.totals = s.texts.iter().map(|(l, t)| (l.clone(), Totals::of(l, t))).collect();
            out.1.extend(s.missing);
        }
        Question::Times => {
            let s = query::brw_stats();
            out.lock().0.times = s.texts.iter().map(|(l, t)| (l.clone(), io_times(t))).collect();
        }
        Question::Jobs => {
            let s = query::job_stats();
            let mut out = out.lock();
            let jobs = parsed_jobs(&s, &mut out.1);
            out.0.jobs = jobs;
            out.1.extend(s.missing);
        }
        Question::Clients => {
            let all = query::client_stats();
            let each = |(target, nid, text): (String, String, String)| {
                let totals = Totals::of(&target, &text);
                ((target, nid), totals)
            };
            out.lock().0.clients = all.into_iter().map(each).collect();
        }
    });
    let (mut look, missing) = out.into_inner();
    look.missing = missing.into_iter().collect();
    look.wall_s = sys::wall_seconds();
    look
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_target_is_as_its_server_says_or_as_mounts_see_it() {
        let target = |label: &str, connection: &str, errno: Value, active: bool| {
            json!({"label": label, "connection": connection, "errno": errno, "active": active,
                   "used_bytes": 3, "available_bytes": 7})
        };
        let overview = json!([{"targets": [target("d-OST0000", "FULL", Value::Null, true),
            target("d-OST0001", "CONNECTING", json!(110), true),
            target("d-OST0002", "DISCONN", Value::Null, true),
            target("d-OST0003", "FULL", Value::Null, false),
            target("MGS", "FULL", Value::Null, true)]}]);
        let servers = json!([{"targets": [{"label": "d-OST0000", "state": "recovering"},
                                          {"label": "d-MDT0000", "state": "up"}, {"label": "MGS", "state": "up"}]}]);
        let all = facts(&overview, &servers);
        let states: Vec<_> = all.iter().map(|(l, f)| (l.as_str(), f.state.as_str(), f.available)).collect();
        assert_eq!(
            states,
            [
                ("d-MDT0000", "up", 0),
                ("d-OST0000", "recovering", 7),
                ("d-OST0001", "away", 7),
                ("d-OST0002", "disconn", 7),
                ("d-OST0003", "inactive", 7),
            ]
        );
        assert!(facts(&Value::Null, &Value::Null).is_empty());
    }

    #[test]
    fn a_view_asks_for_what_it_shows() {
        assert_eq!(questions(&View::ALL).len(), 5);
        assert!(!questions(&[View::Jobs]).contains(&Question::Facts));
        assert!(questions(&[View::Clients]).contains(&Question::Stats));
    }
}
