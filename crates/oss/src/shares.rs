//! This target's shares of what owners may use: the metadata target, which keeps the limits, says how much
//! each of them may have here without asking (decision 0069). Shares are in the table, so that they hold from
//! a start on, whoever is there.
//!
//! A write that comes to the server at once and would take its owner beyond his share is refused (`ESHARE`),
//! and its sender asks the metadata target for more. Data that clients keep was accepted by them and is
//! refused nothing; they are told how much they may keep (`may_keep`), which shrinks as a share is used up.

use model::mutex::{Mutex, MutexGuard};
use model::nodemap::Owner;
use model::planted::{self, Bug};
use model::quota::Enforced;
use model::usage::{QuotaId, QuotaType};
use model::{Errno, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::object::Objects;
use store::usage::UsageLedger;
use store::{Db, StoreError, Txn};
use wire::msg::quotashare::{ShareChange, ShareState};
use world::World;

/// First byte of a share's key; the quota type and the id (4 bytes) follow.
pub const SHARE_TAG: u8 = b'H';
/// In the place of a quota type: a directory with a quota (4 bytes), and as the value the one around it.
const TREE: u8 = 0xfe;
/// In the place of a quota type: the types of which nobody has anything without a share.
const LIMITED: u8 = 0xff;
const SHARE_VERSION: u8 = 1;
/// Clients keep nothing rather than less than this.
const KEEP_MIN_BYTES: u64 = 256 << 10;
/// Objects that are remembered as behind their records; with more, these are looked at before others are
/// written.
const BEHIND_MAX: usize = 1024;
/// How often they are looked at in the background.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// An object that is being written, or whose record does not have all blocks that were: its file has them
/// later.
struct Behind {
    /// No other has it: one that is forgotten and comes back is another.
    serial: u64,
    owner: Owner,
    /// Writes under way.
    open: usize,
    /// No fewer bytes than its blocks were before what is not settled.
    base: u64,
    /// Of all writes that ended.
    written: u64,
    /// Of these, those that its record has for certain: somebody looked after they ended.
    settled: u64,
    /// What its record lacks.
    lacks: u64,
}

impl Behind {
    fn unsettled(&self) -> u64 {
        assert!(self.settled <= self.written, "what its record has was written");
        self.written - self.settled
    }
}

/// A moment at which somebody begins to look at an object that is behind.
#[derive(Clone, Copy)]
struct LooksAt {
    serial: u64,
    written: u64,
}

#[derive(Default)]
struct ShareTable {
    shares: BTreeMap<QuotaId, u64>,
    /// Types of which everybody without a share has none.
    limited: Option<Enforced>,
    /// Bytes of writes that were admitted and are being done.
    under_way: BTreeMap<QuotaId, u64>,
    behind: BTreeMap<ObjectId, Behind>,
    /// The serial number of the next one.
    next_serial: u64,
    /// Sums of what their records lack.
    lacking: BTreeMap<QuotaId, u64>,
}

/// What there is of somebody, who may be a directory around others.
fn sum_of(of: &BTreeMap<QuotaId, u64>, usage: &UsageLedger, id: QuotaId) -> u64 {
    if id.of != QuotaType::Directory {
        return of.get(&id).copied().unwrap_or(0);
    }
    let directories = QuotaId { of: id.of, id: 0 }..=QuotaId { of: id.of, id: u32::MAX };
    usage.with_tree(|tree| {
        let below = of.range(directories).filter(|(inner, _)| tree.chain(inner.id).any(|d| d == id.id));
        below.fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
    })
}

impl ShareTable {
    /// `None`: as much as he likes.
    fn share(&self, id: QuotaId) -> Option<u64> {
        let own = self.shares.get(&id).copied();
        let none = || self.limited.is_some_and(|l| l.has(id.of)).then_some(0);
        if id.is_limited() { own.or_else(none) } else { None }
    }

    /// Bytes, with those that the totals do not have yet.
    fn used(&self, usage: &UsageLedger, id: QuotaId) -> u64 {
        let lacks = sum_of(&self.lacking, usage, id);
        let under_way = sum_of(&self.under_way, usage, id);
        usage.get(id).bytes().saturating_add(under_way).saturating_add(lacks)
    }

    /// What an owner may have more; `None`: as much as he likes.
    fn room(&self, usage: &UsageLedger, owner: Owner) -> Option<u64> {
        let room = |id| self.share(id).map(|share| share.saturating_sub(self.used(usage, id)));
        usage.quota_ids(owner).into_iter().filter_map(room).min()
    }

    /// The record of an object lacks so many bytes from now on. It is remembered while it lacks some, or is
    /// being written.
    fn set_lacks(&mut self, object: ObjectId, lacks: u64) {
        let Some(b) = self.behind.get_mut(&object) else { return };
        assert!(lacks <= b.unsettled(), "a record lacks no more than was written");
        let (was, owner, keep) = (std::mem::replace(&mut b.lacks, lacks), b.owner, b.open > 0 || lacks > 0);
        for id in owner.quota_ids() {
            let sum = self.lacking.entry(id).or_default();
            assert!(*sum >= was, "what is lacking was counted");
            *sum = (*sum - was).saturating_add(lacks);
            if *sum == 0 {
                self.lacking.remove(&id);
            }
        }
        if !keep {
            self.behind.remove(&object);
        }
    }

    /// A write of so many bytes begins. `blocks`: those that the object has now.
    fn begin(
        &mut self,
        object: ObjectId,
        owner: Owner,
        bytes: u64,
        blocks: impl FnOnce() -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        if let Some(b) = self.behind.get_mut(&object) {
            b.open += 1;
        } else {
            let (serial, base) = (self.next_serial, blocks()?.saturating_mul(512));
            self.next_serial += 1;
            let fresh = Behind { serial, owner, open: 1, base, written: 0, settled: 0, lacks: 0 };
            self.behind.insert(object, fresh);
        }
        for id in owner.quota_ids() {
            let n = self.under_way.entry(id).or_default();
            *n = n.saturating_add(bytes);
        }
        Ok(())
    }

    /// It ends; the object's record has so many blocks now, if it is known.
    fn end(&mut self, object: ObjectId, owner: Owner, bytes: u64, blocks: Option<u64>) {
        for id in owner.quota_ids() {
            let n = self.under_way.entry(id).or_default();
            assert!(*n >= bytes, "what ends was under way");
            *n -= bytes;
            if *n == 0 {
                self.under_way.remove(&id);
            }
        }
        let b = self.behind.get_mut(&object).expect("an object that is written is remembered");
        assert!(b.open > 0, "each write ends once");
        b.open -= 1;
        b.written = b.written.saturating_add(bytes);
        let has = blocks.map_or(b.base, |n| n.saturating_mul(512));
        let lacks = b.base.saturating_add(b.unsettled()).saturating_sub(has).min(b.unsettled());
        self.set_lacks(object, lacks);
    }

    fn looks_at(&self, object: ObjectId) -> Option<LooksAt> {
        self.behind.get(&object).map(|b| LooksAt { serial: b.serial, written: b.written })
    }

    /// The record of an object has all that was written up to a moment. Several may look at once: what
    /// another one found who began later is not taken back, nor counted twice.
    fn settled(&mut self, object: ObjectId, at: LooksAt) {
        let Some(b) = self.behind.get_mut(&object) else { return };
        if b.serial != at.serial || at.written <= b.settled {
            return;
        }
        b.base = b.base.saturating_add(at.written - b.settled);
        let lacks = b.lacks.min(b.written - at.written);
        self.set_lacks(object, lacks);
        if let Some(b) = self.behind.get_mut(&object) {
            b.settled = at.written;
            assert!(b.lacks <= b.unsettled(), "a record lacks no more than was written");
        }
    }

    fn is_active(&self) -> bool {
        !self.shares.is_empty() || self.limited.is_some_and(|l| l != Enforced::NONE)
    }
}

/// The share of who is given so many bytes: he keeps what he uses. But nobody's share grows by that: a write
/// that ends at this moment is counted twice, in the totals and as one that is under way. (Data that was
/// accepted beyond a share is used beyond it, and nothing more is admitted.)
fn share_to_be(given: u64, used: u64, has: Option<u64>) -> u64 {
    let share = given.max(has.map_or(used, |has| used.min(has)));
    assert!(share >= given, "nobody has less than he is given");
    share
}

/// Whether something of an owner is counted to any of these.
fn concerns(usage: &UsageLedger, owner: Owner, ids: &[QuotaId]) -> bool {
    usage.quota_ids(owner).iter().any(|id| ids.contains(id))
}

/// What is kept of shares.
pub struct Shares {
    table: Mutex<ShareTable>,
    /// Somebody is limited.
    active: AtomicBool,
    /// A task looks at objects that are behind.
    settles: AtomicBool,
}

/// Bytes that are being written for an owner who is limited.
pub struct ShareUse {
    shares: Arc<Shares>,
    object: ObjectId,
    owner: Owner,
    bytes: u64,
    /// Blocks of the object's record afterwards.
    blocks: Option<u64>,
}

impl ShareUse {
    /// The write is done; the object's record has so many blocks now.
    pub fn written(mut self, blocks: u64) {
        self.blocks = Some(blocks);
    }
}

impl Drop for ShareUse {
    fn drop(&mut self) {
        self.shares.lock().end(self.object, self.owner, self.bytes, self.blocks);
    }
}

impl Shares {
    /// As the table has them.
    pub fn load(db: &Db, usage: &UsageLedger) -> Result<Arc<Shares>, StoreError> {
        let (mut t, mut nested) = (ShareTable::default(), Vec::new());
        for (k, v) in db.scan(&[SHARE_TAG], &[SHARE_TAG + 1], usize::MAX)? {
            match decode(&k, &v) {
                Some(Kept::Share(id, share)) => drop(t.shares.insert(id, share)),
                Some(Kept::Limited(types)) => t.limited = Some(types),
                Some(Kept::Nested(id, parent)) => nested.push((id, parent)),
                None => {
                    return Err(StoreError::damaged("share", &format!("key {k:02x?}"), "it does not decode"));
                }
            }
        }
        usage.change_tree(|tree| nested.iter().for_each(|(id, parent)| tree.set(*id, *parent)));
        let active = AtomicBool::new(t.is_active());
        Ok(Arc::new(Shares { table: Mutex::new(t), active, settles: AtomicBool::new(false) }))
    }

    fn lock(&self) -> MutexGuard<'_, ShareTable> {
        self.table.lock()
    }

    /// What somebody may have here without asking; `None`: as much as he likes.
    pub fn of(&self, id: QuotaId) -> Option<u64> {
        self.lock().share(id).filter(|share| *share != u64::MAX)
    }

    /// Whether anybody is limited.
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Admits a write of so many new bytes to an object. `ESHARE`: somebody's share would be exceeded; never
    /// with `refuses` false. `None`: nobody is limited whose it is.
    pub async fn admit(
        self: &Arc<Self>,
        objects: &Arc<Objects>,
        object: ObjectId,
        owner: Owner,
        bytes: u64,
        refuses: bool,
    ) -> Result<Option<ShareUse>, Errno> {
        if !self.is_active() {
            return Ok(None);
        }
        let mut settled = false;
        loop {
            let behind: Vec<ObjectId> = {
                let mut t = self.lock();
                let Some(room) = t.room(objects.usage(), owner) else { return Ok(None) };
                let full = t.behind.len() >= BEHIND_MAX;
                let fits = bytes <= room || !refuses;
                if fits && !full || settled {
                    if !fits {
                        return Err(Errno::ESHARE);
                    }
                    // Not those that it had before this waited.
                    let blocks = || objects.attr(object).map(|(a, _)| a.blocks).map_err(|e| e.errno());
                    t.begin(object, owner, bytes, blocks)?;
                    return Ok(Some(ShareUse { shares: self.clone(), object, owner, bytes, blocks: None }));
                }
                let ids = objects.usage().quota_ids(owner);
                let of_owner = |b: &Behind| concerns(objects.usage(), b.owner, &ids);
                t.behind.iter().filter(|(_, b)| full || of_owner(b)).map(|(id, _)| *id).collect()
            };
            self.settle(objects, behind).await?;
            settled = true;
        }
    }

    /// Looks at what objects have: then the totals say it.
    async fn settle(&self, objects: &Arc<Objects>, behind: Vec<ObjectId>) -> Result<(), Errno> {
        for id in behind {
            // What is written meanwhile is seen when it ends.
            let Some(at) = self.lock().looks_at(id) else { continue };
            match objects.settle_written(id).await {
                Ok(()) | Err(StoreError::Errno(Errno::ESTALE)) => {}
                Err(e) => return Err(e.errno()),
            }
            self.lock().settled(id, at);
        }
        Ok(())
    }

    /// Has objects that are behind looked at in the background, once somebody is limited.
    pub fn settle_behind(self: &Arc<Self>, world: &World, objects: &Arc<Objects>) {
        if self.is_active() && !self.settles.swap(true, Relaxed) {
            let (me, objects) = (self.clone(), Arc::downgrade(objects));
            world.spawn("ost shares", me.keep_settled(world.clone(), objects));
        }
    }

    /// Until the target stops.
    async fn keep_settled(self: Arc<Self>, world: World, objects: Weak<Objects>) {
        loop {
            world.sleep(SETTLE_EVERY).await;
            let Some(objects) = objects.upgrade() else { return };
            let behind: Vec<ObjectId> = self.lock().behind.keys().copied().collect();
            if self.settle(&objects, behind).await.is_err() {
                // Whoever writes hears of it.
                return;
            }
        }
    }

    /// Bytes that a client may keep for an owner, one of so many; `None`: nobody is limited here.
    pub fn may_keep(&self, usage: &UsageLedger, owner: Owner, clients: usize) -> Option<u64> {
        if !self.is_active() {
            return None;
        }
        let Some(room) = self.lock().room(usage, owner) else { return Some(u64::MAX) };
        let part = room / (clients.max(1) as u64).saturating_mul(2);
        assert!(part <= room / 2, "what all clients keep fits, and as much again");
        Some(if part < KEEP_MIN_BYTES { 0 } else { part })
    }

    /// Looks at what these owners use, for a metadata target that is about to move shares.
    pub async fn look(&self, objects: &Arc<Objects>, of: &BTreeSet<QuotaId>) -> Result<(), Errno> {
        let ids: Vec<QuotaId> = of.iter().copied().collect();
        let concerned = |b: &Behind| concerns(objects.usage(), b.owner, &ids);
        let behind = self.lock().behind.iter().filter(|(_, b)| concerned(b)).map(|(id, _)| *id).collect();
        self.settle(objects, behind).await
    }

    /// Changes shares, in memory and in a transaction, and says how each owner stands.
    pub fn change(
        &self,
        usage: &UsageLedger,
        orders: impl Iterator<Item = (QuotaId, ShareChange)>,
        limited: Option<Enforced>,
        txn: &mut Txn,
    ) -> Vec<ShareState> {
        let mut t = self.lock();
        let mut states = Vec::new();
        for (id, change) in orders {
            let used = t.used(usage, id);
            match change {
                ShareChange::Look => {}
                ShareChange::Set(bytes) => {
                    let has = t.shares.get(&id).copied().filter(|_| planted::on(Bug::ShareNotGivenUp));
                    let share = share_to_be(bytes, used, t.share(id)).max(has.unwrap_or(0));
                    t.shares.insert(id, share);
                    if !planted::on(Bug::ShareForgotten) {
                        txn.put(share_key(id), encode(&share.to_le_bytes()));
                    }
                }
                ShareChange::Remove => {
                    t.shares.remove(&id);
                    txn.delete(share_key(id));
                }
            }
            let share = t.share(id);
            states.push(ShareState { used, share });
        }
        if let Some(types) = limited {
            t.limited = Some(types);
            txn.put(vec![SHARE_TAG, LIMITED], encode(&[types.bits()]));
        }
        self.active.store(t.is_active(), Relaxed);
        states
    }
}

/// What stands under a key.
enum Kept {
    Share(QuotaId, u64),
    Limited(Enforced),
    Nested(u32, u32),
}

/// Which directories with a quota lie in which from now on, all of them.
pub fn store_tree(usage: &UsageLedger, new: &[(u32, u32)], txn: &mut Txn) {
    let is_sound = |(id, parent): &(u32, u32)| *id != 0 && *parent != 0 && id != parent;
    let new: BTreeMap<u32, u32> = new.iter().copied().filter(is_sound).collect();
    usage.change_tree(|tree| {
        let old: Vec<(u32, u32)> = tree.iter().collect();
        for (id, _) in old.iter().filter(|(id, _)| !new.contains_key(id)) {
            tree.set(*id, 0);
            txn.delete(tree_key(*id));
        }
        for (id, parent) in new {
            if tree.parent(id) != parent {
                tree.set(id, parent);
                txn.put(tree_key(id), encode(&parent.to_le_bytes()));
            }
        }
    });
}

fn tree_key(id: u32) -> Vec<u8> {
    let mut k = vec![SHARE_TAG, TREE];
    k.extend_from_slice(&id.to_be_bytes());
    k
}

fn share_key(id: QuotaId) -> Vec<u8> {
    let mut k = vec![SHARE_TAG, id.of.number()];
    k.extend_from_slice(&id.id.to_be_bytes());
    k
}

fn encode(value: &[u8]) -> Vec<u8> {
    let mut v = vec![SHARE_VERSION];
    v.extend_from_slice(value);
    v
}

fn decode(k: &[u8], v: &[u8]) -> Option<Kept> {
    let (version, value) = v.split_first()?;
    if *version != SHARE_VERSION {
        return None;
    }
    match k.strip_prefix(&[SHARE_TAG])? {
        [TREE, id @ ..] => {
            let (id, parent) = (id.try_into().ok()?, value.try_into().ok()?);
            let (id, parent) = (u32::from_be_bytes(id), u32::from_le_bytes(parent));
            (id != 0 && id != parent).then_some(Kept::Nested(id, parent))
        }
        [LIMITED] => Some(Kept::Limited(Enforced::from_bits(*value.first()?))),
        [of, id @ ..] => {
            let id = u32::from_be_bytes(id.try_into().ok()?);
            let id = QuotaId { of: QuotaType::from_number(*of)?, id };
            Some(Kept::Share(id, u64::from_le_bytes(value.try_into().ok()?)))
        }
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let id = QuotaId { of: QuotaType::Project, id: 0x0102_0304 };
        let (k, v) = (share_key(id), encode(&77u64.to_le_bytes()));
        assert!(matches!(decode(&k, &v), Some(Kept::Share(i, 77)) if i == id));
        let types = Enforced::parse("up").unwrap();
        let found = decode(&[SHARE_TAG, LIMITED], &encode(&[types.bits()]));
        assert!(matches!(found, Some(Kept::Limited(t)) if t == types));
        assert!(
            decode(&k, &[2, 0]).is_none() && decode(&k, &[]).is_none() && decode(&[SHARE_TAG], &v).is_none()
        );
    }

    #[test]
    fn what_records_lack_counts_until_they_have_it() {
        let owner = Owner::new(7, 8, 0);
        let object = |n| ObjectId { origin: model::Fid::new(7, n, 0), component: 0, stripe: 0 };
        let id = QuotaId { of: QuotaType::User, id: 7 };
        let mut t = ShareTable::default();
        let sums = |t: &ShareTable| {
            let of = |m: &BTreeMap<QuotaId, u64>| m.get(&id).copied().unwrap_or(0);
            (of(&t.under_way), of(&t.lacking), t.behind.len())
        };
        begin(&mut t, object(1), owner, 0, 4096);
        begin(&mut t, object(1), owner, 0, 4096);
        assert_eq!(sums(&t), (8192, 0, 1));
        t.end(object(1), owner, 4096, Some(0));
        assert_eq!(sums(&t), (4096, 4096, 1), "its blocks come later");
        t.end(object(1), owner, 4096, Some(8));
        assert_eq!(sums(&t), (0, 4096, 1), "the second one saw those of the first");
        settle(&mut t, object(1));
        assert_eq!(sums(&t), (0, 0, 0));
        begin(&mut t, object(2), owner, 8, 4096);
        t.end(object(2), owner, 4096, Some(16));
        assert_eq!(sums(&t), (0, 0, 0), "the record has it");
        // Looked at while another write is under way.
        begin(&mut t, object(3), owner, 0, 4096);
        t.end(object(3), owner, 4096, None);
        begin(&mut t, object(3), owner, 0, 8192);
        settle(&mut t, object(3));
        assert_eq!(sums(&t), (8192, 0, 1));
        t.end(object(3), owner, 8192, Some(8));
        assert_eq!(sums(&t), (0, 8192, 1));
    }

    fn begin(t: &mut ShareTable, object: ObjectId, owner: Owner, blocks: u64, bytes: u64) {
        t.begin(object, owner, bytes, || Ok(blocks)).unwrap();
    }

    fn settle(t: &mut ShareTable, object: ObjectId) {
        let at = t.looks_at(object).unwrap();
        t.settled(object, at);
    }

    const OBJECT: ObjectId = ObjectId { origin: model::Fid::NONE, component: 0, stripe: 0 };
    const USER: QuotaId = QuotaId { of: QuotaType::User, id: 7 };

    fn lacking(t: &ShareTable) -> u64 {
        t.lacking.get(&USER).copied().unwrap_or(0)
    }

    /// A write of a page into a new block of `OBJECT`, whose record has so many blocks before and after it.
    fn write_page(t: &mut ShareTable, before: u64, after: u64) {
        let owner = Owner::new(USER.id, 8, 0);
        begin(t, OBJECT, owner, before, 4096);
        t.end(OBJECT, owner, 4096, Some(after));
    }

    #[test]
    fn two_who_look_at_once_take_nothing_twice() {
        let mut t = ShareTable::default();
        write_page(&mut t, 0, 0);
        let (one, two) = (t.looks_at(OBJECT).unwrap(), t.looks_at(OBJECT).unwrap());
        t.settled(OBJECT, one);
        assert_eq!(t.behind.len(), 0, "nothing is lacking, so it is forgotten");
        // The second one answers after more was written.
        write_page(&mut t, 8, 8);
        assert_eq!(lacking(&t), 4096);
        t.settled(OBJECT, two);
        assert_eq!(lacking(&t), 4096, "it was written after both looked");
        settle(&mut t, OBJECT);
        assert_eq!((lacking(&t), t.behind.len()), (0, 0));

        // The same while the object is remembered all the time.
        begin(&mut t, OBJECT, Owner::new(USER.id, 8, 0), 16, 1);
        write_page(&mut t, 16, 16);
        let (one, two) = (t.looks_at(OBJECT).unwrap(), t.looks_at(OBJECT).unwrap());
        t.settled(OBJECT, one);
        write_page(&mut t, 24, 24);
        t.settled(OBJECT, two);
        assert_eq!(lacking(&t), 4096);
    }

    #[test]
    fn a_share_that_is_made_smaller_does_not_grow() {
        assert_eq!(share_to_be(4096, 12288, Some(8192)), 8192, "a write of 4096 seems to be twice there");
        assert_eq!(share_to_be(4096, 6000, Some(8192)), 6000, "he keeps what he uses");
        assert_eq!(share_to_be(16384, 12288, Some(8192)), 16384);
        assert_eq!(share_to_be(4096, 12288, None), 12288, "nobody limited him before");
    }

    #[test]
    fn who_has_no_share_has_nothing_where_his_type_is_limited() {
        let user = |id| QuotaId { of: QuotaType::User, id };
        let mut t = ShareTable::default();
        assert!(!t.is_active() && t.share(user(7)).is_none());
        t.shares.insert(user(7), 10);
        assert!(t.is_active() && t.share(user(7)) == Some(10) && t.share(user(8)).is_none());
        t.limited = Enforced::parse("u");
        assert_eq!((t.share(user(8)), t.share(user(0))), (Some(0), None));
        assert_eq!(t.share(QuotaId { of: QuotaType::Group, id: 8 }), None);
    }
}
