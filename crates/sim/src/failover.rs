//! A target moves to the other host that reaches it, whatever became of the first: dead, asleep, cut off, or
//! alive and only believed to be dead. The engine that decides may be wrong, and its fence may lie.

use crate::cluster::Cluster;
use crate::nemesis::Nemesis;
use crate::run::Violation;
use crate::world::{Rest, Stop};
use ::world::mem::CrashMode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// So long after its start a target serves somewhere.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(300);

/// What became of the host that had the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    Killed,
    PowerLost,
    /// It does nothing for a while, and then goes on.
    Asleep,
    /// The same, with a change of a file under way that reaches the disk when it goes on.
    AsleepInChange,
    /// A guest that is paused, with all its clocks, until its successor serves.
    ClocksStopped,
    /// Nobody hears it, or it hears nobody; its disk does.
    CutOff {
        both: bool,
    },
    /// It died, and both hosts start the target in the same moment.
    DoubleStart,
}

impl Loss {
    pub(crate) const ALL: [Loss; 8] = [
        Loss::Killed,
        Loss::PowerLost,
        Loss::Asleep,
        Loss::AsleepInChange,
        Loss::ClocksStopped,
        Loss::CutOff { both: true },
        Loss::CutOff { both: false },
        Loss::DoubleStart,
    ];

    /// The host is not dead, unless somebody sees to that.
    fn lives(self) -> bool {
        matches!(self, Loss::Asleep | Loss::AsleepInChange | Loss::ClocksStopped | Loss::CutOff { .. })
    }
}

impl Nemesis {
    /// Moves a server's target, perhaps again while that is under way.
    pub(crate) async fn fail_over(
        &mut self,
        c: &Arc<Cluster>,
        server: usize,
        how: Loss,
    ) -> Result<(), Violation> {
        c.servers[server].drill(true);
        let mut how = how;
        loop {
            self.move_target(c, server, how).await?;
            if self.rng.below(4) > 0 {
                break;
            }
            // In the middle of its recovery.
            let soon = self.rng.range(1, 1_500_000);
            c.sim.sleep(Duration::from_micros(soon)).await;
            c.sim.count("failover_again");
            how = if self.rng.coin() { Loss::Killed } else { Loss::PowerLost };
        }
        c.servers[server].drill(false);
        Ok(())
    }

    async fn move_target(&mut self, c: &Arc<Cluster>, server: usize, how: Loss) -> Result<(), Violation> {
        let s = &c.servers[server];
        let (from, to) = (s.active(), 1 - s.active());
        self.lose(c, server, how).await;
        let detection = self.rng.below(3_000_000);
        c.sim.sleep(Duration::from_micros(detection)).await;
        let lied = how == Loss::ClocksStopped || how.lives() && self.rng.below(3) > 0;
        if how.lives() && !lied {
            c.crash_at(server, from, Some(CrashMode::Random));
            s.hosts[from].node.reboot();
            c.sim.count("fence");
        } else if lied {
            c.sim.count("fence_lied");
        }
        c.sim.count("failover");
        s.activate(to);
        c.boot_at(server, to);
        if how == Loss::DoubleStart {
            c.boot_at(server, from);
            c.sim.count("double_start");
        }
        if lied {
            // Soon enough to keep its target, in the moment that its word ends, or when its successor serves.
            let later = match self.rng.below(4) {
                // Clients that are cut off for all of a recovery window are evicted, and rightly.
                _ if matches!(how, Loss::CutOff { .. }) => self.rng.range(1, 6_000_000),
                // By its clock its lease has half a term left.
                _ if how == Loss::ClocksStopped => self.rng.range(24_000_000, 60_000_000),
                0 => self.rng.range(1, 7_000_000),
                1 => self.rng.range(7_000_000, 22_000_000),
                _ => self.rng.range(22_000_000, 60_000_000),
            };
            c.sim.sleep(Duration::from_micros(later)).await;
            if s.hosts[from].node.is_paused() {
                c.sim.count("zombie");
                s.hosts[from].node.resume();
                c.check_owners(server);
            }
        }
        c.sim.heal();
        self.wait_for_one(c, server).await
    }

    async fn lose(&mut self, c: &Arc<Cluster>, server: usize, how: Loss) {
        let s = &c.servers[server];
        let from = s.active();
        let node = &s.hosts[from].node;
        match how {
            Loss::Killed | Loss::DoubleStart if self.rng.coin() => c.crash_at(server, from, None),
            Loss::Killed | Loss::PowerLost | Loss::DoubleStart => {
                c.crash_at(server, from, Some(CrashMode::Random));
                node.reboot();
            }
            Loss::Asleep => node.pause_with(*self.rng.pick(&Rest::ALL)),
            Loss::ClocksStopped => node.pause_with(Rest::Clocks),
            Loss::AsleepInChange => {
                let what = *self.rng.pick(&["/journal/", "/mmp"]);
                node.stop_at(Stop::Change(what), Duration::from_secs(20)).await;
                node.pause_with(*self.rng.pick(&Rest::ALL));
            }
            Loss::CutOff { both } => {
                let others = c.servers.iter().filter(|o| !Arc::ptr_eq(o, s)).map(|o| o.node());
                let way = self.rng.coin();
                for other in others.chain(c.mounts.iter().map(|m| &m.node)) {
                    let (a, b) = if way { (node, other) } else { (other, node) };
                    c.sim.partition(a, b, both);
                }
            }
        }
    }

    /// Until the target is served by one of its hosts, and the other one has given up.
    async fn wait_for_one(&mut self, c: &Arc<Cluster>, server: usize) -> Result<(), Violation> {
        let s = &c.servers[server];
        let mut left = PATIENCE;
        loop {
            c.sim.sleep(LOOK).await;
            let up = [s.hosts[0].is_up(), s.hosts[1].is_up()];
            let refused = [0, 1].map(|h| s.hosts[h].refused.load(Relaxed));
            let starting = [0, 1].map(|h| s.hosts[h].starting.load(Relaxed));
            match (up, refused) {
                ([true, true], _) => {}
                // Who woke up in the middle of a start may have claimed the target: the other one gives up
                // soon.
                ([true, false], _) if starting[1] => {}
                ([false, true], _) if starting[0] => {}
                ([true, false], [_, true]) => return self.settle_on(c, server, 0),
                ([false, true], [true, _]) => return self.settle_on(c, server, 1),
                ([true, false], _) if s.active() == 0 => return Ok(()),
                ([false, true], _) if s.active() == 1 => return Ok(()),
                ([false, false], [a, b]) if a && b || s.hosts[s.active()].refused.load(Relaxed) => {
                    // The one that was too lively for the other is gone as well.
                    c.boot(server);
                }
                _ => {}
            }
            left = left.saturating_sub(LOOK);
            if left.is_zero() {
                return Err(format!("{:?}: nobody serves it {PATIENCE:?} after a failover", s.role));
            }
        }
    }

    fn settle_on(&mut self, c: &Arc<Cluster>, server: usize, host: usize) -> Result<(), Violation> {
        if c.servers[server].active() != host {
            c.sim.count("failover_refused");
        }
        c.servers[server].activate(host);
        Ok(())
    }
}
