//! Now and then one target, by chance, is asked something cheap: how long that takes says how it is for those
//! who use the mount, also while they ask little. If it takes long, what is under way at that moment is
//! written down with it.

use super::Admin;
use crate::Fs;
use crate::session::{Target, params::waiting_line};
use model::counters::Counters;
use model::{Errno, Timestamp};
use rpc::ImportState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::msg::statfs::Statfs;
use world::{BoxFuture, Either, select};

/// Default of `probe_interval`, seconds.
pub(super) const INTERVAL_DEFAULT_S: u64 = 60;
/// An answer that takes longer is an event.
const SLOW: Duration = Duration::from_secs(1);
/// Nobody waits longer for one.
const PATIENCE: Duration = Duration::from_secs(60);
/// So often it is looked whether they are to come as they were set.
const LOOK: Duration = Duration::from_secs(10);
/// Requests that were under way, of all targets, at most.
const SHOWN_MAX: usize = 5;

model::counters! {
    /// Of `probe_stats`.
    pub(crate) enum ProbeCounter {
        Answered = "answered" in "usecs",
        Slow = "slow" in "usecs",
        Failed = "failed" in "reqs",
    }
}

/// Of a mount.
pub(crate) struct Probes {
    /// `probe_interval`: seconds from one to the next, on an average; 0: none.
    pub interval_s: AtomicU64,
    /// How long they took.
    pub stats: Counters<ProbeCounter>,
}

impl Probes {
    pub(crate) fn new(now: Timestamp) -> Probes {
        Probes { interval_s: AtomicU64::new(INTERVAL_DEFAULT_S), stats: Counters::of_set(now) }
    }

    fn count(&self, took: Duration, failed: bool) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if failed {
            self.stats.count(ProbeCounter::Failed, 1);
        } else {
            self.stats.add(ProbeCounter::Answered, us);
        }
        if took >= SLOW {
            self.stats.add(ProbeCounter::Slow, us);
        }
    }
}

/// What one came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The label of the target.
    pub target: String,
    pub took: Duration,
    /// `ETIMEDOUT` after a minute.
    pub failed: Option<Errno>,
    /// If it took long: requests of this mount that waited when that was noticed.
    pub under_way: Vec<String>,
}

impl Admin<'_> {
    /// Asks one of the targets that there is a session with; `chance` chooses. `None`: there is none.
    pub fn probe(self, chance: u64) -> BoxFuture<Option<Probe>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let up = |t: &Arc<Target>| t.import.state() == ImportState::Full;
            let all: Vec<Arc<Target>> = fs.lmv.all_targets().into_iter().filter(up).collect();
            let t = all.get((chance % all.len().max(1) as u64) as usize)?;
            let begun = fs.cx.world.now();
            let mut answer = std::pin::pin!(t.call(fs.cx.own(), Statfs { flags: 0 }));
            let mut under_way = Vec::new();
            let answered = match select(answer.as_mut(), fs.cx.world.sleep(SLOW)).await {
                Either::Left(r) => r.map(drop),
                Either::Right(()) => {
                    under_way = waiting(&fs);
                    let late = fs.cx.world.timeout(PATIENCE - SLOW, answer).await;
                    late.map_or(Err(Errno::ETIMEDOUT), |r| r.map(drop))
                }
            };
            let took = fs.cx.world.now().since(begun);
            assert!(took >= SLOW || under_way.is_empty(), "only of one that took long");
            fs.probes.count(took, answered.is_err());
            Some(Probe { target: t.id.label(&fs.cx.opt.fsname), took, failed: answered.err(), under_way })
        })
    }

    /// Probes until the mount ends, and says what is slow.
    pub fn keep_probing(self) -> BoxFuture<()> {
        let fs = self.0.clone();
        Box::pin(async move {
            while !fs.cx.is_closed() {
                let chance = fs.cx.world.random_u64();
                let interval = fs.probes.interval_s.load(Ordering::Relaxed);
                // Between a half and one and a half of it: many mounts do not ask at the same time.
                let ms = interval * 500 + chance % (interval * 1000).max(1);
                let (begun, pause) = (fs.cx.world.now(), Duration::from_millis(ms));
                let left = || pause.saturating_sub(fs.cx.world.now().since(begun));
                let is_as_set = || fs.probes.interval_s.load(Ordering::Relaxed) == interval;
                while !fs.cx.is_closed() && is_as_set() && (interval == 0 || !left().is_zero()) {
                    fs.cx.world.sleep(if interval == 0 { LOOK } else { left().min(LOOK) }).await;
                }
                if interval == 0 || !is_as_set() || fs.cx.is_closed() {
                    continue;
                }
                if let Some(p) = Admin(&fs).probe(chance >> 32).await {
                    tell(&p);
                }
            }
        })
    }
}

/// What waits already, of all targets.
fn waiting(fs: &Fs) -> Vec<String> {
    let of = |t: Arc<Target>| {
        let label = t.id.label(&fs.cx.opt.fsname);
        let all = t.import.waiting(SLOW / 2);
        all.into_iter().map(move |w| (w.age, format!("{label}: {}", waiting_line(&w)))).collect::<Vec<_>>()
    };
    let mut all: Vec<(Duration, String)> = fs.lmv.all_targets().into_iter().flat_map(of).collect();
    all.sort_by(|a, b| b.cmp(a));
    all.into_iter().take(SHOWN_MAX).map(|(_, line)| line).collect()
}

fn tell(p: &Probe) {
    let Probe { target, took, failed, under_way } = p;
    if *took < SLOW {
        return;
    }
    let what = match failed {
        None => format!("took {:.1} s to answer", took.as_secs_f64()),
        Some(e) => format!("gave no answer in {:.1} s ({e})", took.as_secs_f64()),
    };
    let beside = if under_way.is_empty() { "nothing else".to_string() } else { under_way.join("; ") };
    model::event!(
        WARN,
        SlowProbe,
        target,
        "{target} {what} a cheap question that is asked now and then; waiting beside it: {beside}"
    );
}
