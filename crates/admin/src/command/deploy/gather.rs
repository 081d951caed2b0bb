//! What all hosts of a file have: each is asked, many at the same time.

use super::facts::Facts;
use super::file::Cluster;
use super::host::{Hosts, facts_line, ok};
use mgs::restore::{Shown, ShownFs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use world::sys;

/// For one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one host said, and how far its clock is from this one's.
#[derive(Clone, Debug)]
pub struct Answer {
    pub facts: Facts,
    /// Microseconds that its clock is ahead, as well as the time of the answer lets one know; `None`: nobody
    /// knows.
    pub ahead_us: Option<i64>,
}

/// What was found, by the names of hosts; of one that does not answer why.
#[derive(Clone, Debug, Default)]
pub struct Found(pub BTreeMap<String, Result<Answer, String>>);

impl Found {
    pub fn facts(&self, host: &str) -> Option<&Facts> {
        self.0.get(host)?.as_ref().ok().map(|a| &a.facts)
    }

    /// What the MGS keeps, of the first host of it that says so.
    pub fn config(&self, c: &Cluster) -> Option<&Shown> {
        c.mgs().hosts.iter().find_map(|h| self.facts(h)?.config.as_ref())
    }

    /// What the MGS knows of the file system; `None`: nothing, or it is not asked.
    pub fn known(&self, c: &Cluster) -> Option<&ShownFs> {
        self.config(c)?.file_systems.iter().find(|f| f.fsname == c.fsname)
    }

    /// The host that serves a target, and the target's state.
    pub fn server_of<'a>(&'a self, c: &'a Cluster, label: &str, dir: &str) -> Option<(&'a str, &'a str)> {
        let each =
            |h: &'a super::file::Host| Some((h.name.as_str(), self.facts(&h.name)?.served(label, dir)?));
        c.hosts.iter().find_map(each)
    }
}

fn heard(began_us: i64, ended_us: i64, facts: Facts) -> Answer {
    // It looked at its clock somewhere between.
    let (ahead, behind) = (facts.clock_us - ended_us, began_us - facts.clock_us);
    let ahead_us = match (ahead > 0, behind > 0) {
        (true, _) => ahead,
        (_, true) => -behind,
        _ => 0,
    };
    Answer { facts, ahead_us: Some(ahead_us) }
}

fn now_us() -> i64 {
    i64::try_from(sys::wall_nanos() / 1000).unwrap_or(i64::MAX)
}

/// Asks all hosts.
pub fn ask(c: &Cluster, hosts: &dyn Hosts) -> Found {
    let answers = sys::at_once(&c.hosts, |h| {
        let began = now_us();
        let text = ok(hosts, h, &facts_line(c, h), PATIENCE)?;
        let facts =
            serde_json::from_str(&text).map_err(|e| format!("what it says is not understood: {e}"))?;
        Ok(heard(began, now_us(), facts))
    });
    Found(c.hosts.iter().map(|h| h.name.clone()).zip(answers).collect())
}

/// Takes them from a document that somebody gathered: host to what `nacre deploy facts --json` said there.
///
/// # Errors
/// It is no such document.
pub fn from_document(c: &Cluster, text: &str) -> Result<Found, String> {
    let all: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut out = BTreeMap::new();
    for h in &c.hosts {
        let one = match all.get(&h.name) {
            None => Err("the facts say nothing of it".to_string()),
            Some(v) => match serde_json::from_value::<Facts>(v.clone()) {
                Ok(facts) => Ok(Answer { facts, ahead_us: None }),
                Err(e) => Err(format!("its facts are not understood: {e}")),
            },
        };
        out.insert(h.name.clone(), one);
    }
    Ok(Found(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_only_by_what_the_way_of_the_answer_does_not_explain() {
        let at = |clock_us| heard(1000, 1400, Facts { clock_us, ..Facts::default() }).ahead_us;
        assert_eq!(at(1200), Some(0));
        assert_eq!(at(1500), Some(100));
        assert_eq!(at(700), Some(-300));
    }
}
