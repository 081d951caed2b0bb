//! What clients may keep of what they were shown: leases on directories' entries and on inodes.
//!
//! Answers grant leases, and never wait for one. A change first runs without being submitted; if other clients
//! hold what it would change it is dropped, they are asked for their leases, and it runs again when they gave
//! them back ([`Mdt::transact`]). What a change touches follows from the keys that it writes, so that no
//! operation can forget to say it.
//!
//! A client may own a directory: hold it exclusively, and inodes in it, change them by itself and tell later (`ops/own.rs`,
//! `ops/batch.rs`). Then even to look at them takes the lease back first, which brings what is not told yet. What an
//! operation looks at follows from the keys that it reads.
//!
//! Order against everything else: leases are granted and looked at under the lock of the core, like the reads
//! and writes that they stand for; cancels need no order. A client's own leases are never in its way: it knows
//! what it changes itself.

use crate::opens::{Open, OpenChange};
use crate::schema::key;
use crate::service::Mdt;
use crate::shared::lock;
use ldlm::{Leases, Mode};
use model::limits::{LEASES_PER_CLIENT_MAX_FILES, OWNER_PENDING_MAX_BYTES};
use model::planted::{self, Bug};
use model::{Errno, Fid};
use rpc::{ClientId, Principal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;
use wire::msg::lookup::{Grant, bits};
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notice, Notify};
use wire::msg::reclaim::OpenRecord;
use world::{Instant, select};

/// A revocation that is not answered is sent again after so long: its connection may have broken.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// Who goes on telling what it has done may take so many times as long as who says nothing.
const TELLING_MAX: u32 = 10;
/// Space that is set aside for what one owner has not told: in the journal and, a little later, in the table.
const OWNER_RESERVE_BYTES: u64 = 2 * OWNER_PENDING_MAX_BYTES;

/// The table, and those who wait for it.
pub struct LeaseState {
    table: Mutex<Leases>,
    /// Told whenever a lease is gone, or a client.
    changed: world::sync::Notify,
    /// Clients that depart: their requests wait for nobody any more.
    leaving: Mutex<BTreeSet<ClientId>>,
    /// When each client told last what it has done under leases of its own.
    told: Mutex<BTreeMap<ClientId, Instant>>,
    /// When owners were asked last to tell what they have done, because space got low.
    shed: Mutex<Option<Instant>>,
}

impl LeaseState {
    /// Sequence numbers grow over restarts, because epochs do.
    pub fn new(epoch: u32) -> LeaseState {
        assert!(epoch < 1 << 24, "sequence numbers have room for 2^24 epochs");
        let table = Leases::new(u64::from(epoch) << 40, LEASES_PER_CLIENT_MAX_FILES);
        LeaseState {
            table: Mutex::new(table),
            changed: world::sync::Notify::new(),
            leaving: Mutex::default(),
            told: Mutex::default(),
            shed: Mutex::default(),
        }
    }

    /// What `client` may be granted of `bits`, to be made good with [`LeaseState::grant`] under the same lock of
    /// the core. `seq` 0 gets a number.
    pub fn offer(&self, client: ClientId, fid: Fid, bits: u8, mode: Mode, seq: &mut u64) -> Option<Grant> {
        let mut t = lock(&self.table);
        let bits = t.grantable(client.0, fid, bits, mode);
        if bits == 0 {
            return None;
        }
        if *seq == 0 {
            *seq = t.next_seq();
        }
        let exclusive = mode == Mode::Exclusive || t.owned(client.0, fid) & bits == bits;
        Some(Grant { bits, seq: *seq, exclusive })
    }

    /// What was offered is the client's.
    pub fn grant(&self, client: ClientId, offers: &[(Fid, Grant)]) {
        let mut t = lock(&self.table);
        for (fid, g) in offers {
            assert!(g.bits != 0 && g.seq != 0, "a grant is of something, and has a number");
            let mode = if g.exclusive { Mode::Exclusive } else { Mode::Shared };
            // What it had alone when it was offered it may have given down since, and somebody else looked: it knows, and
            // does not take over what was asked for before that.
            if g.exclusive && t.fitting(client.0, *fid, g.bits, mode) != g.bits {
                continue;
            }
            t.grant(client.0, *fid, g.bits, mode, g.seq);
        }
    }

    /// What a client had before this target restarted, and used. False if it cannot have it again.
    pub fn reclaim(&self, client: ClientId, item: &LeaseItem) -> bool {
        let mut t = lock(&self.table);
        // A number that was never given out is no lease of a former life.
        let free = item.seq <= t.newest_seq()
            && t.grantable(client.0, item.fid, item.bits, Mode::Exclusive) == item.bits;
        if free && item.bits != 0 {
            t.grant(client.0, item.fid, item.bits, Mode::Exclusive, item.seq);
        }
        free
    }

    /// A client tells what it has done: it is on its way to giving up what it was asked for.
    pub fn tells(&self, client: ClientId, now: Instant) {
        lock(&self.told).insert(client, now);
    }

    /// Whether a client has executed operations that it may not have told.
    pub fn is_owner(&self, client: ClientId) -> bool {
        lock(&self.table).is_owner(client.0)
    }

    /// What a client has to tell of, if it made files that it did not tell of.
    pub fn owned_by(&self, client: [u8; 16]) -> Vec<(Fid, u8)> {
        lock(&self.table).exclusive_of(client)
    }

    /// Whether it matters what `client` looks at: somebody else may have changed it and not told.
    fn others_own(&self, client: Option<ClientId>) -> bool {
        let t = lock(&self.table);
        t.owners() > usize::from(client.is_some_and(|c| t.is_owner(c.0)))
    }

    /// Space that is promised to owners, with one more if `client` is none yet.
    pub fn promised_bytes(&self, client: Option<ClientId>) -> u64 {
        let t = lock(&self.table);
        let new = client.is_some_and(|c| !t.is_owner(c.0));
        (t.owners() + usize::from(new)) as u64 * OWNER_RESERVE_BYTES
    }

    fn conflicts(&self, by: Option<ClientId>, wanted: &Wanted) -> Vec<(ClientId, LeaseItem)> {
        let t = lock(&self.table);
        let of = |(fid, bits, mode): (Fid, u8, Mode)| t.conflicts(by.map(|c| c.0), fid, bits, mode);
        wanted.parts().flat_map(of).map(|(c, i)| (ClientId(c), i)).collect()
    }

    /// Files that are no more.
    pub fn files_gone(&self, gone: impl Iterator<Item = Fid>) {
        let mut t = lock(&self.table);
        gone.for_each(|fid| t.file_gone(fid));
    }

    /// A client's leases are gone. With `leaving` its requests give up waiting for others.
    pub fn client_gone(&self, client: ClientId, leaving: bool) {
        let mut l = lock(&self.leaving);
        if leaving {
            l.insert(client);
        } else {
            l.remove(&client);
        }
        drop(l);
        lock(&self.told).remove(&client);
        {
            let mut t = lock(&self.table);
            t.client_gone(client.0);
            assert_eq!(t.count_of(client.0), 0, "a client that is gone holds nothing");
        }
        self.changed.notify_waiters();
    }

    pub fn total(&self) -> usize {
        lock(&self.table).total()
    }
}

/// Parts of files: bits of each.
pub type Touched = BTreeMap<Fid, u8>;

/// What a transaction changes, or claims for its client alone, and what it looks at.
#[derive(Clone, Default, Debug)]
pub struct Wanted {
    pub change: Touched,
    pub look: Touched,
}

impl Wanted {
    pub fn is_nothing(&self) -> bool {
        self.change.is_empty() && self.look.is_empty()
    }

    /// What is changed need not be looked at too.
    fn parts(&self) -> impl Iterator<Item = (Fid, u8, Mode)> {
        let changed = |fid: &Fid| self.change.get(fid).copied().unwrap_or(0);
        let look = self.look.iter().map(move |(fid, b)| (*fid, b & !changed(fid), Mode::Shared));
        let change = self.change.iter().map(|(fid, b)| (*fid, *b, Mode::Exclusive));
        change.chain(look).filter(|(_, b, _)| *b != 0)
    }
}

/// Since when each lease is waited for. Others may be granted something while the first ones have their time: theirs begins
/// later.
#[derive(Default)]
struct Waits(BTreeMap<(ClientId, Fid), Instant>);

impl Waits {
    /// Whose time is over: who has said nothing for `patience`, or told what it has done for very much longer.
    fn late(
        &mut self,
        held: &[(ClientId, LeaseItem)],
        told: &BTreeMap<ClientId, Instant>,
        now: Instant,
        patience: Duration,
    ) -> BTreeSet<ClientId> {
        self.0.retain(|k, _| held.iter().any(|(c, i)| (*c, i.fid) == *k));
        let mut is_late = |(c, i): &(ClientId, LeaseItem)| {
            let since = *self.0.entry((*c, i.fid)).or_insert(now);
            let heard = told.get(c).copied().unwrap_or(since).max(since);
            now.since(heard) >= patience || now.since(since) >= patience * TELLING_MAX
        };
        let late = held.iter().filter(|h| is_late(h)).map(|(c, _)| *c).collect();
        assert!(self.0.len() <= held.len(), "only what is held is waited for");
        late
    }
}

/// Adds what reading a key shows. Reverse index, replies and the like show nothing that leases cover.
pub fn look_at(looked: &mut Touched, k: &[u8]) {
    let (fid, bit) = match k[0] {
        key::INODE => (key::parse_fid(k), bits::UPDATE),
        // Names are shown by what leads from an inode to them, too.
        key::XATTR | key::DATA | key::BACKPTR => (key::parse_file(k), bits::UPDATE),
        key::DENTRY => (key::parse_file(k), bits::LOOKUP),
        _ => return,
    };
    *looked.entry(fid.expect("keys are well-formed")).or_default() |= bit;
}

/// What the keys of a transaction say that it changes.
pub fn touched<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Touched {
    let mut out = Touched::new();
    for k in keys {
        let (fid, bit) = match k[0] {
            key::INODE => (key::parse_fid(k), bits::UPDATE),
            key::XATTR => (key::parse_xattr(k).map(|x| x.0), bits::UPDATE),
            key::DATA => (key::parse_data(k).map(|d| d.0), bits::UPDATE),
            key::DENTRY => (key::parse_dentry(k).map(|d| d.0), bits::LOOKUP),
            // Nothing that leases cover: no client is shown it.
            key::BACKPTR
            | key::REVERSE
            | key::REPLY
            | key::CLIENT
            | key::ORPHAN
            | key::OUTBOX
            | key::LEASE
            | key::STATE => continue,
            tag => unreachable!("a key of an unknown kind: {tag}"),
        };
        *out.entry(fid.expect("keys are well-formed")).or_default() |= bit;
    }
    out
}

/// Files on which nothing is granted until a change is through. The marks go with it.
pub struct Marks<'a> {
    leases: &'a LeaseState,
    fids: Vec<Fid>,
    waited: bool,
}

impl<'a> Marks<'a> {
    pub fn new(leases: &'a LeaseState) -> Marks<'a> {
        Marks { leases, fids: Vec::new(), waited: false }
    }

    fn set(&mut self, fids: impl Iterator<Item = Fid>) {
        assert!(self.fids.is_empty(), "old marks are taken away first");
        let mut t = lock(&self.leases.table);
        for fid in fids {
            t.begin_revoke(fid);
            self.fids.push(fid);
        }
    }

    /// Under the lock of the core: nobody is granted anything before the change is made or marks again.
    pub fn clear(&mut self) {
        if !self.fids.is_empty() {
            let mut t = lock(&self.leases.table);
            self.fids.drain(..).for_each(|fid| t.end_revoke(fid));
        }
    }

    /// Whether others hold what is to be changed; then it is marked. Nobody may have been offered a lease that is not
    /// granted yet.
    pub fn blocked(&mut self, by: Option<ClientId>, wanted: &Wanted) -> bool {
        let held = self.held(by, wanted);
        self.set(held.iter().copied());
        self.waited |= !held.is_empty();
        !held.is_empty()
    }

    /// Whether others hold what is looked at. Nothing is marked.
    pub fn meets(&self, by: Option<ClientId>, wanted: &Wanted) -> bool {
        !self.held(by, wanted).is_empty()
    }

    fn held(&self, by: Option<ClientId>, wanted: &Wanted) -> BTreeSet<Fid> {
        if planted::on(Bug::RevokeNotSent) || (self.waited && planted::on(Bug::GrantWhileRevoking)) {
            return BTreeSet::new();
        }
        self.leases.conflicts(by, wanted).into_iter().map(|(_, i)| i.fid).collect()
    }
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Mdt {
    /// Asks other clients for what is to be changed and waits until they gave it back; who does not answer in
    /// time is evicted. `ENOTCONN` when the client that waits departs itself, `ESHUTDOWN` when the target stops.
    pub(crate) async fn await_cancels(&self, by: Option<ClientId>, wanted: &Wanted) -> Result<(), Errno> {
        let start = self.world.now();
        let mut asked: BTreeSet<(ClientId, Fid, bool)> = BTreeSet::new();
        let mut waits = Waits::default();
        let mut said = start;
        loop {
            let mut changed = Box::pin(self.shared.leases.changed.notified());
            changed.as_mut().enable();
            let held = self.shared.leases.conflicts(by, wanted);
            assert!(held.iter().all(|(c, _)| Some(*c) != by), "a client's own leases are never in its way");
            if held.is_empty() {
                if planted::on(Bug::GrantWhileRevoking) {
                    self.world.sleep(Duration::from_millis(2)).await;
                }
                return Ok(());
            }
            if by.is_some_and(|c| lock(&self.shared.leases.leaving).contains(&c)) {
                return Err(Errno::ENOTCONN);
            }
            if *self.stopping.borrow() {
                return Err(Errno::ESHUTDOWN);
            }
            let now = self.world.now();
            let patience = self.callback_timeout();
            let late = waits.late(&held, &lock(&self.shared.leases.told), now, patience);
            self.give_up_on(&held, late);
            if now.since(said) >= SAY_AGAIN {
                said = now;
                asked.clear();
            }
            self.revoke(held.into_iter().filter(|(c, i)| asked.insert((*c, i.fid, i.look))));
            let mut stopping = self.stopping.subscribe();
            let stopped = async move { drop(stopping.wait_for(|s| *s).await) };
            let rest = SAY_AGAIN.saturating_sub(now.since(said)).max(Duration::from_millis(1));
            let _ = select(changed, select(stopped, self.world.sleep(rest))).await;
        }
    }

    /// Whether `look` meets what other clients own.
    pub(crate) fn watches(&self, client: Option<ClientId>) -> bool {
        self.shared.leases.others_own(client)
    }

    /// A setting of the file system from which new files' layouts come has changed: waits until no owner goes by the old
    /// one. `ESHUTDOWN` when the target stops.
    pub(crate) async fn defaults_changed(&self) -> Result<(), Errno> {
        let wanted = Wanted { change: Touched::from([(Fid::DEFAULTS, bits::UPDATE)]), look: Touched::new() };
        let mut marks = Marks::new(&self.shared.leases);
        let blocked = {
            let _alone = self.core_write();
            marks.blocked(None, &wanted)
        };
        if blocked { self.await_cancels(None, &wanted).await } else { Ok(()) }
    }

    /// It has changed whose root is root. Waits until nobody who is squashed keeps anything that was shown to root.
    /// `ESHUTDOWN` when the target stops.
    pub(crate) async fn squash_changed(&self) -> Result<(), Errno> {
        let all = self.peers.list().into_iter().map(|p| p.who);
        let squashed = |p: &Principal| self.shared.params.nodemap(p).squashes_root();
        let clients: Vec<ClientId> = all.filter(squashed).map(|p| p.client).collect();
        let mut marks = Marks::new(&self.shared.leases);
        let wanted = {
            let _alone = self.core_write();
            let held: Touched = {
                let t = lock(&self.shared.leases.table);
                clients.iter().flat_map(|c| t.files_of(c.0)).map(|fid| (fid, bits::ALL)).collect()
            };
            let wanted = Wanted { change: held, look: Touched::new() };
            if !marks.blocked(None, &wanted) {
                return Ok(());
            }
            wanted
        };
        self.await_cancels(None, &wanted).await
    }

    /// Space is low: owners are to tell what they have done, for which it was promised, and to ask from now on.
    pub(crate) fn shed_owners(&self) {
        let now = self.world.now();
        {
            let mut last = lock(&self.shared.leases.shed);
            if last.is_some_and(|l| now.since(l) < SAY_AGAIN) {
                return;
            }
            *last = Some(now);
        }
        let all = lock(&self.shared.leases.table).exclusive();
        self.revoke(all.into_iter().map(|(c, i)| (ClientId(c), i)));
    }

    fn revoke(&self, items: impl Iterator<Item = (ClientId, LeaseItem)>) {
        let mut of: BTreeMap<ClientId, Vec<LeaseItem>> = BTreeMap::new();
        for (client, item) in items {
            of.entry(client).or_default().push(item);
        }
        for (client, items) in of {
            for part in items.chunks(LEASE_ITEMS_MAX) {
                self.peers.notify(client, Notify::Revoke { items: part.to_vec() });
            }
        }
    }

    /// How long a client may take to give back a lease, or to go on telling what it has done under it. By then one that is
    /// cut off has stopped using it.
    fn callback_timeout(&self) -> Duration {
        let wanted = Duration::from_secs(self.shared.params.number("lock_callback_timeout"));
        wanted.max(self.peers.lease_life())
    }

    /// Who had its time is evicted. Who has no session (any more) is not there to use what it has.
    fn give_up_on(&self, held: &[(ClientId, LeaseItem)], late: BTreeSet<ClientId>) {
        let clients: BTreeSet<ClientId> = held.iter().map(|(c, _)| *c).collect();
        for client in clients {
            let there =
                if late.contains(&client) { self.peers.condemn(client) } else { self.peers.has(client) };
            if !there {
                self.shared.leases.client_gone(client, false);
            }
        }
    }

    /// What a client says unasked.
    pub(crate) fn told(&self, client: ClientId, notice: Notice) {
        match notice {
            Notice::Cancelled { items } => self.cancelled(client, &items),
            Notice::Opened { opens } => self.opened(client, opens),
            // For an OST.
            Notice::Released { .. } | Notice::Kept { .. } => {}
            // The session layer's own.
            Notice::Proof { .. } | Notice::ClientEvicted { .. } => {}
        }
    }

    /// A client has files open under leases that it is about to give back. Permission was checked when it opened them.
    /// Files that are not there are ignored: their removal did not wait for this client, so it was its own.
    fn opened(&self, client: ClientId, opens: Vec<OpenRecord>) {
        let mut core = self.core_write();
        if !core.clients.contains_key(&client) {
            return;
        }
        for o in opens {
            // If that cannot be read: better one open too many than a file lost.
            let gone = matches!(self.db.get(&key::inode(o.fid)), Ok(None));
            if !gone && core.opens.check_room(client).is_ok() {
                let open = Open { fid: o.fid, flags: o.flags };
                core.opens.apply(OpenChange::Add { client, handle: o.handle, open });
            }
        }
    }

    /// A client gave leases back.
    fn cancelled(&self, client: ClientId, items: &[LeaseItem]) {
        let mut t = lock(&self.shared.leases.table);
        let mut some = false;
        for i in items {
            some |= t.cancel(client.0, i);
        }
        drop(t);
        if some {
            self.shared.leases.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_telling_has_more_time_but_not_for_ever() {
        let (fid, patience) = (Fid::new(9, 1, 0), Duration::from_secs(20));
        let at = |s: u64| Instant(s * 1_000_000_000);
        let client = |n: u8| ClientId([n; 16]);
        let item = |n| (client(n), LeaseItem { fid, bits: bits::UPDATE, seq: 1, look: false });
        let held = [item(1), item(2)];
        let mut waits = Waits::default();
        let mut late = |s: u64, told: u64| {
            let told = BTreeMap::from([(client(2), at(told))]);
            waits.late(&held, &told, at(s), patience).into_iter().collect::<Vec<_>>()
        };
        assert!(late(100, 90).is_empty());
        assert!(late(119, 90).is_empty(), "what it told before it was asked does not count");
        assert_eq!(late(120, 110), [client(1)], "the other one is at it");
        assert_eq!(late(130, 110), [client(1), client(2)], "not any more");
        assert_eq!(late(150, 149), [client(1)]);
        assert_eq!(late(300, 299), [client(1), client(2)], "ten times as long");
    }
}
