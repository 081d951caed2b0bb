//! What whoever works on the cluster needs: a mount, a bound for an operation, the word for what is wrong.

use crate::cluster::{Cluster, Mount};
use crate::generate::Mix;
use crate::losses::{Part, Witness};
use crate::maintained::Told;
use ::world::rng::Rng;
use ::world::{Either, select};
use client::Fs;
use model::Fid;
use model::mutex::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// One operation may take so much virtual time before it counts as hanging.
const OP_PATIENCE: Duration = Duration::from_secs(600);

/// What all actors share.
pub struct Run {
    pub cluster: Arc<Cluster>,
    pub mix: Mix,
    pub ops: AtomicU64,
    /// One in so many operations is on shared files.
    pub shared_one_in: u64,
    /// How often an actor stays on the mount that is his own.
    pub home_percent: u64,
    /// Files whose creation was lost with their client and a server's power.
    pub lost: Mutex<BTreeSet<Fid>>,
    /// Whether the file system is maintained.
    pub maintenance: Told,
}

/// What is wrong, in words.
pub type Violation = String;

/// The mount's client died under an operation.
pub struct Gone;

/// Runs `f` unless the client that it runs on dies.
pub async fn alive<T: Send>(m: &Mount, life: u64, f: impl Future<Output = T> + Send) -> Result<T, Gone> {
    let mut watch = m.life.subscribe();
    let died = async move {
        // The sender lives as long as the mount.
        let _ = watch.wait_for(|l| *l != life).await;
    };
    match select(f, died).await {
        Either::Left(v) => Ok(v),
        Either::Right(()) => Err(Gone),
    }
}

impl Run {
    /// A living mount, `home` most of the time.
    pub async fn mount(&self, home: usize, rng: &mut Rng) -> (usize, Arc<Fs>, u64) {
        loop {
            let n = self.cluster.mounts.len();
            let i = if rng.below(100) < self.home_percent { home % n } else { rng.index(n) };
            if let Some((fs, life)) = self.cluster.mounts[i].get() {
                return (i, fs, life);
            }
            self.cluster.sim.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether what was answered may be lost with its client.
    pub fn may_be_lost(&self, w: &Witness, part: Part) -> bool {
        w.doubtful(&self.cluster, part)
    }

    /// Bounds an operation: nothing hangs for ever.
    pub async fn bounded<T: Send>(
        &self,
        what: &str,
        f: impl Future<Output = T> + Send,
    ) -> Result<T, Violation> {
        match select(f, self.cluster.sim.sleep(OP_PATIENCE)).await {
            Either::Left(v) => Ok(v),
            Either::Right(()) => Err(format!("{what}: no answer within {OP_PATIENCE:?} of virtual time")),
        }
    }
}

/// Who does one thing after the other beside the actors, each on some mount.
pub(crate) trait Worker {
    /// Between two steps, in microseconds.
    const PAUSE_US: (u64, u64);
    /// What a step is.
    const STEP: &'static str;
    /// Counts the steps whose mounts died.
    const LOST: &'static str;

    fn rng(&mut self) -> &mut Rng;

    fn step(&mut self, c: &Arc<Cluster>, fs: &Arc<Fs>) -> impl Future<Output = Result<(), Violation>> + Send;
}

/// While actors work: until `over`.
pub(crate) async fn keep_working<S: Worker + Send>(
    s: &mut S,
    run: Arc<Run>,
    over: Arc<AtomicBool>,
) -> Result<(), Violation> {
    let c = run.cluster.clone();
    while !over.load(Relaxed) {
        let pause = s.rng().range(S::PAUSE_US.0, S::PAUSE_US.1);
        c.sim.sleep(Duration::from_micros(pause)).await;
        let home = s.rng().index(c.mounts.len());
        let (m, fs, life) = run.mount(home, s.rng()).await;
        match run.bounded(S::STEP, alive(&c.mounts[m], life, s.step(&c, &fs))).await? {
            Ok(done) => done?,
            Err(Gone) => c.sim.count(S::LOST),
        }
    }
    Ok(())
}

pub(crate) type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Violation>> + Send + 'a>>;

/// All of them, or the first violation.
pub(crate) async fn until_first_error(mut all: Vec<Work<'_>>) -> Result<(), Violation> {
    std::future::poll_fn(move |cx| {
        let mut i = 0;
        while i < all.len() {
            match all[i].as_mut().poll(cx) {
                std::task::Poll::Ready(Ok(())) => drop(all.remove(i)),
                std::task::Poll::Ready(Err(e)) => return std::task::Poll::Ready(Err(e)),
                std::task::Poll::Pending => i += 1,
            }
        }
        if all.is_empty() { std::task::Poll::Ready(Ok(())) } else { std::task::Poll::Pending }
    })
    .await
}
