//! A reply slot: recognises what it has seen before. Pure, so that it can be checked exhaustively.

use model::planted::{self, Bug};

/// What to do with a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<R, P> {
    /// Never seen (or it changed nothing): execute it now.
    Execute(R),
    /// An older request of this slot still runs: this one follows it.
    Waits,
    /// Being executed, or waiting: its reply will come.
    InProgress,
    /// Executed before: this was the answer.
    Answered(P),
    /// Older than what the slot has seen: the client has its answer, or gave it up.
    Stale,
}

/// `R`: a request that waits, `P`: a remembered reply. The newest xid wins; at most one request runs and at
/// most one waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot<R, P> {
    newest: u64,
    running: Option<u64>,
    waiting: Option<R>,
    reply: Option<P>,
}

impl<R, P> Default for Slot<R, P> {
    fn default() -> Slot<R, P> {
        Slot { newest: 0, running: None, waiting: None, reply: None }
    }
}

impl<R, P: Clone> Slot<R, P> {
    /// A slot as it was stored before a restart.
    pub fn restored(xid: u64, reply: P) -> Slot<R, P> {
        Slot { newest: xid, running: None, waiting: None, reply: Some(reply) }
    }

    /// A slot whose newest request was begun and not ended before a restart: it goes on when it comes again.
    pub fn begun(xid: u64) -> Slot<R, P> {
        Slot { newest: xid, ..Slot::default() }
    }

    /// The newest request's reply, if it is remembered.
    pub fn answered(&self) -> Option<(u64, &P)> {
        self.reply.as_ref().map(|r| (self.newest, r))
    }

    /// As [`Slot::arrive`]; a replayed request that is older than the newest was done, and survived.
    pub fn arrive_or_replay(&mut self, xid: u64, req: R, replay: bool) -> Arrival<R, P> {
        if replay && planted::on(Bug::ReplayedTwice) && self.running.is_none() {
            (self.newest, self.running, self.reply) = (xid, Some(xid), None);
            return Arrival::Execute(req);
        }
        self.arrive(xid, req)
    }

    /// The newest request, if it has no answer yet.
    pub fn under_way(&self) -> Option<u64> {
        (self.running == Some(self.newest) || self.waiting.is_some()).then_some(self.newest)
    }

    /// The newest xid seen, 0 for none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn arrive(&mut self, xid: u64, req: R) -> Arrival<R, P> {
        if xid < self.newest || xid == 0 {
            return Arrival::Stale;
        }
        if xid == self.newest {
            if self.running == Some(xid) || self.waiting.is_some() {
                return Arrival::InProgress;
            }
            if let Some(p) = self.reply.as_ref().filter(|_| !planted::on(Bug::AppliedTwice)) {
                return Arrival::Answered(p.clone());
            }
        }
        self.newest = xid;
        self.reply = None;
        let arrival = if self.running.is_some() {
            self.waiting = Some(req);
            Arrival::Waits
        } else {
            self.running = Some(xid);
            Arrival::Execute(req)
        };
        self.check();
        arrival
    }

    /// What holds whatever arrived, and in which order.
    fn check(&self) {
        let behind = self.running.is_some_and(|r| r < self.newest);
        assert!(self.waiting.is_none() || behind, "a request waits behind an older one that runs");
        assert!(self.running.is_none_or(|r| r <= self.newest), "what runs was seen");
        assert!(
            self.reply.is_none() || self.running.is_none(),
            "an answer is remembered until the next request"
        );
    }

    /// The running request ended; `reply` is what to remember. Returns the one that waited, to be executed.
    pub fn finish(&mut self, xid: u64, reply: Option<P>) -> Option<R> {
        assert_eq!(self.running, Some(xid), "one request at a time runs in a slot");
        self.running = None;
        if self.newest == xid {
            self.reply = reply;
            self.check();
            return None;
        }
        let next = self.waiting.take();
        if next.is_some() {
            self.running = Some(self.newest);
        }
        self.check();
        next
    }

    /// Forgets what waits, so that nothing follows the running request.
    pub fn give_up_waiting(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};

    #[test]
    fn duplicates_are_recognised() {
        let mut s: Slot<u32, &str> = Slot::default();
        assert_eq!(s.arrive(5, 1), Arrival::Execute(1));
        assert_eq!(s.arrive(5, 1), Arrival::InProgress);
        assert_eq!(s.arrive(4, 9), Arrival::Stale);
        assert_eq!(s.finish(5, Some("five")), None);
        assert_eq!(s.arrive(5, 1), Arrival::Answered("five"));
        assert_eq!(s.arrive(0, 1), Arrival::Stale);
        assert_eq!(s.arrive(6, 2), Arrival::Execute(2));
        assert_eq!(s.arrive(7, 3), Arrival::Waits);
        assert_eq!(s.arrive(7, 3), Arrival::InProgress);
        assert_eq!(s.arrive(6, 2), Arrival::Stale);
        assert_eq!(s.finish(6, None), Some(3));
        assert_eq!(s.finish(7, None), None);
        assert_eq!(s.arrive(7, 3), Arrival::Execute(3), "an answer that was not kept: again");
        let mut r: Slot<u32, &str> = Slot::restored(9, "nine");
        assert_eq!(r.arrive(9, 1), Arrival::Answered("nine"));
        assert_eq!(r.arrive(8, 1), Arrival::Stale);
    }

    /// Every interleaving of a client that sends, loses its connection and resends three requests, with a
    /// server that executes, crashes and restarts: no request is executed twice, every answer is its own.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct SlotsModel {
        /// xid in flight (0: none) and requests done.
        client: u64,
        done: u64,
        /// Frames on the way to the server and back.
        to_server: Vec<u64>,
        to_client: Vec<u64>,
        newest: u64,
        running: u64,
        waiting: u64,
        reply: u64,
        /// Durable: last executed xid and how often each was.
        stored: u64,
        executed: [u8; 4],
        cuts: u8,
        crashes: u8,
    }

    impl SlotsModel {
        fn slot(&self) -> Slot<u64, u64> {
            Slot {
                newest: self.newest,
                running: (self.running != 0).then_some(self.running),
                waiting: (self.waiting != 0).then_some(self.waiting),
                reply: (self.reply != 0).then_some(self.reply),
            }
        }

        fn put(&mut self, s: &Slot<u64, u64>) {
            self.newest = s.newest;
            self.running = s.running.unwrap_or(0);
            self.waiting = s.waiting.unwrap_or(0);
            self.reply = s.reply.unwrap_or(0);
        }

        fn successors(&self) -> Vec<SlotsModel> {
            let mut out = Vec::new();
            let mut with = |f: &dyn Fn(&mut SlotsModel)| {
                let mut n = self.clone();
                f(&mut n);
                out.push(n);
            };
            if self.client == 0 && self.done < 3 {
                with(&|n| {
                    n.client = n.done + 1;
                    n.to_server.push(n.client);
                });
            }
            if !self.to_server.is_empty() {
                with(&|n| {
                    let xid = n.to_server.remove(0);
                    let mut s = n.slot();
                    if let Arrival::Answered(p) = s.arrive(xid, xid) {
                        n.to_client.push(p);
                    }
                    n.put(&s);
                });
            }
            // The running request commits: effect and reply record in one step, the reply goes out later.
            if self.running != 0 {
                with(&|n| {
                    let xid = n.running;
                    n.executed[xid as usize] += 1;
                    n.stored = xid;
                    let mut s = n.slot();
                    let next = s.finish(xid, Some(xid));
                    assert!(next.is_none_or(|x| x == s.newest()));
                    n.put(&s);
                    n.to_client.push(xid);
                });
            }
            if !self.to_client.is_empty() {
                with(&|n| {
                    let xid = n.to_client.remove(0);
                    if xid == n.client {
                        n.done = xid;
                        n.client = 0;
                    }
                });
            }
            if self.cuts > 0 {
                with(&|n| {
                    n.cuts -= 1;
                    n.to_server.clear();
                    n.to_client.clear();
                    n.to_server.extend((n.client != 0).then_some(n.client));
                });
            }
            if self.crashes > 0 {
                with(&|n| {
                    n.crashes -= 1;
                    n.to_client.clear();
                    n.to_server.clear();
                    let s = if n.stored == 0 { Slot::default() } else { Slot::restored(n.stored, n.stored) };
                    n.put(&s);
                    n.to_server.extend((n.client != 0).then_some(n.client));
                });
            }
            out
        }
    }

    #[test]
    fn no_interleaving_executes_twice() {
        let start = SlotsModel {
            client: 0,
            done: 0,
            to_server: vec![],
            to_client: vec![],
            newest: 0,
            running: 0,
            waiting: 0,
            reply: 0,
            stored: 0,
            executed: [0; 4],
            cuts: 4,
            crashes: 3,
        };
        let (mut seen, mut todo) = (BTreeSet::from([start.clone()]), VecDeque::from([start]));
        let mut finished = 0;
        while let Some(s) = todo.pop_front() {
            assert!(s.executed.iter().all(|n| *n <= 1), "executed twice");
            for x in 1..=s.done {
                assert_eq!(s.executed[x as usize], 1, "answered means executed");
            }
            let next = s.successors();
            if next.is_empty() {
                assert_eq!(s.done, 3, "nothing left to do, yet the client waits");
            }
            finished += usize::from(s.done == 3);
            for n in next {
                if seen.insert(n.clone()) {
                    todo.push_back(n);
                }
            }
        }
        assert!(finished > 0 && seen.len() > 300, "{} states", seen.len());
    }
}
