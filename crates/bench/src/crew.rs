//! The workers of a run, and what they do together: ready, go, wear out, done.

use crate::link::{Event, Order, Report, ThreadLink};
use crate::worker;
use anyhow::{Context, Result, bail};
use model::mutex::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use world::sys;
use world::sys::load::Worker;
use world::sys::process;

/// How long workers that have nothing to do any more may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often progress is shown and an interruption noticed.
const TICK: Duration = Duration::from_millis(100);
/// Longest line of a worker.
const LINE_MAX_BYTES: u64 = 4 << 20;

/// What ends a run before its time, from any thread.
#[derive(Clone, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    pids: Arc<Mutex<Vec<u32>>>,
}

impl Stop {
    /// Kills every worker; the run ends with an error.
    pub fn now(&self) {
        self.flag.store(true, Ordering::SeqCst);
        for pid in self.pids.lock().iter() {
            let _ = process::kill(*pid, process::SIGKILL);
        }
    }

    pub fn wanted(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }
}

/// What a worker is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A process of this program.
    Process(PathBuf),
    Thread,
}

enum Member {
    Process { worker: Worker, orders: Option<Box<dyn Write + Send>> },
    Thread { orders: Sender<Order> },
}

/// Hears of progress: rank, clock in nanoseconds, steps and bytes since its last.
pub type Watch<'a> = dyn FnMut(usize, u64, u64, u64) + 'a;

pub struct Crew {
    members: Vec<Member>,
    events: Receiver<(usize, Event)>,
    stop: Stop,
    /// Some may be in the middle of a phase that nobody waits for.
    failed: bool,
}

fn listen(rank: usize, from: impl std::io::Read + Send + 'static, to: Sender<(usize, Event)>) -> Result<()> {
    sys::thread("listen", move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = String::new();
            let n = std::io::Read::take(&mut from, LINE_MAX_BYTES).read_line(&mut line).unwrap_or(0);
            let event = serde_json::from_str(&line);
            let last = n == 0 || event.is_err();
            let gone = || Event::Failed("its process ended".into());
            if to.send((rank, event.unwrap_or_else(|_| gone()))).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}

impl Crew {
    pub fn start(procs: usize, kind: &Kind, stop: &Stop) -> Result<Crew> {
        let (to, events) = channel();
        let mut crew = Crew { members: Vec::new(), events, stop: stop.clone(), failed: false };
        for rank in 0..procs {
            let member = match kind {
                Kind::Process(exe) => {
                    let (worker, orders, answers) = Worker::start(exe, "nacre", &["bench", "worker"])
                        .with_context(|| format!("start '{}'", exe.display()))?;
                    stop.pids.lock().push(worker.pid());
                    listen(rank, answers, to.clone())?;
                    Member::Process { worker, orders: Some(Box::new(orders)) }
                }
                Kind::Thread => {
                    let (orders, from) = channel();
                    let mut link = ThreadLink { rank, from, to: to.clone(), stop: stop.flag.clone() };
                    sys::thread("worker", move || worker::run(&mut link))?;
                    Member::Thread { orders }
                }
            };
            crew.members.push(member);
        }
        Ok(crew)
    }

    fn send(&mut self, rank: usize, order: &Order) -> Result<()> {
        let sent = match &mut self.members[rank] {
            Member::Process { orders, .. } => {
                let text = serde_json::to_string(order).expect("an order is plain data");
                let w = orders.as_mut().expect("open until the crew ends");
                writeln!(w, "{text}").and_then(|()| w.flush()).is_ok()
            }
            Member::Thread { orders } => orders.send(order.clone()).is_ok(),
        };
        if !sent {
            self.check_stop()?;
            bail!("process {rank} is gone");
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.wanted() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// The next thing a worker says; `None` after a tick in silence.
    fn hear(&self) -> Result<Option<(usize, Event)>> {
        self.check_stop()?;
        match self.events.recv_timeout(TICK) {
            Ok((rank, Event::Failed(why))) => {
                self.check_stop()?;
                bail!("process {rank}: {why}")
            }
            Ok(e) => Ok(Some(e)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all processes are gone"),
        }
    }

    /// One phase: gives each of these ranks its order, lets all begin at once, waits for all. `watch` hears
    /// of progress: (rank, clock, steps, bytes), and of each tick with zeros.
    pub fn run(&mut self, orders: &[(usize, Order)], watch: &mut Watch<'_>) -> Result<Vec<Report>> {
        let done = self.together(orders, watch);
        self.failed |= done.is_err();
        done
    }

    fn together(&mut self, orders: &[(usize, Order)], watch: &mut Watch<'_>) -> Result<Vec<Report>> {
        for (rank, o) in orders {
            self.send(*rank, o)?;
        }
        let mut ready = 0;
        while ready < orders.len() {
            match self.hear()? {
                Some((_, Event::Ready)) => ready += 1,
                Some((rank, e)) => bail!("process {rank} says {e:?} where it should be ready"),
                None => {}
            }
        }
        for (rank, _) in orders {
            self.send(*rank, &Order::Go)?;
        }
        let mut stones = Vec::new();
        let mut reports = std::collections::BTreeMap::new();
        while reports.len() < orders.len() {
            match self.hear()? {
                Some((rank, Event::Progress { ns, steps, bytes })) => watch(rank, ns, steps, bytes),
                Some((_, Event::Stone(n))) => {
                    stones.push(n);
                    if stones.len() == orders.len() {
                        let most = stones.iter().copied().max().unwrap_or(0);
                        for (rank, _) in orders {
                            self.send(*rank, &Order::WearOut(most))?;
                        }
                    }
                }
                Some((rank, Event::Done(r))) => {
                    reports.insert(rank, *r);
                }
                Some((rank, e)) => bail!("process {rank} says {e:?} in the middle of a phase"),
                None => watch(0, sys::load::monotonic_ns(), 0, 0),
            }
        }
        Ok(reports.into_values().collect())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for m in &mut self.members {
            match m {
                Member::Process { orders, .. } => *orders = None,
                Member::Thread { orders } => *orders = channel().0,
            }
        }
        for m in &mut self.members {
            let Member::Process { worker, .. } = m else { continue };
            let pid = worker.pid();
            let patience = if self.failed { Duration::ZERO } else { END_PATIENCE };
            // It is reaped here: its number may mean another process from now on.
            self.stop.pids.lock().retain(|p| *p != pid);
            if worker.end(patience).is_none() {
                eprintln!("nacre bench: process {pid} hangs in the kernel and could not be ended");
            }
        }
        // Threads hold the other ends of this channel until they end.
        let end = sys::Deadline::after(END_PATIENCE);
        while !end.passed() && !matches!(self.events.recv_timeout(TICK), Err(RecvTimeoutError::Disconnected))
        {
        }
    }
}
