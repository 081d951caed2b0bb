//! `snapshot_create`: all targets at one moment, wherever they are served, or none.

use super::record::{FORMAT, Here, Record};
use crate::command::barrier::{Served, fsname_of_mdt};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::live::ProgressLine;
use crate::orders::strange;
use model::barrier::{BarrierOrder, BarrierState};
use model::snapshot::{SnapshotAnswer, SnapshotOrder, Still, stood_together};
use model::{Errno, hex};
use std::time::Duration;
use world::World;
use world::sys;

const WHAT: &str = "cannot make a snapshot of";
/// So often what changed is cloned again before everything stands still.
const ROUNDS_MAX: usize = 6;
/// With so few files to clone it is time to.
const FEW: u64 = 64;
/// So often it is tried to have all targets stand still, each time for longer.
const TRIES: u32 = 6;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);
/// After this they stand still: all must have heard of it by then.
const LEAD_MS: u32 = 20;
/// For so long, the first time.
const HOLD_MS: u32 = 60;

/// What is wanted.
pub struct CreateOptions {
    pub name: String,
    pub comment: String,
    /// Seconds that the write barrier holds at most; `None`: none is wanted.
    pub barrier: Option<u32>,
}

/// Who makes one.
struct Maker<'a> {
    here: &'a Here,
    wanted: &'a CreateOptions,
    i: &'a Interrupt,
    line: &'a ProgressLine,
}

impl Maker<'_> {
    /// All targets do it; the first failure is one of all.
    fn all(&self, order: impl Fn() -> SnapshotOrder) -> Result<Vec<SnapshotAnswer>, Failure> {
        let fsname = self.here.fsname();
        self.here.site.all(WHAT, self.here.orders(|_| order()), self.i, &mut |n| {
            self.line.show(|| format!("{fsname}: {n} files cloned"));
        })
    }

    fn check(&self) -> Result<(), Failure> {
        if self.i.stopped() { Err(Failure::op(WHAT, self.here.fsname(), Errno::EINTR)) } else { Ok(()) }
    }

    /// Clones what changed, again and again, until that is little.
    fn settle(&self) -> Result<(), Failure> {
        for _ in 0..ROUNDS_MAX {
            self.check()?;
            let again = self.all(|| SnapshotOrder::Again)?;
            let few = |a: &SnapshotAnswer| matches!(a, SnapshotAnswer::Changed(Some(n)) if *n <= FEW);
            if again.iter().all(few) {
                break;
            }
        }
        Ok(())
    }

    /// All targets stand still at one moment, and what changed since is cloned.
    fn at_once(&self) -> Result<(), Failure> {
        let mut last = Ok(());
        for n in 0..TRIES {
            if n > 0 {
                self.i.pause(BETWEEN_TRIES);
                self.settle()?;
            }
            self.check()?;
            last = self.cut(LEAD_MS << n, HOLD_MS << n);
            if !matches!(&last, Err(Failure::Op { errno: Errno::EBUSY, .. })) {
                break;
            }
        }
        last
    }

    /// `EBUSY`: they did not, or not together.
    fn cut(&self, lead_ms: u32, hold_ms: u32) -> Result<(), Failure> {
        let orders = self.here.orders(|_| SnapshotOrder::Cut { lead_ms, hold_ms });
        let said = self.here.site.ask_snapshots(WHAT, orders)?;
        let slow = "what was under way there took too long: try again when it has less to do";
        let mut stood: Vec<(u64, Still, u64)> = Vec::new();
        let mut failed = None;
        for (p, (said, after_us)) in self.here.places.iter().zip(said) {
            match said {
                Ok(SnapshotAnswer::Cut(s)) => stood.push((0, s, after_us)),
                Ok(SnapshotAnswer::Running { .. }) => {
                    failed = failed.or(Some(Failure::explained(WHAT, &p.label, Errno::EBUSY, slow)));
                }
                Ok(_) => return Err(strange(WHAT, p)),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        if let Some(e) = failed {
            // Those that are at it come to their end.
            self.all(|| SnapshotOrder::Look).ok();
            return Err(e);
        }
        assert_eq!(stood.len(), self.here.places.len(), "each said how long it stood");
        if stood_together(&stood) {
            return Ok(());
        }
        let why = "its targets stood still one after the other, not at one moment: the network between their hosts is slow";
        Err(Failure::explained(WHAT, self.here.fsname(), Errno::EBUSY, why))
    }

    fn clone_all(&self) -> Result<(), Failure> {
        self.all(|| SnapshotOrder::Begin { name: self.wanted.name.clone() })?;
        self.settle()?;
        let Some(timeout_s) = self.wanted.barrier else { return self.at_once() };
        let mdts = self.here.places.iter().filter(|p| fsname_of_mdt(&p.label).is_some());
        let mdts: Vec<Served> = mdts.map(|p| Served::by(&self.here.site, p)).collect();
        let mut frozen: Vec<(&Served, u64)> = Vec::new();
        let mut done = Ok(());
        for t in &mdts {
            match t.freeze(WHAT, timeout_s, self.i) {
                Ok(s) => frozen.push((t, s.round)),
                Err(e) => {
                    done = Err(e);
                    break;
                }
            }
        }
        let mut done = done.and_then(|()| self.settle()).and_then(|()| self.at_once());
        for (t, round) in frozen {
            // That it held until now is what makes the copy one of its moment.
            let holds =
                t.ask(WHAT, BarrierOrder::Stat).map(|s| s.round == round && s.state == BarrierState::Frozen);
            let thawed = t.ask(WHAT, BarrierOrder::Thaw).map(drop);
            let why = "its write barrier ended before everything was cloned: give it more time (-t)";
            let late = || Failure::explained(WHAT, &t.label, Errno::ETIMEDOUT, why);
            done = done.and(holds.and_then(|h| if h { Ok(()) } else { Err(late()) })).and(thawed);
        }
        done
    }

    /// From here on it counts, in all targets or in none.
    fn keep_all(&self, record: &Record) -> Result<(), Failure> {
        self.check()?;
        let fsname = self.here.fsname();
        self.line.show(|| format!("{fsname}: to be made durable"));
        let orders = self.here.orders(|p| SnapshotOrder::Keep { record: record.of(&p.label).bytes() });
        self.here.site.all(WHAT, orders, self.i, &mut |_| {})?;
        self.check()?;
        let named = self.all(|| SnapshotOrder::Name).map(drop);
        if named.is_err() {
            // What is left of it has no whole snapshot around it, and is listed so.
            let orders = self.here.orders(|_| SnapshotOrder::Drop);
            let _ = self.here.site.ask_snapshots(WHAT, orders);
            let orders = self.here.orders(|_| SnapshotOrder::Destroy { name: record.name.clone() });
            let _ = self.here.site.each(WHAT, orders, self.i, &mut |_| {});
        }
        named
    }
}

/// Makes one, and what it says of itself.
pub fn create(
    world: &World,
    here: &Here,
    wanted: &CreateOptions,
    (i, line): (&Interrupt, &ProgressLine),
) -> Result<Record, Failure> {
    let now = sys::wall_seconds();
    let record = Record {
        format: FORMAT,
        id: hex(&world.random_uuid()),
        name: wanted.name.clone(),
        comment: wanted.comment.clone(),
        fsname: here.fsname().to_string(),
        snapshot_fsname: format!("{:08x}", world.random_u64() >> 32),
        created: now,
        modified: now,
        barrier: wanted.barrier.is_some(),
        target: String::new(),
        targets: here.places.iter().map(|p| p.label.clone()).collect(),
    };
    // Nothing is begun where a server does not answer.
    super::record::whole(here)?;
    let m = Maker { here, wanted, i, line };
    let done = m.clone_all().and_then(|()| m.keep_all(&record));
    if done.is_err() {
        line.show(|| format!("{}: it is taken back", here.fsname()));
        // Who does not hear this gives it up by himself.
        let _ = here.site.ask_snapshots(WHAT, here.orders(|_| SnapshotOrder::Drop));
    }
    done.map(|()| record)
}
