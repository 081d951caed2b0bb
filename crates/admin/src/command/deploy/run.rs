//! Does steps: stage after stage, a bounded number at one time.

use super::file::Cluster;
use super::host::{Hosts, ok};
use super::steps::{Stage, Step};
use crate::interrupt::Interrupt;
use model::mutex::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::sys;

/// A step that was done, or tried.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    #[serde(flatten)]
    pub step: Step,
    /// Why not, if it was not.
    pub error: Option<String>,
    pub seconds: f64,
}

/// Who is told of each, as it is done: it, its number, and how many there are.
pub type Told<'a> = &'a (dyn Fn(&Done, usize, usize) + Sync);

/// Host by host in turns, so that none has all at one time.
fn in_turns(steps: &[Step]) -> VecDeque<Step> {
    let mut turn: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all: Vec<(usize, &Step)> = Vec::with_capacity(steps.len());
    for s in steps {
        let n = turn.entry(&s.host).or_default();
        all.push((*n, s));
        *n += 1;
    }
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, s)| s.clone()).collect()
}

fn one(c: &Cluster, hosts: &dyn Hosts, step: Step) -> Done {
    let began = sys::load::monotonic_ns();
    let result = ok(hosts, c.host(&step.host), &step.command, step.stage.patience());
    let took = Duration::from_nanos(sys::load::monotonic_ns().saturating_sub(began));
    Done { step, error: result.err(), seconds: took.as_secs_f64() }
}

/// Does these, which are in the order of their stages. A stage with a failure is the last one, with all that
/// it has; an interrupt ends it between two steps.
pub fn all(c: &Cluster, hosts: &dyn Hosts, steps: &[Step], stop: &Interrupt, told: Told<'_>) -> Vec<Done> {
    assert!(steps.is_sorted_by_key(|s| s.stage), "what others need is done before them");
    let mut out = Vec::new();
    let stages: std::collections::BTreeSet<Stage> = steps.iter().map(|s| s.stage).collect();
    for stage in stages {
        let some: Vec<Step> = steps.iter().filter(|s| s.stage == stage).cloned().collect();
        let (queue, done) = (Mutex::new(in_turns(&some)), Mutex::new(Vec::new()));
        let before = out.len();
        sys::together(c.at_once.min(some.len()).max(1), |_| {
            while !stop.stopped() {
                let Some(step) = queue.lock().pop_front() else { break };
                let d = one(c, hosts, step);
                let mut all = done.lock();
                all.push(d);
                told(&all[all.len() - 1], before + all.len(), steps.len());
            }
        });
        out.append(&mut done.lock());
        if stop.stopped() || out.iter().any(|d: &Done| d.error.is_some()) {
            break;
        }
    }
    assert!(out.len() <= steps.len(), "each is done once");
    out
}
