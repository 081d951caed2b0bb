//! An operator maintains the file system now and then, in some runs: changes are refused, or everything
//! waits, while actors work and servers and clients fail. What is refused did not happen, as actors' models
//! say afterwards; what begins once all mounts say that they hold it changes nothing, or is not answered;
//! when all say that they are quiet, what began before is over too, and names stay as they are; who is left
//! alone is refused nothing; and when it is over nobody hangs.

use crate::cluster::Cluster;
use crate::executor::lock;
use crate::known::DEAD_CLIENT_PATIENCE;
use crate::maintained::State;
use crate::run::{Run, Violation};
use crate::server::FSNAME;
use ::world::rng::Rng;
use ::world::{Either, select};
use mds::schema::key;
use model::Fid;
use model::maintenance::{Maintenance, Mode};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// One seed in so many has one.
const ONE_IN: u64 = 40;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 32;
/// Until all mounts hold what was ordered; some may be away.
const HELD_WITHIN: Duration = Duration::from_secs(30);
/// An order that gets no answer, because the server is gone, is given again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Targets refuse changes of who does not know of it from so long on.
const GRACE: Duration = rpc::maintenance::GRACE;
/// For everything that mounts keep to reach the servers.
const FLUSHED_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Operator {
    rng: Rng,
    orders: u64,
}

impl Operator {
    pub(crate) fn is_there(seed: u64) -> bool {
        seed % ONE_IN == THIS_ONE
    }

    pub(crate) fn new(seed: u64) -> Option<Operator> {
        let rng = Rng::new(seed ^ 0x006d_6169_6e74);
        Operator::is_there(seed).then_some(Operator { rng, orders: 0 })
    }

    /// While actors work: until `over`.
    pub(crate) async fn work(&mut self, run: Arc<Run>, over: Arc<AtomicBool>) -> Result<(), Violation> {
        let c = run.cluster.clone();
        while !over.load(Relaxed) {
            let pause = self.rng.range(100_000, 4_000_000);
            c.sim.sleep(Duration::from_micros(pause)).await;
            let told = &run.maintenance;
            let _alone = told.nothing_ordered().await;
            let mode = if self.rng.below(3) == 0 { Mode::Closed } else { Mode::ReadOnly };
            let except = (self.rng.below(3) == 0).then(|| self.rng.index(c.mounts.len()));
            self.orders += 1;
            told.set(State { ordered: true, except, firm: None });
            order(&c, mode, except.map(|m| c.mounts[m].nid())).await;
            c.sim.log(|| format!("maintenance: {} except {except:?} is ordered", mode.word()));
            if all_hold(&c, mode, except).await {
                let names =
                    if mode == Mode::ReadOnly && except.is_none() { Names::now(&c).await } else { None };
                told.set(State { ordered: true, except, firm: Some((mode, self.orders)) });
                c.sim.count(if mode == Mode::Closed {
                    "maintenance_closed"
                } else {
                    "maintenance_read_only"
                });
                self.hold(&c, names).await?;
            }
            told.set(State { ordered: true, except, firm: None });
            order(&c, Mode::Off, None).await;
            // Who is away now takes part in no maintenance when he is back: there is none.
            while !all_hold(&c, Mode::Off, None).await {}
            told.set(State::default());
        }
        Ok(())
    }

    /// It goes on for a while, and nothing has another name.
    async fn hold(&mut self, c: &Arc<Cluster>, names: Option<Names>) -> Result<(), Violation> {
        let long = GRACE + Duration::from_secs(self.rng.range(1, 20));
        let short = Duration::from_micros(self.rng.range(1_000, 3_000_000));
        let until = c.sim.now() + if self.rng.coin() { long } else { short }.as_nanos() as u64;
        while c.sim.now() < until {
            if let Some(n) = &names {
                n.compare(c)?;
            }
            c.sim.sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

/// Orders it at the MGS, as often as it takes.
async fn order(c: &Arc<Cluster>, mode: Mode, except: Option<String>) {
    let m = Maintenance {
        mode,
        fsname: FSNAME.into(),
        since: 0,
        except: except.unwrap_or_default(),
        reason: "the simulator's".into(),
    };
    loop {
        if let Some(mgs) = c.mgs() {
            let (name, value) = (Maintenance::param_name(FSNAME), m.text());
            let done = Box::pin(async move { mgs.set_permanent(&name, &value, false).await });
            if matches!(select(done, c.sim.sleep(ASK_AGAIN)).await, Either::Left(Ok(()))) {
                return;
            }
        }
        c.sim.sleep(LOOK_AGAIN).await;
    }
}

/// Whether all mounts that are there come to do this, but one that is left alone.
async fn all_hold(c: &Arc<Cluster>, mode: Mode, except: Option<usize>) -> bool {
    all_say(c, "maintenance_held", mode.word(), except, HELD_WITHIN).await
}

/// Whether all mounts that are there come to say this of a parameter, but one that is left alone.
async fn all_say(
    c: &Arc<Cluster>,
    param: &str,
    value: &str,
    except: Option<usize>,
    within: Duration,
) -> bool {
    let pattern = format!("llite.*.{param}");
    let until = c.sim.now() + within.as_nanos() as u64;
    while c.sim.now() < until {
        let held = c.mounts.iter().enumerate().filter(|(i, _)| Some(*i) != except).all(|(_, m)| {
            m.get().is_some_and(|(fs, _)| fs.params(&pattern).texts().iter().any(|(_, v)| v == value))
        });
        if held {
            return true;
        }
        c.sim.sleep(LOOK_AGAIN).await;
    }
    false
}

/// All names that there are, when everything that mounts kept was durable.
struct Names {
    since: u64,
    sum: u64,
}

impl Names {
    /// `None`: not everybody could write what he kept.
    async fn now(c: &Arc<Cluster>) -> Option<Names> {
        let since = c.sim.now();
        // A change that a mount began before it held the maintenance is answered when its server comes to it:
        // the mount says when it has none left (decision 0079).
        if !all_say(c, "maintenance_quiet", "1", None, FLUSHED_WITHIN).await {
            return None;
        }
        for m in &c.mounts {
            let (fs, life) = m.get()?;
            let done = Box::pin(async move { fs.sync().await });
            if !matches!(select(done, c.sim.sleep(FLUSHED_WITHIN)).await, Either::Left(Ok(()))) {
                return None;
            }
            (*m.life.borrow() == life).then_some(())?;
        }
        let n = Names { since, sum: sum(c)? };
        n.can_be_said(c).then_some(n)
    }

    /// Nobody died lately whose changes may still be done, and nobody has his own done again.
    fn can_be_said(&self, c: &Cluster) -> bool {
        let after = self.since.saturating_sub(DEAD_CLIENT_PATIENCE.as_nanos() as u64);
        let died = c.mounts.iter().any(|m| lock(&m.graves).values().any(|(at, _)| *at >= after));
        let host = c.servers[0].host();
        !died && !host.node.is_paused() && c.mdt().is_some_and(|m| !m.recovering())
    }

    fn compare(&self, c: &Cluster) -> Result<(), Violation> {
        if !self.can_be_said(c) {
            return Ok(());
        }
        match sum(c) {
            Some(now) if now != self.sum => Err("names changed though changes are refused".into()),
            Some(_) => {
                c.sim.count("maintenance_compared");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Of the names of users' files: a check puts what was lost elsewhere.
fn sum(c: &Cluster) -> Option<u64> {
    let db = c.mdt_db()?;
    let mut h = DefaultHasher::new();
    for (k, v) in store::Read::scan(&*db, &[key::DENTRY], &[key::DENTRY + 1], usize::MAX).ok()? {
        if key::parse_dentry(&k).is_none_or(|(dir, _, _)| dir != Fid::LOST_FOUND) {
            (k, v).hash(&mut h);
        }
    }
    Some(h.finish())
}
