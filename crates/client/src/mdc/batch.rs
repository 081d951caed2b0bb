//! Sending what was executed here: one batch at a time, so that the server does things in their order.
//!
//! Batches fill while one is in flight. The first after a pause waits a few milliseconds for company, unless
//! somebody waits for it.

use super::Mdc;
use super::cache::Token;
use super::lease::tell_opens;
use super::log::Queued;
use model::{Errno, Fid};
use rpc::{Response, Terms};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use wire::msg::batch::BatchReply;
use world::select;

/// How long an operation waits for others.
const GATHER: Duration = Duration::from_millis(5);
/// With so many they need not wait.
const GATHER_OPS: usize = 256;

enum Next {
    Nothing,
    Wait(Duration),
    Send(super::log::OutgoingBatch, Token),
}

impl Mdc {
    /// Something was queued, or is waited for: somebody sends it.
    pub(crate) fn send_pending(self: &Arc<Self>) {
        if self.untold.sending.swap(true, SeqCst) {
            return;
        }
        let me = self.clone();
        self.cx.world.spawn("client-md-writeback", async move { me.send_all_pending().await });
    }

    async fn send_all_pending(self: &Arc<Self>) {
        loop {
            match self.next_batch() {
                Next::Nothing => {
                    if self.untold.drop.load(Relaxed) {
                        self.drop_leases();
                        self.untold.over.notify_waiters();
                    }
                    self.untold.sending.store(false, SeqCst);
                    // Somebody may have queued something and found the sender at work.
                    if !self.has_pending() || self.untold.sending.swap(true, SeqCst) {
                        return;
                    }
                }
                Next::Wait(d) => {
                    let _ = select(self.untold.wake.notified(), self.cx.world.sleep(d)).await;
                }
                Next::Send(sealed, token) => self.send_batch(sealed, token).await,
            }
        }
    }

    fn next_batch(&self) -> Next {
        let now = self.cx.world.now();
        let mut c = self.meta.lock();
        let Some(oldest) = c.log.oldest() else { return Next::Nothing };
        let age = now.since(oldest);
        let wake = c.log.is_wanted()
            || self.cx.is_closed()
            || !self.shared.executes()
            || self.untold.drop.load(Relaxed);
        if !wake && age < GATHER && c.log.waiting() < GATHER_OPS {
            return Next::Wait(GATHER - age);
        }
        let token = c.token();
        c.log.seal(now).map_or(Next::Nothing, |s| Next::Send(s, token))
    }

    async fn send_batch(self: &Arc<Self>, s: super::log::OutgoingBatch, token: Token) {
        self.shared.batches.fetch_add(1, Relaxed);
        let n = s.batch.ops.len();
        assert!(n > 0, "a batch has an operation");
        let terms = Terms { durable: s.durable, life: Some(s.life), ..Terms::default() };
        let ctx = s.context(self.cx.own());
        let r = self.target.send(ctx, s.batch, s.bulk, terms).await;
        match r {
            Ok(r) => self.batch_answered(s.generation, n, token, &r),
            Err(e) => {
                tracing::error!("{n} operations that were executed here are lost: {e}");
                let now = self.cx.world.now();
                let mut c = self.meta.lock();
                let lost = c.log.answered(s.generation, n, now).unwrap_or_default();
                c.invalidate(lost.iter().flat_map(Queued::touches));
                self.report_lost(&lost, e);
            }
        }
        self.untold.over.notify_waiters();
    }

    fn batch_answered(
        self: &Arc<Self>,
        generation: u64,
        n: usize,
        token: Token,
        answer: &Response<BatchReply>,
    ) {
        let r = &answer.reply;
        // A server that did not come to the end is sent the rest again.
        let n = n.min(r.results.len());
        let now = self.cx.world.now();
        let back = {
            let mut c = self.meta.lock();
            let Some(done) = c.log.answered(generation, n, now) else { return };
            assert_eq!(done.len(), n, "what was answered is over");
            c.log.committed_with(answer.transno, answer.durable);
            let made: Vec<Fid> = done.iter().map(|q| q.made).filter(|f| *f != Fid::NONE).collect();
            // Files without a lease that keeps them: the server must know that they are open before anybody
            // can be given their directory.
            let open = c.granted_after_create(token, &made, &r.grants, now);
            tell_opens(&self.shared.opens, &self.target, open.into_iter());
            let status = r.results.iter().map(|x| Errno(i32::from(x.0)));
            let refused: Vec<(Queued, Errno)> =
                done.into_iter().zip(status).filter(|(_, e)| e.0 != 0).collect();
            c.invalidate(refused.iter().flat_map(|(q, _)| q.touches()));
            for (q, e) in refused {
                tracing::error!("{:?} in {}, executed here before, was refused: {e}", q.op, q.touched[0]);
                self.report_lost(&[q], e);
            }
            let mut back = c.take_unwanted();
            back.extend(c.shrink(now));
            back
        };
        self.meta.give_back(back);
    }
}
