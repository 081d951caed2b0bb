//! What happened, in one number: every scheduling decision, frame and timer goes into the hash.

use ::world::rng::mix;
use std::collections::{BTreeMap, VecDeque};

/// Lines kept for a failing seed.
const LOG_LINES_MAX: usize = 4000;

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    pub(crate) steps: u64,
    counters: BTreeMap<&'static str, u64>,
    log: Option<VecDeque<String>>,
}

impl Trace {
    pub(crate) fn add(&mut self, v: u64) {
        self.hash = mix(self.hash ^ v).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_insert(0) += 1;
    }

    pub(crate) fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    pub(crate) fn keep_log(&mut self) {
        self.log = Some(VecDeque::new());
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            if log.len() == LOG_LINES_MAX {
                log.pop_front();
            }
            log.push_back(line());
        }
    }

    pub(crate) fn take_log(&mut self) -> Vec<String> {
        self.log.as_mut().map(|l| l.drain(..).collect()).unwrap_or_default()
    }
}
