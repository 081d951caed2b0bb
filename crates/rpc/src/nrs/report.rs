//! What is shown of the order of requests, in Lustre's shapes where it has some.

use super::Nrs;
use super::engine::{ClassKey, Party};
use super::rules::{DEFAULT_NUMBER, DEFAULT_RULE, Policy, Rules, TbfType};
use model::jobs::quoted;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// Every policy that there is, in the order in which it is shown.
const POLICIES: [&str; 4] = ["fifo", "fair", "crrn", "tbf"];
/// Classes that `nrs_stats` shows, those first that waited longest: what is shown fits into a message.
const SHOWN_MAX: usize = 1000;

fn type_of(p: Policy) -> &'static str {
    match p {
        Policy::Tbf(TbfType::Nid) => " nid",
        Policy::Tbf(TbfType::Jobid) => " jobid",
        Policy::Tbf(TbfType::Opcode) => " opcode",
        Policy::Tbf(TbfType::Uid) => " uid",
        Policy::Tbf(TbfType::Gid) => " gid",
        _ => "",
    }
}

fn party(p: Party) -> String {
    match p {
        Party::User(uid) => format!("uid: {uid}"),
        Party::Mount(client) => format!("client: {client}"),
        Party::Address(a) => format!("nid: {a}@tcp"),
        Party::Shared(n) => format!("shared: {n}"),
    }
}

fn rule_of(rules: &Rules, key: &ClassKey) -> String {
    let number = key.bucket.as_ref().map(|b| b.rule);
    let name = |n| rules.all().iter().find(|r| r.number == n).map(|r| r.name.clone());
    match number {
        None => String::new(),
        Some(DEFAULT_NUMBER) => DEFAULT_RULE.into(),
        Some(n) => name(n).unwrap_or_default(),
    }
}

impl Nrs {
    /// `nrs_policies`.
    pub fn policies_text(&self) -> String {
        let s = self.lock();
        let mut out = "regular_requests:".to_string();
        for name in POLICIES {
            let started = s.policy.name() == name;
            let (queued, active) = if started { (s.engine.len(), s.running.len()) } else { (0, 0) };
            let kind = if started { type_of(s.policy) } else { "" };
            let state = if started { "started" } else { "stopped" };
            let fallback = if name == "fifo" { "yes" } else { "no" };
            let _ = write!(
                out,
                "\n  - name: {name}{kind}\n    state: {state}\n    fallback: {fallback}\n    queued: {queued}\n    active: {active}"
            );
        }
        out
    }

    /// `nrs_tbf_rule`.
    pub fn rules_text(&self) -> String {
        let s = self.lock();
        let mut out = "regular_requests:\nCPT 0:".to_string();
        for r in s.rules.all() {
            let (rate, refs) = (r.rate.per_second(), s.engine.buckets.of_rule(r.number));
            let _ = write!(out, "\n{} {} {rate}, ref {refs}", r.name, r.about());
        }
        if matches!(s.policy, Policy::Tbf(_)) {
            let (rate, refs) = (s.rules.default_rate.per_second(), s.engine.buckets.of_rule(DEFAULT_NUMBER));
            let _ = write!(out, "\n{DEFAULT_RULE} {{*}} {rate}, ref {refs}");
        }
        out
    }

    /// `nrs_stats`: YAML.
    pub fn stats_text(&self) -> String {
        let s = self.lock();
        let (queued, active) = (s.engine.len(), s.running.len());
        let mut out = format!(
            "nrs_stats:\n  policy: {}{}\n  places: {}\n  active: {active}\n  queued: {queued}\n  begun_at_once: {}\n  went_ahead: {}\n  classes:",
            s.policy.name(),
            type_of(s.policy),
            self.places_now(),
            self.at_once.load(Relaxed),
            self.ahead.load(Relaxed),
        );
        let mut all: Vec<_> = s.engine.classes().collect();
        all.sort_by_key(|c| std::cmp::Reverse((c.queued, c.waits.sum)));
        for c in all.into_iter().take(SHOWN_MAX) {
            let (waits, key) = (c.waits, c.key);
            let _ = write!(
                out,
                "\n  - {{ {}, job_id: {}, rule: {}, queued: {}, waited: {{ samples: {}, unit: usecs, max: {}, sum: {} }} }}",
                party(key.party),
                yaml(&key.job),
                yaml(&rule_of(&s.rules, key)),
                c.queued,
                waits.samples,
                waits.max,
                waits.sum,
            );
        }
        out
    }
}

/// A word in YAML; nothing is an empty string.
fn yaml(word: &str) -> String {
    if word.is_empty() { "\"\"".into() } else { quoted(word) }
}
