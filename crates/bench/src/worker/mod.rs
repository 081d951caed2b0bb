//! One of the processes that make the load: takes orders, reports.

mod data;
mod names;

use crate::hist::Histogram;
use crate::link::{Event, Link, Order, Pace, PipeLink, Report};
use anyhow::{Result, bail};
use std::io::BufReader;
use world::sys::load::monotonic_ns;

/// How often a worker says how far it is.
const PROGRESS_NS: u64 = 200_000_000;

/// The process that `nacre bench` starts for each rank: orders on standard input.
pub fn main() -> i32 {
    let mut link = PipeLink { from: BufReader::new(std::io::stdin()), to: std::io::stdout() };
    run(&mut link);
    0
}

/// Works until there are no more orders or one fails.
pub fn run(link: &mut dyn Link) {
    while let Some(order) = link.next() {
        let done = match order {
            Order::Data(o) => data::run(&o, link),
            Order::Names(o) => names::run(&o, link),
            Order::Go | Order::WearOut(_) => Ok(None),
        };
        match done {
            Ok(Some(r)) => link.tell(Event::Done(Box::new(r))),
            Ok(None) => {}
            Err(e) => {
                link.tell(Event::Failed(format!("{e:#}")));
                return;
            }
        }
    }
}

/// Says that everything is prepared and waits for the others. `false`: the run was given up.
fn barrier(link: &mut dyn Link) -> bool {
    link.tell(Event::Ready);
    matches!(link.next(), Some(Order::Go))
}

/// Counts and times the steps of a phase.
struct Meter {
    latency: Histogram,
    steps: u64,
    bytes: u64,
    told_at: u64,
    told: (u64, u64),
}

impl Meter {
    fn new() -> Meter {
        Meter { latency: Histogram::default(), steps: 0, bytes: 0, told_at: monotonic_ns(), told: (0, 0) }
    }

    fn tell(&mut self, link: &mut dyn Link, now: u64) {
        let (steps, bytes) = (self.steps - self.told.0, self.bytes - self.told.1);
        self.told = (self.steps, self.bytes);
        self.told_at = now;
        link.tell(Event::Progress { ns: now, steps, bytes });
    }

    /// Runs steps from the one after the last to before `goal`, or until `deadline`.
    fn go(
        &mut self,
        link: &mut dyn Link,
        goal: u64,
        deadline: Option<u64>,
        step: &mut dyn FnMut(u64) -> Result<u64>,
    ) -> Result<()> {
        let mut begun = monotonic_ns();
        while self.steps < goal && deadline.is_none_or(|d| begun < d) {
            self.bytes += step(self.steps)?;
            self.steps += 1;
            let now = monotonic_ns();
            self.latency.add(now - begun);
            begun = now;
            if now - self.told_at >= PROGRESS_NS {
                self.tell(link, now);
                begun = monotonic_ns();
            }
            if link.stopped() {
                bail!("stopped");
            }
        }
        Ok(())
    }

    /// A whole phase: to its count, or its time limit and, when wearing out, on to where the fastest was.
    fn phase(
        &mut self,
        link: &mut dyn Link,
        pace: &Pace,
        begin: u64,
        step: &mut dyn FnMut(u64) -> Result<u64>,
    ) -> Result<()> {
        let deadline = (pace.seconds > 0.0).then(|| begin + (pace.seconds * 1e9) as u64);
        self.go(link, pace.count, deadline, step)?;
        if deadline.is_some() && pace.wear_out {
            link.tell(Event::Stone(self.steps));
            let Some(Order::WearOut(until)) = link.next() else { bail!("stopped") };
            self.go(link, until.min(pace.count), None, step)?;
        }
        let now = monotonic_ns();
        self.tell(link, now);
        Ok(())
    }

    fn report(&self) -> Report {
        Report { steps: self.steps, bytes: self.bytes, latency: self.latency.sparse(), ..Default::default() }
    }
}

/// Contents that were not what was written.
#[derive(Default)]
struct Wrong {
    count: u64,
    first: Option<String>,
}

impl Wrong {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(what);
    }
}
