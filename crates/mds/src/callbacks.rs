//! Taking leases back: a change that meets leases of other clients asks for them and waits, each client for
//! as long as it may take and no longer.

use crate::leases::LeaseNeeds;
use crate::settings::seconds;
use crate::shared::Shared;
use crate::stop::Stop;
use ::model::debug::DLMTRACE;
use model::mutex::Mutex;
use model::planted::{self, Bug};
use model::{Errno, Fid};
use rpc::nrs::{Account, Holders};
use rpc::{ClientId, Peers};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::batch::{Batch, jobs_of};
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notify};
use wire::{Op, RequestContext};
use world::{Instant, World, select};

/// A revocation that is not answered is sent again after so long: its connection may have broken.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks whether who waits for a thaw is still there.
const THAW_LOOK: Duration = Duration::from_millis(250);
/// Who goes on telling what it has done may take so many times as long as who says nothing.
const TELLING_MAX: u32 = 10;

/// Since when each lease is waited for. Others may be granted something while the first ones have their time:
/// theirs begins later.
#[derive(Default)]
struct Waits(BTreeMap<(ClientId, Fid), Instant>);

impl Waits {
    /// Whose time is over: who has said nothing for `patience`, or told what it has done for very much
    /// longer.
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

/// Clients that requests wait for, and how many of these wait.
#[derive(Default)]
pub struct Awaited(Mutex<BTreeMap<ClientId, usize>>);

impl Holders for Awaited {
    fn awaited(&self, client: ClientId) -> bool {
        self.0.lock().contains_key(&client)
    }

    /// What was executed elsewhere is of those who did it: of the first, if they are several.
    fn account(&self, op: Op, ctx: &RequestContext, body: &[u8]) -> Account {
        let own = Account::of(ctx);
        let batch = (op == Op::Batch).then(|| wire::decode_message::<Batch>(body).ok()).flatten();
        let Some(m) = batch else { return own };
        let by = m.ops.first().and_then(|o| m.creds.get(usize::from(o.cred)));
        let (uid, gid) = by.map_or((own.uid, own.gid), |c| (c.uid, c.gid));
        let job = jobs_of(ctx, m.ops.len().min(1)).first().copied().unwrap_or_default();
        Account::new(uid, gid, job)
    }
}

/// Those that one request waits for; dropped, it waits for none.
struct Awaits<'a> {
    book: &'a Awaited,
    mine: BTreeSet<ClientId>,
}

impl Awaits<'_> {
    /// These from now on.
    fn set(&mut self, clients: BTreeSet<ClientId>) {
        if self.mine == clients {
            return;
        }
        let mut book = self.book.0.lock();
        clients.difference(&self.mine).for_each(|c| *book.entry(*c).or_default() += 1);
        for c in self.mine.difference(&clients) {
            let n = book.get_mut(c).expect("who is waited for is in the book");
            assert!(*n > 0, "who waits for a client was counted for it");
            *n -= 1;
            if *n == 0 {
                book.remove(c);
            }
        }
        drop(book);
        self.mine = clients;
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        self.set(BTreeSet::new());
    }
}

/// Asks clients for leases that others need.
pub struct Callbacks {
    world: World,
    /// Whom to ask.
    peers: Peers,
    shared: Arc<Shared>,
    stop: Stop,
    awaited: Arc<Awaited>,
}

impl Callbacks {
    pub fn new(world: &World, peers: &Peers, shared: &Arc<Shared>, stop: &Stop) -> Callbacks {
        let (world, peers, shared, stop) = (world.clone(), peers.clone(), shared.clone(), stop.clone());
        Callbacks { world, peers, shared, stop, awaited: Arc::default() }
    }

    /// For whom requests wait.
    pub fn awaited(&self) -> &Arc<Awaited> {
        &self.awaited
    }

    /// Asks other clients for what is to be changed and waits until they gave it back; who does not answer in
    /// time is evicted. `ENOTCONN` when the client that waits departs itself, `ESHUTDOWN` when the target
    /// stops.
    pub async fn await_cancels(&self, by: Option<ClientId>, wanted: &LeaseNeeds) -> Result<(), Errno> {
        let start = self.world.now();
        let mut asked: BTreeSet<(ClientId, Fid, bool)> = BTreeSet::new();
        let mut waits = Waits::default();
        let mut said = start;
        let mut awaits = Awaits { book: &self.awaited, mine: BTreeSet::new() };
        loop {
            let mut changed = Box::pin(self.shared.leases.changed().notified());
            changed.as_mut().enable();
            let held = self.shared.leases.conflicts(by, wanted);
            assert!(held.iter().all(|(c, _)| Some(*c) != by), "a client's own leases are never in its way");
            awaits.set(held.iter().map(|(c, _)| *c).collect());
            if held.is_empty() {
                if planted::on(Bug::GrantWhileRevoking) {
                    self.world.sleep(Duration::from_millis(2)).await;
                }
                return Ok(());
            }
            if by.is_some_and(|c| self.shared.leases.is_leaving(c)) {
                return Err(Errno::ENOTCONN);
            }
            if self.stop.is_begun() {
                return Err(Errno::ESHUTDOWN);
            }
            let now = self.world.now();
            let patience = self.callback_timeout();
            let late = waits.late(&held, &self.shared.leases.told(), now, patience);
            self.give_up_on(&held, late);
            if now.since(said) >= SAY_AGAIN {
                said = now;
                asked.clear();
            }
            self.revoke(held.into_iter().filter(|(c, i)| asked.insert((*c, i.fid, i.look))));
            let rest = SAY_AGAIN.saturating_sub(now.since(said)).max(Duration::from_millis(1));
            let _ = select(changed, self.stop.pause(rest)).await;
        }
    }

    /// Waits while nothing is modified. `ENOTCONN` when the client that waits departs, `ESHUTDOWN` when the
    /// target stops.
    pub async fn await_thaw(&self, by: Option<ClientId>) -> Result<(), Errno> {
        loop {
            let mut changed = Box::pin(self.shared.barrier.changed().notified());
            changed.as_mut().enable();
            if !self.shared.barrier.holds() {
                return Ok(());
            }
            if by.is_some_and(|c| self.shared.leases.is_leaving(c)) {
                return Err(Errno::ENOTCONN);
            }
            if self.stop.is_begun() {
                return Err(Errno::ESHUTDOWN);
            }
            let _ = select(changed, self.stop.pause(THAW_LOOK)).await;
        }
    }

    /// Space is low: owners are to tell what they have done, for which it was promised, and to ask from now
    /// on.
    pub fn shed_owners(&self) {
        self.revoke(self.shared.leases.to_shed(self.world.now(), SAY_AGAIN).into_iter());
    }

    /// Asks clients for these, and waits for nobody.
    pub fn ask_for(&self, wanted: &LeaseNeeds) {
        self.revoke(self.shared.leases.conflicts(None, wanted).into_iter());
    }

    fn revoke(&self, items: impl Iterator<Item = (ClientId, LeaseItem)>) {
        let mut of: BTreeMap<ClientId, Vec<LeaseItem>> = BTreeMap::new();
        for (client, item) in items {
            of.entry(client).or_default().push(item);
        }
        for (client, items) in of {
            let fids = || items.iter().map(|i| i.fid.to_string()).collect::<Vec<_>>().join(" ");
            tracing::debug!(target: DLMTRACE, "asks {client} to give back leases: {}", fids());
            for part in items.chunks(LEASE_ITEMS_MAX) {
                self.peers.notify(client, Notify::Revoke { items: part.to_vec() });
            }
        }
    }

    /// How long a client may take to give back a lease, or to go on telling what it has done under it. By
    /// then one that is cut off has stopped using it.
    fn callback_timeout(&self) -> Duration {
        let wanted = seconds(&self.shared.settings.callback_timeout_s);
        wanted.max(self.peers.lease_life())
    }

    /// Who had its time is evicted. Who has no session (any more) is not there to use what it has.
    fn give_up_on(&self, held: &[(ClientId, LeaseItem)], late: BTreeSet<ClientId>) {
        let clients: BTreeSet<ClientId> = held.iter().map(|(c, _)| *c).collect();
        assert!(late.is_subset(&clients), "only who holds something is late with it");
        for client in clients {
            let there =
                if late.contains(&client) { self.peers.condemn(client) } else { self.peers.has(client) };
            if !there {
                self.shared.leases.client_gone(client, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::msg::lookup::bits;

    #[test]
    fn a_batch_is_of_who_did_its_first_operation() {
        use wire::msg::batch::{BatchOp, set_jobs};
        let (own, first) = (model::Cred::default(), model::Cred::new(500, 50));
        let op = |cred| BatchOp { cred, ..BatchOp::plain(Op::Create as u16, Vec::new()) };
        let m = Batch { ops: vec![op(1), op(0)], owned: true, creds: vec![own, first] };
        let mut ctx = RequestContext { jobid: "mount".into(), ..RequestContext::default() };
        let book = Awaited::default();
        let of = |ctx: &RequestContext, op, body: &[u8]| book.account(op, ctx, body);
        let body = wire::encode_message(&m);
        assert_eq!(of(&ctx, Op::Batch, &body), Account::new(500, 50, "mount"));
        set_jobs(&mut ctx, ["dd.500", "x"]);
        assert_eq!(of(&ctx, Op::Batch, &body), Account::new(500, 50, "dd.500"));
        assert_eq!(of(&ctx, Op::Lookup, &body), Account::new(0, 0, "mount"));
        assert_eq!(of(&ctx, Op::Batch, b"\xff"), Account::new(0, 0, "mount"), "its execution refuses it");
    }

    #[test]
    fn a_client_is_awaited_while_one_request_waits_for_it() {
        let (a, b) = (ClientId([1; 16]), ClientId([2; 16]));
        let book = Awaited::default();
        let there = || book.0.lock().keys().copied().collect::<Vec<_>>();
        let mut one = Awaits { book: &book, mine: BTreeSet::new() };
        let mut two = Awaits { book: &book, mine: BTreeSet::new() };
        one.set([a, b].into());
        two.set([b].into());
        assert_eq!(there(), [a, b]);
        one.set([a].into());
        assert_eq!(there(), [a, b]);
        drop(two);
        assert_eq!(there(), [a]);
        one.set([b].into());
        assert_eq!(there(), [b]);
        drop(one);
        assert!(there().is_empty());
    }

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
