//! The object targets as this metadata target knows them: a session with each, its free space (asked for
//! every `qos_maxage` seconds), and whether it takes new objects.

use crate::alloc::{Allocator, OstView, Policy, RESERVE_BYTES, STATE_REFUSES};
use crate::passed_over::Pace;
use crate::pools::Pools;
use model::mutex::Mutex;
use model::planted::{self, Bug};
use model::{Errno, LayoutSpec, Nid, TargetMark, domain};
use rpc::Import;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::statfs::StatfsReply;
use wire::msg::statfs::state::NO_SPACE;
use world::sync::Notify;
use world::{Instant, World};

/// An OST that does not answer for so many polls takes no new objects while others do.
const UNREACHABLE_AFTER_POLLS: u32 = 3;

/// One OST.
#[derive(Clone)]
pub struct Ost {
    /// `None` for figures without a session (tests of allocation).
    pub import: Option<Arc<Import>>,
    pub nids: Vec<Nid>,
    /// Where an administrator placed it; empty: nowhere.
    pub domain: Vec<String>,
    /// Of the target that has the index now.
    pub mark: TargetMark,
    /// In the configuration, and not deactivated there.
    pub configured: bool,
    /// Not deactivated by this server's administrator.
    pub enabled: bool,
    /// `osp.*.max_create_count`. There is no precreation: 0 keeps new objects away, and more bounds nothing.
    pub max_create_count: u64,
    pub space: Option<StatfsReply>,
    /// Of the last answer; of the first poll until there was one.
    pub heard: Option<Instant>,
    /// How long it takes to answer.
    pub pace: Pace,
    /// Why it gets no new objects, as it was said last (`passed_over.rs`).
    pub passed_over: u32,
    /// Something to do: new outbox records, or a change of configuration.
    pub wake: Arc<Notify>,
}

/// `osp.*.max_create_count`.
pub const CREATE_COUNT_DEFAULT: u64 = 20_000;

impl Ost {
    /// The states for which it takes no new objects, as [`StatfsReply::state`] has them, if it said so.
    fn refuses(&self) -> u32 {
        self.space.map_or(0, |s| s.state & STATE_REFUSES)
    }
}

#[derive(Default)]
pub struct Osts {
    pub(crate) table: Mutex<BTreeMap<u16, Ost>>,
    allocator: Mutex<Allocator>,
    pub pools: Pools,
}

/// As if it had room.
fn with_room(s: StatfsReply, reserve: u64) -> StatfsReply {
    StatfsReply { state: s.state & !NO_SPACE, available: s.available.max(reserve.saturating_add(1)), ..s }
}

impl Osts {
    pub fn new(start: u64) -> Osts {
        Osts {
            table: Mutex::default(),
            allocator: Mutex::new(Allocator::new(start)),
            pools: Pools::default(),
        }
    }

    pub fn insert(&self, index: u16, ost: Ost) {
        self.table.lock().insert(index, ost);
    }

    /// It is none of the file system's any more. Who works for it in the background looks.
    pub fn remove(&self, index: u16) {
        let gone = self.table.lock().remove(&index);
        if let Some(o) = gone {
            o.wake.notify_one();
        }
    }

    pub fn get(&self, index: u16) -> Option<Ost> {
        self.table.lock().get(&index).cloned()
    }

    /// Changes one; false if there is none of this index.
    pub fn update(&self, index: u16, f: impl FnOnce(&mut Ost)) -> bool {
        self.table.lock().get_mut(&index).map(f).is_some()
    }

    pub fn list(&self) -> Vec<(u16, Ost)> {
        self.table.lock().iter().map(|(&i, o)| (i, o.clone())).collect()
    }

    /// Tells the sender of an OST's outbox that there is something in it.
    pub fn wake(&self, index: u16) {
        if let Some(o) = self.table.lock().get(&index) {
            o.wake.notify_one();
        }
    }

    pub fn wake_all(&self) {
        for o in self.table.lock().values() {
            o.wake.notify_one();
        }
    }

    /// Asked for but not answered for too long.
    pub(crate) fn reachable(o: &Ost, now: Instant, max_age: Duration) -> bool {
        match (&o.import, o.heard) {
            (Some(_), Some(t)) => now.since(t) <= max_age * UNREACHABLE_AFTER_POLLS,
            _ => true,
        }
    }

    /// Bytes of those OSTs that are active and answered: taken, and available.
    pub(crate) fn space_of(&self, osts: &BTreeSet<u16>) -> (u128, u128) {
        let table = self.table.lock();
        let active = table.iter().filter(|(i, o)| osts.contains(i) && o.configured && o.enabled);
        let known = active.filter_map(|(_, o)| o.space);
        let taken = |s: &StatfsReply| u128::from(s.total.saturating_sub(s.free));
        known.fold((0, 0), |(t, a), s| (t + taken(&s), a + u128::from(s.available)))
    }

    /// See [`Allocator::choose`]. The pool is as [`Osts::placed`] says.
    pub fn choose(
        &self,
        spec: &LayoutSpec,
        policy: Policy,
        max_age: Duration,
        world: &World,
    ) -> Result<Vec<u16>, Errno> {
        let now = world.now();
        let pool = self.limits(spec);
        let views: Vec<OstView> = self
            .table
            .lock()
            .iter()
            .filter(|(index, _)| pool.as_ref().is_none_or(|(_, osts)| osts.contains(index)))
            .map(|(&index, o)| OstView {
                index,
                domain: domain::place(&o.domain, o.nids.first().copied()),
                active: o.configured && o.enabled,
                creates: o.max_create_count > 0 || planted::on(Bug::ClosedOstChosen),
                reachable: Osts::reachable(o, now, max_age),
                slow: o.pace.is_slow(),
                space: o.space.map(|s| if policy.full_too { with_room(s, policy.reserve_bytes) } else { s }),
                disk: o.import.as_ref().map_or(0, |i| i.disk()),
            })
            .collect();
        let allocator = pool.as_ref().map_or(&self.allocator, |(p, _)| &p.allocator);
        let chosen = allocator.lock().choose(spec, &views, policy, &mut || world.random_u64())?;
        let known = |i: &u16| views.iter().any(|v| v.index == *i && v.active);
        assert!(chosen.iter().all(known), "only OSTs that are in use get objects");
        Ok(chosen)
    }

    /// Whether an object of this OST may grow by so many bytes, as far as is known: not one that takes no new
    /// objects.
    pub fn has_room(&self, index: u16, bytes: u64) -> bool {
        let table = self.table.lock();
        let Some(o) = table.get(&index) else { return true };
        let room = o.space.is_none_or(|s| s.available > bytes.max(RESERVE_BYTES));
        room && o.max_create_count > 0 && o.refuses() == 0
    }

    /// What an OST said of its space and state.
    pub fn heard(&self, index: u16, said: StatfsReply, now: Instant) {
        self.update(index, |o| (o.space, o.heard) = (Some(said), Some(now)));
    }

    /// `osp.*.max_create_count`: until the next start, unless the configuration says it again.
    pub fn set_max_create_count(&self, index: u16, count: u64) {
        assert!(count <= CREATE_COUNT_DEFAULT, "a parameter's value is within its bounds");
        self.update(index, |o| o.max_create_count = count);
    }

    /// What objects say that are laid out for this index now.
    pub fn mark(&self, index: u16) -> TargetMark {
        self.table.lock().get(&index).map_or(TargetMark::NONE, |o| o.mark)
    }

    /// Whether an OST of this index is in the configuration.
    pub fn exists(&self, index: u16) -> bool {
        self.table.lock().get(&index).is_some_and(|o| o.configured)
    }
}
