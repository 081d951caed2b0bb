//! The operations that were executed here and that the server does not know of yet: in order, numbered,
//! bounded.
//!
//! A state machine without I/O. Operations are queued at the end, leave from the front as a batch of which
//! one at a time is in flight, and are over when the batch is answered, or lost. Whoever needs the server to
//! know something waits until [`Log::over`] reaches a position.

use crate::base::jobid::JobId;
use bytes::Bytes;
use model::limits::{BATCH_OPS_MAX, OWNER_PENDING_MAX_BYTES, OWNER_PENDING_MAX_OPS as OPS_MAX};
use model::{Cred, Fid, Map, Set, Timestamp};
use std::collections::VecDeque;
use wire::Op;
use wire::RequestContext;
use wire::msg::batch::{Batch, BatchOp, set_jobs};
use world::Instant;

/// Their bytes; the server has set aside more, since it counts what they come to.
const BYTES_MAX: usize = OWNER_PENDING_MAX_BYTES as usize / 2;
/// Bytes of one batch: a message takes more, but a server's other clients wait meanwhile.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches that are remembered until they are durable.
const SENT_MAX: usize = 10_000;
/// What an operation takes besides its message and data, about.
const OVERHEAD_BYTES: usize = 64;
/// Files that one operation touches.
pub(crate) const TOUCHED_MAX: usize = 4;

/// An operation that was executed here.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub op: Op,
    /// Its message.
    pub body: Vec<u8>,
    /// Its data.
    pub bulk: Bytes,
    pub cred: Cred,
    /// For which job it was done.
    pub job: JobId,
    /// When the application called.
    pub time: Timestamp,
    /// The files it changes; [`Fid::NONE`] in unused places.
    pub touched: [Fid; TOUCHED_MAX],
    /// The file it makes; otherwise [`Fid::NONE`].
    pub made: Fid,
}

impl Queued {
    fn bytes(&self) -> usize {
        self.body.len() + self.bulk.len() + 4 * self.cred.groups.len() + OVERHEAD_BYTES
    }

    pub(crate) fn touches(&self) -> impl Iterator<Item = Fid> + '_ {
        self.touched.iter().copied().filter(|f| *f != Fid::NONE)
    }

    /// What it was, for the list of errors.
    pub(crate) fn text(&self) -> String {
        use wire::msg;
        fn of<M: serde::de::DeserializeOwned>(body: &[u8], text: impl Fn(M) -> Vec<u8>) -> String {
            let name = wire::decode_message(body).map(text).unwrap_or_default();
            String::from_utf8_lossy(&name).into_owned()
        }
        let (b, op) = (&self.body[..], format!("{:?}", self.op).to_lowercase());
        let name = match self.op {
            Op::Create => of(b, |m: msg::create::Create| m.name),
            Op::Mkdir => of(b, |m: msg::mkdir::Mkdir| m.name),
            Op::Symlink => of(b, |m: msg::symlink::Symlink| m.name),
            Op::Unlink => of(b, |m: msg::unlink::Unlink| m.name),
            Op::Rmdir => of(b, |m: msg::rmdir::Rmdir| m.name),
            Op::Rename => of(b, |m: msg::rename::Rename| [&m.name[..], b" to ", &m.new_name].concat()),
            _ => String::new(),
        };
        if name.is_empty() { op } else { format!("{op} of '{name}'") }
    }
}

/// All of one metadata target.
#[derive(Default)]
pub(crate) struct Log {
    queue: VecDeque<Queued>,
    /// Of those, in flight.
    in_flight: usize,
    bytes: usize,
    /// Operations that are over.
    over: u64,
    /// Position up to which somebody waits.
    wanted: u64,
    /// Position of the last operation that is to be durable when its batch is answered.
    wanted_durable: u64,
    /// Operations of which their batch's answer said that they are.
    known_durable: u64,
    /// The last operation of each file that has any.
    last: Map<Fid, u64>,
    /// Files whose making is in the log.
    made: Set<Fid>,
    /// When the first that is not in flight was queued.
    oldest: Option<Instant>,
    /// Positions at which batches ended, with their transactions, that are not known to be durable.
    sent: VecDeque<(u64, u64)>,
    /// Operations that are durable.
    durable: u64,
    /// Grows when everything is lost: answers to what was in flight before mean nothing.
    generation: u64,
    /// The life of this client at the server ([`rpc::Import::life`]) in which its leases were granted.
    life: u64,
}

/// A batch that is to be sent now.
pub(crate) struct OutgoingBatch {
    pub batch: Batch,
    pub bulk: Bytes,
    pub generation: u64,
    /// In which life it may be sent. Later others may hold the leases.
    pub life: u64,
    /// To be answered when it is durable.
    pub durable: bool,
    /// Of each operation, if any has one.
    jobs: Vec<JobId>,
}

impl OutgoingBatch {
    /// What the batch says of its sender, and of the jobs for which its operations were done.
    pub(crate) fn context(&self, sender: RequestContext) -> RequestContext {
        let mut ctx = sender;
        if !self.jobs.is_empty() {
            set_jobs(&mut ctx, self.jobs.iter().map(|j| j.as_deref().unwrap_or_default()));
        }
        ctx
    }
}

impl Log {
    /// Position of the last operation.
    pub(crate) fn end(&self) -> u64 {
        self.over + self.queue.len() as u64
    }

    /// Operations up to here were answered, or are lost.
    pub(crate) fn over(&self) -> u64 {
        self.over
    }

    /// Operations and bytes that wait, those in flight included.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Operations that are not in flight.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len() - self.in_flight
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= OPS_MAX || self.bytes >= BYTES_MAX
    }

    /// Whether an operation on this file is not over.
    pub(crate) fn touches(&self, fid: Fid) -> bool {
        self.last.contains_key(&fid)
    }

    /// Whether the server may not know of this file yet.
    pub(crate) fn makes(&self, fid: Fid) -> bool {
        self.made.contains(&fid)
    }

    /// The files whose making is not over.
    pub(crate) fn made(&self) -> impl Iterator<Item = Fid> + '_ {
        self.made.iter().copied()
    }

    /// The files with operations that are not over.
    pub(crate) fn touched(&self) -> impl Iterator<Item = Fid> + '_ {
        self.last.keys().copied()
    }

    /// Since when an operation waits to be sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.oldest
    }

    /// Somebody waits for everything up to here.
    pub(crate) fn want(&mut self, position: u64) {
        assert!(position <= self.end(), "nobody waits for what was not queued");
        self.wanted = self.wanted.max(position);
    }

    /// Everything that is not in flight is to be durable when it is answered; returns up to where. There is
    /// something.
    pub(crate) fn want_durable(&mut self) -> u64 {
        assert!(self.waiting() > 0, "there is something to be sent");
        self.wanted_durable = self.end();
        self.wanted_durable
    }

    /// Operations up to here were durable when they were answered.
    pub(crate) fn known_durable(&self) -> u64 {
        self.known_durable
    }

    /// Whether somebody waits for operations that are not in flight.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > self.over + self.in_flight as u64
    }

    pub(crate) fn push(&mut self, q: Queued, now: Instant) {
        assert!(!self.is_full(), "whoever queues has looked for room");
        assert!(q.touches().next().is_some(), "an operation touches a file");
        let position = self.end() + 1;
        for fid in q.touches() {
            self.last.insert(fid, position);
        }
        if q.made != Fid::NONE {
            let new = self.made.insert(q.made);
            assert!(new, "{} is made twice", q.made);
        }
        self.bytes += q.bytes();
        self.queue.push_back(q);
        self.oldest.get_or_insert(now);
    }

    /// The next batch, in flight from now on; `None` if one is or there is nothing to send.
    pub(crate) fn seal(&mut self, now: Instant) -> Option<OutgoingBatch> {
        if self.in_flight > 0 || self.queue.is_empty() {
            return None;
        }
        let mut batch = Batch { ops: Vec::new(), owned: true, creds: Vec::new() };
        let mut parts: Vec<&Bytes> = Vec::new();
        let mut jobs = Vec::new();
        let mut bytes = 0;
        for q in self.queue.iter().take(BATCH_OPS_MAX) {
            bytes += q.bytes();
            if !batch.ops.is_empty() && bytes > BATCH_BYTES_MAX {
                break;
            }
            // Neighbours are mostly one user's.
            let at = match batch.creds.iter().rposition(|c| *c == q.cred) {
                Some(at) => at,
                None => {
                    batch.creds.push(q.cred.clone());
                    batch.creds.len() - 1
                }
            };
            batch.ops.push(BatchOp {
                opcode: q.op as u16,
                body: q.body.clone(),
                cred: at as u16,
                time: q.time,
                bulk: q.bulk.len() as u32,
            });
            if !q.bulk.is_empty() {
                parts.push(&q.bulk);
            }
            jobs.push(q.job.clone());
        }
        let bulk = match parts[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            _ => parts.iter().map(|p| &p[..]).collect::<Vec<_>>().concat().into(),
        };
        assert!(
            batch.creds.len() <= batch.ops.len() && batch.ops.len() <= self.queue.len(),
            "what is sent was queued"
        );
        self.in_flight = batch.ops.len();
        self.oldest = (self.waiting() > 0).then_some(now);
        let until = self.over + self.in_flight as u64;
        let durable = self.over < self.wanted_durable && self.wanted_durable <= until;
        if jobs.iter().all(Option::is_none) {
            jobs.clear();
        }
        Some(OutgoingBatch { batch, bulk, generation: self.generation, life: self.life, durable, jobs })
    }

    /// The first `n` operations of the batch in flight are over; returns them. The others wait again. `None`:
    /// they were lost before.
    pub(crate) fn answered(&mut self, generation: u64, n: usize, now: Instant) -> Option<Vec<Queued>> {
        if generation != self.generation {
            return None;
        }
        assert!(n <= self.in_flight, "{n} operations of {} are over", self.in_flight);
        self.in_flight = 0;
        let done: Vec<Queued> = self.queue.drain(..n).collect();
        for q in &done {
            self.over += 1;
            assert!(self.bytes >= q.bytes(), "bytes that wait are counted");
            self.bytes -= q.bytes();
            for fid in q.touches() {
                if self.last.get(&fid) == Some(&self.over) {
                    self.last.remove(&fid);
                }
            }
            if q.made != Fid::NONE {
                let was = self.made.remove(&q.made);
                assert!(was, "a file is made by an operation in the log");
            }
        }
        if self.queue.is_empty() {
            assert!(
                self.bytes == 0 && self.last.is_empty() && self.made.is_empty(),
                "an empty log has nothing"
            );
            self.oldest = None;
        } else {
            self.oldest.get_or_insert(now);
        }
        Some(done)
    }

    /// The operations that are over were this transaction, or part of it; on disk already, if `durable`.
    pub(crate) fn committed_with(&mut self, transno: u64, durable: bool) {
        if durable {
            self.known_durable = self.over;
        }
        assert!(
            self.sent.back().is_none_or(|s| s.0 <= self.over),
            "batches end in the order of their operations"
        );
        if self.sent.len() >= SENT_MAX {
            // Whoever wants to know what is durable finds out later.
            self.sent.pop_front();
        }
        self.sent.push_back((self.over, transno));
    }

    /// Up to where operations are durable, if transactions up to `committed` are, and `kept` answered
    /// requests may not be.
    pub(crate) fn durable(&mut self, committed: u64, kept: usize) -> u64 {
        // Numbers of an earlier epoch are below all of a later one, whatever became of them; but the journal
        // is in order.
        let is = |t: u64| kept == 0 || (t <= committed && t >> 40 == committed >> 40);
        if let Some(last) = self.sent.iter().rposition(|s| is(s.1)) {
            self.durable = self.sent[last].0;
            self.sent.drain(..=last);
        }
        assert!(self.durable <= self.over, "what is durable was answered");
        self.durable
    }

    /// Everything is lost; what comes now belongs to this life.
    pub(crate) fn lose_all(&mut self, life: u64) -> Vec<Queued> {
        let lost: Vec<Queued> = std::mem::take(&mut self.queue).into();
        let (over, wanted) = (self.over + lost.len() as u64, self.wanted);
        let (sent, durable, known_durable) =
            (std::mem::take(&mut self.sent), self.durable, self.known_durable);
        let generation = self.generation + 1;
        *self = Log { over, wanted, sent, durable, known_durable, generation, life, ..Log::default() };
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fid(n: u32) -> Fid {
        Fid::new(7, n + 1, 0)
    }

    fn op(dir: u32, made: Option<u32>, bulk: usize, uid: u32) -> Queued {
        let made = made.map_or(Fid::NONE, fid);
        Queued {
            op: Op::Create,
            body: vec![dir as u8; 40],
            bulk: Bytes::from(vec![uid as u8; bulk]),
            cred: Cred::new(uid, uid),
            job: (uid > 0).then(|| uid.to_string().into()),
            time: Timestamp::ZERO,
            touched: [fid(dir), made, Fid::NONE, Fid::NONE],
            made,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32, Option<u32>, usize, u32),
        Seal,
        Answer(usize),
        Lose,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u32..6, proptest::option::of(10u32..40), 0usize..200_000, 0u32..3)
                .prop_map(|(d, m, b, u)| Step::Push(d, m, b, u)),
            2 => Just(Step::Seal),
            2 => (0usize..1000).prop_map(Step::Answer),
            1 => Just(Step::Lose),
        ]
    }

    proptest! {
        /// Against a plain list: nothing is reordered, dropped or sent twice; what is asked of files is
        /// right.
        #[test]
        fn the_log_is_a_queue(steps in proptest::collection::vec(step(), 1..120)) {
            let now = Instant(5);
            let mut log = Log::default();
            let (mut list, mut over, mut in_flight): (Vec<Queued>, u64, Option<(usize, u64)>) = (Vec::new(), 0, None);
            for s in steps {
                match s {
                    Step::Push(d, m, b, u) => {
                        let m = m.filter(|m| !list.iter().any(|q| q.made == fid(*m)));
                        if !log.is_full() {
                            let q = op(d, m, b, u);
                            log.push(q.clone(), now);
                            list.push(q);
                        }
                    }
                    Step::Seal => {
                        if let Some(s) = log.seal(now) {
                            prop_assert!(in_flight.is_none());
                            let n = s.batch.ops.len();
                            let mut bulk = Vec::new();
                            let ctx = s.context(RequestContext::default());
                            let jobs = wire::msg::batch::jobs_of(&ctx, n);
                            let sent = list.iter().take(n).map(|q| q.job.as_deref().unwrap_or_default());
                            prop_assert!(sent.eq(jobs));
                            for (o, q) in s.batch.ops.iter().zip(&list) {
                                prop_assert_eq!(&o.body, &q.body);
                                prop_assert_eq!(&s.batch.creds[usize::from(o.cred)], &q.cred);
                                prop_assert_eq!(o.bulk as usize, q.bulk.len());
                                bulk.extend_from_slice(&q.bulk);
                            }
                            prop_assert_eq!(&bulk[..], &s.bulk[..]);
                            prop_assert!(n == 1 || bulk.len() <= BATCH_BYTES_MAX);
                            in_flight = Some((n, s.generation));
                        } else {
                            prop_assert!(in_flight.is_some() || list.is_empty());
                        }
                    }
                    Step::Answer(n) => if let Some((flown, generation)) = in_flight.take() {
                        let n = n.min(flown);
                        let done = log.answered(generation, n, now).unwrap();
                        prop_assert_eq!(done.len(), n);
                        list.drain(..n);
                        over += n as u64;
                    }
                    Step::Lose => {
                        prop_assert_eq!(log.lose_all(0).len(), list.len());
                        over += list.len() as u64;
                        list.clear();
                        if let Some((_, generation)) = in_flight.take() {
                            prop_assert!(log.answered(generation, 0, now).is_none());
                        }
                    }
                }
                prop_assert_eq!((log.over(), log.end()), (over, over + list.len() as u64));
                prop_assert_eq!(log.waiting(), list.len() - in_flight.map_or(0, |f| f.0));
                prop_assert_eq!(log.oldest().is_some(), log.waiting() > 0);
                prop_assert_eq!(log.load().1, list.iter().map(Queued::bytes).sum::<usize>());
                for n in 0..50 {
                    prop_assert_eq!(log.touches(fid(n)), list.iter().any(|q| q.touches().any(|f| f == fid(n))));
                    prop_assert_eq!(log.makes(fid(n)), list.iter().any(|q| q.made == fid(n)));
                }
            }
        }
    }

    #[test]
    fn a_full_log_says_so() {
        let mut log = Log::default();
        while !log.is_full() {
            log.push(op(1, None, 1 << 20, 0), Instant(1));
        }
        assert!(log.load().1 <= OWNER_PENDING_MAX_BYTES as usize);
        log.want(log.end());
        assert!(log.is_wanted());
    }
}
