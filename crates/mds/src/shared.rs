//! What operations need besides the table: keys, parameters, the OSTs, numbers that only grow.

use crate::barrier::Barrier;
use crate::changelog::Changelog;
use crate::growing::Growing;
use crate::leases::LeaseState;
use crate::lfsck::Lfsck;
use crate::osts::Osts;
use crate::quotas::{Directories, Quotas, ShareBook};
use crate::rebalance::Rebalance;
use crate::relayout::Movements;
use crate::settings::Settings;
use crate::ways::Moves;
use model::mutex::Mutex;
use model::usage::TRASH;
use model::{Errno, LayoutSpec, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::usage::UsageLedger;
use wire::RequestContext;
use world::World;

pub struct Shared {
    pub world: World,
    pub epoch: u32,
    /// Key of the directory hash.
    pub hash_key: [u64; 2],
    pub settings: Settings,
    pub osts: Osts,
    pub leases: LeaseState,
    /// The file system's default layout, as the root directory has it.
    pub root_default: Mutex<Option<LayoutSpec>>,
    /// Inodes in use.
    pub inodes: AtomicU64,
    /// What owners use of this target.
    pub usage: UsageLedger,
    /// What they may.
    pub quotas: Quotas,
    /// Directories with a quota.
    pub directories: Arc<Directories>,
    /// How much of that each target may give by itself.
    pub shares: ShareBook,
    pub outbox_seq: AtomicU64,
    /// The host's file system is nearly full: only what frees space may go on.
    pub space_low: AtomicBool,
    /// Files whose data is on its way to objects.
    pub growing: Growing,
    /// Files that are moved, or wait for that.
    pub movements: Movements,
    pub rebalance: Rebalance,
    /// Directories that were moved.
    pub moves: Moves,
    pub changelog: Changelog,
    pub barrier: Barrier,
    pub lfsck: Lfsck,
}

/// How far a client's clock may be behind, and ahead.
const CLOCK_BEHIND_NS: i128 = 3_600_000_000_000;
const CLOCK_AHEAD_NS: i128 = 1_000_000_000;
/// How far ahead an object target's clock may be.
const WRITTEN_AHEAD_NS: i128 = 24 * 3_600_000_000_000;

impl Shared {
    /// Whether something lies in the trash.
    pub fn has_trash(&self) -> bool {
        self.usage.get(TRASH).inodes > 0
    }

    /// `ENOSPC` when the host's file system is nearly full: asked by operations that need space.
    pub fn check_space(&self) -> Result<(), Errno> {
        if self.space_low.load(Ordering::Relaxed) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Outbox numbers grow over restarts, because epochs do.
    pub fn next_outbox_seq(&self) -> u64 {
        let n = self.outbox_seq.fetch_add(1, Ordering::Relaxed);
        assert!(n < 1 << 40, "the numbers of one epoch do not run into the next one's");
        u64::from(self.epoch) << 40 | n
    }

    /// As [`Shared::clamp_time`], and behind the last write of the file that is changed, by whatever clock
    /// that was stamped.
    pub fn time_of(&self, ctx: &RequestContext, now: Timestamp) -> Timestamp {
        let far = Timestamp::from_nanos(now.as_nanos() + WRITTEN_AHEAD_NS);
        let written = ctx.written().map_or(Timestamp::ZERO, |t| t.min(far).plus_nanos(1));
        let time = self.clamp_time(ctx.client_time, now).max(written);
        assert!(ctx.written().is_none_or(|t| time > t.min(far)), "a write lies before what follows");
        time
    }

    /// The client's time if it is plausible by the server's clock `now`, else the nearest that is.
    pub fn clamp_time(&self, t: Timestamp, now: Timestamp) -> Timestamp {
        if t == Timestamp::ZERO {
            return now;
        }
        let n = now.as_nanos();
        Timestamp::from_nanos(t.as_nanos().clamp(n - CLOCK_BEHIND_NS, n + CLOCK_AHEAD_NS))
    }
}
