//! What the log is told of an outage. A server that is started again, or a target that moves, is back within
//! seconds: that is one line. What takes longer is told in full, and goes on being told as it changes, each
//! thing once: an outage does not fill the log.

use model::Nid;
use model::mutex::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;
use world::{Either, Instant, World, select};

/// A connection that is back within this time was lost for one line.
pub(crate) const HOLD: Duration = Duration::from_secs(5);

/// A connection that was, and is not.
struct Lost {
    at: Instant,
    nid: Nid,
    why: String,
}

/// From the end of a connection, or the first attempt to make one, to the next connection.
#[derive(Default)]
struct Outage {
    lost: Option<Lost>,
    /// Nothing of it was said yet.
    is_held: bool,
    /// By address, what failed there last.
    failures: BTreeMap<String, String>,
}

pub(super) struct Told {
    world: World,
    /// Of the target.
    label: String,
    outage: Mutex<Outage>,
}

impl Told {
    pub(super) fn new(world: &World, label: String) -> Told {
        Told { world: world.clone(), label, outage: Mutex::default() }
    }

    /// A connection ended.
    pub(super) fn lost(&self, nid: Nid, why: String) {
        let mut g = self.outage.lock();
        assert!(g.lost.is_none() && g.failures.is_empty(), "what was before ended with the connection");
        g.lost = Some(Lost { at: self.world.now(), nid, why });
        g.is_held = true;
    }

    /// An address did not lead to the target: `text` says so.
    pub(super) fn failed(&self, place: String, text: String) {
        let mut g = self.outage.lock();
        let is_news = g.failures.insert(place, text.clone()).is_none_or(|before| before != text);
        if is_news && !g.is_held {
            model::event!(WARN, CannotConnect, self.label, "{text}");
        }
    }

    /// The target is connected to again, or at last.
    pub(super) fn restored(&self, nid: Nid) {
        let Outage { lost, is_held, failures } = std::mem::take(&mut *self.outage.lock());
        assert!(!is_held || lost.is_some(), "nothing is held back before there was a connection");
        let label = &self.label;
        match lost {
            Some(l) if is_held => {
                let s = self.world.now().since(l.at).as_secs_f64();
                model::event!(
                    INFO,
                    ConnectionRestored,
                    label,
                    "connection restored to {label} (at {nid}): it was lost for {s:.1} s, at {} ({})",
                    l.nid,
                    l.why
                );
            }
            None if failures.is_empty() => {}
            _ => {
                model::event!(INFO, ConnectionRestored, label, "connection restored to {label} (at {nid})");
            }
        }
    }

    /// Says what was held back once that is not short any more.
    async fn outlast(&self) -> Infallible {
        let due = {
            let g = self.outage.lock();
            g.lost.as_ref().filter(|_| g.is_held).map(|l| l.at.plus(HOLD))
        };
        if let Some(due) = due {
            self.world.sleep(due.since(self.world.now())).await;
            self.say_held();
        }
        std::future::pending().await
    }

    fn say_held(&self) {
        let mut g = self.outage.lock();
        if !std::mem::take(&mut g.is_held) {
            return;
        }
        let label = &self.label;
        let Some(Lost { at, nid, why }) = &g.lost else { unreachable!("a loss is held back") };
        let s = self.world.now().since(*at).as_secs();
        model::event!(
            WARN,
            ConnectionLost,
            label,
            "connection to {label} (at {nid}) was lost {s} s ago ({why}); operations wait for it"
        );
        for text in g.failures.values() {
            model::event!(WARN, CannotConnect, label, "{text}");
        }
    }

    /// Does a step of making a connection, and says meanwhile what is due.
    pub(super) async fn over<T: Send>(&self, step: impl Future<Output = T> + Send) -> T {
        match select(step, self.outlast()).await {
            Either::Left(done) => done,
            Either::Right(never) => match never {},
        }
    }
}
