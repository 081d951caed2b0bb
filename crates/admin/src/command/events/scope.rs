//! What many events have in common: whether lost connections are one client's, one server's, one link's, or
//! everybody's; and how many there were of each class.

use super::super::changelog::date_and_time;
use model::events::{Event, Kind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The address in a message about a connection: `(at 10.0.0.5@tcp)`.
fn address(text: &str) -> Option<&str> {
    text.split_once("(at ")?.1.split_once(')').map(|(at, _)| at)
}

/// Of events in the order of their times, with who says them: what is lost now has in common. `None`: nothing
/// is lost.
pub(super) fn verdict<'a>(all: impl Iterator<Item = (&'a str, &'a Event)>) -> Option<String> {
    // By who, and what he lost: the address where it was last.
    let mut open: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut everybody = BTreeSet::new();
    for (who, e) in all {
        everybody.insert(who);
        match e.kind() {
            Some(Kind::ConnectionLost | Kind::CannotConnect) => {
                open.insert((who, &e.about), address(&e.text).unwrap_or(&e.about));
            }
            Some(Kind::ConnectionRestored) => drop(open.remove(&(who, e.about.as_str()))),
            // It began anew, or ended as it was told to.
            Some(Kind::TargetServed | Kind::ServerStopping) => open.retain(|(w, _), _| *w != who),
            _ => {}
        }
    }
    let who: BTreeSet<&str> = open.keys().map(|(w, _)| *w).collect();
    let servers: BTreeSet<&str> = open.values().copied().collect();
    let targets: BTreeSet<&str> = open.keys().map(|(_, t)| *t).collect();
    let names = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    let (n, of) = (who.len(), everybody.len());
    Some(match (n, servers.len()) {
        (0, _) => return None,
        (1, 1) => {
            format!("one link: {} does not reach {} ({})", names(&who), names(&servers), names(&targets))
        }
        (1, s) => format!("one client: {} reaches none of {s} servers ({})", names(&who), names(&servers)),
        (_, 1) => {
            format!("one server: {} ({}), by {n} of {of} processes here", names(&servers), names(&targets))
        }
        (_, s) => {
            format!("everywhere: {n} of {of} processes here do not reach {s} servers ({})", names(&servers))
        }
    })
}

/// Events of a class in a week.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(super) struct Week {
    /// Its Monday, in UTC.
    pub week: String,
    pub class: &'static str,
    pub errors: u64,
    pub warnings: u64,
}

const DAY_S: i64 = 86_400;

/// The youngest week first. What was held back counts.
pub(super) fn weeks<'a>(all: impl Iterator<Item = &'a Event>) -> Vec<Week> {
    let mut rows: BTreeMap<(std::cmp::Reverse<i64>, &'static str), (u64, u64)> = BTreeMap::new();
    for e in all {
        // 1970 began on a Thursday.
        let monday = (e.at.0.div_euclid(DAY_S) + 3).div_euclid(7) * 7 - 3;
        let row = rows.entry((std::cmp::Reverse(monday), e.class())).or_default();
        // One that tells of others stands for them.
        let number = e.more.max(1);
        match e.level.as_str() {
            "error" => row.0 += number,
            "warning" => row.1 += number,
            _ => {}
        }
    }
    let of = |((std::cmp::Reverse(monday), class), (errors, warnings)): ((std::cmp::Reverse<i64>, _), _)| {
        let week = date_and_time(monday * DAY_S).0.replace('.', "-");
        Week { week, class, errors, warnings }
    };
    rows.into_iter().filter(|(_, (e, w))| e + w > 0).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, about: &str, at: &str) -> Event {
        let text = format!("connection to {about} (at {at}) was lost (why); operations wait for it");
        Event {
            seq: 1,
            at: (0, 0),
            id: kind as u64,
            level: "warning".into(),
            about: about.into(),
            text,
            more: 0,
        }
    }

    fn of(all: &[(&str, Kind, &str, &str)]) -> Option<String> {
        let events: Vec<(&str, Event)> = all.iter().map(|(w, k, t, at)| (*w, event(*k, t, at))).collect();
        verdict(events.iter().map(|(w, e)| (*w, e)))
    }

    #[test]
    fn lost_connections_have_a_client_a_server_or_a_link_in_common() {
        use Kind::{
            CannotConnect as Cannot, ConnectionLost as Lost, ConnectionRestored as Back, TargetServed,
        };
        let a = ("mount-1", Lost, "t-OST0000", "10.0.0.5@tcp");
        assert_eq!(of(&[]), None);
        assert!(of(&[a]).unwrap().starts_with("one link: mount-1 does not reach 10.0.0.5@tcp (t-OST0000)"));
        assert_eq!(of(&[a, ("mount-1", Back, "t-OST0000", "10.0.0.6@tcp")]), None);
        let b = ("mount-1", Cannot, "t-OST0001", "10.0.0.6@tcp");
        assert!(of(&[a, b]).unwrap().starts_with("one client: mount-1 reaches none of 2 servers"));
        let c = ("mount-2", Lost, "t-OST0007", "10.0.0.5@tcp");
        assert!(
            of(&[a, c]).unwrap().starts_with("one server: 10.0.0.5@tcp (t-OST0000, t-OST0007), by 2 of 2")
        );
        assert!(of(&[a, b, c]).unwrap().starts_with("everywhere: 2 of 2"));
        assert!(of(&[a, c, ("mount-1", TargetServed, "x", "")]).unwrap().starts_with("one link: mount-2"));
    }

    #[test]
    fn errors_and_warnings_are_counted_by_week_and_class() {
        let at = |day: i64, level: &str, more| Event {
            at: (day * DAY_S + 5, 0),
            level: level.into(),
            more,
            ..event(Kind::DiskFailed, "t", "")
        };
        // Monday, 5 January 1970 is day 4.
        let all = [at(3, "error", 0), at(4, "warning", 0), at(10, "warning", 20), at(10, "info", 0)];
        let week = |week: &str, errors, warnings| Week { week: week.into(), class: "disk", errors, warnings };
        assert_eq!(weeks(all.iter()), [week("1970-01-05", 0, 21), week("1969-12-29", 1, 0)]);
    }
}
