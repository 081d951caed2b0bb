//! What goes wrong, and who sees to that.

use crate::cluster::Cluster;
use crate::failover::Loss;
use ::world::mem::CrashMode;
use ::world::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What goes wrong, and when: at numbers of operations, so that each run has its share.
pub(crate) struct Nemesis {
    pub(crate) points: Vec<(u64, Fault)>,
    pub(crate) skip: BTreeSet<usize>,
    pub(crate) rng: Rng,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    CrashServer,
    CrashAll,
    /// Nobody is left to send again what the server forgot.
    CrashServerAndClient,
    KillServer,
    /// See [`Nemesis::crash_mds_and_cut`].
    CrashMdsAndCut,
    /// See [`Nemesis::crash_osts_under_flush`].
    CrashOstsUnderFlush,
    ResetConnection,
    Partition {
        both: bool,
    },
    PauseServer,
    PauseClient,
    KillClient,
    SlowDisk,
    /// See [`Nemesis::fail_over`].
    FailOver(Loss),
    /// See [`Nemesis::stale_client`].
    StaleClient,
    ClockJump,
    /// The process, or the power, ends at an await point.
    ServerAtAwait,
    ClientAtAwait,
}

impl Nemesis {
    /// Down, for a while, and up again; sometimes down once more while it starts.
    pub(crate) async fn restart(&mut self, c: &Arc<Cluster>, which: &[usize], power: bool) {
        let mut again = true;
        while again {
            for &i in which {
                c.crash(i, power.then_some(CrashMode::Random));
            }
            let down = if self.rng.coin() { self.rng.range(1, 3000) } else { self.rng.range(1, 3_000_000) };
            c.sim.sleep(Duration::from_micros(down)).await;
            for &i in which {
                c.boot(i);
            }
            again = self.rng.below(6) == 0;
            if again {
                let soon = self.rng.range(1, 20_000);
                c.sim.sleep(Duration::from_micros(soon)).await;
            }
        }
    }
}
