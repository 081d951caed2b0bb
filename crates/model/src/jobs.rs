//! What each job did on a target: `mdt.*.job_stats`, `obdfilter.*.job_stats`. Which job a request belongs to
//! its client says; one that says none is not counted here.

use crate::counters::{CounterDecl, CounterSet, Counters, Place, Sample, Samples};
use crate::limits::{JOBID_MAX_BYTES, JOBS_MAX};
use crate::mutex::RwLock;
use crate::param::Decl;
use crate::{Errno, Timestamp};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// `job_cleanup_interval` unless set otherwise.
pub const CLEANUP_DEFAULT_S: u64 = 600;
/// And at most.
const CLEANUP_MAX_S: u64 = 31_536_000;

/// `job_stats` of every kind of target.
pub const fn stats_decl() -> Decl {
    let help = "What each job did, by the job ids that clients send (jobid_var). Writing a job id forgets that job, \
                clear all of them.";
    Decl::jobs("job_stats", help).until_restart()
}

/// `job_cleanup_interval`, likewise.
pub const fn cleanup_decl() -> Decl {
    let help = "A job that did nothing for so long is forgotten; 0: none is, until there are too many.";
    Decl::number("job_cleanup_interval", (0, CLEANUP_MAX_S), "s", CLEANUP_DEFAULT_S, help)
}

/// One job.
pub struct Job<P> {
    pub stats: Counters<P>,
    /// When its last request was counted, in seconds of the wall clock.
    last: AtomicI64,
}

type Known<P> = BTreeMap<Arc<str>, Arc<Job<P>>>;

/// All jobs of one target.
pub struct Jobs<P> {
    table: Arc<[CounterDecl]>,
    /// Requests only read it, but for the first of a job.
    known: RwLock<Known<P>>,
    /// `job_cleanup_interval`: a job without requests for so many seconds is forgotten; 0: none is.
    pub cleanup_s: AtomicU64,
}

impl<P: CounterSet> Jobs<P> {
    /// With the counters of an enum for each job.
    pub fn of_set() -> Jobs<P> {
        Jobs {
            table: P::TABLE.into(),
            known: RwLock::default(),
            cleanup_s: AtomicU64::new(CLEANUP_DEFAULT_S),
        }
    }
}

impl<P: Place> Jobs<P> {
    /// The one of this id, made at first: one that was idle for too long goes, and if there are too many
    /// the one that was idle for longest. `None`: the request belongs to no job.
    pub fn of(&self, id: &str, now: impl FnOnce() -> Timestamp) -> Option<Arc<Job<P>>> {
        // The part that counts: a client may say anything.
        let id = &id[..id.floor_char_boundary(JOBID_MAX_BYTES)];
        if id.is_empty() {
            return None;
        }
        let now = now();
        let known = self.known.read().get(id).cloned();
        if let Some(job) = known {
            job.last.fetch_max(now.sec, Relaxed);
            return Some(job);
        }
        let mut known = self.known.write();
        self.forget_idle(&mut known, now);
        while known.len() >= JOBS_MAX && !known.contains_key(id) {
            let oldest = known.iter().min_by_key(|(_, j)| j.last.load(Relaxed)).map(|(id, _)| id.clone());
            known.remove(&oldest.expect("there are many"));
        }
        let made = || {
            let stats = Counters::new(self.table.clone(), now);
            Arc::new(Job { stats, last: AtomicI64::new(now.sec) })
        };
        let job = known.entry(id.into()).or_insert_with(made).clone();
        assert!(known.len() <= JOBS_MAX, "so many jobs are counted and no more");
        Some(job)
    }

    fn forget_idle(&self, known: &mut Known<P>, now: Timestamp) {
        let idle_max = i64::try_from(self.cleanup_s.load(Relaxed)).unwrap_or(i64::MAX);
        if idle_max > 0 {
            known.retain(|_, j| now.sec.saturating_sub(j.last.load(Relaxed)) < idle_max);
        }
    }

    /// `clear` forgets all jobs, a job id that one. `EINVAL` if there is none of this id.
    pub fn forget(&self, text: &str) -> Result<(), Errno> {
        let mut known = self.known.write();
        if text == "clear" {
            known.clear();
            return Ok(());
        }
        known.remove(text).map(drop).ok_or(Errno::EINVAL)
    }

    /// As Lustre's `job_stats` has them.
    pub fn text(&self, now: Timestamp) -> String
    where
        P: 'static,
    {
        self.read(now).to_string()
    }

    /// All that were not idle for too long.
    pub fn read(&self, now: Timestamp) -> JobStats
    where
        P: 'static,
    {
        let mut known = self.known.write();
        self.forget_idle(&mut known, now);
        let one = |(id, job): (&Arc<str>, &Arc<Job<P>>)| JobOf {
            id: id.clone(),
            last: job.last.load(Relaxed),
            counters: job.clone(),
        };
        JobStats { now, jobs: known.iter().map(one).collect() }
    }
}

/// What reads the counters of a job.
pub trait JobCounters: Send + Sync {
    fn samples(&self, now: Timestamp) -> Samples;
}

impl<P: Place> JobCounters for Job<P> {
    fn samples(&self, now: Timestamp) -> Samples {
        self.stats.read(now)
    }
}

/// One job of [`JobStats`].
#[derive(Clone)]
pub struct JobOf {
    pub id: Arc<str>,
    /// When its last request was counted, in seconds of the wall clock.
    pub last: i64,
    pub counters: Arc<dyn JobCounters>,
}

/// The jobs of a target. Their counters are read by who shows them: he may want some only.
#[derive(Clone)]
pub struct JobStats {
    pub now: Timestamp,
    pub jobs: Vec<JobOf>,
}

impl PartialEq for JobStats {
    fn eq(&self, other: &JobStats) -> bool {
        let same = |(a, b): (&JobOf, &JobOf)| a.id == b.id && Arc::ptr_eq(&a.counters, &b.counters);
        self.jobs.len() == other.jobs.len() && self.jobs.iter().zip(&other.jobs).all(same)
    }
}

impl Eq for JobStats {}

impl std::fmt::Debug for JobStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.jobs.iter().map(|j| (&j.id, j.last))).finish()
    }
}

impl std::fmt::Display for JobStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = "job_stats:".to_string();
        for j in &self.jobs {
            out.push('\n');
            show(&mut out, &j.id, &j.counters.samples(self.now));
        }
        f.write_str(&out)
    }
}

/// A job id as it stands in YAML: as it is, or in quotation marks if it could be read as anything else.
pub fn quoted(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.@/+-".contains(c);
    if id.chars().all(plain) && !id.starts_with(['-', '@']) {
        return id.to_string();
    }
    let mut out = "\"".to_string();
    for c in id.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn show(out: &mut String, id: &str, s: &Samples) {
    let elapsed = Timestamp::from_nanos((s.now.as_nanos() - s.since.as_nanos()).max(0));
    let _ = write!(out, "- {:<17}{}", "job_id:", quoted(id));
    for (name, t) in [("snapshot_time:", s.now), ("start_time:", s.since), ("elapsed_time:", elapsed)] {
        let _ = write!(out, "\n  {name:<17}{}.{:09}", t.sec, t.nsec);
    }
    for (decl, c) in s.all() {
        let name = format!("{}:", decl.name);
        let Sample { samples, min, max, sum, squares } = c;
        let unit = decl.unit;
        let _ = write!(
            out,
            "\n  {name:<17}{{ samples: {samples:>11}, unit: {unit:>5}, min: {min:>8}, max: {max:>8}, \
             sum: {sum:>16}, sumsq: {squares:>18} }}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        enum What { ReadBytes = "read_bytes" in "bytes", Write = "write" in "usecs", }
    }

    fn at(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 5 }
    }

    #[test]
    fn jobs_are_shown_as_lustre_shows_them() {
        let jobs = Jobs::<What>::of_set();
        assert_eq!(jobs.text(at(1)), "job_stats:");
        jobs.of("dd.0", || at(100)).unwrap().stats.add(What::ReadBytes, 4096);
        jobs.of("dd.0", || at(101)).unwrap().stats.add(What::ReadBytes, 1 << 20);
        jobs.of("a b", || at(101)).unwrap().stats.add(What::Write, 7);
        assert!(jobs.of("", || at(102)).is_none(), "no job");
        let expected = "\
job_stats:
- job_id:          \"a b\"
  snapshot_time:   110.000000005
  start_time:      101.000000005
  elapsed_time:    9.000000000
  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, sumsq:                  0 }
  write:           { samples:           1, unit: usecs, min:        7, max:        7, sum:                7, sumsq:                 49 }
- job_id:          dd.0
  snapshot_time:   110.000000005
  start_time:      100.000000005
  elapsed_time:    10.000000000
  read_bytes:      { samples:           2, unit: bytes, min:     4096, max:  1048576, sum:          1052672, sumsq:      1099528404992 }
  write:           { samples:           0, unit: usecs, min:        0, max:        0, sum:                0, sumsq:                  0 }";
        assert_eq!(jobs.text(at(110)), expected);
    }

    #[test]
    fn idle_jobs_go() {
        let jobs = Jobs::<What>::of_set();
        jobs.of("old", || at(1000));
        jobs.of("new", || at(1300));
        assert!(jobs.text(at(1599)).contains("old"));
        let left = jobs.text(at(1600));
        assert!(!left.contains("old") && left.contains("new"), "{left}");
        jobs.cleanup_s.store(0, Relaxed);
        assert!(jobs.text(at(1 << 40)).contains("new"), "none goes by itself");
        assert_eq!((jobs.forget("old"), jobs.forget("new")), (Err(Errno::EINVAL), Ok(())));
        jobs.of("x", || at(1));
        assert_eq!(jobs.forget("clear"), Ok(()));
        assert_eq!(jobs.text(at(2)), "job_stats:");
    }

    #[test]
    fn the_oldest_goes_first() {
        let jobs = Jobs::<What>::of_set();
        jobs.cleanup_s.store(0, Relaxed);
        for n in 0..JOBS_MAX as i64 {
            jobs.of(&format!("j{n}"), || at(n));
        }
        jobs.of("j0", || at(5000));
        jobs.of("another", || at(5001));
        let text = jobs.text(at(5001));
        assert!(text.contains(" j0\n") && !text.contains(" j1\n") && text.contains(" another\n"));
        assert_eq!(text.matches("job_id").count(), JOBS_MAX);
    }

    #[test]
    fn whatever_a_client_says_is_bounded_and_quoted() {
        let jobs = Jobs::<What>::of_set();
        jobs.of(&"ä".repeat(1000), || at(1));
        assert_eq!(jobs.forget(&"ä".repeat(15)), Ok(()));
        assert_eq!(quoted("a\n\"b\\"), "\"a\\x0a\\\"b\\\\\"");
        assert_eq!(quoted("-x"), "\"-x\"");
        assert_eq!(quoted("SLURM/5.@n+_-"), "SLURM/5.@n+_-");
    }
}
