//! What operations need besides the table: keys, parameters, the OSTs, numbers that only grow.

use crate::alloc::Policy;
use crate::growing::Growing;
use crate::leases::LeaseState;
use crate::osts::Osts;
use crate::settings::{Settings, seconds};
use crate::ways::Moves;
use model::mutex::Mutex;
use model::{Errno, Fid, Layout, LayoutSpec, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};
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
    pub outbox_seq: AtomicU64,
    /// The host's file system is nearly full: only what frees space may go on.
    pub space_low: AtomicBool,
    /// Files whose data is on its way to objects.
    pub growing: Growing,
    /// Directories that were moved.
    pub moves: Moves,
}

/// How far a client's clock may be behind, and ahead.
const CLOCK_BEHIND_NS: i128 = 3_600_000_000_000;
const CLOCK_AHEAD_NS: i128 = 1_000_000_000;

impl Shared {
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

    /// The client's time if it is plausible by the server's clock `now`, else the nearest that is.
    pub fn clamp_time(&self, t: Timestamp, now: Timestamp) -> Timestamp {
        if t == Timestamp::ZERO {
            return now;
        }
        let n = now.as_nanos();
        Timestamp::from_nanos(t.as_nanos().clamp(n - CLOCK_BEHIND_NS, n + CLOCK_AHEAD_NS))
    }

    /// `spec` completed by the directory's default and the file system's.
    pub fn resolve(&self, spec: Option<&LayoutSpec>, dir_default: Option<&LayoutSpec>) -> LayoutSpec {
        let mut s = spec.cloned().unwrap_or_default();
        if let Some(d) = dir_default {
            s = s.inherit(d);
        }
        if let Some(r) = self.root_default.lock().as_ref() {
            s = s.inherit(r);
        }
        s
    }

    /// As [`Shared::resolve`], completed by the built-in one: nothing is inherited any more.
    pub fn wanted(&self, spec: Option<&LayoutSpec>, dir_default: Option<&LayoutSpec>) -> LayoutSpec {
        self.resolve(spec, dir_default).inherit(&self.settings.builtin_layout())
    }

    /// The layout of a new file, and what it is to get when it outgrows the metadata server. Chooses OSTs for
    /// a file that asks for objects. `EINVAL` for settings that cannot be, `ENOSPC` if no OST takes objects.
    pub fn allocate(
        &self,
        fid: Fid,
        spec: Option<&LayoutSpec>,
        dir_default: Option<&LayoutSpec>,
    ) -> Result<(Layout, Option<LayoutSpec>), Errno> {
        let asked = self.resolve(spec, dir_default);
        let room = self.room(&asked)?;
        let s = asked.inherit(&self.settings.builtin_layout());
        s.check()?;
        if room > 0 {
            return Ok((Layout::on_mdt(room), Some(s)));
        }
        let (stripe_size, osts) = self.choose(&s)?;
        Ok((Layout::plain(fid, stripe_size, &s.pool, &osts).marked(|i| self.osts.mark(i)), None))
    }

    /// Bytes that may lie with the inode of a file that asks for this.
    fn room(&self, asked: &LayoutSpec) -> Result<u32, Errno> {
        let room = match asked.mdt_bytes() {
            Some(n) => n,
            None if asked.names_objects() => 0,
            None => self.settings.dom_stripesize.load(Relaxed),
        };
        u32::try_from(room).map_err(|_| Errno::EINVAL)
    }

    /// The layout of a new file that asks for nothing special, if it is no choice: its data lies with its
    /// inode.
    pub fn plain_layout(&self, dir_default: Option<&LayoutSpec>) -> Option<Layout> {
        let asked = self.resolve(None, dir_default);
        let fits = asked.clone().inherit(&self.settings.builtin_layout()).check().is_ok();
        self.room(&asked).ok().filter(|room| fits && *room > 0).map(Layout::on_mdt)
    }

    /// OSTs, and the stripe size, for settings to which nothing is inherited any more.
    pub fn choose(&self, s: &LayoutSpec) -> Result<(u32, Vec<u16>), Errno> {
        let policy = Policy {
            threshold_rr: self.settings.qos_threshold_rr.load(Relaxed),
            prio_free: self.settings.qos_prio_free.load(Relaxed),
        };
        let max_age = seconds(&self.settings.qos_maxage_s);
        let osts = self.osts.choose(s, policy, max_age, &self.world)?;
        assert!(!osts.is_empty(), "a file with objects has one at least");
        Ok((u32::try_from(s.stripe_size).map_err(|_| Errno::EINVAL)?, osts))
    }
}
